package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
	"postrider/web/display"
)

func TestQuoteShell(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"orders": "orders", "a-b_c.d/e:1": "a-b_c.d/e:1", "": "''", "-x": "'-x'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
		"a b\n": "'a b\n'",
	} {
		require.Equal(t, want, display.QuoteShell(given))
	}
}

func TestOperationProgress(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, row := range map[string]struct {
		operation            query.Operation
		progress, rate, left string
		percent              int
	}{
		"just started": {query.Operation{State: "running", CreatedAt: now, Matched: new(int64(10))}, "0 of 10", "", "", 0},
		"running": {
			query.Operation{
				State: "running", CreatedAt: now.Add(-time.Minute), Matched: new(int64(1200)), Done: 500, Skipped: 60, Failed: 40,
			}, "600 of 1,200", "10.0", "1 min", 50,
		},
		"finished": {
			query.Operation{
				State: "done", CreatedAt: now.Add(-time.Hour), FinishedAt: new(now.Add(-time.Hour + 10*time.Second)),
				Matched: new(int64(20)), Done: 20,
			}, "20 of 20", "2", "", 100,
		},
		"no match": {
			query.Operation{State: "done", CreatedAt: now, FinishedAt: &now, Matched: new(int64(0))}, "0 of 0", "", "", 0,
		},
		"past events": {query.Operation{State: "running", CreatedAt: now.Add(-10 * time.Second), Done: 5}, "5", "0.5", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := display.ProgressOf(row.operation, now)
			require.Equal(t, []any{row.progress, row.rate, row.left, row.percent},
				[]any{shown(t, "seen", row.operation), got.Rate, got.Left, got.Percent})
		})
	}
}
