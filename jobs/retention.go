package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"postrider/query"
)

// Retain removes expired data: whole days as partitions, and the rest in small steps. Several nodes may do it at once:
// there is no lock, because DETACH would wait for the transaction that holds it.
func (m *Maintenance) Retain(ctx context.Context, r query.Retention) error {
	var today time.Time
	if err := m.db.QueryRow(ctx, "SELECT (now() AT TIME ZONE 'UTC')::date").Scan(&today); err != nil {
		return fmt.Errorf("read the database's date: %w", err)
	}
	return errors.Join( // partitions last: they may have to wait
		m.trim(ctx, sqlFile("trimbatches.sql"), today, r.DeliveredDays),
		m.trim(ctx, removal("dead_letters", "dead_lettered_at < $1 AND export_state IS DISTINCT FROM 'pending' "+
			"ORDER BY dead_lettered_at, id"), today, r.DeadLettersDays),
		m.trim(ctx, removal("rollups", "minute < $1 ORDER BY minute"), today, r.CountsDays),
		m.trim(ctx, removal("rollup_sums", "span IN (1, 15, 60) AND begins < $1"), today, r.CountsDays),
		m.trim(ctx, removal("audit", "at < $1 ORDER BY at, id"), today, r.AuditDays),
		m.trim(ctx, removal("api_keys", "least(revoked_at, expires_at) < $1 ORDER BY id"), today, r.KeysDays),
		m.dropDays(ctx, "delivery_attempts", today, r.AttemptsDays),
		m.dropDays(ctx, "delivery_history", today, r.DeliveredDays),
		m.dropDays(ctx, "events", today, r.DeliveredDays),
	)
}

const (
	// trimStep keeps a transaction below a tenth of a second.
	trimStep = 1000
	// cleanStep is how many rows one statement of Clean deletes at most.
	cleanStep = 10_000
)

// trim runs a statement that deletes rows that ended more than some days ago.
func (m *Maintenance) trim(ctx context.Context, statement string, today time.Time, days int) error {
	if days == 0 {
		return nil
	}
	if err := m.db.DeleteInSteps(ctx, statement, trimStep, today.AddDate(0, 0, -days)); err != nil {
		return fmt.Errorf("remove expired rows: %w", err)
	}
	return nil
}

// removal is a statement that deletes rows of a table by a condition, which may end with an ORDER BY. Its last
// parameter is the maximum number of rows. It skips locked rows.
func removal(table, where string) string {
	limit := "$1"
	if strings.Contains(where, limit) {
		limit = "$2"
	}
	return fmt.Sprintf(`DELETE FROM postrider_internal.%[1]s WHERE ctid = ANY (ARRAY (
		SELECT r.ctid FROM postrider_internal.%[1]s r WHERE %[2]s LIMIT %[3]s FOR UPDATE OF r SKIP LOCKED))`,
		table, where, limit)
}

// unused are the conditions of rows that are not needed any more, by table.
var unused = map[string]string{
	// Jobs that River finalized: their delivery had ended or had another job. The statement that records an attempt
	// deletes all others.
	"river_job":        "state IN ('completed', 'cancelled', 'discarded') AND finalized_at < now() - interval '1 hour'",
	"idempotency_keys": "expires_at <= now() ORDER BY expires_at",
	"event_keys":       "expires_at <= now() ORDER BY expires_at",
	// Locks and probations whose event subscription was deleted, or has another endpoint or policy.
	"locks": `name = 'batching'
		AND NOT EXISTS (SELECT FROM postrider_internal.event_subscriptions s WHERE s.id = r.key)`,
	"probations": `updated_at < now() - interval '1 hour' AND NOT EXISTS (
		SELECT FROM postrider_internal.event_subscriptions s
		  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
		 WHERE s.deleted_at IS NULL
		   AND postrider_internal.probation_key(p.probation_scope, s.endpoint_hash, s.id) = r.probation_key)`,
	// Notices, if SystemTopic has no event subscriptions.
	"notices": "postrider_internal.notices_since() IS NULL",
}

// Clean removes unused rows.
func (m *Maintenance) Clean(ctx context.Context) (err error) {
	for table, where := range unused {
		if failed := m.db.DeleteInSteps(ctx, removal(table, where), cleanStep); failed != nil {
			err = errors.Join(err, fmt.Errorf("remove unused rows of %s: %w", table, failed))
		}
	}
	return err
}
