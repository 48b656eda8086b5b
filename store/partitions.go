package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PartitionsAhead is how many days after today have their partitions already. A week: a service that fails to make
// them has that long to be noticed.
const PartitionsAhead = 7

var partitionedTables = []string{"events", "delivery_history", "delivery_attempts"}

// manySubscriptions tells PostgreSQL of a thousand event subscriptions, as for deliveries: where it knows of few, it looks for the last rows of
// one among all rows in order of their id, and reads a whole day for one that has none.
var manySubscriptions = map[string]string{"delivery_history": "ALTER TABLE %[1]s ALTER subscription_id SET (n_distinct = 1000);"}

// EnsurePartitions makes the partitions of today and the days ahead, by the database's clock. A partition is made as a
// table of its own and then attached: that lets publishes and records go on, while CREATE TABLE … PARTITION OF would
// stop them all.
func (s *Store) EnsurePartitions(ctx context.Context) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', '5s', true), pg_advisory_xact_lock(727274, 2)"); err != nil {
			return fmt.Errorf("wait for another node to make partitions: %w", err)
		}
		var today time.Time
		if err := tx.QueryRow(ctx, "SELECT (now() AT TIME ZONE 'UTC')::date").Scan(&today); err != nil {
			return fmt.Errorf("read the database's date: %w", err)
		}
		missing, err := missingPartitions(ctx, tx, today)
		if err != nil {
			return err
		}
		for _, p := range missing {
			if err := s.makePartition(ctx, tx, p); err != nil {
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

// missingPartitions are those of today and the days ahead that are not there: one question for the 24, because every node asks it when it
// starts, and each minute.
func missingPartitions(ctx context.Context, tx pgx.Tx, today time.Time) (missing []partition, err error) {
	wanted, names := map[string]partition{}, []string{}
	for _, table := range partitionedTables {
		for day := range PartitionsAhead + 1 {
			p := partition{table, today.AddDate(0, 0, day)}
			wanted[p.name()], names = p, append(names, p.name())
		}
	}
	rows, _ := tx.Query(ctx, "SELECT name FROM unnest($1::text[]) WITH ORDINALITY AS n(name, i) WHERE to_regclass('postrider_internal.' || name) IS NULL ORDER BY i", names)
	names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for partitions: %w", err)
	}
	for _, name := range names {
		missing = append(missing, wanted[name])
	}
	return missing, nil
}

func (s *Store) makePartition(ctx context.Context, tx pgx.Tx, p partition) error {
	parent := pgx.Identifier{"postrider_internal", p.table}.Sanitize()
	name := pgx.Identifier{"postrider_internal", p.name()}.Sanitize()
	const format = "2006-01-02"
	statements := fmt.Sprintf(`CREATE TABLE %[1]s (LIKE %[2]s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE);`+manySubscriptions[p.table]+`
		ALTER TABLE %[2]s ATTACH PARTITION %[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')`,
		name, parent, p.day.Format(format), p.day.AddDate(0, 0, 1).Format(format))
	if _, err := tx.Exec(ctx, statements); err != nil {
		return fmt.Errorf("make partition %s: %w", name, err)
	}
	s.Reach(PointPartition)
	return nil
}

func collectIDs(rows pgx.Rows) ([]int64, error) { return pgx.CollectRows(rows, pgx.RowTo[int64]) }
