package auth

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"postrider/internal/access"

	"github.com/labstack/echo/v4"
)

// Limits of wrong credentials. Over the first one, an address may send one credential a second. Over the second one,
// only the response to wrong credentials changes: valid ones must not suffer from other clients.
var (
	wrongByAddress = access.Bucket{Burst: 30, Every: time.Second}
	wrongByTopic   = access.Bucket{Burst: 300, Every: 100 * time.Millisecond}
)

// maxRemembered limits the valid credentials in memory, about two MB.
const maxRemembered = access.MaxBuckets

// guesses has the addresses that sent wrong credentials to this node, and recent valid credentials.
//
// Publishers behind one proxy share an address. One with an old key must not lock out the others, so a credential that
// was valid from this address is not limited. One that was valid from another address is: otherwise a limited address
// could test guesses against it at any speed.
type guesses struct {
	addresses *access.Buckets[netip.Prefix]
	topics    *access.Buckets[string]

	mu    sync.RWMutex
	valid map[validFrom]struct{}
}

type validFrom struct {
	from       netip.Prefix
	topic      string
	credential digest
}

func newGuesses() *guesses {
	return &guesses{
		addresses: access.NewBuckets[netip.Prefix](wrongByAddress), topics: access.NewBuckets[string](wrongByTopic),
		valid: map[validFrom]struct{}{},
	}
}

// Wait is how long the address must wait before its credential is checked; 0 = it is checked now.
func (g *guesses) Wait(from netip.Prefix, topic string, credential digest, now time.Time) time.Duration {
	wait := g.addresses.Wait(from, now)
	if wait == 0 {
		return 0
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if _, known := g.valid[validFrom{from, topic, credential}]; known {
		return 0
	}
	return wait
}

// Wrong notes a wrong credential. If this topic has had too many, it returns how long to wait, otherwise 0.
func (g *guesses) Wrong(from netip.Prefix, topic string, now time.Time) time.Duration {
	wait := g.topics.Wait(topic, now)
	g.addresses.Take(from, now)
	g.topics.Take(strings.Clone(topic), now)
	return wait
}

// Opened notes a valid credential.
func (g *guesses) Opened(from netip.Prefix, topic string, credential digest) {
	key := validFrom{from, topic, credential}
	g.mu.RLock()
	_, known := g.valid[key]
	g.mu.RUnlock()
	if known {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.valid) >= maxRemembered {
		for other := range g.valid { // any
			delete(g.valid, other)
			break
		}
	}
	key.topic = strings.Clone(topic) // does not keep the request in memory
	g.valid[key] = struct{}{}
}

// Sender is the IPv4 address, or the /64 of the IPv6 address, of a request; the zero prefix without an address.
func Sender(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return access.ClientNetwork(at.Addr())
}

// Rate limits the requests of each credential on this node; of each address for requests without one.
type Rate = access.Buckets[caller]

type caller struct {
	credential digest
	from       netip.Prefix // without a credential
}

// CallerOf is the credential of a request, valid or not, or else its address.
func CallerOf(r *http.Request) caller {
	if text := shownBy(r).text; text != "" {
		return caller{credential: DigestOf(text)}
	}
	if basic := r.Header.Get(echo.HeaderAuthorization); strings.HasPrefix(basic, "Basic ") {
		return caller{credential: DigestOf(basic)}
	}
	return caller{from: Sender(r.RemoteAddr)}
}

// NewRate limits requests per second; nil = no limit, for 0.
func NewRate(perSecond int) *Rate {
	if perSecond <= 0 {
		return nil
	}
	return access.NewBuckets[caller](access.Bucket{Burst: perSecond, Every: time.Second / time.Duration(perSecond)})
}
