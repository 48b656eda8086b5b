package queue

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// Until remembers keys, each until its time has passed. The zero Until has none.
type Until[K comparable] struct {
	mu    sync.Mutex
	times map[K]time.Time
}

// Set remembers keys for so long, and forgets those whose time has passed.
func (u *Until[K]) Set(d time.Duration, keys ...K) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(u.times, func(_ K, until time.Time) bool { return !now.Before(until) })
	if u.times == nil {
		u.times = map[K]time.Time{}
	}
	for _, key := range keys {
		u.times[key] = now.Add(d)
	}
}

// Has reports whether any of the keys is remembered.
func (u *Until[K]) Has(keys ...K) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	return slices.ContainsFunc(keys, func(key K) bool { return now.Before(u.times[key]) })
}
