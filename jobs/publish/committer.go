package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"postrider/postgres"
)

const (
	// Requests of this many events are grouped apart, so that no single event waits for them. Two such groups are stored
	// at once: one is under way while the other waits for the disk. A transaction for each request, four at once, took
	// 37,300 events/s where two groups take 51,400 (and three 53,500).
	largeEvents = 100
	largeAtOnce = 2
	// keyedAtOnce: while a large request is looked for and stored, another group goes on.
	keyedAtOnce = 2
	// routesAtOnce bounds the requests that are stored with a route: each may hold a connection for hundreds of
	// milliseconds.
	routesAtOnce = 4

	groupEvents = 1000
	// groupDeliveries are what a route's step makes, in half a second.
	groupDeliveries = routeStep
	groupBytes      = 8 << 20

	// Back-pressure: past these bounds a publisher is told to come again instead of waiting unseen.
	maxQueuedBytes    = 64 << 20
	maxQueuedRequests = 20_000
	maxQueuedTime     = 10 * time.Second

	commitTimeout = 15 * time.Second
	commitTries   = 6
	// After so many tries against a catalogue that keeps moving, the next one filters inside its transaction.
	optimisticTries = 2
)

// queue is where a request waits for the next group.
func (p *Publisher) queue(req *publishRequest) *postgres.Batcher[*publishRequest] {
	if req.keyed {
		return p.keyed
	}
	if len(req.Receipt.Events) >= largeEvents {
		return p.large
	}
	return p.small
}

func (p *Publisher) commitOrQueue(ctx context.Context, req *publishRequest) error {
	bytes, length := p.queuedBytes.Add(req.bytes), p.queuedRequests.Add(1)
	defer func() {
		p.queuedBytes.Add(-req.bytes)
		p.queuedRequests.Add(-1)
	}()
	if bytes > maxQueuedBytes || length > maxQueuedRequests {
		return fmt.Errorf("%w: too many publish requests wait for the database", postgres.ErrUnavailable)
	}
	if req.keyed = req.mayRepeat(); req.routed && !req.keyed {
		return p.commitRoute(ctx, req)
	}
	p.queue(req).Add(req)
	select {
	case err := <-req.done:
		return err
	case <-ctx.Done():
		if req.claimed.CompareAndSwap(false, true) {
			return fmt.Errorf("%w: %w", postgres.ErrUnavailable, ctx.Err())
		}
		return <-req.done // already in a transaction: its end is near, and the answer must be true
	}
}

func (p *Publisher) commitRoute(ctx context.Context, req *publishRequest) error {
	wait, cancel := context.WithTimeout(ctx, maxQueuedTime)
	defer cancel()
	select {
	case p.storingRoutes <- struct{}{}:
		defer func() { <-p.storingRoutes }()
	case <-wait.Done():
		return fmt.Errorf("%w: the database is busy with other large requests", postgres.ErrUnavailable)
	}
	p.finish(ctx, []*publishRequest{req})
	return <-req.done
}

func (p *Publisher) flush(group []*publishRequest) {
	live := make([]*publishRequest, 0, len(group))
	for _, req := range group {
		switch {
		case !req.claimed.CompareAndSwap(false, true): // the client went away before its turn
		case time.Since(req.queued) > maxQueuedTime:
			req.answer(fmt.Errorf("%w: the request waited %s for the database", postgres.ErrUnavailable, maxQueuedTime))
		default:
			req.postponed = false
			live = append(live, req)
		}
	}
	p.finish(context.Background(), live)
}

// finish brings every request of the group to an answer, or puts it off.
func (p *Publisher) finish(ctx context.Context, group []*publishRequest) {
	defer p.deferBusy(group)
	var err error
	for try := 0; try < commitTries && len(group) > 0; try++ {
		group = refilter(group, p.Cache.Snapshot())
		err = postgres.Isolate(group,
			func(part []*publishRequest) error { return p.commit(ctx, part, try >= p.optimistic) }, refuse)
		p.Disk.Noticed(err)
		if group = unanswered(group); len(group) == 0 || !p.again(ctx, err) {
			break
		}
	}
	for _, req := range group {
		req.answer(fmt.Errorf("%w: %w", postgres.ErrUnavailable, err))
	}
}

// again reports whether the same group may succeed when it is tried once more.
func (p *Publisher) again(ctx context.Context, err error) bool {
	if errors.Is(err, errStale) {
		return p.Cache.Reload(ctx) == nil
	}
	return postgres.IsTransient(err)
}
