package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/catalog"
)

var limitedStatement = sqlFile("limited")

const createRateStatement = `
INSERT INTO postrider_internal.delivery_rates (key) VALUES ($1) ON CONFLICT DO NOTHING`

const (
	// AheadOfTime is how far ahead a release takes the permits of a rate limit. It is two intervals of the release.
	AheadOfTime = 500 * time.Millisecond
	// mostWait bounds how long a node relies on the next time that it has read.
	mostWait = time.Second
)

// RefillLimited is Refill for an event subscription with a rate limit: each released delivery or batch takes the next
// time of the limit. It does nothing while no time is free, and leaves what expires before its turn to ReleaseExpired.
// With an age, it releases last attempts: deliveries of at least this age, though their endpoint is closed. n is how
// many jobs have permits now.
func (r *Releaser) RefillLimited(ctx context.Context, sub *catalog.Subscription, rate catalog.Rate, age time.Duration,
	limit int,
) (n int, err error) {
	rules, known := r.cache.Snapshot().Rules(sub.ID)
	if !known || r.rateWaits.Has(rate.Key) {
		return 0, nil
	}
	var released, cutters int
	var wait *float64
	err = r.db.QueryRow(ctx, limitedStatement, pgx.NamedArgs{
		"subscription": sub.ID, "limit": max(limit, 0), "key": rate.Key, "step": rate.Step, "burst": rate.Burst,
		"per_event": rate.PerEvent, "per_request": rate.PerRequest,
		"batching": sub.Batching(), "batch_size": sub.Batch().MaxEvents,
		"ahead_of_time": AheadOfTime, "age": age, "max_age": rules.MaxAge(), "last": age > 0,
		"probations": r.cache.Snapshot().ProbationKeys(sub),
	}).Scan(&released, &cutters, &wait)
	if err != nil {
		return 0, fmt.Errorf("release deliveries within a rate limit: %w", err)
	}
	if wait == nil { // another node takes permits, or there is no row yet
		if _, err := r.db.Exec(ctx, createRateStatement, rate.Key); err != nil {
			return 0, fmt.Errorf("create a rate limit: %w", err)
		}
	} else {
		r.rateWaits.Set(min(time.Duration(*wait*float64(time.Second))-AheadOfTime, mostWait), rate.Key)
	}
	r.traffic.AddOne(sub.ID, released)
	if released+cutters > 0 {
		r.count.Add(int64(released))
		r.Reach(PointRefill)
		r.notifier.RequestDeliveries()
	}
	return released + cutters, nil
}
