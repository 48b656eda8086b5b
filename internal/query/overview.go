package query

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
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

// Attention is an event subscription whose deliveries wait: on hold, for a rate limit, or for long.
type Attention struct {
	Topic, Subscription string
	// Hold is nil without one. Validation is the state of its handshake, if that is the hold.
	Hold, HoldCause, Validation *string
	HoldSince, HoldUntil        *time.Time
	Probing                     bool
	// Pending is the number of its pending deliveries, and OldestID the oldest one.
	Pending            int64
	OldestPendingSince *time.Time
	OldestID           *int64
	// RateLimited: its deliveries have to wait for a rate limit or a closed endpoint.
	RateLimited bool
	Throttle
}

// Throttle is the rate limit or the closed endpoint of an event subscription.
type Throttle struct {
	// Waiting is how many deliveries wait for it, up to 10,000.
	Waiting               int
	ClosedUntil, DrainsAt *time.Time
	// TooLate: the time to live of some deliveries ends before their turn.
	TooLate bool
}

// Failing is a problem that is failing: the failed attempts of an event subscription with one outcome.
type Failing struct {
	ProblemID                    uuid.UUID
	Topic, Subscription, Outcome string
	// Since is when the first attempt of the series failed.
	Since time.Time
	// Status, Error and Response are those of the newest failed attempt.
	Status          *int
	Error, Response *string
	// DeliveryID and BatchID are what that attempt delivered: one of them is nil.
	DeliveryID, BatchID *int64
	// Waiting is the number of pending deliveries whose last attempt had this outcome, up to 1,000.
	Waiting int
	// OpenDeadLetters: the event subscription has open dead letters, with any outcome.
	OpenDeadLetters bool
}

const (
	// LateAge is the age from which a pending delivery is late: built-in schedules have made four attempts by then.
	LateAge = 10 * time.Minute
	// OpenDeadLettersLimit is up to how many open dead letters are counted.
	OpenDeadLettersLimit = 10_000
	// attentionLimit is the number of event subscriptions in Overview.Attention.
	attentionLimit = 50
)

// Overview is what the dashboard's first page shows, of one moment.
type Overview struct {
	Current CurrentState
	// LastHour is by the minute, Day by the hour, and Range as requested.
	LastHour, Day, Range *Counts
	// Attention are the event subscriptions whose deliveries wait, the largest backlogs first, at most 50.
	Attention []Attention
	// Failing are the problems that are failing, the last failure first, at most 100. A failure appears within 15 s.
	Failing []Failing
	// OpenDeadLetters is the number of open dead letters, up to OpenDeadLettersLimit.
	OpenDeadLetters int
}

// ReadOverview reads the overview with the counts of a span. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadOverview(ctx context.Context, span, step time.Duration) (*Overview, error) {
	var o Overview
	late := r.clock.Now().Add(-LateAge)
	err := read(ctx, r.db, "the overview", func(r *reading) {
		o.Current = row[CurrentState](r, "current_state", pgx.NamedArgs{"held": heldLimit, "sample": lagSample})
		o.LastHour = readCounts(r, countsFilter{}, time.Hour, time.Minute)
		o.Day = readCounts(r, countsFilter{}, 24*time.Hour, time.Hour)
		o.Range = o.LastHour
		if span != time.Hour || step != time.Minute {
			o.Range = readCounts(r, countsFilter{}, span, step)
		}
		o.Attention = readAttention(r, late)
		o.Failing = rows[Failing](r, "failing", pgx.NamedArgs{"limit": problemsShown})
		open := row[struct{ Open int }](r, "open_dead_letters", pgx.NamedArgs{"limit": OpenDeadLettersLimit})
		o.OpenDeadLetters = open.Open
	})
	return &o, err
}

// readAttention reads how rates are limited only if any is: it costs more than the rest of the page.
func readAttention(r *reading, late time.Time) []Attention {
	list := rows[Attention](r, "attention", pgx.NamedArgs{"limit": attentionLimit, "late": late})
	if !slices.ContainsFunc(list, func(a Attention) bool { return a.RateLimited }) {
		return list
	}
	type limited struct {
		Topic, Subscription string
		Throttle
	}
	throttles := map[SubscriptionKey]Throttle{}
	for _, l := range rows[limited](r, "attention_rates") {
		throttles[SubscriptionKey{Topic: l.Topic, Subscription: l.Subscription}] = l.Throttle
	}
	for i := range list {
		list[i].Throttle = throttles[SubscriptionKey{Topic: list[i].Topic, Subscription: list[i].Subscription}]
	}
	return list
}
