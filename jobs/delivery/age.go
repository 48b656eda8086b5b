package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// agesStatement is moveStatement for the eyes: what a pause takes off the age at the time given ($2), from those that a resume has not
// come to yet. A pause that began later takes nothing off.
const agesStatement = `
SELECT d.id, d.owed_since + CASE WHEN st.stop_time_to_live AND d.id > st.moved_to AND (st.resumed_at IS NULL OR d.owed_since < st.resumed_at)
                                 THEN greatest(least(st.resumed_at, $2) - greatest(d.owed_since, st.paused_since), '0') ELSE '0' END
  FROM postrider_internal.deliveries d
  LEFT JOIN LATERAL (SELECT * FROM postrider_internal.event_subscription_states st WHERE st.subscription_id = d.subscription_id AND st.paused_since IS NOT NULL LIMIT 1) st ON true
 WHERE d.id = ANY ($1)`

const agesTimeout = 5 * time.Second

// OwedSince says since when deliveries count as owed at a time of the database's clock. That is later than what Load read where a pause
// that stops the time to live has begun since, ended or not. Deliveries that have ended are left out.
func (l *Loader) OwedSince(ctx context.Context, deliveries []int64, at time.Time) (map[int64]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, agesTimeout)
	defer cancel()
	owed := make(map[int64]time.Time, len(deliveries))
	rows, err := l.DB.Query(ctx, agesStatement, deliveries, at)
	if err != nil {
		return nil, postgres.Outage("read the age of deliveries", err)
	}
	var id int64
	var since time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &since}, func() error { owed[id] = since; return nil }); err != nil {
		return nil, postgres.Outage("read the age of deliveries", err)
	}
	return owed, nil
}
