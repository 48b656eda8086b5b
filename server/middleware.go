package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/endpointconf"
	"postrider/server/api"
	"postrider/server/auth"
)

// recoverAndLog turns a panic into a response and logs each request at level debug.
func (s *Server) recoverAndLog(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !s.log.Enabled(context.Background(), slog.LevelDebug) {
			return s.recovered(next, c)
		}
		began := time.Now()
		err := s.recovered(next, c)
		if err != nil {
			c.Error(err) // responds now, so that the line has the status
		}
		fields := []any{
			"method", c.Request().Method, "path", c.Request().URL.Path, "status", c.Response().Status,
			"duration", time.Since(began), "client", c.RealIP(),
		}
		s.log.Debug("request finished", withRequestID(fields, c)...)
		return err
	}
}

// withRequestID appends the id of a request to the fields of a log line, if it has one.
func withRequestID(fields []any, c echo.Context) []any {
	if id := c.Response().Header().Get(headerRequestID); id != "" {
		return append(fields, "requestId", id)
	}
	return fields
}

// goneGrace is how long a request continues after its client's side of the connection was closed.
const goneGrace = 2 * time.Second

// finish lets a request complete after its client has closed its side of the connection. net/http then cancels the
// context, because it cannot distinguish a client that still reads from one that is gone. Here the cancellation comes
// goneGrace later: requests of clients that are gone must not fill the queues. HTTP/2 distinguishes the two, and the
// dashboard's requests have their own time limit.
func (s *Server) finish(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.ProtoMajor > 1 || access.ActorOf(r.Context()).Role != "" {
			return next(c)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), writeTimeout)
		defer cancel()
		defer context.AfterFunc(s.options.Stopping, cancel)()
		defer context.AfterFunc(r.Context(), func() {
			select {
			case <-ctx.Done():
			case <-time.After(goneGrace):
				cancel()
			}
		})()
		c.SetRequest(r.WithContext(ctx))
		return next(c)
	}
}

// noStore keeps responses under /v1 out of caches: many have secrets, such as validationUrl.
func noStore(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if path := c.Request().URL.Path; path == "/v1" || strings.HasPrefix(path, "/v1/") {
			c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
		}
		return next(c)
	}
}

func (s *Server) recovered(next echo.HandlerFunc, c echo.Context) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if e, ok := cause.(error); ok && errors.Is(e, http.ErrAbortHandler) {
			panic(cause) // net/http drops the connection
		}
		err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
	}()
	return next(c)
}

// limitRate responds 429 to credentials with too many requests. Health checks are not limited, and the dashboard's
// requests were counted with the page.
func (s *Server) limitRate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if path := r.URL.Path; path == "/healthz" || path == "/readyz" || access.ActorOf(r.Context()).Role != "" {
			return next(c)
		}
		if wait := s.rate.TryTake(auth.CallerOf(r), time.Now()); wait > 0 {
			return api.TooManyRequests(wait, "more than %d requests a second with this credential",
				s.options.RequestsPerSecond)
		}
		return next(c)
	}
}

// localHostOnly implements Options.LocalHostOnly.
func localHostOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if host := c.Request().Host; !endpointconf.IsLocalHost(host) {
			return api.Reject(http.StatusMisdirectedRequest, "MisdirectedRequest",
				"host %q is not accepted: postrider dev accepts localhost, names under it and IP addresses only", api.Shorten(host))
		}
		return next(c)
	}
}

// Shared by all responses, so never changed: a browser must not run a response as a page, or show it in one. The
// dashboard sets other lists.
var (
	noSniff    = []string{"nosniff"}
	noContent  = []string{"default-src 'none'; frame-ancestors 'none'"}
	noReferrer = []string{"no-referrer"}
)

func setSecurityHeaders(header http.Header) {
	header[echo.HeaderXContentTypeOptions] = noSniff
	header[echo.HeaderContentSecurityPolicy] = noContent
	header[echo.HeaderReferrerPolicy] = noReferrer
}

func securityHeaders(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		setSecurityHeaders(c.Response().Header())
		return next(c)
	}
}

// Guarded sets the security headers of the API's responses for another handler.
func Guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		next.ServeHTTP(w, r)
	})
}
