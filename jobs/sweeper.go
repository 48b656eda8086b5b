package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"postrider/jobs/queue"
)

// sweepStep is how many rows one statement of the sweeper reads, or repairs, at most.
const sweepStep = 10_000

// Swept is what one pass of the sweeper repaired. It should be nothing: all else is a defect of postrider, or a user
// changed the tables.
type Swept struct {
	// Repaired deliveries and batches had no live job and have one again, marked as a rerun; open deliveries, a batch
	// cutter.
	Repaired int
	// Removed jobs belonged to a delivery that is finished, or has another job.
	Removed int
	// Routes had no live job and have one again.
	Routes int
	// Handshakes had no live job and have one again.
	Handshakes int
	// Exports had no live job and have one again; dead letters had an export that does not exist.
	Exports int
	// Operations had no live job and have one again.
	Operations int
}

// Total is the number of repairs.
func (s *Swept) Total() int {
	return s.Repaired + s.Removed + s.Routes + s.Handshakes + s.Exports + s.Operations
}

// repair is a statement of the sweeper. It returns the last id that it read, or 0 at the end, and how many rows it
// repaired.
type repair struct {
	name, statement string
	byID            bool   // it takes the id after which it reads
	count           *int   // of its repairs
	queue           string // of the jobs that it inserts
}

// repairs are all of them, in order. They count in s.
func repairs(s *Swept) []repair {
	return []repair{
		{"deliveries", sqlFile("repairdeliveries.sql"), true, &s.Repaired, queue.DeliverQueue},
		{"stray jobs", sqlFile("removestrays.sql"), true, &s.Removed, ""},
		repairOwned(queue.RouteQueue, queue.RouteKind, "route", 1, "true", &s.Routes),
		repairOwned(queue.HandshakeQueue, queue.HandshakeKind, "h", 3, "state = 'pending'", &s.Handshakes),
		repairOwned(queue.ExportQueue, queue.ExportKind, "x", 1, "true", &s.Exports),
		{"dead letters", sqlFile("freedeadletters.sql"), false, &s.Exports, ""},
		repairOwned(queue.OperationQueue, queue.OperationKind, "o", 1, "state = 'running'", &s.Operations),
		{"batches", sqlFile("repairbatches.sql"), true, &s.Repaired, queue.DeliverQueue},
		{"batch cutters", sqlFile("repaircutters.sql"), false, &s.Repaired, queue.DeliverQueue},
	}
}

// repairOwned is the repair of the rows of a table that own a job of this kind: the rows that live, by a condition. The
// job's arguments have their id. Its queue has the name of the table.
func repairOwned(table, kind, argument string, priority int, lives string, count *int) repair {
	names := strings.NewReplacer("@table", table, "@kind", kind, "@argument", argument,
		"@priority", strconv.Itoa(priority), "@lives", lives)
	return repair{name: table, statement: names.Replace(sqlFile("repairowned.sql")), count: count, queue: table}
}

// SweeperFinds is the number of repairs since the process began.
func (m *Maintenance) SweeperFinds() int64 { return m.finds.Load() }

// errSweeping: another node sweeps. There is nothing to wait for.
var errSweeping = errors.New("another node sweeps")

// Sweep reads all unfinished deliveries and all jobs once, in steps, and repairs what is inconsistent and was not
// changed in the last 60 s. While another node does that, it ends.
func (m *Maintenance) Sweep(ctx context.Context) (swept Swept, err error) {
	defer func() { m.finds.Add(int64(swept.Total())) }()
	for _, r := range repairs(&swept) {
		n, err := m.repair(ctx, r)
		*r.count += n
		if n > 0 && r.queue != "" {
			m.notifier.RequestFetch(r.queue)
		}
		if errors.Is(err, errSweeping) {
			return swept, nil
		}
		if err != nil {
			return swept, fmt.Errorf("sweep %s: %w", r.name, err)
		}
	}
	return swept, nil
}

func (m *Maintenance) repair(ctx context.Context, r repair) (repaired int, err error) {
	for cursor := int64(0); ; {
		args := []any{sweepStep}
		if r.byID {
			args = append(args, cursor)
		}
		last, n, err := m.sweepStep(ctx, r.statement, args)
		repaired += n
		if err != nil || last == 0 {
			return repaired, err
		}
		cursor = last
	}
}

// sweepStep runs one statement, in a transaction that excludes other nodes.
func (m *Maintenance) sweepStep(ctx context.Context, statement string, args []any) (last int64, n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, clockworkTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, m.db, func(tx pgx.Tx) error {
		var alone bool
		if err := tx.QueryRow(ctx, queue.TryLock, queue.LockSweeper, 0).Scan(&alone); err != nil {
			return err
		}
		if !alone {
			return errSweeping
		}
		return tx.QueryRow(ctx, statement, args...).Scan(&last, &n)
	})
	if err != nil {
		return 0, 0, err
	}
	return last, n, nil
}
