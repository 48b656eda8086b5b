package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditFilter selects rows of the audit; "" or nil = all.
type AuditFilter struct {
	Actor, Action, Topic, Subscription string
	// From and To bound the time: From is included, To is not.
	From, To *time.Time
}

// AuditLine is one row of the audit.
type AuditLine struct {
	AuditID             int64
	At                  time.Time
	Actor               string
	Address             *string
	Action              string
	Topic, Subscription *string
	Details             string
	Changes             *string // nil if no configuration changed
}

// AuditPage is a page of the audit.
type AuditPage = SearchedPage[AuditLine, int64]

var auditList = list[int64]{sqlFile("audit.sql"), sqlFile("audit_end.sql"), pgx.RowTo[int64]}

// ReadAudit reads a page of the audit, the newest row first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadAudit(ctx context.Context, f AuditFilter, t Turn[int64]) (AuditPage, error) {
	return read(ctx, r, "the audit", func(tx pgx.Tx) (AuditPage, error) { return readAudit(ctx, tx, f, t) })
}

func readAudit(ctx context.Context, tx pgx.Tx, f AuditFilter, t Turn[int64]) (AuditPage, error) {
	return readPage[AuditLine](ctx, tx, &auditList, t, f != AuditFilter{}, pgx.NamedArgs{
		"actor": given(f.Actor), "action": given(f.Action), "topic": given(f.Topic),
		"subscription": given(f.Subscription), "from": f.From, "to": f.To,
	})
}
