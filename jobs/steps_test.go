package jobs_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/jobs/queue"
)

// stepKinds are the kinds of jobs that are no attempts. begin creates a row with its job, and returns a query that is 1
// when its step was recorded once.
var stepKinds = map[string]struct {
	queue string
	begin func(*testing.T, *testnode.Node) (once string, change func(*jobs.Options))
}{
	queue.RouteKind: {queue.RouteQueue, func(t *testing.T, tn *testnode.Node) (string, func(*jobs.Options)) {
		t.Helper()
		subscribeMany(t, tn, 11, newEndpoint(t, respondWith(http.StatusOK)).URL)
		publishAtOnce(t, tn, "e", 1)
		return "SELECT (count(*) = 11)::int FROM postrider.deliveries", func(*jobs.Options) {}
	}},
	queue.HandshakeKind: {queue.HandshakeQueue, func(t *testing.T, tn *testnode.Node) (string, func(*jobs.Options)) {
		t.Helper()
		begin(t, tn, "billing", validated(newEndpoint(t, respondWithCode).URL, event.EventGrid))
		return "SELECT count(*) FROM postrider.handshakes WHERE state = 'succeeded' AND tries = 1", func(*jobs.Options) {}
	}},
	queue.ExportKind: {queue.ExportQueue, func(t *testing.T, tn *testnode.Node) (string, func(*jobs.Options)) {
		t.Helper()
		directory := "file://" + t.TempDir()
		tn.Bury(t, subscribe(t, tn, "all", closedPort, into(directory)), 1)
		tn.AfterExportDelay(t)
		tn.ClaimExports(t, 1)
		return "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'exported' AND export_attempts = 1",
			allowing(t, directory)
	}},
	queue.OperationKind: {queue.OperationQueue, func(t *testing.T, tn *testnode.Node) (string, func(*jobs.Options)) {
		t.Helper()
		subscribe(t, tn, "all", newEndpoint(t, respondWith(http.StatusOK)).URL, nil)
		tn.DeadLetters(t, topicName, "e", 3)
		tn.BeginOperation(t, &query.DeadLetterFilter{}, operator.Action{Kind: operator.Redeliver})
		return "SELECT count(*) FROM postrider.operations WHERE state = 'done' AND done = 3", func(*jobs.Options) {}
	}},
}

// River's leader is off. What it would do for jobs that are no attempts, the nodes do: each step that was snoozed or
// failed, or whose node died, is made once.
func TestStepsRunAgain(t *testing.T) {
	t.Parallel()
	deferred := func(begun bool) func(*testing.T, *testnode.Node, string) {
		return func(t *testing.T, tn *testnode.Node, of string) {
			t.Helper()
			fetched, err := tn.System.JobRows.Fetch(t.Context(), of, nil, 1)
			require.NoError(t, err)
			require.Len(t, fetched, 1)
			n, err := tn.System.JobRows.Defer(t.Context(),
				[]queue.Deferred{{Job: fetched[0].ID, After: 30 * time.Second, Begun: begun}})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			const waits = "id > $1 AND queue = $2 AND state = 'available' AND scheduled_at > now() + interval '20 seconds' " +
				"AND (args ->> 'r')::int = $3::boolean::int" // each failed run makes the next pause longer
			require.Equal(t, 1, tn.Jobs(t, waits, fetched[0].ID, of, begun))
			tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = scheduled_at - interval '30 seconds'")
		}
	}
	for name, interrupt := range map[string]func(*testing.T, *testnode.Node, string){
		"snoozed": deferred(false),
		"failed":  deferred(true),
		"node died": func(t *testing.T, tn *testnode.Node, of string) {
			t.Helper()
			tn.Exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(), "+
				"attempted_by = '{dead}' WHERE queue = $1", of)
		},
	} {
		for kind, k := range stepKinds {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				tn := routing(t)
				once, change := k.begin(t, tn)
				interrupt(t, tn, k.queue)
				tn.Start(t, change)
				tn.Become(t, 1, once)
				tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE kind = $1", kind)
			})
		}
	}
}
