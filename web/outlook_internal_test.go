package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/query"
	"postrider/web/display"
)

func TestNextText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	soon, later := now.Add(time.Minute), now.Add(time.Hour)
	const paused, admission = catalog.HoldPaused, catalog.HoldAdmission
	for want, work := range map[string]pendingWork{
		"Attempt 2 starts in 1 minute.":                          {attempts: 1, due: &soon},
		"Attempt 2 is due now and waits for a worker.":           {attempts: 1, due: &now},
		"Attempt 1 is due now and waits for a worker.":           {},
		"An attempt is in progress.":                             {job: "running", due: &now},
		holdTexts[paused]:                                        {hold: paused, job: "scheduled"},
		holdTexts[admission]:                                     {hold: admission},
		"A consumer has received it, and its lock is valid.":     {pulled: true, job: "scheduled"},
		"It waits until a consumer receives it.":                 {pulled: true, unbatched: true, due: &now},
		"Consumers may receive it in 1 minute.":                  {pulled: true, unbatched: true, due: &soon},
		"It waits for the next batch of its event subscription.": {unbatched: true, due: &now},
		"No further attempt: maxDeliveryAttempts is 3. The delivery ends when it is due.": {
			attempts: 5, limit: 3, due: &soon,
		},
		"No further attempt: its time to live ends first. The delivery ends in 1 hour.": {
			attempts: 3, due: &later, ends: &soon,
		},
	} {
		require.Equal(t, want, nextText(&work, now))
	}
}

func TestOperationProgress(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, row := range []struct {
		operation            query.Operation
		progress, rate, left string
		percent              int
	}{
		{query.Operation{State: "running", CreatedAt: now, Matched: new(int64(10))}, "0 of 10", "", "", 0},
		{
			query.Operation{
				State: "running", CreatedAt: now.Add(-time.Minute), Matched: new(int64(1200)), Done: 500, Skipped: 60, Failed: 40,
			}, "600 of 1,200", "10.0", "1 min", 50,
		},
		{
			query.Operation{
				State: "done", CreatedAt: now.Add(-time.Hour), FinishedAt: new(now.Add(-time.Hour + 10*time.Second)),
				Matched: new(int64(20)), Done: 20,
			}, "20 of 20", "2", "", 100,
		},
		{
			query.Operation{State: "done", CreatedAt: now, FinishedAt: &now, Matched: new(int64(0))}, "0 of 0", "", "", 0,
		},
		{query.Operation{State: "running", CreatedAt: now.Add(-10 * time.Second), Done: 5}, "5", "0.5", "", 0},
	} {
		got := display.ProgressOf(row.operation, now)
		require.Equal(t, []any{row.progress, row.rate, row.left, row.percent},
			[]any{shown(t, "seen", row.operation), got.Rate, got.Left, got.Percent})
	}
}
