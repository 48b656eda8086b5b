package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/postgres"
	"postrider/query"
	"postrider/web/display"
)

func TestStatusOfErrors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		want int
	}{
		"the store is unavailable": {fmt.Errorf("read: %w", postgres.ErrUnavailable), http.StatusServiceUnavailable},
		"the connection is refused": {
			fmt.Errorf("read: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), http.StatusServiceUnavailable,
		},
		"not a filter":  {fmt.Errorf("%w: x", display.ErrQuery), http.StatusBadRequest},
		"not there":     {fmt.Errorf("x: %w", postgres.ErrNotFound), http.StatusNotFound},
		"too slow":      {fmt.Errorf("x: %w", postgres.ErrTooSlow), http.StatusGatewayTimeout},
		"paused":        {fmt.Errorf("x: %w", postgres.ErrPaused), http.StatusConflict},
		"echo's own":    {echo.ErrNotFound, http.StatusNotFound},
		"anything else": {errors.New("boom"), http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, statusOf(row.err))
		})
	}
}

// A hint that was worded anew would leave a page without advice.
func TestAdviceKnowsTheHintsOfTheFunctions(t *testing.T) {
	t.Parallel()
	var hints strings.Builder
	files, err := filepath.Glob("../migrations/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		hints.Write(text)
	}
	for _, w := range pageWords {
		require.Contains(t, hints.String(), w.hint)
		require.Equal(t, w.advice, advice(&postgres.FunctionError{Hint: "x " + w.hint + " x"}))
	}
	require.Empty(t, advice(&postgres.FunctionError{Hint: "SELECT something"}))
}

func TestQuoteShell(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"orders": "orders", "a-b_c.d/e:1": "a-b_c.d/e:1", "": "''", "-x": "'-x'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
		"a b\n": "'a b\n'",
	} {
		require.Equal(t, want, display.QuoteShell(given))
	}
}

func TestOperationsSayHowFarTheyAre(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, row := range map[string]struct {
		operation            query.Operation
		progress, pace, left string
		percent              int
	}{
		"just begun": {query.Operation{State: "running", CreatedAt: now, Matched: new(int64(10))}, "0 of 10", "", "", 0},
		"half way": {
			query.Operation{
				State: "running", CreatedAt: now.Add(-time.Minute), Matched: new(int64(1200)), Done: 500, Skipped: 60, Failed: 40,
			}, "600 of 1,200", "10.0", "1 min", 50,
		},
		"over": {
			query.Operation{
				State: "done", CreatedAt: now.Add(-time.Hour), FinishedAt: new(now.Add(-time.Hour + 10*time.Second)),
				Matched: new(int64(20)), Done: 20,
			}, "20 of 20", "2", "", 100,
		},
		"nothing at all": {
			query.Operation{State: "done", CreatedAt: now, FinishedAt: &now, Matched: new(int64(0))}, "0 of 0", "", "", 0,
		},
		"past events": {query.Operation{State: "running", CreatedAt: now.Add(-10 * time.Second), Done: 5}, "5", "0.5", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := progressOf(row.operation, now)
			require.Equal(t, []any{row.progress, row.pace, row.left, row.percent},
				[]any{shown(t, "seen", row.operation), got.Pace, got.Left, got.Percent})
		})
	}
}
