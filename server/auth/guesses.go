package auth

import (
	"net/netip"
	"strings"
	"sync"
	"time"

	"postrider/policy"
)

// How many wrong credentials are answered as such before they are put off. An address that has shown so many is heard
// again once a second, whatever it shows: guessing gets no further. A topic's number only decides how wrong ones are
// answered, for right ones must not suffer from what others send.
var (
	wrongByAddress = policy.Bucket{Burst: 30, Every: time.Second}
	wrongByTopic   = policy.Bucket{Burst: 300, Every: 100 * time.Millisecond}
)

// mostRemembered bounds the memory of right credentials, about two MB; the buckets have bounds of their own.
const mostRemembered = policy.MaxBuckets

// guesses remembers the addresses that sent wrong credentials, on this node, and which credentials were right lately.
//
// Publishers behind one proxy share an address. One of them that still has the old key must not shut out the others: a
// credential that was right from this address is let through, to be checked as ever. One that was right from elsewhere
// is not: a slowed address would otherwise test guesses at any speed against the credentials that others use.
type guesses struct {
	addresses *policy.Buckets[netip.Prefix]
	topics    *policy.Buckets[string]

	mu    sync.RWMutex
	right map[rightOnce]struct{}
}

type rightOnce struct {
	from       netip.Prefix
	topic      string
	credential digest
}

func newGuesses() *guesses {
	return &guesses{
		addresses: policy.NewBuckets[netip.Prefix](wrongByAddress), topics: policy.NewBuckets[string](wrongByTopic),
		right: map[rightOnce]struct{}{},
	}
}

// Wait is how long the address must wait before its credential is looked at; 0 = not at all.
func (g *guesses) Wait(from netip.Prefix, topic string, credential digest, now time.Time) time.Duration {
	wait := g.addresses.Wait(from, now)
	if wait == 0 {
		return 0
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if _, known := g.right[rightOnce{from, topic, credential}]; known {
		return 0
	}
	return wait
}

// Wrong notes a wrong credential. It returns how long this topic has had too many of them; 0 = it has not.
func (g *guesses) Wrong(from netip.Prefix, topic string, now time.Time) time.Duration {
	wait := g.topics.Wait(topic, now)
	g.addresses.Take(from, now)
	g.topics.Take(strings.Clone(topic), now)
	return wait
}

// Opened notes a right credential.
func (g *guesses) Opened(from netip.Prefix, topic string, credential digest) {
	key := rightOnce{from, topic, credential}
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

// Sender is the address that a request came from: an IPv4 address alone, or the /64 of an IPv6 address. All that is no
// address shares the zero prefix.
func Sender(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return policy.ClientNetwork(at.Addr())
}
