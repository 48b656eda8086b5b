package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/postgres"
	"postrider/query"
)

// Retain removes what is older, whole days as partitions and the rest in small steps. Several nodes may be at it; what
// one of them left half done is done with by the next.
//
// They have no lock for it: a transaction that held one would keep the other connection, which detaches, waiting for
// its snapshot.
func (m *Maintenance) Retain(ctx context.Context, r query.Retention) error {
	var today time.Time
	if err := m.db.QueryRow(ctx, "SELECT (now() AT TIME ZONE 'UTC')::date").Scan(&today); err != nil {
		return fmt.Errorf("read the database's date: %w", err)
	}
	return errors.Join( // the days last: they may have to wait
		m.trim(ctx, "finished batches", trimBatches, today, r.DeliveredDays),
		m.trim(ctx, "dead letters", trimDeadLetters, today, r.DeadLettersDays),
		m.trim(ctx, "counts", trimCounts, today, r.CountsDays),
		m.trim(ctx, "sums of counts", trimSums, today, r.CountsDays),
		m.trim(ctx, "the audit", trimAudit, today, r.AuditDays),
		m.trim(ctx, "API keys that work no more", trimKeys, today, r.KeysDays),
		m.dropDays(ctx, "delivery_attempts", today, r.AttemptsDays),
		m.dropDays(ctx, "delivery_history", today, r.DeliveredDays),
		m.dropDays(ctx, "events", today, r.DeliveredDays),
	)
}

// dayTable is the partition of a day. It may have been detached, or may be about to be, when a node died.
type dayTable struct {
	Name     string
	Day      time.Time
	Attached bool
	Pending  bool // detaching has begun: statements do not see it any more
}

const dayTables = `
SELECT c.relname::text AS name, to_date(right(c.relname, 8), 'YYYYMMDD') AS day, i.inhrelid IS NOT NULL AS attached,
       coalesce(i.inhdetachpending, false) AS pending
  FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
 WHERE c.relnamespace = 'postrider_internal'::regnamespace AND c.relkind = 'r'
   AND c.relname ~ ('^' || $1 || '_[0-9]{8}$') AND to_date(right(c.relname, 8), 'YYYYMMDD') < $2
 ORDER BY 4 DESC, 2`

// dropDays removes the partitions that are too old.
func (m *Maintenance) dropDays(ctx context.Context, parent string, today time.Time, days int) error {
	if days == 0 {
		return nil
	}
	old, err := m.daysBefore(ctx, parent, today.AddDate(0, 0, -days))
	if err != nil {
		return err
	}
	for _, d := range old {
		err := m.dropDay(ctx, parent, d)
		if err == nil {
			continue
		}
		if postgres.SQLState(err) == detachPending {
			return nil
		}
		left, again := m.daysBefore(ctx, parent, today.AddDate(0, 0, -days))
		if again == nil && postgres.SQLState(err) != lockNotAvailable && !slices.Contains(left, d) {
			continue // another node is at it
		}
		return fmt.Errorf("remove %s of %s: %w", parent, d.Day.Format(time.DateOnly), err)
	}
	return nil
}

// lockNotAvailable is PostgreSQL's code of a lock timeout.
const lockNotAvailable = "55P03"

// detachPending is PostgreSQL's code where another node is detaching a partition of the same table: there is one at a
// time.
const detachPending = "55000"

func (m *Maintenance) daysBefore(ctx context.Context, parent string, before time.Time) ([]dayTable, error) {
	rows, err := m.db.Query(ctx, dayTables, parent, before)
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", parent, err)
	}
	days, err := pgx.CollectRows(rows, pgx.RowToStructByName[dayTable])
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", parent, err)
	}
	return days, nil
}

// Failpoints of dropping a partition: before it is detached, and between that and its removal.
const (
	PointDetach = "partition.detach"
	PointDrop   = "partition.drop"
)

// dropDay detaches a partition and drops it. Detaching stops nobody: it waits, without keeping others from the table,
// until the transactions that began before it have ended. So whoever made a delivery of that day's events meanwhile is
// seen afterwards, and the day is given back.
func (m *Maintenance) dropDay(ctx context.Context, parent string, d dayTable) error {
	owed, err := m.owes(ctx, parent, d.Day)
	switch {
	case err != nil:
		return err
	case owed && d.Attached && !d.Pending:
		return nil
	case d.Attached:
		if written, err := m.written(ctx, d); err != nil || written {
			return err
		}
		m.fail.Reach(PointDetach)
		if err := m.detach(ctx, parent, d); err != nil {
			return err
		}
		if owed, err = m.owes(ctx, parent, d.Day); err != nil {
			return err
		}
	}
	if owed {
		return m.attachAgain(ctx, parent, d)
	}
	m.fail.Reach(PointDrop)
	if _, err := m.db.Exec(ctx, "DROP TABLE IF EXISTS "+internal(d.Name)); err != nil {
		return err
	}
	m.log.Info("a day was removed, its time was over", "table", parent, "day", d.Day.Format(time.DateOnly))
	return nil
}

// written reports whether a transaction is open that may have written to a day: it began before the day's end. What it
// published is owed once it commits, and nobody can see that yet. Later ones have locks on all days for other reasons.
// Whose beginning may not be seen counts as old.
func (m *Maintenance) written(ctx context.Context, d dayTable) (open bool, err error) {
	const query = `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'relation' AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND l.relation = to_regclass($1) AND l.mode = 'RowExclusiveLock'
		      AND ((a.xact_start AT TIME ZONE 'UTC')::date <= $2::date) IS NOT FALSE)`
	if err := m.db.QueryRow(ctx, query, internal(d.Name), d.Day).Scan(&open); err != nil {
		return false, fmt.Errorf("look for open transactions: %w", err)
	}
	return open, nil
}

