package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Requests of this many events are grouped apart, so that no single event waits for them. Two such groups are stored at once:
	// one is under way while the other waits for the disk. A transaction for each request, four at once, took 37,300 events/s where
	// two groups take 51,400 (and three 53,500).
	largeEvents = 100
	largeAtOnce = 2
	// keyedAtOnce: while a large request is looked for and stored, another group goes on.
	keyedAtOnce = 2
	// routesAtOnce bounds the requests that are stored with a route: each may hold a connection for hundreds of milliseconds.
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

// committer stores publish requests in groups: whatever waits goes into one transaction (T1). One commit then serves
// many requests: 41k events/s against 3.5k/s with a transaction each.
type committer struct {
	store        *Store
	small, large *batcher[*publishRequest]
	keyed        *batcher[*publishRequest] // what may have been stored before: with an idempotency key, or of a topic that detects duplicates
	waiting      *batcher[*publishRequest] // those of keyed that met somebody else who is at the same; apart, they hold up nobody
	routes       chan struct{}
	bytes        atomic.Int64
	length       atomic.Int64
}

func newCommitter(s *Store) *committer {
	return &committer{
		store: s, small: newBatcher[*publishRequest](), large: newBatcher[*publishRequest](),
		keyed: newBatcher[*publishRequest](), waiting: newBatcher[*publishRequest](),
		routes: make(chan struct{}, routesAtOnce),
	}
}

func (c *committer) run(ctx context.Context) {
	var group sync.WaitGroup
	for range largeAtOnce {
		group.Go(func() { c.large.run(ctx, fitsGroup, c.flush) })
	}
	for range keyedAtOnce {
		group.Go(func() { c.keyed.run(ctx, fitsKeyed, c.flush) })
	}
	group.Go(func() { c.waiting.run(ctx, fitsKeyed, c.flush) })
	c.small.run(ctx, fitsGroup, c.flush)
	group.Wait()
}

// queue is where a request waits for the next group.
func (c *committer) queue(req *publishRequest) *batcher[*publishRequest] {
	if req.keyed {
		return c.keyed
	}
	if len(req.receipt.Events) >= largeEvents {
		return c.large
	}
	return c.small
}

// fitsGroup measures one group: always at least one request.
func fitsGroup() func(*publishRequest) bool {
	events, deliveries, bytes := 0, 0, int64(0)
	return func(req *publishRequest) bool {
		first := events == 0
		events += len(req.receipt.Events)
		deliveries += req.receipt.Deliveries()
		bytes += req.bytes
		return first || (events <= groupEvents && deliveries <= groupDeliveries && bytes <= groupBytes)
	}
}

func (c *committer) commitOrQueue(ctx context.Context, req *publishRequest) error {
	bytes, length := c.bytes.Add(req.bytes), c.length.Add(1)
	defer func() {
		c.bytes.Add(-req.bytes)
		c.length.Add(-1)
	}()
	if bytes > maxQueuedBytes || length > maxQueuedRequests {
		return fmt.Errorf("%w: too many publish requests wait for the database", ErrUnavailable)
	}
	if req.keyed = req.mayRepeat(); req.routed && !req.keyed {
		return c.commitRoute(ctx, req)
	}
	c.queue(req).add(req)
	select {
	case err := <-req.done:
		return err
	case <-ctx.Done():
		if req.claimed.CompareAndSwap(false, true) {
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
		return <-req.done // already in a transaction: its end is near, and the answer must be true
	}
}

func (c *committer) commitRoute(ctx context.Context, req *publishRequest) error {
	wait, cancel := context.WithTimeout(ctx, maxQueuedTime)
	defer cancel()
	select {
	case c.routes <- struct{}{}:
		defer func() { <-c.routes }()
	case <-wait.Done():
		return fmt.Errorf("%w: the database is busy with other large requests", ErrUnavailable)
	}
	c.finish(ctx, []*publishRequest{req})
	return <-req.done
}

func (c *committer) flush(group []*publishRequest) {
	live := make([]*publishRequest, 0, len(group))
	for _, req := range group {
		switch {
		case !req.claimed.CompareAndSwap(false, true): // the client went away before its turn
		case time.Since(req.queued) > maxQueuedTime:
			req.answer(fmt.Errorf("%w: the request waited %s for the database", ErrUnavailable, maxQueuedTime))
		default:
			req.postponed = false
			live = append(live, req)
		}
	}
	c.finish(context.Background(), live)
}

// finish brings every request of the group to an answer, or puts it off.
func (c *committer) finish(ctx context.Context, group []*publishRequest) {
	defer c.putOff(group)
	var err error
	for try := 0; try < commitTries && len(group) > 0; try++ {
		group = refilter(group, c.store.Catalogue())
		commit := c.commit
		switch {
		case len(group) > 0 && group[0].keyed: // then all of them are
			commit = func(ctx context.Context, part []*publishRequest) error {
				return c.commitKeyed(ctx, part, try >= optimisticTries)
			}
		case try >= optimisticTries:
			commit = c.commitFiltered
		}
		err = isolate(group, func(part []*publishRequest) error { return commit(ctx, part) }, refuse)
		c.store.Noticed(err)
		if group = unanswered(group); len(group) == 0 || !c.again(ctx, err) {
			break
		}
	}
	for _, req := range group {
		req.answer(fmt.Errorf("%w: %w", ErrUnavailable, err))
	}
}

// again reports whether the same group may succeed when it is tried once more.
func (c *committer) again(ctx context.Context, err error) bool {
	if errors.Is(err, errStale) {
		return c.store.Reload(ctx) == nil
	}
	return isTransient(err)
}

// refilter answers the requests that the catalogue refuses and returns the others, all of its version. Those whose topic has begun to
// detect duplicates since they were queued are put off, for another queue.
func refilter(group []*publishRequest, catalogue *Catalogue) []*publishRequest {
	kept := make([]*publishRequest, 0, len(group)) // not in place: the caller still holds group
	for _, req := range group {
		if err := req.refilter(catalogue); err != nil {
			req.answer(err)
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

func refuse(req *publishRequest, err error) error {
	req.answer(fmt.Errorf("%w: %w", ErrPoison, err))
	return nil
}

func unanswered(group []*publishRequest) []*publishRequest {
	rest := make([]*publishRequest, 0, len(group))
	for _, req := range group {
		if !req.answered && !req.postponed {
			rest = append(rest, req)
		}
	}
	return rest
}
