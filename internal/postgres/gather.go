package postgres

import (
	"context"
	"time"
)

// Gathering lets the groups of a Batcher grow while items arrive fast: they share the fixed cost of a transaction,
// which is that of some twenty rows. A group waits in steps. Another step follows only while items arrive fast, so the
// wait grows with the rate, as the CPU that it saves does. A group waits only soon after the one before it.
type Gathering struct {
	// Enough is the size of a group that does not wait; 0 = none waits.
	Enough int
	// Step is how long a group waits, and Worth how many items that must bring for another Step. The steps end after
	// Longest; if that is not above Step, there is one.
	Step    time.Duration
	Worth   int
	Longest time.Duration
}

const (
	// After a wait that brought fewer than worthwhile items, none is tried for minCooldown, then for twice as long, up to
	// maxCooldown: one or two clients that send one item after the other must not wait for others.
	worthwhile  = 2
	minCooldown = 10 * time.Millisecond
	maxCooldown = 2560 * time.Millisecond
	// closedLoop is how many groups in turn show that clients add an item only after the last one was processed: they
	// have the same size, and no item arrives while one is processed. Such a group is complete when it has that size: to
	// wait longer, four publishers would need 5.9 ms instead of 2.5 for an event.
	closedLoop = 3
)

// groupSizes are those of the last groups.
type groupSizes struct {
	last, repeated int // repeated counts groups of that size that show a closed loop
}

// note counts a group. more reports whether items arrived while it was processed.
func (s *groupSizes) note(size int, more bool) {
	if size != s.last || more {
		s.last, s.repeated = size, 0
	}
	if !more {
		s.repeated++
	}
}

// complete returns the size of a group that does not wait. Single items show no closed loop: cooldown is for them.
func (s *groupSizes) complete(enough int) int {
	if s.repeated >= closedLoop && s.last > 1 {
		return min(s.last, enough)
	}
	return enough
}

// cooldown is the time in which groups do not wait.
type cooldown struct {
	length time.Duration // 0 = the last wait was worthwhile
	end    time.Time
}

// gather waits until enough items are queued, a step brings too few, or the longest wait is over. last is when the
// group before ended.
func (b *Batcher[T]) gather(ctx context.Context, last time.Time) {
	select {
	case <-b.enough: // of an earlier group
	default:
	}
	g, first, began := b.gathering, b.Len(), time.Now()
	g.Enough = b.sizes.complete(g.Enough)
	if first == 0 || first >= g.Enough || began.Sub(last) > g.Longest || began.Before(b.cooldown.end) {
		return
	}
	n, now := first, began
	for more := true; more && n < g.Enough && now.Sub(began) < g.Longest; {
		select {
		case <-time.After(g.Step):
		case <-b.enough:
		case <-ctx.Done():
			return
		}
		before := n
		n, now = b.Len(), time.Now()
		more = n-before >= g.Worth
	}
	b.cooldown.length = min(max(2*b.cooldown.length, minCooldown), maxCooldown)
	if n-first >= worthwhile {
		b.cooldown.length = 0
	}
	b.cooldown.end = now.Add(b.cooldown.length)
}
