package policy

import (
	"net/netip"
	"time"
)

const (
	// MostBuckets bounds a memory of Buckets, a few MB.
	MostBuckets = 10_000
	// forgetAmong: when the memory is full, the one that owes least among so many is forgotten.
	forgetAmong = 8
)

// Buckets are many buckets of one kind, such as one for each address. All that is kept of one is when it is full again,
// and of no more than MostBuckets. It is not made for several goroutines at once.
type Buckets[K comparable] struct {
	kind Bucket
	full map[K]time.Time
}

// NewBuckets makes buckets that are all full.
func NewBuckets[K comparable](kind Bucket) *Buckets[K] {
	return &Buckets[K]{kind: kind, full: map[K]time.Time{}}
}

// Wait is how long it takes until there is a token in key's bucket; 0 = there is one.
func (b *Buckets[K]) Wait(key K, now time.Time) time.Duration { return b.kind.Wait(b.full[key], now) }

// Take takes a token of key's bucket. In a full memory it looks at a few others, and forgets the one that is full again
// first.
func (b *Buckets[K]) Take(key K, now time.Time) {
	if _, known := b.full[key]; !known && len(b.full) >= MostBuckets {
		delete(b.full, b.leastOwing())
	}
	b.full[key] = b.kind.Take(b.full[key], now)
}

// Len is how many are remembered.
func (b *Buckets[K]) Len() int { return len(b.full) }

func (b *Buckets[K]) leastOwing() (least K) {
	var soonest time.Time
	looked := 0
	for key, at := range b.full { // begins anywhere
		if looked == 0 || at.Before(soonest) {
			least, soonest = key, at
		}
		if looked++; looked == forgetAmong {
			break
		}
	}
	return least
}

// Neighbours are the addresses that one sender may have: an IPv4 address alone, or an IPv6 address with its /64. The
// zero address is nobody's, and has the zero prefix.
func Neighbours(address netip.Addr) netip.Prefix {
	address = address.Unmap().WithZone("")
	bits := 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits) // fails for no address of its own length
	return prefix
}
