package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Batcher groups items: while one group is being processed, the next one grows. A single item never waits, and groups
// grow with the load.
type Batcher[T any] struct {
	mu        sync.Mutex
	waiting   []T
	later     int // calls of AddLater whose items are not queued yet
	wake      chan struct{}
	enough    chan struct{} // a group need not wait any longer
	gathering Gathering
	cooldown  cooldown
	sizes     groupSizes // Add reads them, too
}

// NewBatcher returns an empty batcher.
func NewBatcher[T any]() *Batcher[T] { return &Batcher[T]{wake: make(chan struct{}, 1)} }

// NewGatheringBatcher returns an empty batcher for one Run, whose groups wait for more items.
func NewGatheringBatcher[T any](g Gathering) *Batcher[T] {
	b := NewBatcher[T]()
	b.gathering, b.enough = g, make(chan struct{}, 1)
	return b
}

// Add queues items.
func (b *Batcher[T]) Add(items ...T) {
	b.mu.Lock()
	b.waiting = append(b.waiting, items...)
	enough := len(b.waiting) >= b.sizes.complete(b.gathering.Enough)
	b.mu.Unlock()
	signal(b.wake)
	if enough {
		signal(b.enough)
	}
}

// AddLater queues items after a pause. No Run ends before.
func (b *Batcher[T]) AddLater(pause time.Duration, items ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later++
	time.AfterFunc(pause, func() {
		b.Add(items...)
		b.mu.Lock()
		b.later--
		b.mu.Unlock()
		signal(b.wake)
	})
}

// signal sends to a channel of one element unless it is full; to nil it sends nothing.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take removes the longest beginning of the queue that fits. It calls fits for one item after the other.
func (b *Batcher[T]) take(fits func(T) bool) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.waiting) && fits(b.waiting[n]) {
		n++
	}
	group := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	if len(b.waiting) == 0 {
		b.waiting = nil // frees the memory of finished groups
	} else if n > 0 {
		signal(b.wake) // another Run may take the rest
	}
	return group
}

// Run calls flush with one group after the other until ctx ends and no item waits or will be added by AddLater. newFits
// returns a group's limit: a function that reports whether the next item fits. Several Runs may be active at once.
func (b *Batcher[T]) Run(ctx context.Context, newFits func() func(T) bool, flush func([]T)) {
	defer signal(b.wake) // another Run may end, too
	var last time.Time   // the end of the last group
	for {
		for {
			b.gather(ctx, last)
			group := b.take(newFits())
			if len(group) == 0 {
				break
			}
			flush(group)
			last = time.Now()
			b.processed(len(group))
		}
		stopping := ctx.Done()
		if ctx.Err() != nil {
			if b.empty() {
				return
			}
			stopping = nil
		}
		select {
		case <-stopping:
		case <-b.wake:
		}
	}
}

// processed notes the size of a group, if groups wait: then there is one Run.
func (b *Batcher[T]) processed(size int) {
	if b.gathering.Enough == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes.note(size, len(b.waiting) > 0)
}

// empty reports that no item waits or will be added by AddLater.
func (b *Batcher[T]) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && b.later == 0
}

// AtMost limits groups to n items.
func AtMost[T any](n int) func() func(T) bool {
	return func() func(T) bool {
		left := n
		return func(T) bool { left--; return left >= 0 }
	}
}

// TakeMore removes the items that may join the group that a Run has just taken with this limit.
func (b *Batcher[T]) TakeMore(fits func(T) bool) []T { return b.take(fits) }

// Len is the number of queued items.
func (b *Batcher[T]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// Isolate calls do with the group. On an error that the data causes, it halves the group until the item that causes it
// is alone: only this item is passed to fail, all others succeed. Any other error is returned; then some items may
// already be done.
func Isolate[T any](group []T, do func([]T) error, fail func(T, error) error) error {
	err := do(group)
	if err == nil || !IsPoison(err) {
		return err
	}
	if len(group) == 1 {
		return fail(group[0], err)
	}
	middle := len(group) / 2
	if err := Isolate(group[:middle], do, fail); err != nil {
		return err
	}
	return Isolate(group[middle:], do, fail)
}

// WaitJittered waits before another try for 50 to 100 % of pause, so that nodes that failed together do not retry
// together. It returns false if ctx ended first.
func WaitJittered(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause/2 + rand.N(pause/2)): //nolint:gosec // it protects no secret
		return true
	}
}
