package management

import (
	"context"

	"postrider/query"
	"postrider/server/api"
)

// ListAuditRequest is the request GET /v1/audit.
type ListAuditRequest struct {
	api.PageParams
	query.AuditFilter
}

// ListAudit responds to GET /v1/audit.
func (m *Handlers) ListAudit(ctx context.Context, r *ListAuditRequest) (*api.List[query.AuditLine], error) {
	if err := inOrder("from", r.From, "until", r.To); err != nil {
		return nil, err
	}
	return newestFirst(ctx, "/v1/audit", r, &r.PageParams, r.AuditFilter, m.Parts.Reader.ReadAudit,
		func(l *query.AuditLine) int64 { return l.AuditID }, numberKey)
}
