package jobs

import (
	"context"
	"sync"
	"time"
)

const (
	// collectPoll finds publishes by SQL without a notification: their publisher did not notify, their transaction was
	// longer than the watch that it saw, or the notification was lost. Due finds them earlier, unless it is busy.
	collectPoll = 5 * time.Second
	// collectRetry follows an error.
	collectRetry = 500 * time.Millisecond
	// collectPause is the pause between two searches while publishes arrive; publishers need not notify then. A search
	// takes 0.25 ms.
	collectPause = 5 * time.Millisecond
	// collectPauseEach and collectPauseMax lengthen that pause with the number of publishes: in groups of 300 an event
	// takes PostgreSQL two thirds of the time that it takes in groups of 100.
	collectPauseEach = 500 * time.Microsecond
	collectPauseMax  = 250 * time.Millisecond
	// collectIdle is how long the searches continue after the last publish. The watch, which is valid for a second, is
	// renewed in its first third: the last third is for transactions that end later.
	collectIdle = 3 * time.Second
)

// collect collects publishes by SQL.
func (e *Engine) collect(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.parts.Wake.CollectRequested():
		case <-time.After(collectPoll):
		}
		n, took := e.collectOnce(ctx)
		if n > 0 {
			e.collectUntilIdle(ctx)
		} else { // any login can send wake-ups all the time
			pause(ctx, pauseAfter(n, took))
		}
	}
}

func (e *Engine) collectUntilIdle(ctx context.Context) {
	var idle, watched time.Duration
	last := time.Now()
	for idle < collectIdle && ctx.Err() == nil {
		if watched <= 0 && idle < collectIdle/3 {
			watched = e.watchPublishes(ctx)
		}
		n, took := e.collectOnce(ctx)
		pause(ctx, pauseAfter(n, took))
		passed := time.Since(last)
		last, idle, watched = last.Add(passed), idle+passed, watched-passed
		if n > 0 {
			idle = 0
		}
	}
}

// pauseAfter returns the pause after a search that found n publishes. A search that found none takes long if PostgreSQL
// cannot remove dead rows, because a transaction stays open for hours.
func pauseAfter(n int, took time.Duration) time.Duration {
	wait := time.Duration(n) * collectPauseEach
	if n == 0 {
		wait = 3 * took
	}
	return min(max(wait, collectPause), collectPauseMax)
}

// collectOnce collects the publishes that have arrived and creates their deliveries.
func (e *Engine) collectOnce(ctx context.Context) (n int, took time.Duration) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	n, jobs, err := e.parts.Publisher.CollectPublishes(bounded)
	if err != nil && ctx.Err() == nil {
		e.log.Warn("publishes by SQL could not be collected, trying again", "in", collectRetry, "error", err)
		pause(ctx, collectRetry)
	}
	took = time.Since(began)
	var routed sync.WaitGroup
	for _, job := range jobs {
		routed.Go(func() {
			if err := e.route(ctx, job); err != nil && ctx.Err() == nil {
				// It is reclaimed after 15 s. Its row has the topic and the events.
				e.log.Error("deliveries of events published by SQL could not be created, trying again; "+
					"postrider_internal.routes has their topic and ids", "route_job", job, "error", err)
			}
		})
	}
	routed.Wait()
	return n, took
}

// watchPublishes renews the watch and returns the time until the next renewal.
func (e *Engine) watchPublishes(ctx context.Context) time.Duration {
	bounded, cancel := context.WithTimeout(ctx, loopTimeout)
	defer cancel()
	valid, err := e.parts.Publisher.WatchPublishes(bounded)
	if err != nil {
		e.log.Warn("the watch for publishes by SQL could not be renewed; their publishers notify meanwhile", "error", err)
	}
	return valid / 2
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
