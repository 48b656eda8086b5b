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
	// StalledTooLong is the stall after which a node is not ready: longer than a restart of the database takes.
	StalledTooLong = time.Minute
)

// progress counts the attempts that an engine has begun, and those in flight.
type progress struct{ begun, inFlight atomic.Int64 }

func (p *progress) begin() (end func()) {
	p.begun.Add(1)
	p.inFlight.Add(1)
	return func() { p.inFlight.Add(-1) }
}

// stallWatch counts the consecutive checks that found due deliveries and no attempt. It counts checks instead of
// seconds: a process that was suspended has no stall.
type stallWatch struct{ begun, idle int64 }

// moves reports whether attempts are in flight, or were begun since the last check.
func (w *stallWatch) moves(p *progress) bool {
	begun := p.begun.Load()
	moved := begun != w.begun || p.inFlight.Load() > 0
	w.begun = begun
	return moved
}

// checkProgress checks that this node begins attempts if deliveries are due. Held deliveries are not due.
func (e *Engine) checkProgress(ctx context.Context) error {
	overdue := false
	if !e.stalls.moves(&e.progress) {
		// jobs of this node that did not begin; other nodes cannot fetch them
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

// Stalled is how long this node has begun no attempt while deliveries were due; 0 if none are due, or attempts are in
// flight.
func (e *Engine) Stalled() time.Duration { return time.Duration(e.stalled.Load()) }

// Stats are this node's counts.
type Stats struct {
	// InFlight counts the running jobs; MaxWorkers is their maximum.
	InFlight, MaxWorkers int
	// OpenCalls counts the requests that stay open past their ack timeout for a late response.
	OpenCalls int
	// Stalled is how long deliveries have been due and no attempt was begun.
	Stalled time.Duration
}

// Stats reads the counts.
func (e *Engine) Stats() Stats {
	return Stats{
		InFlight: e.parts.Active.Len(), MaxWorkers: e.parts.Handoff.Workers(), OpenCalls: e.endpoint.OpenCalls(),
		Stalled: e.Stalled(),
	}
}
