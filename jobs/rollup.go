package jobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

const (
	// rollupSlots, the 8 in the statements that count, is the number of parts that counts are merged in. With 10,000
	// busy event subscriptions the counts of ten seconds have 40,000 keys. A statement that takes all of them keeps its
	// snapshot for half a second, and each fetch meanwhile reads past every job that ended since. Steps by age instead
	// are as short, but meet each key in every step: three times the upserts.
	rollupSlots = 8
	// mergeStep is how many appended rows one statement adds up; each has up to some dozens of entries.
	mergeStep = 2000

	// waitingSlotsStatement names the slots that have rows: planning a merge takes longer than checking.
	waitingSlotsStatement = `
SELECT slot FROM generate_series(0, $1 - 1) AS s(slot)
 WHERE EXISTS (SELECT FROM postrider_internal.rollup_deltas d WHERE d.slot = s.slot)`
)

var mergeStatement = sqlFile("merge.sql")

// MergeRollups adds up the counts that publishing and recording appended, and returns how many rows there were. While
// another node does that, it does nothing.
func (m *Maintenance) MergeRollups(ctx context.Context) (merged int, err error) {
	rows, _ := m.db.Query(ctx, waitingSlotsStatement, rollupSlots) // its error is the rows'
	slots, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("look for roll-ups: %w", err)
	}
	for _, slot := range slots {
		for n := mergeStep; n == mergeStep; merged += n {
			if n, err = m.mergeRollups(ctx, slot); err != nil {
				return merged, fmt.Errorf("merge the roll-ups: %w", err)
			}
		}
	}
	return merged, nil
}

// mergeRollups runs one step, in a transaction that excludes other nodes.
func (m *Maintenance) mergeRollups(ctx context.Context, slot int) (merged int, err error) {
	err = pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		var alone bool
		if err := tx.QueryRow(ctx, queue.TryLock, queue.LockRollups, 0).Scan(&alone); err != nil || !alone {
			return err
		}
		return tx.QueryRow(ctx, mergeStatement, slot, mergeStep).Scan(&merged)
	})
	return merged, err
}
