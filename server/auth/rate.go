package auth

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/policy"
)

// Rate bounds the requests of each credential, on this node. Who shows none is counted by the address. A bucket holds
// one second's.
type Rate struct {
	mu      sync.Mutex
	buckets *policy.Buckets[caller]
}

type caller struct {
	credential digest
	from       netip.Prefix // of who shows no credential
}

// CallerOf is the credential of a request, whether it is right or not, or else its address.
func CallerOf(r *http.Request) caller {
	if text := shownBy(r).text; text != "" {
		return caller{credential: DigestOf(text)}
	}
	if basic := r.Header.Get(echo.HeaderAuthorization); strings.HasPrefix(basic, "Basic ") {
		return caller{credential: DigestOf(basic)}
	}
	return CallerFrom(r)
}

// CallerFrom is the address of a request.
func CallerFrom(r *http.Request) caller { return caller{from: Sender(r.RemoteAddr)} }

// NewRate is nil, no limit, for 0.
func NewRate(perSecond int) *Rate {
	if perSecond <= 0 {
		return nil
	}
	return RateOf(policy.Bucket{Burst: perSecond, Every: time.Second / time.Duration(perSecond)})
}

// RateOf bounds requests by these buckets.
func RateOf(bucket policy.Bucket) *Rate { return &Rate{buckets: policy.NewBuckets[caller](bucket)} }

// Take returns how long the caller must wait; 0 = the request may go on.
func (l *Rate) Take(who caller, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.buckets.Wait(who, now); wait > 0 {
		return wait // a request that is refused costs nothing
	}
	l.buckets.Take(who, now)
	return 0
}
