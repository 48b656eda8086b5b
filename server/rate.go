package server

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/policy"
	"postrider/store"
)

// rate bounds the requests of each credential, on this node. Who shows none is counted by the address. A bucket holds one second's.
type rate struct {
	mu      sync.Mutex
	buckets *policy.Buckets[caller]
}

type caller struct {
	credential digest
	from       netip.Prefix // of who shows no credential
}

// newRate is nil, no limit, for 0.
func newRate(perSecond int) *rate {
	if perSecond <= 0 {
		return nil
	}
	return rateOf(policy.Bucket{Burst: perSecond, Every: time.Second / time.Duration(perSecond)})
}

func rateOf(bucket policy.Bucket) *rate { return &rate{buckets: policy.NewBuckets[caller](bucket)} }

// take returns how long the caller must wait; 0 = the request may go on.
func (l *rate) take(who caller, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.buckets.Wait(who, now); wait > 0 {
		return wait // a request that is refused costs nothing
	}
	l.buckets.Take(who, now)
	return 0
}

// limitRate answers 429 to who sends more than the operator allows. Load balancers may ask for a node's health as often as they like, and
// what the dashboard asks for in its own process was counted when its page was asked for.
func (s *Server) limitRate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if path := r.URL.Path; path == "/healthz" || path == "/readyz" || store.ActorOf(r.Context()).Role != "" {
			return next(c)
		}
		who := caller{from: sender(r.RemoteAddr)}
		if text := shownBy(r).text; text != "" {
			who = caller{credential: digestOf(text)}
		} else if basic := r.Header.Get(echo.HeaderAuthorization); strings.HasPrefix(basic, "Basic ") {
			who = caller{credential: digestOf(basic)}
		}
		if wait := s.rate.take(who, time.Now()); wait > 0 {
			no := refuse(http.StatusTooManyRequests, codeTooManyRequests, "more than %d requests a second with this credential; wait for as long as Retry-After says", s.options.RequestsPerSecond)
			no.retryAfter = wait
			return no
		}
		return next(c)
	}
}

// localHostOnly rejects the names of other sites, see Options.LocalHostOnly.
func localHostOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if host := c.Request().Host; !policy.IsLocalHost(host) {
			return refuse(http.StatusMisdirectedRequest, codeMisdirected,
				"host %q is not accepted: postrider dev accepts localhost and IP addresses only", shorten(host))
		}
		return next(c)
	}
}

// guarded are the headers of every answer: an answer is data, and no browser may take it for a page of its own or show it in one. The
// dashboard, which is made of pages, says what holds for those.
func guarded(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		guard(c.Response().Header())
		return next(c)
	}
}

func guard(header http.Header) {
	header[echo.HeaderXContentTypeOptions] = noSniff
	header[echo.HeaderContentSecurityPolicy] = noContent
	header[echo.HeaderReferrerPolicy] = noReferrer
}

// Guarded sets those headers for a handler beside the API's, which every answer of its own has.
func Guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard(w.Header())
		next.ServeHTTP(w, r)
	})
}

// Shared by all answers: whoever wants others sets another list.
var (
	noSniff    = []string{"nosniff"}
	noContent  = []string{"default-src 'none'; frame-ancestors 'none'"}
	noReferrer = []string{"no-referrer"}
)