// owes reports whether events of a day are still to be delivered.
func (m *Maintenance) owes(ctx context.Context, parent string, day time.Time) (owed bool, err error) {
	if parent != "events" {
		return false, nil
	}
	const query = `SELECT EXISTS (SELECT FROM postrider_internal.sql_publishes WHERE event_day = $1)
		    OR EXISTS (SELECT FROM postrider_internal.routes WHERE event_day = $1)
		    OR EXISTS (SELECT FROM postrider_internal.deliveries WHERE event_day = $1)`
	if err := m.db.QueryRow(ctx, query, day).Scan(&owed); err != nil {
		return false, fmt.Errorf("look for unfinished deliveries: %w", err)
	}
	return owed, nil
}

// detachPatience is how long old transactions are waited for; the next look goes on from there.
const detachPatience = "2s"

func (m *Maintenance) detach(ctx context.Context, parent string, d dayTable) error {
	statement := fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s CONCURRENTLY", internal(parent), internal(d.Name))
	if d.Pending {
		statement = fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s FINALIZE", internal(parent), internal(d.Name))
	}
	return m.db.WithConn(ctx, func(conn *pgxpool.Conn) error {
		if !m.db.ThroughPgBouncer { // there no session stays ours, and the context's end is all there is
			if _, err := conn.Exec(ctx, "SET lock_timeout = '"+detachPatience+"'"); err != nil {
				return err
			}
			defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), "RESET lock_timeout") }()
		}
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

func (m *Maintenance) attachAgain(ctx context.Context, parent string, d dayTable) error {
	m.log.Warn("a day was about to be removed while its events were owed again; it stays", "day",
		d.Day.Format(time.DateOnly))
	_, err := m.db.Exec(ctx, fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')",
		internal(parent), internal(d.Name), d.Day.Format(time.DateOnly), d.Day.AddDate(0, 0, 1).Format(time.DateOnly)))
	return err
}

func internal(table string) string {
	return pgx.Identifier{"postrider_internal", table}.Sanitize()
}

// Each removes up to $2 rows that ended before $1.
const (
	trimBatches = `
WITH old AS MATERIALIZED (
    SELECT id FROM postrider_internal.batches WHERE finished_at < $1 ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
), members AS (
    DELETE FROM postrider_internal.batch_members WHERE batch_id = ANY (ARRAY (SELECT id FROM old))
)
DELETE FROM postrider_internal.batches WHERE id = ANY (ARRAY (SELECT id FROM old))`

	trimDeadLetters = `
DELETE FROM postrider_internal.dead_letters WHERE id = ANY (ARRAY (
    SELECT id FROM postrider_internal.dead_letters WHERE dead_lettered_at < $1
        AND export_state IS DISTINCT FROM 'pending' ORDER BY dead_lettered_at, id LIMIT $2 FOR UPDATE SKIP LOCKED))`

	trimCounts = `
DELETE FROM postrider_internal.rollups r USING (
    SELECT minute, topic_id, subscription_id, kind, detail FROM postrider_internal.rollups WHERE minute < $1
    ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED) old
 WHERE (r.minute, r.topic_id, r.subscription_id, r.kind, r.detail) = (old.minute, old.topic_id, old.subscription_id,
     old.kind, old.detail)`

	trimSums = `
DELETE FROM postrider_internal.rollup_sums r USING (
    SELECT span, begins, topic_id, subscription_id, kind, detail
    FROM unnest(ARRAY [1, 15, 60]::smallint[]) AS each_of(each)
     CROSS JOIN LATERAL (SELECT * FROM postrider_internal.rollup_sums WHERE span = each AND begins < $1 ORDER BY begins
         LIMIT $2 FOR UPDATE SKIP LOCKED) few LIMIT $2) old
 WHERE (r.span, r.begins, r.topic_id, r.subscription_id, r.kind, r.detail) = (old.span, old.begins, old.topic_id,
     old.subscription_id, old.kind, old.detail)`

	trimAudit = `
DELETE FROM postrider_internal.audit WHERE id = ANY (ARRAY (
    SELECT id FROM postrider_internal.audit WHERE at < $1 ORDER BY at, id LIMIT $2 FOR UPDATE SKIP LOCKED))`

	trimKeys = `
DELETE FROM postrider_internal.api_keys WHERE id = ANY (ARRAY (
    SELECT id FROM postrider_internal.api_keys WHERE least(revoked_at, expires_at) < $1 ORDER BY id LIMIT $2
    FOR UPDATE SKIP LOCKED))`

	// trimStep keeps a transaction below a tenth of a second.
	trimStep = 1000
)

func (m *Maintenance) trim(ctx context.Context, what, statement string, today time.Time, days int) error {
	if days == 0 {
		return nil
	}
	for removed := int64(trimStep); removed == trimStep; {
		tag, err := m.db.Exec(ctx, statement, today.AddDate(0, 0, -days), trimStep)
		if err != nil {
			return fmt.Errorf("remove old %s: %w", what, err)
		}
		removed = tag.RowsAffected()
	}
	return nil
}
