package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Settings decide whether a commit survives a crash of the machine. They are read from the database.
type Settings struct {
	Version           string `json:"version"`
	Fsync             string `json:"fsync"`
	SynchronousCommit string `json:"synchronousCommit"`
	FullPageWrites    string `json:"fullPageWrites"`
}

// String is the settings for a person.
func (s Settings) String() string {
	return fmt.Sprintf("%s, fsync %s, synchronous_commit %s, full_page_writes %s", s.Version, s.Fsync, s.SynchronousCommit,
		s.FullPageWrites)
}

func (s *system) readSettings(ctx context.Context) (r Settings, err error) {
	const query = `SELECT current_setting('server_version'), current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('full_page_writes')`
	if err := s.conn.QueryRow(ctx, query).Scan(&r.Version, &r.Fsync, &r.SynchronousCommit, &r.FullPageWrites); err != nil {
		return r, fmt.Errorf("read the database's settings: %w", err)
	}
	return r, nil
}

// deliveries are those of the measured topics, by their end.
type deliveries struct {
	delivered, deadLettered, otherwise, left int64
	lastEndedAt                              *time.Time // delivered or dead-lettered
}

func (s *system) countDeliveries(ctx context.Context) (d deliveries, err error) {
	const query = `
SELECT count(*) FILTER (WHERE state = 'delivered'), count(*) FILTER (WHERE state = 'dead_lettered'),
       count(*) FILTER (WHERE state NOT IN ('delivered', 'dead_lettered', 'pending')),
       max(finished_at) FILTER (WHERE state IN ('delivered', 'dead_lettered'))
  FROM postrider.deliveries WHERE topic = ANY ($1)`
	if err := s.conn.QueryRow(ctx, query, s.topics).
		Scan(&d.delivered, &d.deadLettered, &d.otherwise, &d.lastEndedAt); err != nil {
		return d, fmt.Errorf("count deliveries: %w", err)
	}
	d.left, err = s.pending(ctx, s.topics)
	return d, err
}

// pending is how many deliveries of the topics are pending. The view would read all deliveries that have ended. The
// statement is planned for the ids of the event subscriptions: else PostgreSQL reads the backlog of another.
func (s *system) pending(ctx context.Context, topics []string) (n int64, err error) {
	const query = "SELECT count(*) FROM postrider_internal.deliveries WHERE subscription_id = ANY ($1)"
	ids, err := s.subscriptionIDs(ctx, topics)
	if err == nil {
		err = s.conn.QueryRow(ctx, query, pgx.QueryExecModeCacheDescribe, ids).Scan(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("count pending deliveries: %w", err)
	}
	return n, nil
}

func (s *system) subscriptionIDs(ctx context.Context, topics []string) ([]int64, error) {
	rows, _ := s.conn.Query(ctx, `SELECT s.id FROM postrider_internal.event_subscriptions s
		JOIN postrider_internal.topics t ON t.id = s.topic_id WHERE t.name = ANY ($1)`, topics)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// written is how many bytes the server has written to its write-ahead log, and the size of our tables and indexes.
type written struct{ wal, tables int64 }

func (s *system) countWritten(ctx context.Context) (w written, err error) {
	const query = `
SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
       (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
         WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind IN ('r', 'm'))`
	if err := s.conn.QueryRow(ctx, query).Scan(&w.wal, &w.tables); err != nil {
		return w, fmt.Errorf("read the size of the database: %w", err)
	}
	return w, nil
}

// settle vacuums and writes everything out, so that this does not disturb the next measurement.
func (s *system) settle(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, "VACUUM (ANALYZE)"); err != nil {
		return fmt.Errorf("vacuum the database: %w", err)
	}
	return s.checkpoint(ctx)
}

// checkpoint does nothing if the user of the database may not do it.
func (s *system) checkpoint(ctx context.Context) error {
	_, err := s.conn.Exec(ctx, "CHECKPOINT")
	var rejected *pgconn.PgError
	switch {
	case errors.As(err, &rejected) && rejected.Code == "42501": // insufficient_privilege
		return nil
	case err != nil:
		return fmt.Errorf("checkpoint: %w", err)
	}
	s.checkpoints++
	return nil
}

// schedule replaces the hold of each delivery of a paused topic by a job that is due at that time, as if it had failed
// and waited for its retry: a million real failures would take minutes.
func (s *system) schedule(ctx context.Context, topic string, due time.Time) error {
	const statement = `
WITH jobs AS (
    INSERT INTO postrider_internal.river_job (state, args, kind, queue, priority, max_attempts, scheduled_at)
    SELECT 'scheduled', jsonb_build_object('d', id, 's', subscription_id, 'n', 1), 'deliver', 'deliveries', 1, 1000, $2
      FROM postrider_internal.deliveries WHERE subscription_id = ANY ($1) AND hold = 'paused'
 RETURNING id, (args ->> 'd')::bigint AS delivery_id
)
UPDATE postrider_internal.deliveries d SET hold = NULL, job_id = jobs.id, next_attempt_at = $2
FROM jobs WHERE d.id = jobs.delivery_id`
	ids, err := s.subscriptionIDs(ctx, []string{topic})
	if err == nil {
		_, err = s.conn.Exec(ctx, statement, ids, due)
	}
	if err != nil {
		return fmt.Errorf("schedule deliveries: %w", err)
	}
	return nil
}
