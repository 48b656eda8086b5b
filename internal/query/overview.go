package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// heldLimit is up to how many deliveries on hold a page counts.
	heldLimit = 20_000
	// lagSample is the number of finished deliveries that the lag is computed from.
	lagSample = 2000
)

// CurrentState is the state of all deliveries at this moment.
type CurrentState struct {
	// Pending is the exact number of pending deliveries. Held is how many of them are on hold, up to 20,000.
	Pending, Held int64
	// OldestPendingSince and OldestID are those of the oldest pending delivery; nil if none is pending.
	OldestPendingSince *time.Time
	OldestID           *int64
	// ConsistencyRepairs is the number of consistency repairs by the nodes' sweepers since they started.
	ConsistencyRepairs int64
	// Nodes is the number of nodes that have written a heartbeat in the last 15 s.
	Nodes int
	// LagP50 and LagP95 are quantiles of the time from publishing to delivery, in seconds, of the delivered ones among
	// the newest 2,000 finished deliveries; nil if none was delivered.
	LagP50, LagP95 *float64
}

// HoldLine is an event subscription on hold.
type HoldLine struct {
	Topic, Subscription, EndpointBaseURL, Hold string
	HoldCause                                  *string
	HoldSince, HoldUntil                       *time.Time
	Probing                                    bool
	// HeldDeliveries are counted up to 20,000.
	HeldDeliveries int
	// Validation is the state of its handshake, if that is the hold.
	Validation *string
}

// Overview is what the dashboard's first page shows, of one moment.
type Overview struct {
	Current CurrentState
	// LastHour is by the minute, Day by the hour, and Range as requested.
	LastHour, Day, Range *Counts
	// Holds are the event subscriptions on hold, the newest hold first, at most 50.
	Holds []HoldLine
}

// ReadOverview reads the overview with the counts of a span. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadOverview(ctx context.Context, span, step time.Duration) (*Overview, error) {
	var o Overview
	err := read(ctx, r.db, "the overview", func(r *reading) {
		o.Current = row[CurrentState](r, "current_state", pgx.NamedArgs{"held": heldLimit, "sample": lagSample})
		o.LastHour = readCounts(r, countsFilter{}, time.Hour, time.Minute)
		o.Day = readCounts(r, countsFilter{}, 24*time.Hour, time.Hour)
		o.Range = o.LastHour
		if span != time.Hour || step != time.Minute {
			o.Range = readCounts(r, countsFilter{}, span, step)
		}
		o.Holds = rows[HoldLine](r, "holds", pgx.NamedArgs{"limit": 50})
	})
	return &o, err
}
