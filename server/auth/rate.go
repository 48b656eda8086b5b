package auth

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/policy"
)

// Rate bounds the requests of each credential, on this node. Requests without one are counted by address.
type Rate = policy.Buckets[caller]

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

// NewRate returns buckets that hold the requests of one second; nil, no limit, for 0.
func NewRate(perSecond int) *Rate {
	if perSecond <= 0 {
		return nil
	}
	return RateOf(policy.Bucket{Burst: perSecond, Every: time.Second / time.Duration(perSecond)})
}

// RateOf bounds requests by these buckets.
func RateOf(bucket policy.Bucket) *Rate { return policy.NewBuckets[caller](bucket) }
