package jobs

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

// sweepStep is how many rows one statement of the sweeper reads, or repairs, at most.
const sweepStep = 10_000

// Swept counts the repairs of one pass of the sweeper. There should be none: a repair shows a defect of postrider, or
// that a user changed the tables.
type Swept struct {
	// Repaired deliveries and batches had no live job and have one again, marked as a rerun; open deliveries, a batch
	// cutter.
	Repaired int
	// Removed jobs belonged to a delivery that has ended or has another job.
	Removed int
	// These had no live job and have one again. Exports also counts dead letters whose export does not exist.
	Routes, Handshakes, Exports, Operations int
}

// Total is the number of repairs.
func (s *Swept) Total() int {
	return s.Repaired + s.Removed + s.Routes + s.Handshakes + s.Exports + s.Operations
}

// repair is a statement of the sweeper. It returns the last id that it read, or 0 at the end, and how many rows it
// repaired.
type repair struct {
	name, statement string
	byID            bool   // it has a parameter: the id after which it reads
	count           *int   // of its repairs
	queue           string // of the jobs that it inserts
}

// repairs are the steps of a pass, in order. They count in s.
func repairs(s *Swept) []repair {
	return []repair{
		{"deliveries", sqlFile("repairdeliveries", "limit", "after"), true, &s.Repaired, queue.DeliverQueue},
		{"stray jobs", sqlFile("removestrays", "limit", "after"), true, &s.Removed, ""},
		repairOwned(queue.RouteQueue, queue.RouteKind, "route", 1, "true", &s.Routes),
		repairOwned(queue.HandshakeQueue, queue.HandshakeKind, "h", 3, "state = 'pending'", &s.Handshakes),
		repairOwned(queue.ExportQueue, queue.ExportKind, "x", 1, "true", &s.Exports),
		{"dead letters", sqlFile("freedeadletters", "limit"), false, &s.Exports, ""},
		repairOwned(queue.OperationQueue, queue.OperationKind, "o", 1, "state = 'running'", &s.Operations),
		{"batches", sqlFile("repairbatches", "limit", "after"), true, &s.Repaired, queue.DeliverQueue},
		{"batch cutters", sqlFile("repaircutters", "limit"), false, &s.Repaired, queue.DeliverQueue},
	}
}

// repairOwned is the repair of a table whose rows own a job of this kind while a condition holds. The job's arguments
// have the row's id. Its queue has the name of the table.
func repairOwned(table, kind, argument string, priority int, condition string, count *int) repair {
	names := strings.NewReplacer("@table", table, "@kind", kind, "@argument", argument,
		"@priority", strconv.Itoa(priority), "@condition", condition)
	return repair{name: table, statement: names.Replace(sqlFile("repairowned")), count: count, queue: table}
}

// Repairs is the number of repairs since the process began.
func (m *Maintenance) Repairs() int64 { return m.repaired.Load() }

// Sweep reads all pending deliveries and all jobs once, in steps, and repairs inconsistent rows that did not change in
// the last 60 s. It ends if another node sweeps.
func (m *Maintenance) Sweep(ctx context.Context) (swept Swept, err error) {
	defer func() { m.repaired.Add(int64(swept.Total())) }()
	for _, r := range repairs(&swept) {
		switch alone, err := m.repair(ctx, r); {
		case err != nil:
			return swept, fmt.Errorf("sweep %s: %w", r.name, err)
		case !alone:
			return swept, nil
		}
	}
	return swept, nil
}

// repair runs a repair in steps, each in a transaction. It returns false if another node sweeps.
func (m *Maintenance) repair(ctx context.Context, r repair) (alone bool, err error) {
	for cursor := int64(0); ; {
		args := []any{sweepStep}
		if r.byID {
			args = append(args, cursor)
		}
		n := 0
		err := within(ctx, taskTimeout, func(ctx context.Context) (err error) {
			alone, err = m.locked(ctx, queue.LockSweeper, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, r.statement, args...).Scan(&cursor, &n)
			})
			return err
		})
		if err != nil || !alone {
			return false, err
		}
		*r.count += n
		if n > 0 && r.queue != "" {
			m.notifier.RequestFetch(r.queue)
		}
		if cursor == 0 {
			return true, nil
		}
	}
}
