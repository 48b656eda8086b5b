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

	"postrider/access"
	"postrider/policy"
	"postrider/server/api"
	"postrider/server/auth"
)

// recoverAndLog turns a panic into an answer and writes one line for each request at level debug: at info, five
// thousand publications a second would be a log of nothing else.
func (s *Server) recoverAndLog(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !s.log.Enabled(context.Background(), slog.LevelDebug) {
			return s.recovered(next, c)
		}
		began := time.Now()
		err := s.recovered(next, c)
		if err != nil {
			c.Error(err) // answers now, so that the line has the status
		}
		s.log.Debug("request answered", "method", c.Request().Method, "path", c.Request().URL.Path, "status",
			c.Response().Status,
			"duration", time.Since(began), "client", c.RealIP())
		return err
	}
}

// goneGrace is how long a request goes on after its client's side of the connection has ended.
const goneGrace = 2 * time.Second

// finishes lets a request end although its client has closed its side of the connection after sending it. net/http then
// cancels the request's context: it reads the same end of file whether the client waits for the response or is gone.
// So the request is canceled goneGrace later: what a client that is gone has sent must not fill the queues, or be
// stored after the client has sent it again. HTTP/2 distinguishes the two, and requests of the dashboard within the
// process have their own time limit.
func (s *Server) finishes(next echo.HandlerFunc) echo.HandlerFunc {
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

// notStored keeps answers to administrators out of caches, a browser's own included: many hold secrets, such as
// validationUrl.
func notStored(next echo.HandlerFunc) echo.HandlerFunc {
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
			panic(cause) // net/http's own way to drop a connection
		}
		err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
	}()
	return next(c)
}

// limitRate answers 429 to who sends more than the operator allows. Load balancers may ask for a node's health as often
// as they like, and what the dashboard asks for in its own process was counted when its page was asked for.
func (s *Server) limitRate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if path := r.URL.Path; path == "/healthz" || path == "/readyz" || access.ActorOf(r.Context()).Role != "" {
			return next(c)
		}
		if wait := s.rate.TryTake(auth.CallerOf(r), time.Now()); wait > 0 {
			no := api.Refuse(http.StatusTooManyRequests, api.CodeTooManyRequests,
				"more than %d requests a second with this credential; wait for as long as Retry-After says",
				s.options.RequestsPerSecond)
			no.RetryAfter = wait
			return no
		}
		return next(c)
	}
}

// localHostOnly rejects the names of other sites, see Options.LocalHostOnly.
func localHostOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if host := c.Request().Host; !policy.IsLocalHost(host) {
			return api.Refuse(http.StatusMisdirectedRequest, api.CodeMisdirected,
				"host %q is not accepted: postrider dev accepts localhost and IP addresses only", api.Shorten(host))
		}
		return next(c)
	}
}

// guarded are the headers of every answer: an answer is data, and no browser may take it for a page of its own or show
// it in one. The dashboard, which is made of pages, says what holds for those.
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
