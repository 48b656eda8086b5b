package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/jobs/queue"
)

// PartitionsAhead is the number of days after today that have partitions: a week to notice a service that fails to
// create them.
const PartitionsAhead = 7

var partitionedTables = []string{"events", "delivery_history", "delivery_attempts"}

// EnsurePartitions creates the partitions of today and the days ahead, by the database's clock.
func (m *Maintenance) EnsurePartitions(ctx context.Context) error {
	missing, err := missingPartitions(ctx, m.db, m.ahead)
	if err != nil || len(missing) == 0 {
		return err // nearly always; no node waits for another
	}
	return pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
			return fmt.Errorf("create partitions: %w", err)
		}
		if _, err := tx.Exec(ctx, queue.TakeLock, queue.LockPartitions, 0); err != nil {
			return queue.LockError(ctx, m.db, "create partitions", queue.LockPartitions, err)
		}
		missing, err := missingPartitions(ctx, tx, m.ahead)
		if err != nil {
			return err
		}
		for _, p := range missing {
			if _, err := tx.Exec(ctx, "SELECT postrider_internal.create_partition($1, $2)", p.Table, p.Day); err != nil {
				return fmt.Errorf("create the partition of %s for %s: %w", p.Table, p.Day.Format(time.DateOnly), err)
			}
			m.fail.Reach(PointPartition)
		}
		return nil
	})
}

// PointPartition is the failpoint before the commit of new partitions.
const PointPartition = "partition"

type partition struct {
	Table string
	Day   time.Time
}

var missingPartitionsStatement = sqlFile("missingpartitions", "tables", "ahead")

func missingPartitions(ctx context.Context, db postgres.Querier, ahead int) ([]partition, error) {
	rows, _ := db.Query(ctx, missingPartitionsStatement, partitionedTables, ahead) // see CollectRows
	missing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[partition])
	if err != nil {
		return nil, fmt.Errorf("find missing partitions: %w", err)
	}
	return missing, nil
}

type dayTable struct {
	Name     string
	Day      time.Time
	Attached bool
	Pending  bool // its detach has begun: statements do not see it any more
}

var daysStatement = sqlFile("days", "table", "day")

const (
	lockNotAvailable = "55P03" // PostgreSQL's code of a lock timeout
	detachPending    = "55000" // PostgreSQL's code if another partition of the table is being detached
)

// dropDays drops the partitions that are older than some days.
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
			continue // another node drops it
		}
		return fmt.Errorf("drop the partition of %s for %s: %w", parent, d.Day.Format(time.DateOnly), err)
	}
	return nil
}

func (m *Maintenance) daysBefore(ctx context.Context, parent string, before time.Time) ([]dayTable, error) {
	rows, _ := m.db.Query(ctx, daysStatement, parent, before) // CollectRows returns its error
	days, err := pgx.CollectRows(rows, pgx.RowToStructByName[dayTable])
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", parent, err)
	}
	return days, nil
}

// Failpoints of dropping a partition: before its detach, and before its drop.
const (
	PointDetach = "partition.detach"
	PointDrop   = "partition.drop"
)

