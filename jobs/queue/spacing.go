package queue

import (
	"maps"
	"sync"
	"time"

	"postrider/internal/catalog"
)

const (
	// spaced is the part of the time between two requests within a limit that a node keeps between its own. At 1, every
	// delay would last.
	spaced = 0.8
	// mostSpaced bounds that time, because a limit may be raised, and the wait of a worker.
	mostSpaced = 500 * time.Millisecond
)

// spacing has when the next request within each rate limit may be sent, by the limits' keys.
type spacing struct {
	mu   sync.Mutex
	next map[string]time.Time
}

// space takes so many of a limit's next permits on this node, and returns the wait for them. It takes none, and returns
// false, if that is longer than a worker may wait.
func (s *spacing) space(limit catalog.Rate, permits int, now time.Time) (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := now.Add(-time.Duration(limit.Burst-1) * min(limit.Step, mostSpaced))
	if known := s.next[limit.Key]; known.After(next) {
		next = known
	}
	if wait = max(next.Sub(now), 0); wait >= mostSpaced {
		return 0, false
	}
	if s.next == nil {
		s.next = map[string]time.Time{}
	}
	s.next[limit.Key] = next.Add(min(time.Duration(spaced*float64(permits)*float64(limit.Step)), mostSpaced))
	return wait, true
}

// forget removes the times that have passed.
func (s *spacing) forget(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.next, func(_ string, next time.Time) bool { return next.Before(now) })
}

// Space returns how long a request that has its permits waits, by the rate limit of its event subscription. It is false
// if that is longer than a worker may wait: the work returns to hold, and takes later permits. Jobs that a slow
// database, busy workers or a dead node have made late are due at once: without the wait, they would exceed the limit
// together.
func (t *Traffic) Space(subscription int64, permits int) (wait time.Duration, ok bool) {
	limit, limited := t.cache.Snapshot().Rate(subscription)
	if !limited {
		return 0, true
	}
	return t.spacing.space(limit, permits, time.Now())
}
