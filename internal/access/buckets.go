package access

import (
	"net/netip"
	"sync"
	"time"
)

// Bucket is a token bucket: Burst tokens at once, and a new one after each Every. Its state is the time at which it is
// full again; a time that has passed, such as the zero time, is a full bucket.
type Bucket struct {
	// Burst is how many tokens a full bucket holds, at least 1.
	Burst int
	// Every is the time between two new tokens.
	Every time.Duration
}

// Wait returns the time until there is a token; 0 = there is one.
func (b Bucket) Wait(full, now time.Time) time.Duration {
	if full.Before(now) {
		return 0 // full is often the zero time, and the difference more than a duration can hold
	}
	return max(0, full.Sub(now)-time.Duration(b.Burst-1)*b.Every)
}

// Take takes a token and returns when the bucket is full again. An empty bucket goes into debt, by one Burst at most.
func (b Bucket) Take(full, now time.Time) time.Time {
	if full.Before(now) {
		full = now
	}
	full = full.Add(b.Every)
	if deepest := now.Add(2 * time.Duration(b.Burst) * b.Every); full.After(deepest) {
		return deepest
	}
	return full
}

const (
	// MaxBuckets bounds the memory of Buckets to a few MB.
	MaxBuckets = 10_000
	// evictAmong is the number of buckets of which the fullest is evicted at MaxBuckets.
	evictAmong = 8
)

// Buckets are token buckets of one kind, such as one for each address, MaxBuckets at most. Their methods are safe for
// concurrent use.
type Buckets[K comparable] struct {
	kind Bucket
	mu   sync.RWMutex
	full map[K]time.Time // when each is full again
}

// NewBuckets returns buckets that are all full.
func NewBuckets[K comparable](kind Bucket) *Buckets[K] {
	return &Buckets[K]{kind: kind, full: map[K]time.Time{}}
}

// Wait returns the time until there is a token in key's bucket; 0 if there is one.
func (b *Buckets[K]) Wait(key K, now time.Time) time.Duration {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.kind.Wait(b.full[key], now)
}

// Take takes a token of key's bucket, which may go into debt.
func (b *Buckets[K]) Take(key K, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.take(key, now)
}

// TryTake takes a token of key's bucket and returns 0, or returns the time until there is one.
func (b *Buckets[K]) TryTake(key K, now time.Time) (wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait = b.kind.Wait(b.full[key], now); wait == 0 {
		b.take(key, now)
	}
	return wait
}

func (b *Buckets[K]) take(key K, now time.Time) {
	if _, known := b.full[key]; !known && len(b.full) >= MaxBuckets {
		var fullest K
		var soonest time.Time
		checked := 0
		for key, at := range b.full { // in random order
			if checked == 0 || at.Before(soonest) {
				fullest, soonest = key, at
			}
			if checked++; checked == evictAmong {
				break
			}
		}
		delete(b.full, fullest)
	}
	b.full[key] = b.kind.Take(b.full[key], now)
}

// Len returns how many buckets are in memory.
func (b *Buckets[K]) Len() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.full)
}

// ClientNetwork returns the addresses that one client may have: a single IPv4 address, or an IPv6 address with its /64.
// It is the zero prefix for the zero address.
func ClientNetwork(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits) // fails for no address of its own length
	return prefix
}
