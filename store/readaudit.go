package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditFilter says which rows of the audit; "" = all.
type AuditFilter struct{ Actor, Action, Topic, Subscription string }

// AuditLine is one row of the audit.
type AuditLine struct {
	AuditID             int64
	At                  time.Time
	Actor               string
	Address             *string
	Action              string
	Topic, Subscription *string
	Details             string
}

const auditList = `SELECT audit_id, at, actor, address, action, topic, subscription, details::text AS details FROM postrider.audit
 WHERE (@cursor::bigint IS NULL OR audit_id %[2]s @cursor) AND (@actor::text IS NULL OR actor = @actor) AND (@action::text IS NULL OR action = @action)
   AND (@topic::text IS NULL OR topic = @topic) AND (@subscription::text IS NULL OR subscription = @subscription)
 ORDER BY audit_id %[1]s LIMIT @limit`

// ReadAudit reads a page of the audit, the newest first. ErrTooSlow, ErrUnavailable.
func (s *Store) ReadAudit(ctx context.Context, f AuditFilter, t Turn[int64]) (page Page[AuditLine], err error) {
	err = s.reading(ctx, "the audit", func(tx pgx.Tx) error {
		page, err = readAudit(ctx, tx, f, t)
		return err
	})
	return page, err
}

func readAudit(ctx context.Context, tx pgx.Tx, f AuditFilter, t Turn[int64]) (Page[AuditLine], error) {
	return pageBy[AuditLine](ctx, tx, auditList, t, pgx.NamedArgs{"actor": given(f.Actor), "action": given(f.Action), "topic": given(f.Topic), "subscription": given(f.Subscription)})
}
