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
		"server_version": &s.Version, "fsync": &s.Fsync, "synchronous_commit": &s.SynchronousCommit,
		"full_page_writes": &s.FullPageWrites,
	} {
		if err := conn.QueryRow(ctx, "SHOW "+name).Scan(into); err != nil {
			return s, fmt.Errorf("read setting %s: %w", name, err)
		}
	}
	return s, nil
}

// rows is what the database says of the run.
type rows struct {
	Delivered, DeadLettered, Ended, Left int64      // Ended: in any other way
	LastEndedAt                          *time.Time // delivered or dead-lettered
}

// done are those that came to the end that a scenario wants.
func (r rows) done() int64 { return r.Delivered + r.DeadLettered }

// What is left is counted in the tables and not in the view, because it is asked again and again while the clock runs:
// the view would go through all that was delivered already. Event subscriptions are named by their ids, and the
// statement planned for just those: else PostgreSQL goes through a backlog of another to find the few rows of this one.
// A job without a delivery is left work as well; looking for one goes through all jobs, so that is done last.
const (
	idsSQL = `SELECT s.id FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t
		    ON t.id = s.topic_id WHERE t.name = ANY ($1)`
	leftSQL    = `SELECT count(*) FROM postrider_internal.deliveries WHERE subscription_id = ANY ($1)`
	strayedSQL = `SELECT count(*) FROM postrider_internal.river_job j WHERE j.kind = 'deliver'
		    AND (j.args ->> 's')::bigint = ANY ($1)
		AND NOT EXISTS (SELECT FROM postrider_internal.deliveries d WHERE d.id = (j.args ->> 'd')::bigint)`
)

// left is how many deliveries, and jobs of no delivery, there still are of what is measured.
func (r *rig) left(ctx context.Context) (n int64, err error) {
	if n, err = r.leftOf(ctx, leftSQL, r.counted); n == 0 && err == nil {
		n, err = r.leftOf(ctx, strayedSQL, r.counted)
	}
	return n, err
}

func (r *rig) leftOf(ctx context.Context, query string, topics []string) (n int64, err error) {
	found, err := r.conn.Query(ctx, idsSQL, topics)
	if err != nil {
		return 0, fmt.Errorf("find event subscriptions: %w", err)
	}
	ids, err := pgx.CollectRows(found, pgx.RowTo[int64])
	if err == nil {
		// no prepared statement: a plan for these values
		err = r.conn.QueryRow(ctx, query, pgx.QueryExecModeCacheDescribe, ids).Scan(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("count what is left: %w", err)
	}
	return n, nil
}

const countSQL = `
SELECT count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE state = 'dead_lettered'),
       count(*) FILTER (WHERE state NOT IN ('delivered', 'dead_lettered', 'pending')), 0,
       max(finished_at) FILTER (WHERE state IN ('delivered', 'dead_lettered'))
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

// weight is what the database has written: bytes of the write-ahead log since its beginning, of the whole server, and
// the size of our tables with their indexes.
type weight struct{ WAL, Tables int64 }

const weightSQL = `
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n
           ON n.oid = c.relnamespace
         WHERE n.nspname = 'postrider_internal' AND c.relkind IN ('r', 'm'))`

func (r *rig) weigh(ctx context.Context) (w weight, err error) {
	if err := r.conn.QueryRow(ctx, weightSQL).Scan(&w.WAL, &w.Tables); err != nil {
		return w, fmt.Errorf("weigh the database: %w", err)
	}
	return w, nil
}
