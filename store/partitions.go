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
		for _, table := range partitionedTables {
			for day := range PartitionsAhead + 1 {
				if err := s.ensurePartition(ctx, tx, table, today.AddDate(0, 0, day)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s *Store) ensurePartition(ctx context.Context, tx pgx.Tx, table string, day time.Time) error {
	parent := pgx.Identifier{"postrider_internal", table}.Sanitize()
	name := pgx.Identifier{"postrider_internal", table + "_" + day.Format("20060102")}.Sanitize()
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&exists); err != nil {
		return fmt.Errorf("look for partition %s: %w", name, err)
	}
	if exists {
		return nil
	}
	const format = "2006-01-02"
	statements := fmt.Sprintf(`CREATE TABLE %[1]s (LIKE %[2]s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE);`+manySubscriptions[table]+`
		ALTER TABLE %[2]s ATTACH PARTITION %[1]s FOR VALUES FROM ('%[3]s') TO ('%[4]s')`,
		name, parent, day.Format(format), day.AddDate(0, 0, 1).Format(format))
	if _, err := tx.Exec(ctx, statements); err != nil {
		return fmt.Errorf("make partition %s: %w", name, err)
	}
	s.Reach(PointPartition)
	return nil
}

func collectIDs(rows pgx.Rows) ([]int64, error) { return pgx.CollectRows(rows, pgx.RowTo[int64]) }
