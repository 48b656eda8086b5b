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
		s.log.Debug("request answered", "method", c.Request().Method, "path", c.Request().URL.Path, "status", c.Response().Status,
			"duration", time.Since(began), "client", c.RealIP())
		return err
	}
}

// notStored keeps answers to administrators out of caches, a browser's own included: many hold secrets, such as validationUrl.
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
