package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

// PartitionsAhead is how many days after today have their partitions already. A week: a service that fails to make
// them has that long to be noticed.
const PartitionsAhead = 7

var partitionedTables = []string{"events", "delivery_history", "delivery_attempts"}

// manySubscriptions tells PostgreSQL of a thousand event subscriptions, as for deliveries: where it knows of few, it
// looks for the last rows of one among all rows in order of their id, and reads a whole day for one that has none.
var manySubscriptions = map[string]string{
	"delivery_history": "ALTER TABLE %[1]s ALTER subscription_id SET (n_distinct = 1000);",
}

// EnsurePartitions makes the partitions of today and the days ahead, by the database's clock. A partition is made as a
// table of its own and then attached: that lets publishes and records go on, while CREATE TABLE … PARTITION OF would
// stop them all.
func (m *Maintenance) EnsurePartitions(ctx context.Context) error {
	missing, err := missingPartitions(ctx, m.db)
	if err != nil || len(missing) == 0 {
		return err // nearly always: no node waits for another one then
	}
	return pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
			return fmt.Errorf("make partitions: %w", err)
		}
		if _, err := tx.Exec(ctx, queue.TakeLock, queue.LockPartitions, 0); err != nil {
			return queue.LockError(ctx, m.db, "make partitions", queue.LockPartitions, err)
		}
		missing, err := missingPartitions(ctx, tx)
		if err != nil {
			return err
		}
		for _, p := range missing {
			if err := m.makePartition(ctx, tx, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// partition is one day of a table.
type partition struct {
	table string
	day   time.Time
}

func (p partition) name() string { return p.table + "_" + p.day.Format("20060102") }

// missingPartitions are those of today and the days ahead that are not there, in one statement: every node checks at
// its start and each minute.
func missingPartitions(ctx context.Context, db interface {
	Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error)
},
) ([]partition, error) {
	const statement = `
SELECT t.name, d.day FROM unnest($1::text[]) WITH ORDINALITY AS t(name, place), generate_series(0, $2::int) AS n,
       LATERAL (SELECT (now() AT TIME ZONE 'UTC')::date + n AS day) d
 WHERE to_regclass('postrider_internal.' || t.name || to_char(d.day, '_YYYYMMDD')) IS NULL ORDER BY place, n`
	rows, _ := db.Query(ctx, statement, partitionedTables, PartitionsAhead) // its error is the rows'
	missing, err := pgx.CollectRows(rows,
		func(row pgx.CollectableRow) (p partition, err error) { return p, row.Scan(&p.table, &p.day) })
	if err != nil {
		return nil, fmt.Errorf("look for partitions: %w", err)
	}
	return missing, nil
}

// PointPartition is the failpoint before the commit of new partitions.
const PointPartition = "partition"

func (m *Maintenance) makePartition(ctx context.Context, tx pgx.Tx, p partition) error {
	parent := pgx.Identifier{"postrider_internal", p.table}.Sanitize()
	name := pgx.Identifier{"postrider_internal", p.name()}.Sanitize()
	const format = "2006-01-02"
	statements := fmt.Sprintf(`CREATE TABLE %[1]s (LIKE %[2]s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING
		    STORAGE);`+manySubscriptions[p.table]+`
		ALTER TABLE %[2]s ATTACH PARTITION %[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')`,
		name, parent, p.day.Format(format), p.day.AddDate(0, 0, 1).Format(format))
	if _, err := tx.Exec(ctx, statements); err != nil {
		return fmt.Errorf("make partition %s: %w", name, err)
	}
	m.fail.Reach(PointPartition)
	return nil
}
