package server

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"postrider/policy"
)

// How many wrong credentials are answered as such before they are put off. An address that has shown so many is heard again once
// a second, whatever it shows: guessing gets no further. A topic's number only decides how wrong ones are answered, for right
// ones must not suffer from what others send.
var (
	wrongByAddress = policy.Bucket{Burst: 30, Every: time.Second}
	wrongByTopic   = policy.Bucket{Burst: 300, Every: 100 * time.Millisecond}
)

const (
	// mostRemembered bounds each of the three memories below, a few MB in all.
	mostRemembered = 10_000
	// forgetAmong: when a memory is full, the one that has least to lose among so many is forgotten.
	forgetAmong = 8
)

// guesses remembers who showed wrong credentials, on this node, and which credentials were right lately.
//
// Publishers behind one proxy share an address. One of them that still has the old key must not shut out the others: a credential
// that was right once is let through, to be checked as ever.
type guesses struct {
	mu        sync.RWMutex
	addresses map[netip.Prefix]time.Time // when the bucket is full again
	topics    map[string]time.Time
	right     map[rightOnce]struct{}
}

type rightOnce struct {
	topic      string
	credential digest
}

func newGuesses() *guesses {
	return &guesses{addresses: map[netip.Prefix]time.Time{}, topics: map[string]time.Time{}, right: map[rightOnce]struct{}{}}
}

// wait is how long the address must wait before its credential is looked at; 0 = not at all.
func (g *guesses) wait(from netip.Prefix, topic string, credential digest, now time.Time) time.Duration {
	g.mu.RLock()
	defer g.mu.RUnlock()
	wait := wrongByAddress.Wait(g.addresses[from], now)
	if wait == 0 {
		return 0
	}
	if _, known := g.right[rightOnce{topic, credential}]; known {
		return 0
	}
	return wait
}

// wrong notes a wrong credential. It returns how long this topic has had too many of them; 0 = it has not.
func (g *guesses) wrong(from netip.Prefix, topic string, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := wrongByTopic.Wait(g.topics[topic], now)
	owe(g.addresses, wrongByAddress, from, now)
	owe(g.topics, wrongByTopic, strings.Clone(topic), now)
	return wait
}

// opened notes a right credential.
func (g *guesses) opened(topic string, credential digest) {
	key := rightOnce{topic, credential}
	g.mu.RLock()
	_, known := g.right[key]
	g.mu.RUnlock()
	if known {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.right) >= mostRemembered {
		for other := range g.right { // any
			delete(g.right, other)
			break
		}
	}
	key.topic = strings.Clone(topic) // a part of the request's line, which would stay with it
	g.right[key] = struct{}{}
}

// owe takes a token of key's bucket. In a full memory it looks at a few others, and forgets the one that is full again first.
func owe[K comparable](full map[K]time.Time, bucket policy.Bucket, key K, now time.Time) {
	if _, known := full[key]; !known && len(full) >= mostRemembered {
		delete(full, leastOwing(full))
	}
	full[key] = bucket.Take(full[key], now)
}

func leastOwing[K comparable](full map[K]time.Time) (least K) {
	var soonest time.Time
	looked := 0
	for key, at := range full { // begins anywhere
		if looked == 0 || at.Before(soonest) {
			least, soonest = key, at
		}
		if looked++; looked == forgetAmong {
			break
		}
	}
	return least
}

// sender is the address that a request came from. One who has an IPv6 address has its /64. What is no address is nobody's, and
// shares the zero prefix.
func sender(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	address, bits := at.Addr().Unmap().WithZone(""), 32
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits) // fails for no address of its own length
	return prefix
}
