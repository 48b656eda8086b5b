package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Batcher groups what callers hand in, without a timer: while one group is being worked on, the next one gathers. A
// lone item never waits, and under load groups grow by themselves (a timer of 5 ms cost 20 % of the throughput).
type Batcher[T any] struct {
	mu      sync.Mutex
	waiting []T
	wake    chan struct{}
}

// NewBatcher returns an empty batcher.
func NewBatcher[T any]() *Batcher[T] { return &Batcher[T]{wake: make(chan struct{}, 1)} }

// Add queues items.
func (b *Batcher[T]) Add(items ...T) {
	b.mu.Lock()
	b.waiting = append(b.waiting, items...)
	b.mu.Unlock()
	b.poke()
}

func (b *Batcher[T]) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take removes the longest beginning of the queue that fits; fits is asked item by item, in order.
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
		b.waiting = nil // lets the finished groups' memory go
	} else if n > 0 {
		b.poke() // another one may run
	}
	return group
}

// Run calls flush with group after group until ctx ends and nothing waits. newFits makes the measure of one group.
// Several may run at once.
func (b *Batcher[T]) Run(ctx context.Context, newFits func() func(T) bool, flush func([]T)) {
	for {
		for {
			group := b.take(newFits())
			if len(group) == 0 {
				break
			}
			flush(group)
		}
		select {
		case <-ctx.Done():
			if b.empty() {
				return
			}
		case <-b.wake:
		}
	}
}

// AtMost measures groups of up to n items.
func AtMost[T any](n int) func() func(T) bool {
	return func() func(T) bool {
		left := n
		return func(T) bool { left--; return left >= 0 }
	}
}

func (b *Batcher[T]) empty() bool { return b.Len() == 0 }

// Len is the number of queued items.
func (b *Batcher[T]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting)
}

// Isolate hands the group to do. When the database blames the data, the group is halved until the guilty item stands
// alone: only it is blamed, all others succeed. Any other error is returned; then some items may already be done.
func Isolate[T any](group []T, do func([]T) error, blame func(T, error) error) error {
	err := do(group)
	if err == nil || !IsPoison(err) {
		return err
	}
	if len(group) == 1 {
		return blame(group[0], err)
	}
	middle := len(group) / 2
	if err := Isolate(group[:middle], do, blame); err != nil {
		return err
	}
	return Isolate(group[middle:], do, blame)
}

// WaitJittered waits before another try, for half of the time given to all of it: so nodes that failed together do not
// come back together. It is false where ctx ended first.
func WaitJittered(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause/2 + rand.N(pause/2)): //nolint:gosec // spreads nodes, keeps no secret
		return true
	}
}
