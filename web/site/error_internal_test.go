package site

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/web/display"
)

// The log has the cause of a page that failed, also of one that took too long. A browser that has gone is no failure.
func TestFailedPagesAreLogged(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, row := range map[string]struct {
		ctx   context.Context
		err   error
		level string
	}{
		"too slow":  {t.Context(), errors.Join(postgres.ErrTooSlow, errors.New("canceling statement")), "WARN"},
		"a failure": {t.Context(), errors.New("planted"), "ERROR"},
		"not found": {t.Context(), postgres.ErrNotFound, ""},
		"gone":      {gone, errors.New("planted"), ""},
	} {
		var log bytes.Buffer
		s := &Site{Log: slog.New(slog.NewJSONHandler(&log, nil))}
		r := httptest.NewRequestWithContext(row.ctx, http.MethodGet, "/ui/jobs", http.NoBody)
		s.logFailure(echo.New().NewContext(r, httptest.NewRecorder()), statusOf(row.err), row.err)
		if row.level == "" {
			require.Empty(t, log.String(), name)
			continue
		}
		require.Contains(t, log.String(), `"level":"`+row.level+`"`)
		require.Contains(t, log.String(), `"error":`)
	}
}

func TestStatusOfErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		err  error
		want int
	}{
		{postgres.ErrUnavailable, http.StatusServiceUnavailable},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, http.StatusServiceUnavailable},
		{display.ErrQuery, http.StatusBadRequest},
		{postgres.ErrNotFound, http.StatusNotFound},
		{postgres.ErrTooSlow, http.StatusGatewayTimeout},
		{&postgres.BusyError{Own: true}, http.StatusTooManyRequests},
		{&postgres.BusyError{}, http.StatusServiceUnavailable},
		{postgres.ErrPaused, http.StatusConflict},
		{echo.ErrNotFound, http.StatusNotFound},
		{errors.New("boom"), http.StatusInternalServerError},
	} {
		require.Equal(t, row.want, statusOf(fmt.Errorf("read: %w", row.err)), row.err)
	}
}

// A changed hint would leave a page without advice.
func TestAdviceMatchesHints(t *testing.T) {
	t.Parallel()
	var hints strings.Builder
	files, err := filepath.Glob("../../migrations/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		hints.Write(text)
	}
	for _, w := range pageAdvice {
		require.Contains(t, hints.String(), w.hint)
		require.Equal(t, w.advice, advice(&postgres.FunctionError{Hint: "x " + w.hint + " x"}))
	}
	require.Empty(t, advice(&postgres.FunctionError{Hint: "SELECT something"}))
}
