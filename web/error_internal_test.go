package web

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/postgres"
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p := &pages{log: slog.New(slog.NewJSONHandler(&log, nil))}
			r := httptest.NewRequestWithContext(row.ctx, http.MethodGet, "/ui/jobs", http.NoBody)
			p.logFailure(echo.New().NewContext(r, httptest.NewRecorder()), statusOf(row.err), row.err)
			if row.level == "" {
				require.Empty(t, log.String())
				return
			}
			require.Contains(t, log.String(), `"level":"`+row.level+`"`)
			require.Contains(t, log.String(), `"error":`)
		})
	}
}
