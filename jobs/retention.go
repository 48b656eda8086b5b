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

// Retain removes what is older: whole days as partitions, and the rest in small steps. Several nodes may do it at once.
// What one of them leaves unfinished, the next one completes.
//
// There is no lock for it: a transaction that held one would keep the other connection, which detaches, waiting for its
// snapshot.
func (m *Maintenance) Retain(ctx context.Context, r query.Retention) error {
	var today time.Time
	if err := m.db.QueryRow(ctx, "SELECT (now() AT TIME ZONE 'UTC')::date").Scan(&today); err != nil {
		return fmt.Errorf("read the database's date: %w", err)
	}
	return errors.Join( // the days last: they may have to wait
		m.trim(ctx, sqlFile("trimbatches.sql"), today, r.DeliveredDays),
		m.trim(ctx, removal("dead_letters", "dead_lettered_at < $1 AND export_state IS DISTINCT FROM 'pending' "+
			"ORDER BY dead_lettered_at, id"), today, r.DeadLettersDays),
		m.trim(ctx, removal("rollups", "minute < $1 ORDER BY minute"), today, r.CountsDays),
		m.trim(ctx, sqlFile("trimsums.sql"), today, r.CountsDays),
		m.trim(ctx, removal("audit", "at < $1 ORDER BY at, id"), today, r.AuditDays),
		m.trim(ctx, removal("api_keys", "least(revoked_at, expires_at) < $1 ORDER BY id"), today, r.KeysDays),
		m.dropDays(ctx, "delivery_attempts", today, r.AttemptsDays),
		m.dropDays(ctx, "delivery_history", today, r.DeliveredDays),
		m.dropDays(ctx, "events", today, r.DeliveredDays),
	)
}

// trimStep keeps a transaction below a tenth of a second.
const trimStep = 1000

// trim runs a statement that deletes rows that ended before some days ago.
func (m *Maintenance) trim(ctx context.Context, statement string, today time.Time, days int) error {
	if days == 0 {
		return nil
	}
	if err := m.db.DeleteInSteps(ctx, statement, trimStep, today.AddDate(0, 0, -days)); err != nil {
		return fmt.Errorf("remove expired rows: %w", err)
	}
	return nil
}

// dayTable is the partition of a day.
type dayTable struct {
	Name     string
	Day      time.Time
	Attached bool
	Pending  bool // detaching has begun: statements do not see it any more
}

var daysStatement = sqlFile("days.sql")

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
	rows, err := m.db.Query(ctx, daysStatement, parent, before)
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

// dropDay detaches a partition and drops it. Detaching blocks no other transaction of the table: it waits until the
// transactions that began before it have ended. A delivery of that day's events that one of them created is seen
// afterwards, and the partition is attached again.
func (m *Maintenance) dropDay(ctx context.Context, parent string, d dayTable) error {
	pending, err := m.hasPending(ctx, parent, d.Day)
	switch {
	case err != nil:
		return err
	case pending && d.Attached && !d.Pending:
		return nil
	case d.Attached:
		if writer, err := m.hasWriter(ctx, d); err != nil || writer {
			return err
		}
		m.fail.Reach(PointDetach)
		if err := m.detach(ctx, parent, d); err != nil {
			return err
		}
		if pending, err = m.hasPending(ctx, parent, d.Day); err != nil {
			return err
		}
	}
	day := d.Day.Format(time.DateOnly)
	if pending {
		m.log.Warn("partition attached again, because events of that day are pending", "table", parent, "day", day)
		_, err := m.db.Exec(ctx, "SELECT postrider_internal.attach_partition($1, $2)", parent, d.Day)
		return err
	}
	m.fail.Reach(PointDrop)
	if _, err := m.db.Exec(ctx, "DROP TABLE IF EXISTS "+internal(d.Name)); err != nil {
		return err
	}
	m.log.Info("expired partition dropped", "table", parent, "day", day)
	return nil
}

// hasWriter reports whether a transaction is open that may have written to the partition of a day.
func (m *Maintenance) hasWriter(ctx context.Context, d dayTable) (open bool, err error) {
	const call = "SELECT postrider_internal.has_writer($1, $2)"
	if err := m.db.QueryRow(ctx, call, d.Name, d.Day).Scan(&open); err != nil {
		return false, fmt.Errorf("look for open transactions: %w", err)
	}
	return open, nil
}

// hasPending reports whether events of a day are still to be delivered.
func (m *Maintenance) hasPending(ctx context.Context, parent string, day time.Time) (pending bool, err error) {
	if parent != "events" {
		return false, nil
	}
	const query = `SELECT EXISTS (SELECT FROM postrider_internal.sql_publishes WHERE event_day = $1)
		OR EXISTS (SELECT FROM postrider_internal.routes WHERE event_day = $1)
		OR EXISTS (SELECT FROM postrider_internal.deliveries WHERE event_day = $1)`
	if err := m.db.QueryRow(ctx, query, day).Scan(&pending); err != nil {
		return false, fmt.Errorf("look for unfinished deliveries: %w", err)
	}
	return pending, nil
}

// detachPatience is how long detaching waits for old transactions; the next attempt continues from there.
const detachPatience = "2s"

// detach cannot be an SQL function: it must not be in a transaction.
func (m *Maintenance) detach(ctx context.Context, parent string, d dayTable) error {
	statement := fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s CONCURRENTLY", internal(parent), internal(d.Name))
	if d.Pending {
		statement = fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s FINALIZE", internal(parent), internal(d.Name))
	}
	return m.db.WithConn(ctx, func(conn *pgxpool.Conn) error {
		if !m.db.ThroughPgBouncer { // it keeps no session; the context ends the wait
			if _, err := conn.Exec(ctx, "SET lock_timeout = '"+detachPatience+"'"); err != nil {
				return err
			}
			defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), "RESET lock_timeout") }()
		}
		_, err := conn.Exec(ctx, statement)
		return err
	})
}

func internal(table string) string {
	return pgx.Identifier{"postrider_internal", table}.Sanitize()
}
