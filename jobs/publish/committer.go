package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
)

const (
	// Requests of this many events, or above SmallBody, have separate groups, so that no single event waits for them. Two
	// such groups are stored at once: one uses the CPU while the other waits for the disk. A transaction for each request,
	// four at once, stored 37,300 events/s, two groups 51,400 (and three 53,500).
	largeEvents = 100
	largeAtOnce = 2
	// keyedAtOnce: while the keys of a large request are checked, another group is stored.
	keyedAtOnce = 2
	// routesAtOnce bounds the requests that are stored with a route. Each may hold a connection for hundreds of
	// milliseconds.
	routesAtOnce = 4

	groupEvents = 1000
	// groupDeliveries are what a step of a route creates, in half a second.
	groupDeliveries = routeStep
	// groupBytes: pgx copies the bodies of a group twice.
	groupBytes = 4 << 20

	// maxQueuedTime is how long a request waits for its group, see also maxReserveTime.
	maxQueuedTime = 10 * time.Second

	commitTimeout = 15 * time.Second
	commitTries   = 6
	// After so many tries with a catalog that keeps changing, the next one filters inside its transaction.
	optimisticTries = 2
)

// gathering delays the responses to publishers, and their deliveries: by one step at 1,000 events/s, by the longest
// wait above 2,000. In a simulation, steps of 2 ms took a fifth more transactions at 1,000 events/s.
var gathering = postgres.Gathering{
	Enough: largeEvents, Step: 3 * time.Millisecond, Worth: 6, Longest: 20 * time.Millisecond,
}

// errQueuedTooLong ends the wait of a request for a group.
var errQueuedTooLong = fmt.Errorf("the request waited %s for the database", maxQueuedTime)

// queue is where a request waits for the next group.
func (p *Publisher) queue(req *publishRequest) *postgres.Batcher[*publishRequest] {
	switch {
	case req.keyed:
		return p.keyed
	case req.routed:
		return p.routed
	case len(req.Receipt.Events) >= largeEvents || req.bytes > SmallBody:
		return p.large
	default:
		return p.small
	}
}

// commitOrQueue returns when the request is stored, has failed, or was taken out of its queue because ctx ended.
func (p *Publisher) commitOrQueue(ctx context.Context, req *publishRequest) error {
	defer p.queuedRequests.Add(-1)
	if p.queuedRequests.Add(1) > maxQueuedRequests {
		return tooManyRequests()
	}
	req.keyed = req.mayRepeat()
	p.queue(req).Add(req)
	ctx, cancel := context.WithTimeoutCause(ctx, maxQueuedTime, errQueuedTooLong)
	defer cancel()
	select {
	case err := <-req.done:
		return err
	case <-ctx.Done():
		if req.claimed.CompareAndSwap(false, true) {
			return fmt.Errorf("%w: %w", postgres.ErrUnavailable, context.Cause(ctx))
		}
		return <-req.done // in a transaction, which ends soon
	}
}

// fitsGroup limits one group, which has at least one request.
func fitsGroup() func(*publishRequest) bool {
	events, deliveries, bytes := 0, 0, int64(0)
	return func(req *publishRequest) bool {
		first := events == 0
		events += len(req.Receipt.Events)
		deliveries += req.Receipt.Deliveries()
		bytes += req.bytes
		return first || (events <= groupEvents && deliveries <= groupDeliveries && bytes <= groupBytes)
	}
}

// pace calls flush with a group, after a wait while the workers cannot keep up with publishes, but not at a stop.
// Requests that arrived meanwhile join the group: they would wait twice.
func (p *Publisher) pace(ctx context.Context, group []*publishRequest, more func() []*publishRequest) {
	if jobsOf(group) > 0 && p.Backpressure.Wait(ctx) {
		group = append(group, more()...)
	}
	p.flush(group)
}

// jobsOf counts the deliveries that have their own jobs. A batch has one for many, a consumer needs none.
func jobsOf(group []*publishRequest) int {
	n := 0
	for _, req := range group {
		for _, subscribers := range req.subscribers {
			for _, sub := range subscribers {
				if !sub.Batching() && !sub.Pulled() {
					n++
				}
			}
		}
	}
	return n
}

// flush stores a group and completes its requests. A postponed request may be in another group later.
func (p *Publisher) flush(group []*publishRequest) {
	live := make([]*publishRequest, 0, len(group))
	for _, req := range group {
		switch {
		case !req.claimed.CompareAndSwap(false, true): // its client has disconnected, or it waited too long
		case time.Since(req.queued) > maxQueuedTime: // in a group that postponed it
			req.respond(fmt.Errorf("%w: %w", postgres.ErrUnavailable, errQueuedTooLong))
		default:
			req.postponed = false
			live = append(live, req)
		}
	}
	p.store(live)
	for _, req := range live {
		if req.postponed {
			req.claimed.Store(false) // its client may disconnect
			p.waiting.AddLater(keyPause, req)
		}
	}
}

// store tries to commit a group until all its requests are completed or postponed.
func (p *Publisher) store(group []*publishRequest) {
	ctx := context.Background()
	var err error
	for try := 0; try < commitTries && len(group) > 0; try++ {
		if group = refilter(group, p.Cache.Snapshot()); len(group) == 0 {
			break
		}
		commit := func(part []*publishRequest) error { return p.commit(ctx, part, try >= p.optimistic) }
		err = postgres.Isolate(group, commit, reject)
		if group = unfinished(group); len(group) == 0 || !p.again(ctx, err) {
			p.Commits.Noted(postgres.PublishCommits, err)
			break
		}
	}
	for _, req := range group {
		req.respond(fmt.Errorf("%w: %w", postgres.ErrUnavailable, err))
	}
}

// again reports whether the same group may succeed when it is tried once more.
func (p *Publisher) again(ctx context.Context, err error) bool {
	if errors.Is(err, errStale) {
		return p.Cache.Reload(ctx) == nil
	}
	return errors.Is(err, errObstacle) || postgres.IsTransient(err)
}

// refilter completes the requests that the catalog rejects and returns the others, all of its version. It postpones
// requests whose topic has begun to detect duplicates since they were queued: they need another queue.
func refilter(group []*publishRequest, snapshot *catalog.Snapshot) []*publishRequest {
	kept := make([]*publishRequest, 0, len(group)) // not in place: the caller still uses group
	for _, req := range group {
		if err := req.refilter(snapshot); err != nil {
			req.respond(err)
			continue
		}
		if !req.keyed && req.mayRepeat() {
			req.keyed, req.postponed = true, true
			continue
		}
		kept = append(kept, req)
	}
	return kept
}

func reject(req *publishRequest, err error) error {
	req.respond(fmt.Errorf("%w: %w", postgres.ErrPoison, err))
	return nil
}

func unfinished(group []*publishRequest) []*publishRequest {
	ended := func(req *publishRequest) bool { return req.finished || req.postponed }
	return slices.DeleteFunc(slices.Clone(group), ended)
}
