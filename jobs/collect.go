package jobs

import (
	"context"
	"sync"
	"time"
)

const (
	// collectPoll finds publishes by SQL without a notification: their publisher chose not to notify, their transaction
	// was longer than the watch that it saw, or the notification was lost. Due finds them earlier, unless it is busy.
	collectPoll = 5 * time.Second
	// collectRetry follows an error.
	collectRetry = 500 * time.Millisecond
	// collectPause is the pause between two searches while publishes come; no publisher has to notify then. A search
	// takes 0.25 ms.
	collectPause = 5 * time.Millisecond
	// collectRestEach and collectRestMost lengthen that pause with the number of publishes: in groups of 300 an event
	// takes PostgreSQL two thirds of the time that it takes in groups of 100.
	collectRestEach = 500 * time.Microsecond
	collectRestMost = 250 * time.Millisecond
	// collectPatience is how long the searches go on when no more publishes come. In its first third the watch is
	// renewed, which then holds for a second: the last third is for transactions that end later.
	collectPatience = 3 * time.Second
)

// collect gathers publishes by SQL.
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

// collectRest returns the pause after a search that found n publishes. A search that found none takes long if
// PostgreSQL cannot remove those that are gone, because a transaction stays open for hours.
func collectRest(n int, took time.Duration) time.Duration {
	rest := time.Duration(n) * collectRestEach
	if n == 0 {
		rest = 3 * took
	}
	return min(max(rest, collectPause), collectRestMost)
}

// collectOnce also creates the deliveries. Publishes that come meanwhile are gathered together next time: the more, the
// busier the node is.
func (e *Engine) collectOnce(ctx context.Context) (n int, took time.Duration) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, clockworkTimeout)
	defer cancel()
	n, jobs, err := e.parts.Publisher.CollectPublishes(bounded)
	if err != nil && ctx.Err() == nil {
		e.log.Warn("publishes by SQL could not be gathered, trying again", "in", collectRetry, "error", err)
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

// watchPublishes returns the time after which the watch has to be renewed.
func (e *Engine) watchPublishes(ctx context.Context) time.Duration {
	bounded, cancel := context.WithTimeout(ctx, clockworkTimeout)
	defer cancel()
	promised, err := e.parts.Publisher.WatchPublishes(bounded)
	if err != nil {
		e.log.Warn("the watch for publishes by SQL could not be renewed; their publishers notify meanwhile", "error", err)
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
