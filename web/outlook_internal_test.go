package web

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/query"
)

func TestNextText(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	soon, later := now.Add(time.Minute), now.Add(time.Hour)
	for name, row := range map[string]struct {
		work pendingWork
		hold string
		want string
	}{
		"due later":   {pendingWork{attempts: 1, due: &soon}, "", "Attempt 2 starts in 1 minute."},
		"due now":     {pendingWork{attempts: 1, due: &now}, "", "Attempt 2 is due now and waits for a worker."},
		"no due time": {pendingWork{}, "", "Attempt 1 is due now and waits for a worker."},
		"running":     {pendingWork{job: "running", due: &now}, catalog.HoldProbation, "An attempt is in progress."},
		"own hold": {
			pendingWork{hold: catalog.HoldPaused, due: &soon}, catalog.HoldPaused, holdTexts[catalog.HoldPaused],
		},
		"held by admission": {
			pendingWork{hold: catalog.HoldAdmission}, catalog.HoldAdmission, holdTexts[catalog.HoldAdmission],
		},
		"scheduled, event subscription on hold": {
			pendingWork{attempts: 1, job: "scheduled", due: &soon},
			catalog.HoldPaused,
			holdTexts[catalog.HoldPaused] +
				" Attempt 2 is scheduled for 2026-01-31 09:01:00 UTC and is held if the hold still lasts.",
		},
		"locked by a consumer": {
			pendingWork{pulled: true, job: "scheduled"}, "", "A consumer has received it, and its lock is valid.",
		},
		"available to consumers": {
			pendingWork{pulled: true, unbatched: true, due: &now}, "", "It waits until a consumer receives it.",
		},
		"released with a delay": {
			pendingWork{pulled: true, unbatched: true, due: &soon}, "", "Consumers may receive it in 1 minute.",
		},
		"next batch": {
			pendingWork{unbatched: true, due: &now},
			"",
			"It waits for the next batch of its event subscription.",
		},
		"attempts exhausted": {
			pendingWork{attempts: 5, limit: 3, due: &soon},
			"",
			"No further attempt: maxDeliveryAttempts is 3. The delivery ends when it is due.",
		},
		"time to live ends first": {
			pendingWork{attempts: 3, due: &later, ends: &soon},
			"",
			"No further attempt: its time to live ends first. The delivery ends in 1 hour.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, nextText(&row.work, row.hold, now))
		})
	}
}

func TestDeliveredTile(t *testing.T) {
	t.Parallel()
	view := overviewView{
		Overview: &query.Overview{
			Current: query.CurrentState{Pending: 1234}, Day: &query.Counts{Total: query.Minute{Delivered: 9, Ended: 10}},
		},
	}
	tile := shown(t, "delivered-tile", view)
	require.Contains(t, tile, "90.0 %")
	require.Contains(t, tile, "of 10 ended in 24 h; 1,234 pending")
	require.NotContains(t, tile, "bad")
	view.Day.Total.DeadLetters, view.Current.Pending = 1, 0
	tile = shown(t, "delivered-tile", view)
	require.Contains(t, tile, ">1 dead letter in 24 h<")
	require.Contains(t, tile, `class="figure bad"`)
}

func TestFirstStepsUseExistingTopic(t *testing.T) {
	t.Parallel()
	view := overviewView{Overview: emptyOverview(), First: &firstSteps{Server: "http://localhost:7480"}}
	steps := shown(t, "overview.html", view)
	require.Contains(t, steps, "curl -X PUT http://localhost:7480/v1/topics/orders")
	require.NotContains(t, steps, "/publish", "there is no topic to publish to")
	view.First.Topic, view.First.Subscribed = "sales", true
	steps = shown(t, "overview.html", view)
	require.Equal(t, 2, strings.Count(steps, "badge good"))
	require.Contains(t, steps, `href="/ui/topics/sales/publish"`)
}