// dropDay detaches a partition and drops it. The detach blocks no other transaction: it waits until the transactions
// that began before it have ended. If one of them created a delivery of that day's events, the partition is attached
// again.
func (m *Maintenance) dropDay(ctx context.Context, parent string, d dayTable) error {
	pending, err := m.hasPending(ctx, parent, d.Day)
	switch {
	case err != nil:
		return err
	case pending && d.Attached && !d.Pending:
		return nil
	case d.Attached:
		const hasWriter = "SELECT postrider_internal.has_writer($1, $2)"
		if writer, err := m.check(ctx, hasWriter, d.Name, d.Day); err != nil || writer {
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

// hasPending reports whether events of a day have pending deliveries.
func (m *Maintenance) hasPending(ctx context.Context, parent string, day time.Time) (pending bool, err error) {
	if parent != "events" {
		return false, nil
	}
	return m.check(ctx, `SELECT EXISTS (SELECT FROM postrider_internal.sql_publishes WHERE event_day = $1)
		OR EXISTS (SELECT FROM postrider_internal.routes WHERE event_day = $1)
		OR EXISTS (SELECT FROM postrider_internal.deliveries WHERE event_day = $1)`, day)
}

func (m *Maintenance) check(ctx context.Context, statement string, args ...any) (result bool, err error) {
	if err := m.db.QueryRow(ctx, statement, args...).Scan(&result); err != nil {
		return false, fmt.Errorf("check the use of the partition: %w", err)
	}
	return result, nil
}

// detachTimeout is how long a detach waits for old transactions; the next one continues.
const detachTimeout = "2s"

// detach is no SQL function because it must run outside a transaction.
func (m *Maintenance) detach(ctx context.Context, parent string, d dayTable) error {
	statement := fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s CONCURRENTLY", internal(parent), internal(d.Name))
	if d.Pending {
		statement = fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s FINALIZE", internal(parent), internal(d.Name))
	}
	return m.db.WithConn(ctx, func(conn *pgxpool.Conn) error {
		if !m.db.ThroughPgBouncer { // it keeps no session; ctx ends the wait
			if _, err := conn.Exec(ctx, "SET lock_timeout = '"+detachTimeout+"'"); err != nil {
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

// Retain removes expired data: whole days as partitions, and the rest in small steps. Several nodes may do it at once:
// there is no lock, because DETACH would wait for the transaction that holds it.
func (m *Maintenance) Retain(ctx context.Context, r query.Retention) error {
	var today time.Time
	if err := m.db.QueryRow(ctx, "SELECT (now() AT TIME ZONE 'UTC')::date").Scan(&today); err != nil {
		return fmt.Errorf("read the database's date: %w", err)
	}
	return errors.Join( // partitions last: they may have to wait
		m.trim(ctx, sqlFile("trimbatches", "before", "limit"), today, r.DeliveredDays),
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
	// What belongs to event subscriptions that were deleted and are drained. A count that is still to be merged, or a late
	// batch cutter, inserts its row again.
	"locks":                     "name = 'batching' AND " + drained("r.key"),
	"backlog_counts":            "deliveries = 0 AND " + drained("r.subscription_id"),
	"event_subscription_states": drained("r.subscription_id"),
	// Probations whose event subscription was deleted, or has another endpoint or policy.
	// The keys are unnested: with ANY the plan is a nested loop over all pairs.
	"probations": `updated_at < now() - interval '1 hour' AND NOT EXISTS (
		SELECT FROM (
			SELECT unnest(postrider_internal.probation_keys(p.settings #>> '{probation,scope}', s.endpoint_hash, s.id)) AS key
			  FROM postrider_internal.event_subscriptions s
			  JOIN postrider_internal.retry_policies p ON p.name = s.retry_policy
			 WHERE s.deleted_at IS NULL) k
		 WHERE k.key = r.probation_key)`,
	// Lineage of edited events that are gone, with their dead letters and with what was edited from them. The hour keeps
	// those whose event is not committed yet.
	"repairs": `edited_at < now() - interval '1 hour'
		AND NOT EXISTS (SELECT FROM postrider_internal.dead_letters l WHERE l.event_uuid = r.system_id)
		AND NOT EXISTS (SELECT FROM postrider_internal.repairs c WHERE c.edited_from = r.system_id)
		AND NOT EXISTS (SELECT FROM postrider_internal.events e WHERE e.id = r.system_id)`,
	// Limits that were not used for a day, of operations and of event subscriptions that were deleted or changed, and
	// endpoints that no request has tried since. The limits in use stay: a new row allows a burst.
	"delivery_rates": `next_at < now() - interval '1 day' AND coalesce(closed_until < now() - interval '1 day', true)
		AND NOT EXISTS (SELECT FROM postrider_internal.event_subscriptions s
		                 WHERE s.deleted_at IS NULL AND s.settings::jsonb -> 'deliveryRate' IS NOT NULL
		                   AND r.key IN ('subscription:' || s.id,
		                       'host:' || postrider_internal.endpoint_host(s.endpoint_base_url)))`,
	// Problems that ended, and those of deleted event subscriptions. An acknowledgment is kept: it covers recurrences.
	"problems": `coalesce(resolved_at, recovered_at) < now() - interval '7 days'
		AND (acknowledged_until > now()) IS NOT TRUE OR EXISTS (
		    SELECT FROM postrider_internal.event_subscriptions s
		     WHERE s.id = r.subscription_id AND s.deleted_at IS NOT NULL AND r.notified_since IS NULL)`,
	// Notices, if SystemTopic has no event subscriptions.
	"notices": "postrider_internal.notices_since() IS NULL",
}

// drained is the condition that an event subscription was deleted and has no deliveries. Its own row stays.
func drained(id string) string {
	return "NOT EXISTS (SELECT FROM postrider_internal.event_subscriptions s WHERE s.id = " + id +
		" AND s.drained_at IS NULL)"
}

// Clean removes unused rows.
func (m *Maintenance) Clean(ctx context.Context) error {
	var err error
	for table, where := range unused {
		if failed := m.db.DeleteInSteps(ctx, removal(table, where), cleanStep); failed != nil {
			err = errors.Join(err, fmt.Errorf("remove unused rows of %s: %w", table, failed))
		}
	}
	return err
}
