package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

const (
	// promoteStep bounds one promotion, so that no statement runs long after a burst of due retries.
	promoteStep = 2500
	// parkStep bounds how many jobs one call puts on hold. Each takes PostgreSQL 60 to 90 µs: 90,000 retries of one
	// endpoint that are due at once would take a core for 7 s.
	parkStep = 250
	// pastInterval is how often retries of other event subscriptions are searched behind such a flood: reading 90,000 rows
	// takes 0.1 s.
	pastInterval = 2 * time.Second
	// pastRounds is how many floods one behind the other are passed, at a step of parkStep each.
	pastRounds = 8
)

var promoteStatement = sqlFile("promote", "limit", "others", "subscriptions", "capacities", "holds", "without",
	"hold_limit")

// dueStatement checks whether promoteStatement would find a job. Planning a promotion takes a millisecond, which an
// idle node would spend four times a second.
const dueStatement = `
SELECT EXISTS (SELECT FROM postrider_internal.river_job
                WHERE state = 'scheduled' AND queue = 'deliveries' AND priority = 1 AND scheduled_at <= now())`

// Due reports whether Promote would find a job. Every node calls it every 250 ms.
func (q *JobRows) Due(ctx context.Context) (due bool, err error) {
	if err := q.db.QueryRow(ctx, dueStatement).Scan(&due); err != nil {
		return due, fmt.Errorf("check what is due: %w", err)
	}
	return due, nil
}

// Capacity bounds how many due jobs of an event subscription Promote makes available; the others get the hold, "" for
// admission.
type Capacity struct {
	SubscriptionID int64
	Jobs           int
	Hold           string
}

// PointPromote is the failpoint after due jobs became available and before a fetcher is woken.
const PointPromote = "promote"

// Promote makes due jobs available and returns how many were due. An event subscription without a Capacity has
// DefaultCapacity. Every node calls it every 250 ms while Due reports any, one call at a time; nodes skip each other's
// rows.
func (q *JobRows) Promote(ctx context.Context, capacities ...Capacity) (int, error) {
	total, err := q.promoteScheduled(ctx, capacities)
	if total > 0 {
		q.promoted.Add(int64(total))
		q.Reach(PointPromote)
		q.notifier.RequestDeliveries()
	}
	if err != nil {
		return total, fmt.Errorf("promote due jobs: %w", err)
	}
	return total, nil
}

// promoter remembers which event subscriptions flood the queue with due retries.
type promoter struct {
	flooding []string // ids of the event subscriptions that the last step put jobs of on hold
	passedAt time.Time
}

// promoteScheduled continues while every job of a step fits.
func (q *JobRows) promoteScheduled(ctx context.Context, capacities []Capacity) (total int, err error) {
	left := make(map[int64]Capacity, len(capacities))
	for _, c := range capacities {
		left[c.SubscriptionID] = c
	}
	step, flood := promoteStep, &q.promoter
	if len(flood.flooding) > 0 {
		step = parkStep
	}
	if now := time.Now(); step == parkStep && now.Sub(flood.passedAt) >= pastInterval {
		flood.passedAt = now
		if total, err = q.promotePast(ctx, left, flood.flooding); err != nil {
			return total, err
		}
	}
	for {
		due, flooding, err := q.promoteOnce(ctx, left, step, nil)
		if err != nil {
			return total, err
		}
		flood.flooding = flooding
		if total += due; due < step || len(flooding) > 0 {
			return total, nil
		}
	}
}

// promotePast promotes jobs of event subscriptions other than those that flood the queue.
func (q *JobRows) promotePast(ctx context.Context, left map[int64]Capacity, past []string) (total int, err error) {
	for step, rounds := parkStep, 0; rounds < pastRounds; {
		due, flooding, err := q.promoteOnce(ctx, left, step, past)
		if err != nil {
			return total, err
		}
		switch total += due; {
		case len(flooding) > 0:
			past, step, rounds = slices.Concat(past, flooding), parkStep, rounds+1
		case due < step:
			return total, nil
		default:
			step = promoteStep
		}
	}
	return total, nil
}

// promoteOnce makes one step over the due jobs of event subscriptions other than those of without, and reduces their
// capacity by the jobs that it made available. flooding are those whose jobs it put on hold.
func (q *JobRows) promoteOnce(
	ctx context.Context, left map[int64]Capacity, step int, without []string,
) (due int, flooding []string, err error) {
	columns := capacityColumns.Append([]any{step, DefaultCapacity}, slices.Collect(maps.Values(left)))
	rows, err := q.db.Query(ctx, promoteStatement, append(columns, append([]string{}, without...), parkStep)...)
	if err != nil {
		return 0, nil, err
	}
	var subscription int64
	var met, fitting, fit int
	_, err = pgx.ForEachRow(rows, []any{&subscription, &met, &fitting, &fit}, func() error {
		c, known := left[subscription]
		if !known {
			c = Capacity{SubscriptionID: subscription, Jobs: DefaultCapacity}
		}
		c.Jobs -= fit
		left[subscription] = c
		q.traffic.AddOne(subscription, fit)
		if due += met; fitting < met {
			flooding = append(flooding, strconv.FormatInt(subscription, 10))
		}
		return nil
	})
	return due, flooding, err
}

var capacityColumns = postgres.Columns[Capacity]{
	postgres.Col("subscription_id", func(c Capacity) int64 { return c.SubscriptionID }),
	postgres.Col("jobs", func(c Capacity) int { return max(c.Jobs, 0) }),
	postgres.NullTextCol("hold", func(c Capacity) string { return c.Hold }),
}
