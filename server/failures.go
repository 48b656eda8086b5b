package server

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/postgres"
	"postrider/server/api"
)

// failuresEvery is how often database errors of one SQLSTATE are logged: an outage fails thousands of requests a
// second.
const failuresEvery = 10 * time.Second

// failures limits how often database errors of requests are logged, by SQLSTATE; "" is an error without one.
type failures struct {
	mu    sync.Mutex
	kinds map[string]failureKind
}

type failureKind struct {
	logged  time.Time
	skipped int // since then
}

// take reports whether an error is to be logged, and how many of its kind were not since the last one that was.
func (f *failures) take(state string, now time.Time) (skipped int, log bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind, known := f.kinds[state]
	if known && now.Sub(kind.logged) < failuresEvery {
		kind.skipped++
		f.kinds[state] = kind
		return 0, false
	}
	f.kinds[state] = failureKind{logged: now}
	return kind.skipped, true
}

// logFailure logs the cause of a response that the database is the reason for. The response does not contain it.
func (s *Server) logFailure(c echo.Context, status int, err error) {
	state := postgres.SQLState(err)
	var refused *api.RejectionError
	switch {
	case errors.Is(err, postgres.ErrPoison):
	case status != http.StatusServiceUnavailable, errors.As(err, &refused):
		return
	case state == "" && errors.Is(err, context.Canceled): // the client is gone, or the node stops
		return
	}
	skipped, log := s.failures.take(state, time.Now())
	if !log {
		return
	}
	args := append(failedRequest(c, err), "status", status)
	if skipped > 0 {
		args = append(args, "skipped", skipped)
	}
	s.log.Warn("a request failed in the database", args...)
}

// failedRequest are the fields of a failed request in the log.
func failedRequest(c echo.Context, err error) []any {
	args := []any{"method", c.Request().Method, "route", c.Path(), "error", err}
	if state := postgres.SQLState(err); state != "" {
		args = append(args, "sqlstate", state)
	}
	return args
}

// answerError is the only place where an error becomes a status.
func (s *Server) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	answer := api.AnswerTo(err, c)
	if answer == nil {
		// The id joins the caller's report to the line in the log; the cause is the operator's alone.
		id := rand.Text()
		s.log.Error("a request failed", append(failedRequest(c, err), "errorId", id)...)
		answer = api.Refuse(http.StatusInternalServerError, api.CodeInternal,
			"something went wrong here; the log has it under error id %s", id)
	} else {
		s.logFailure(c, answer.Status, err)
	}
	if err := answer.Write(c); err != nil {
		s.log.Debug("an error could not be answered", "error", err)
	}
}
