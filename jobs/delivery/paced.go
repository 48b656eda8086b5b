package delivery

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
)

var pacedStatement = sqlFile("paced.sql")

// createRateStatement creates the row of a rate limit.
const createRateStatement = `
INSERT INTO postrider_internal.delivery_rates (key) VALUES ($1) ON CONFLICT DO NOTHING`

const (
	// aheadOfTime is how far ahead a release takes the times of a rate limit. It is two intervals of the release.
	aheadOfTime = 500 * time.Millisecond
	// mostWait bounds how long a node relies on the next time that it has read.
	mostWait = time.Second
)

// paces remembers until when no time of a rate limit is free.
type paces struct {
	mu    sync.Mutex
	until map[catalog.Rate]time.Time
}

func (p *paces) waits(rate catalog.Rate, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.until[rate])
}

// next remembers how far the next time is away. It forgets those that have passed.
func (p *paces) next(rate catalog.Rate, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.until == nil {
		p.until = map[catalog.Rate]time.Time{}
	}
	for other, until := range p.until {
		if !now.Before(until) {
			delete(p.until, other)
		}
	}
	if wait -= aheadOfTime; wait > 0 {
		p.until[rate] = now.Add(min(wait, mostWait))
	}
}

// RefillPaced is Refill for an event subscription with a rate limit: each released delivery or batch takes the next time
// of the limit. It does nothing while no time is free.
func (r *Releaser) RefillPaced(ctx context.Context, sub *catalog.Subscription, rate catalog.Rate, limit int) error {
	if r.paces.waits(rate, time.Now()) {
		return nil
	}
	var released, cutters int
	var wait *float64
	err := r.db.QueryRow(ctx, pacedStatement, pgx.NamedArgs{
		"subscription": sub.ID, "limit": max(limit, 0), "key": rate.Key, "step": rate.Step, "burst": rate.Burst,
		"per_event": rate.PerEvent, "batching": sub.Batching(), "batch_size": sub.Batch().MaxEvents,
		"ahead_of_time": aheadOfTime,
	}).Scan(&released, &cutters, &wait)
	if err == nil && wait == nil { // another node takes times, or there is no row yet
		_, err = r.db.Exec(ctx, createRateStatement, rate.Key)
	}
	if err != nil {
		return fmt.Errorf("release deliveries within a rate limit: %w", err)
	}
	if wait != nil {
		r.paces.next(rate, time.Duration(*wait*float64(time.Second)))
	}
	r.traffic.AddOne(sub.ID, released)
	if released+cutters > 0 {
		r.count.Add(int64(released))
		r.Reach(PointRefill)
		r.notifier.RequestDeliveries()
	}
	return nil
}
