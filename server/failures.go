package server

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/postgres"
	"postrider/jobs/publish"
	"postrider/server/api"
)

// failureLogInterval limits the log lines of one SQLSTATE: an outage fails thousands of requests a second.
const failureLogInterval = 10 * time.Second

// failures limits how often database errors of one SQLSTATE are logged; "" is an error without one, and "overload" an
// OverloadError.
type failures struct {
	mu    sync.Mutex
	kinds map[string]failureKind
}

type failureKind struct {
	logged  time.Time
	skipped int // since then
}

// take reports whether to log an error, and how many of its kind were skipped since the last line.
func (f *failures) take(state string, now time.Time) (skipped int, log bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind, known := f.kinds[state]
	if known && now.Sub(kind.logged) < failureLogInterval {
		kind.skipped++
		f.kinds[state] = kind
		return 0, false
	}
	f.kinds[state] = failureKind{logged: now}
	return kind.skipped, true
}

// respondError sends the response to an error.
func (s *Server) respondError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	fields := withRequestID([]any{"method", c.Request().Method, "route", c.Path(), "error", err}, c)
	state := postgres.SQLState(err)
	if state != "" {
		fields = append(fields, "sqlstate", state)
	}
	response := api.ResponseTo(err, c)
	if response == nil { // the client gets an id instead of the cause
		id := rand.Text()
		s.log.Error("a request failed", append(fields, "errorId", id)...)
		response = api.Reject(http.StatusInternalServerError, api.CodeInternal,
			"internal error; the log has its cause under error id %s", id)
	} else if isFailure(response.Status, state, err) {
		what := "a request failed in the database"
		if _, overload := errors.AsType[*publish.OverloadError](err); overload {
			state, what = "overload", "a publish request was rejected: too many wait on this node"
		}
		if skipped, log := s.failures.take(state, time.Now()); log {
			fields = append(fields, "status", response.Status)
			if skipped > 0 {
				fields = append(fields, "skipped", skipped)
			}
			s.log.Warn(what, fields...)
		}
	}
	if err := response.Write(c); err != nil {
		s.log.Debug("a response to an error could not be sent", "error", err)
	}
}

// isFailure reports whether the database caused a response.
func isFailure(status int, state string, err error) bool {
	var rejected *api.RejectionError
	if errors.Is(err, postgres.ErrPoison) || postgres.IsValueError(err) {
		return true
	}
	return status == http.StatusServiceUnavailable && !errors.As(err, &rejected) &&
		(state != "" || !errors.Is(err, context.Canceled)) // canceled: the client is gone, or the node stops
}
