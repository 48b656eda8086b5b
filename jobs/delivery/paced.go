package delivery

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/catalog"
	"postrider/postgres"
)

var pacedStatement = sqlFile("paced.sql")

// createRatesStatement creates the rows of rate limits.
const createRatesStatement = `
INSERT INTO postrider_internal.delivery_rates (key) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`

const (
	// AheadOfTime is how far ahead a release takes the times of a rate limit. It is two intervals of the release.
	AheadOfTime = 500 * time.Millisecond
	// mostWait bounds how long a node relies on the next time that it has read.
	mostWait = time.Second
)

// paces remembers until when limits have no free time, by their keys.
type paces struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (p *paces) waits(by string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.until[by])
}

// next remembers how far the next time is away. It forgets those that have passed.
func (p *paces) next(by string, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.until == nil {
		p.until = map[string]time.Time{}
	}
	for other, until := range p.until {
		if !now.Before(until) {
			delete(p.until, other)
		}
	}
	if wait -= AheadOfTime; wait > 0 {
		p.until[by] = now.Add(min(wait, mostWait))
	}
}

// RefillPaced is Refill for an event subscription with rate limits: each released delivery or batch takes the next time
// of each limit. It does nothing while no time is free, and leaves what expires before its turn to ReleaseExpired. With
// an age, it releases last attempts: deliveries of at least this age, though their endpoint is closed. n is how many
// jobs have times now.
func (r *Releaser) RefillPaced(ctx context.Context, sub *catalog.Subscription, limits []catalog.Rate,
	age time.Duration, limit int,
) (n int, err error) {
	keys := postgres.Column(limits, func(l catalog.Rate) string { return l.Key })
	by := strings.Join(keys, " ")
	rules, known := r.cache.Snapshot().Rules(sub.ID)
	if len(limits) == 0 || !known || r.paces.waits(by, time.Now()) {
		return 0, nil
	}
	var released, cutters int
	var wait *float64
	err = r.db.QueryRow(ctx, pacedStatement, pgx.NamedArgs{
		"subscription": sub.ID, "limit": max(limit, 0), "keys": keys,
		"steps":     postgres.Column(limits, func(l catalog.Rate) time.Duration { return l.Step }),
		"bursts":    postgres.Column(limits, func(l catalog.Rate) int { return l.Burst }),
		"per_event": limits[0].PerEvent, "batching": sub.Batching(), "batch_size": sub.Batch().MaxEvents,
		"ahead_of_time": AheadOfTime, "age": age, "max_age": rules.MaxAge(), "last": age > 0,
		"probation": r.cache.Snapshot().ProbationKey(sub),
	}).Scan(&released, &cutters, &wait)
	if err == nil && wait == nil { // another node takes times, or there is no row yet
		_, err = r.db.Exec(ctx, createRatesStatement, keys)
	}
	if err != nil {
		return 0, fmt.Errorf("release deliveries within a rate limit: %w", err)
	}
	if wait != nil {
		r.paces.next(by, time.Duration(*wait*float64(time.Second)))
	}
	r.traffic.AddOne(sub.ID, released)
	if released+cutters > 0 {
		r.count.Add(int64(released))
		r.Reach(PointRefill)
		r.notifier.RequestDeliveries()
	}
	return released + cutters, nil
}
