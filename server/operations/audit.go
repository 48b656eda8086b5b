package operations

import (
	"context"

	"postrider/internal/query"
	"postrider/server/api"
)

type listAuditRequest struct {
	api.PageParams
	query.AuditFilter
}

// ListAudit lists the audit.
//
// Lists changes of the configuration, actions on deliveries and dead letters, shown secrets and sign-ins, the newest
// first. docs/operate/access.md lists the actions.
//
// A page may have fewer rows than `limit`, because it searches 20,000 rows. Follow nextLink until it is null.
func (m *Handlers) ListAudit(ctx context.Context, r *listAuditRequest) (*api.List[query.AuditLine], error) {
	if err := inOrder("from", r.From, "until", r.To); err != nil {
		return nil, err
	}
	list, err := newestFirst(ctx, r, r.AuditFilter, m.Parts.Reader.ReadAudit,
		func(l *query.AuditLine) int64 { return l.AuditID })
	return named(ctx, m, list, err, r.Topic, r.Subscription)
}
