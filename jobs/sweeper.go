package jobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

// sweepStep is how many rows one statement of the sweeper reads, or repairs, at most.
const sweepStep = 10_000

// Swept counts the repairs of one pass of the sweeper. There should be none: a repair shows a defect of postrider, or
// that a user changed the tables.
type Swept struct {
	// Repaired rows had no live job and have one again: deliveries and batches, whose job is marked as a rerun, batch
	// cutters of open deliveries, routes, handshakes, operations and exports, also dead letters without their export.
	Repaired int
	// Removed jobs belonged to a delivery that has ended or has another job.
	Removed int
}

// repair is a statement of the sweeper. It returns the last id that it read, or 0 at the end, and how many rows it
// repaired.
type repair struct {
	name, statement string
	byID            bool     // it has a parameter: the id after which it reads
	queues          []string // of the jobs that it inserts
}

// repairs are the steps of a pass, in order.
var repairs = []repair{
	{"deliveries", sqlFile("repairdeliveries", "limit", "after"), true, []string{queue.DeliverQueue}},
	{strayJobs, sqlFile("removestrays", "limit", "after"), true, nil},
	{
		"routes, exports, handshakes and operations", sqlFile("repairowned", "limit"), false,
		[]string{queue.RouteQueue, queue.ExportQueue, queue.HandshakeQueue, queue.OperationQueue},
	},
	{"dead letters", sqlFile("freedeadletters", "limit"), false, nil},
	{"batches", sqlFile("repairbatches", "limit", "after"), true, []string{queue.DeliverQueue}},
	{"batch cutters", sqlFile("repaircutters", "limit"), false, []string{queue.DeliverQueue}},
}

const strayJobs = "stray jobs"

// Repairs is the number of repairs since the process began.
func (m *Maintenance) Repairs() int64 { return m.repaired.Load() }

// Sweep reads all pending deliveries and all jobs once, in steps, and repairs inconsistent rows that did not change in
// the last 60 s. It ends if another node sweeps.
func (m *Maintenance) Sweep(ctx context.Context) (swept Swept, err error) {
	defer func() { m.repaired.Add(int64(swept.Repaired + swept.Removed)) }()
	for _, r := range repairs {
		count := &swept.Repaired
		if r.name == strayJobs {
			count = &swept.Removed
		}
		alone, err := m.repair(ctx, r, count)
		if err != nil {
			return swept, fmt.Errorf("sweep %s: %w", r.name, err)
		}
		if !alone {
			return swept, nil
		}
	}
	return swept, nil
}

// repair runs a repair in steps, each in a transaction. It returns false if another node sweeps.
func (m *Maintenance) repair(ctx context.Context, r repair, count *int) (alone bool, err error) {
	for cursor := int64(0); ; {
		args := []any{sweepStep}
		if r.byID {
			args = append(args, cursor)
		}
		n := 0
		err := within(ctx, taskTimeout, func(ctx context.Context) error {
			var err error
			alone, err = m.locked(ctx, queue.LockSweeper, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, r.statement, args...).Scan(&cursor, &n)
			})
			return err
		})
		if err != nil || !alone {
			return false, err
		}
		if *count += n; n > 0 {
			for _, name := range r.queues {
				m.notifier.RequestFetch(name)
			}
		}
		if cursor == 0 {
			return true, nil
		}
	}
}
