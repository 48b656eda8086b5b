package jobs

import (
	"context"
	"sync"
	"time"
)

const (
	// promote looks for publishes by SQL that nobody told of, every 250 ms: they were not to wake anybody, their
	// transaction went on for longer than the watch they met, or the notification was lost. collectPoll is for when it is
	// busy.
	collectPoll = 5 * time.Second
	// collectRetry follows an error.
	collectRetry = 500 * time.Millisecond
	// While they come, it looks again after as long, and nobody has to wake it. A look takes a quarter of a millisecond.
	collectPause = 5 * time.Millisecond
	// More of them are gathered with more time between: in groups of 300 an event takes PostgreSQL two thirds of what it
	// takes in groups of 100.
	collectRestEach = 500 * time.Microsecond
	collectRestMost = 250 * time.Millisecond
	// collectPatience is how long it goes on when none come any more. In the first third of it the watch is renewed, which
	// then holds for a second: the last third is for transactions that end later.
	collectPatience = 3 * time.Second
)

// collect gathers what is published by SQL.
func (e *Engine) collect(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wake.CollectRequested():
		case <-time.After(collectPoll):
		}
		n, took := e.collectOnce(ctx)
		if n > 0 {
			e.collectAwhile(ctx)
		} else { // any login can send wake-ups without an end
			pause(ctx, collectRest(n, took))
		}
	}
}

func (e *Engine) collectAwhile(ctx context.Context) {
	var idle, watched time.Duration
	last := time.Now()
	for idle < collectPatience && ctx.Err() == nil {
		if watched <= 0 && idle < collectPatience/3 {
			watched = e.watchPublishes(ctx)
		}
		n, took := e.collectOnce(ctx)
		pause(ctx, collectRest(n, took))
		passed := time.Since(last)
		last, idle, watched = last.Add(passed), idle+passed, watched-passed
		if n > 0 {
			idle = 0
		}
	}
}

// collectRest is how long the next look waits after one that found n. One that found nothing is long where PostgreSQL
// cannot forget those that are gone, for a transaction that stays open for hours.
func collectRest(n int, took time.Duration) time.Duration {
	rest := time.Duration(n) * collectRestEach
	if n == 0 {
		rest = 3 * took
	}
	return min(max(rest, collectPause), collectRestMost)
}

// collectOnce also makes the deliveries: what comes meanwhile is gathered together next time, the more the more there
// is to do.
func (e *Engine) collectOnce(ctx context.Context) (n int, took time.Duration) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, clockworkTimeout)
	defer cancel()
	n, jobs, err := e.store.Publisher.CollectPublishes(bounded)
	if err != nil && ctx.Err() == nil {
		e.log.Warn("what was published by SQL could not be gathered, trying again", "in", collectRetry, "error", err)
		pause(ctx, collectRetry)
	}
	took = time.Since(began)
	var made sync.WaitGroup
	for _, job := range jobs {
		made.Go(func() {
			if err := e.route(ctx, job); err != nil && ctx.Err() == nil {
				// It is taken up again when it was in nobody's hands for 15 s; its row says which topic and events.
				e.log.Error("events that were published by SQL have no deliveries yet: PostgreSQL refuses to make them, trying "+
					"again; postrider_internal.routes has their topic and ids", "route_job", job, "error", err)
			}
		})
	}
	made.Wait()
	return n, took
}

// watchPublishes says after how long the watch has to be renewed.
func (e *Engine) watchPublishes(ctx context.Context) time.Duration {
	bounded, cancel := context.WithTimeout(ctx, clockworkTimeout)
	defer cancel()
	promised, err := e.store.Publisher.WatchPublishes(bounded)
	if err != nil {
		e.log.Warn("publishers by SQL could not be told that this node is looking; they go on to notify", "error", err)
	}
	return promised / 2
}

// pause returns after a while, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
