package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
	"postrider/postgres"
)

// PartitionsAhead is how many days after today have partitions already. It is a week, the time to notice a service that
// fails to create them.
const PartitionsAhead = 7

var partitionedTables = []string{"events", "delivery_history", "delivery_attempts"}

// EnsurePartitions creates the partitions of today and the days ahead, by the database's clock.
func (m *Maintenance) EnsurePartitions(ctx context.Context) error {
	missing, err := missingPartitions(ctx, m.db)
	if err != nil || len(missing) == 0 {
		return err // nearly always: no node waits for another one then
	}
	return pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
			return fmt.Errorf("create partitions: %w", err)
		}
		if _, err := tx.Exec(ctx, queue.TakeLock, queue.LockPartitions, 0); err != nil {
			return queue.LockError(ctx, m.db, "create partitions", queue.LockPartitions, err)
		}
		missing, err := missingPartitions(ctx, tx)
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

// partition is one day of a table.
type partition struct {
	Table string
	Day   time.Time
}

var missingPartitionsStatement = sqlFile("missingpartitions.sql")

func missingPartitions(ctx context.Context, db postgres.Querier) ([]partition, error) {
	rows, _ := db.Query(ctx, missingPartitionsStatement, partitionedTables, PartitionsAhead) // its error is the rows'
	missing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[partition])
	if err != nil {
		return nil, fmt.Errorf("look for partitions: %w", err)
	}
	return missing, nil
}
