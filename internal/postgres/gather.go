package postgres

import (
	"cmp"
	"context"
	"time"
)

// Gathering lets the groups of a Batcher grow while items arrive fast: they share the fixed cost of a transaction,
// which is that of some twenty rows. A group waits only soon after the one before it, and a wait that brings too few
// items is not repeated soon, so that items do not wait at a low rate.
type Gathering struct {
	// Enough is the size of a group that does not wait; 0 = none waits. Longest is how long a group waits.
	Enough  int
	Longest time.Duration
	// Quiet is a pause that ends the wait: clients that wait for their responses send all their items at once, and then
	// none. 0 = none ends it.
	Quiet time.Duration
	// Worth is how many items a wait must bring. With fewer, waiting costs more than it saves.
	Worth int
}

const (
	// After a wait that brought too few items, none is tried for minCooldown, then for twice as long, up to maxCooldown.
	minCooldown = 10 * time.Millisecond
	maxCooldown = 2560 * time.Millisecond
)

// cooldown is the time in which groups do not wait.
type cooldown struct {
	length time.Duration // 0 = the last wait was worthwhile
	end    time.Time
}

// gather waits until enough items are queued, no more arrive, or the longest wait is over. last is when the group
// before ended.
func (b *Batcher[T]) gather(ctx context.Context, last time.Time) {
	select {
	case <-b.enough: // of an earlier group
	default:
	}
	first, began := b.Len(), time.Now()
	lone := began.Sub(last) > b.gathering.Longest
	if first == 0 || first >= b.gathering.Enough || lone || began.Before(b.cooldown.end) {
		return
	}
	n, now := first, began
	for more := true; more && n < b.gathering.Enough && now.Sub(began) < b.gathering.Longest; {
		select {
		case <-time.After(cmp.Or(b.gathering.Quiet, b.gathering.Longest)):
		case <-b.enough:
		case <-ctx.Done():
			return
		}
		before := n
		n, now = b.Len(), time.Now()
		more = n > before
	}
	b.cooldown.length = min(max(2*b.cooldown.length, minCooldown), maxCooldown)
	if n-first >= b.gathering.Worth {
		b.cooldown.length = 0
	}
	b.cooldown.end = now.Add(b.cooldown.length)
}
