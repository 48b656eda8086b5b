package jobs

import (
	"context"
	"sync/atomic"
	"time"

	"postrider/query"
)

const (
	// stallInterval is how often an engine checks that it makes progress.
	stallInterval = 5 * time.Second
	// StalledTooLong is from when on a node that makes no progress is not ready: longer than a restart of the database
	// takes.
	StalledTooLong = time.Minute
)

// progress is what an engine does: attempts that it has begun, and how many of them have not ended.
type progress struct{ begun, inFlight atomic.Int64 }

func (p *progress) begin() (end func()) {
	p.begun.Add(1)
	p.inFlight.Add(1)
	return func() { p.inFlight.Add(-1) }
}

// stallWatch counts the checks in a row that found deliveries due and an engine that does nothing. Checks are counted
// and not seconds: a process that was suspended has no stall.
type stallWatch struct{ begun, idle int64 }

// moves reports whether attempts are in flight, or were begun since the last check.
func (w *stallWatch) moves(p *progress) bool {
	begun := p.begun.Load()
	moved := begun != w.begun || p.inFlight.Load() > 0
	w.begun = begun
	return moved
}

// checkProgress checks that this node begins attempts when some are due. On hold, nothing is due.
func (e *Engine) checkProgress(ctx context.Context) error {
	overdue := false
	if !e.stalls.moves(&e.progress) {
		// given to this node and never begun: a job in the database is that of another node then
		if overdue = len(e.parts.Handoff.NotBegun()) > 0; !overdue {
			var err error
			if overdue, err = query.Overdue(ctx, e.parts.DB.Pool); err != nil {
				return err
			}
		}
	}
	if e.stalls.idle++; !overdue {
		e.stalls.idle = 0
	}
	stalled := time.Duration(e.stalls.idle) * e.options.stallInterval
	if before := time.Duration(e.stalled.Swap(int64(stalled))); stalled >= StalledTooLong && before < StalledTooLong {
		e.log.Error("deliveries are due and this node begins no attempt; restart it", "for", stalled)
	}
	return nil
}

// Stalled is for how long this node has begun no attempt while deliveries were due; 0 when none are, or attempts are in
// flight.
func (e *Engine) Stalled() time.Duration { return time.Duration(e.stalled.Load()) }

// Stats is what this node's engine is doing.
type Stats struct {
	// InFlight counts the jobs that are being worked on; MaxWorkers is how many there may be.
	InFlight, MaxWorkers int
	// OpenCalls counts the requests whose ack timeout is over and whose response may still come.
	OpenCalls int
	// Stalled is for how long deliveries have been due and no attempt was begun.
	Stalled time.Duration
}

// Stats reads the counts.
func (e *Engine) Stats() Stats {
	return Stats{
		InFlight: e.parts.Active.Len(), MaxWorkers: e.parts.Handoff.Workers(), OpenCalls: e.endpoint.OpenCalls(),
		Stalled: e.Stalled(),
	}
}
