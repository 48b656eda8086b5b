package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Settings are what decides whether a database's commit survives the machine's crash, as it says itself.
type Settings struct {
	Version           string `json:"version"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronousCommit"`
	FullPageWrites    string `json:"fullPageWrites"`
}

func readSettings(ctx context.Context, conn *pgx.Conn) (s Settings, err error) {
	for name, into := range map[string]*string{
		"server_version": &s.Version, "fsync": &s.Fsync, "synchronous_commit": &s.SynchronousCommit, "full_page_writes": &s.FullPageWrites,
	} {
		if err := conn.QueryRow(ctx, "SHOW "+name).Scan(into); err != nil {
			return s, fmt.Errorf("read setting %s: %w", name, err)
		}
	}
	return s, nil
}

// rows is what the database says of the run.
type rows struct {
	Delivered, Ended, Left int64 // Ended: in any other way than delivered
	LastDeliveredAt        *time.Time
}

// leftSQL reads the tables and not the view, because it is asked again and again while the clock runs: the view would go
// through all that was delivered already. A job without a delivery is left work as well.
const leftSQL = `
SELECT (SELECT count(*) FROM postrider_internal.deliveries d JOIN postrider_internal.topics t ON t.id = d.topic_id WHERE t.name = ANY ($1))
     + (SELECT count(*) FROM postrider_internal.river_job j
         WHERE j.kind = 'deliver' AND (j.args ->> 's')::bigint IN
               (SELECT s.id FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id WHERE t.name = ANY ($1))
           AND NOT EXISTS (SELECT FROM postrider_internal.deliveries d WHERE d.id = (j.args ->> 'd')::bigint))`

// left is how many deliveries, and jobs of no delivery, there still are.
func (r *rig) left(ctx context.Context) (n int64, err error) {
	if err := r.conn.QueryRow(ctx, leftSQL, r.counted).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what is left: %w", err)
	}
	return n, nil
}

const countSQL = `
SELECT count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE state NOT IN ('delivered', 'pending')), 0,
       max(finished_at) FILTER (WHERE state = 'delivered')
  FROM postrider.deliveries WHERE topic = ANY ($1)`

func (r *rig) count(ctx context.Context) (counted rows, err error) {
	result, err := r.conn.Query(ctx, countSQL, r.counted)
	if err != nil {
		return counted, fmt.Errorf("count deliveries: %w", err)
	}
	if counted, err = pgx.CollectExactlyOneRow(result, pgx.RowToStructByPos[rows]); err != nil {
		return counted, fmt.Errorf("count deliveries: %w", err)
	}
	counted.Left, err = r.left(ctx)
	return counted, err
}
