package policy

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// MaxBuckets bounds the memory of Buckets to a few MB.
	MaxBuckets = 10_000
	// forgetAmong is among how many buckets the fullest is forgotten if there are MaxBuckets.
	forgetAmong = 8
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

// Wait returns how long it takes until there is a token in key's bucket; 0 if there is one.
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

// TryTake takes a token of key's bucket and returns 0, or returns how long it takes until there is one.
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
		delete(b.full, b.fullest())
	}
	b.full[key] = b.kind.Take(b.full[key], now)
}

// Len returns how many buckets are remembered.
func (b *Buckets[K]) Len() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.full)
}

// fullest returns the fullest of a few buckets.
func (b *Buckets[K]) fullest() (fullest K) {
	var soonest time.Time
	looked := 0
	for key, at := range b.full { // begins anywhere
		if looked == 0 || at.Before(soonest) {
			fullest, soonest = key, at
		}
		if looked++; looked == forgetAmong {
			break
		}
	}
	return fullest
}

// ClientNetwork are the addresses that one sender may have: an IPv4 address alone, or an IPv6 address with its /64. The
// zero address is nobody's, and has the zero prefix.
func ClientNetwork(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits) // fails for no address of its own length
	return prefix
}
