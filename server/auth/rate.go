package auth

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/policy"
)

// Rate limits the requests of each credential on this node; of each address for requests without one.
type Rate = policy.Buckets[caller]

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
	return CallerFrom(r)
}

// CallerFrom is the address of a request.
func CallerFrom(r *http.Request) caller { return caller{from: Sender(r.RemoteAddr)} }

// NewRate limits requests per second; nil = no limit, for 0.
func NewRate(perSecond int) *Rate {
	if perSecond <= 0 {
		return nil
	}
	return RateOf(policy.Bucket{Burst: perSecond, Every: time.Second / time.Duration(perSecond)})
}

// RateOf limits requests by buckets.
func RateOf(bucket policy.Bucket) *Rate { return policy.NewBuckets[caller](bucket) }
