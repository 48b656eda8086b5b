package publish

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"postrider/internal/catalog"
	"postrider/internal/postgres"
)

// SmallBody is the size in bytes above which a body needs a reservation before it is read.
const SmallBody = 64 << 10

// Back-pressure: above these bounds, requests wait for memory, first come first served, and get an OverloadError after
// maxReserveTime.
const (
	// largeBodies bounds the bodies above SmallBody: two groups are stored while as much is read. With 256 publishers of
	// 1 MB, 24 MiB took 13 MB more memory and stored no more events per second.
	largeBodies = 16 << 20
	// smallBodies is separate, so that small requests do not wait for large ones. They were read before: those that wait
	// are bounded, too.
	smallBodies  = 8 << 20
	waitingSmall = 32 << 20

	maxReserveTime    = 10 * time.Second
	maxQueuedRequests = 20_000
)

// OverloadError means: the node has too many publish requests, and stored nothing of this one. The publisher may try
// again.
type OverloadError struct{ reason string }

// Error returns what waits, the bound, and what to do.
func (e *OverloadError) Error() string { return e.reason }

// Is reports that the same request may succeed later.
func (*OverloadError) Is(target error) bool { return target == postgres.ErrUnavailable }

func tooManyRequests() error {
	return &OverloadError{fmt.Sprintf("too many requests wait: more than %d publish requests wait on this node; publish "+
		"more events per request, or add nodes", maxQueuedRequests)}
}

// bodies bounds the memory for the bodies of publish requests.
type bodies struct {
	small, large bodyLimit
}

type bodyLimit struct {
	*semaphore.Weighted
	bound int64
	most  int64 // that may wait; 0 = any number: they are not read
	// reserved and waiting are bytes. waiting are those of requests without a reservation.
	reserved, waiting atomic.Int64
}

func newBodies() *bodies {
	b := &bodies{small: bodyLimit{bound: smallBodies, most: waitingSmall}, large: bodyLimit{bound: largeBodies}}
	for _, l := range []*bodyLimit{&b.small, &b.large} {
		l.Weighted = semaphore.NewWeighted(l.bound)
	}
	return b
}

// reserve waits for memory. queued counts the requests that wait.
func (b *bodies) reserve(ctx context.Context, bytes int64, queued *atomic.Int64) (*Reservation, error) {
	limit := &b.large
	if bytes <= SmallBody {
		limit = &b.small
	}
	bytes = min(bytes, limit.bound)
	if !limit.TryAcquire(bytes) {
		if err := limit.wait(ctx, bytes, queued); err != nil {
			return nil, err
		}
	}
	limit.reserved.Add(bytes)
	return &Reservation{limit, bytes}, nil
}

var errReserveTime = errors.New("no memory was free in time")

func (l *bodyLimit) wait(ctx context.Context, bytes int64, queued *atomic.Int64) error {
	defer queued.Add(-1)
	if queued.Add(1) > maxQueuedRequests {
		return tooManyRequests()
	}
	defer l.waiting.Add(-bytes)
	if waiting := l.waiting.Add(bytes); l.most > 0 && waiting > l.most {
		return &OverloadError{fmt.Sprintf("too many bytes wait: more than %d bytes of requests that were read; retry later, "+
			"or add nodes", l.most)}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, maxReserveTime, errReserveTime)
	defer cancel()
	err := l.Acquire(ctx, bytes)
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.Is(cause, errReserveTime):
		return &OverloadError{fmt.Sprintf("too many bytes wait: bodies of %d bytes wait for the %d bytes that this node "+
			"stores at once, and this one waited %s; retry later, publish fewer large events at once, or add nodes",
			l.waiting.Load(), l.bound, maxReserveTime)}
	default:
		return fmt.Errorf("%w: %w", postgres.ErrUnavailable, cause)
	}
}

// Reservation is memory for the body of a publish request. It is for one goroutine.
type Reservation struct {
	limit *bodyLimit
	bytes int64
}

// Shrink releases what the body did not need, when its size is known.
func (r *Reservation) Shrink(bytes int64) {
	if unused := r.bytes - bytes; unused > 0 {
		r.limit.reserved.Add(-unused)
		r.limit.Release(unused)
		r.bytes = bytes
	}
}

// Release releases all of it. Call it after Publish.
func (r *Reservation) Release() { r.Shrink(0) }

// Reserve reserves memory for the body of a publish to a topic that authorize allows. bytes is its size, or the most
// that it may have. While the memory is in use, it waits. Errors: ErrNotFound, ErrUnauthorized, an OverloadError after
// 10 s, ErrUnavailable.
func (p *Publisher) Reserve(
	ctx context.Context, topic string, authorize func(*catalog.Topic) bool, bytes int64,
) (*Reservation, error) {
	req := &publishRequest{Publication: Publication{Topic: topic, Authorize: authorize}}
	if err := p.admit(ctx, req); err != nil {
		return nil, err
	}
	return p.bodies.reserve(ctx, bytes, &p.queuedRequests)
}
