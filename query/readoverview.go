package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	// countLimit is up to how many rows of a table a page counts: 100,000 take 20 to 40 ms.
	countLimit = 100_000
	// heldLimit is the same for deliveries on hold.
	heldLimit = 20_000
	// lagSample is the number of finished deliveries that the lag is measured on.
	lagSample = 2000
)

// CurrentState is the state of all deliveries at this moment.
type CurrentState struct {
	// Pending is the exact number of pending deliveries. Held is how many of them are on hold, up to 20,000.
	Pending, Held int64
	// OldestPendingSince and OldestID are those of the oldest pending delivery; nil if none is pending.
	OldestPendingSince *time.Time
	OldestID           *int64
	// SweeperFinds is the number of consistency repairs by the nodes' sweepers since they started.
	SweeperFinds int64
	// Nodes is the number of nodes that have written a heartbeat in the last 15 s.
	Nodes int
	// LagP50 and LagP95 are quantiles of the time from publishing to delivery, in seconds, of the delivered ones among
	// the newest 2,000 finished deliveries; nil if none was delivered.
	LagP50, LagP95 *float64
}

var (
	currentState = sqlFile("current_state.sql")
	holdList     = sqlFile("holds.sql")
)

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

// ReadOverview reads the overview with the counts of a span, see ReadCounts. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadOverview(ctx context.Context, span, step time.Duration) (o *Overview, err error) {
	const holds = 50
	o = &Overview{}
	err = r.db.Read(ctx, "the overview", func(tx pgx.Tx) error {
		limits := pgx.NamedArgs{"held": heldLimit, "sample": lagSample}
		current, err := postgres.Row[CurrentState](ctx, tx, currentState, limits)
		if err != nil {
			return err
		}
		o.Current = *current
		if o.LastHour, err = readCounts(ctx, tx, CountsFilter{}, time.Hour, time.Minute); err != nil {
			return err
		}
		if o.Day, err = readCounts(ctx, tx, CountsFilter{}, 24*time.Hour, time.Hour); err != nil {
			return err
		}
		o.Range = o.LastHour
		if span != time.Hour || step != time.Minute {
			if o.Range, err = readCounts(ctx, tx, CountsFilter{}, span, step); err != nil {
				return err
			}
		}
		o.Holds, err = postgres.Rows[HoldLine](ctx, tx, holdList, pgx.NamedArgs{"limit": holds})
		return err
	})
	return o, err
}
