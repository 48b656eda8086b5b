package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// cleanStep is how many rows one statement of a clean-up deletes at most.
const cleanStep = 10_000

// removal is the statement that deletes rows of a table by a condition, which may end with their order. Its last
// parameter is how many it deletes at most. It leaves locked rows to the next time.
func removal(table, where string) string {
	limit := "$1"
	if strings.Contains(where, limit) {
		limit = "$2"
	}
	return fmt.Sprintf(`DELETE FROM postrider_internal.%[1]s WHERE ctid = ANY (ARRAY (
		SELECT r.ctid FROM postrider_internal.%[1]s r WHERE %[2]s LIMIT %[3]s FOR UPDATE OF r SKIP LOCKED))`,
		table, where, limit)
}

// unused are the rows that nothing needs any more.
var unused = map[string]string{
	// River finalized these jobs itself: their delivery had ended, or had another job, when they were due. All other jobs
	// are deleted by the statement that records their attempt.
	"river_job": "state IN ('completed', 'cancelled', 'discarded') AND finalized_at < now() - interval '1 hour'",
	// Keys of requests and of events that have expired.
	"idempotency_keys": "expires_at <= now() ORDER BY expires_at",
	"event_keys":       "expires_at <= now() ORDER BY expires_at",
	// Locks and probations that no event subscription uses any more: it was deleted, or has another endpoint or policy.
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

// Clean removes rows that nothing needs any more.
func (m *Maintenance) Clean(ctx context.Context) (err error) {
	for table, where := range unused {
		if failed := m.db.DeleteInSteps(ctx, removal(table, where), cleanStep); failed != nil {
			err = errors.Join(err, fmt.Errorf("remove unused rows of %s: %w", table, failed))
		}
	}
	return err
}
