package jobs_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/policy"
)

// publishMany stores n events in requests of at most 500 and returns their ids, sorted.
func publishMany(t *testing.T, tn *testnode.Node, n int) []string {
	t.Helper()
	ids := make([]string, n)
	bodies := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%05d", i)
		bodies[i] = eventGridBody(ids[i], "{}")
	}
	for part := range slices.Chunk(bodies, 500) {
		publishBody(t, tn, jsonType, "["+strings.Join(part, ",")+"]")
	}
	return ids
}

func TestDeletingTheEventSubscriptionDuringARequest(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusServiceUnavailable))
	subscribe(t, tn, "single", e.URL, nil)
	subscribe(t, tn, "batched", e.URL, batching(3, 64))
	tn.Start(t)
	publishAtOnce(t, tn, "e", 3)
	for range 3 + 1 {
		await(t, h.begun)
	}
	publishAtOnce(t, tn, "open", 2)
	canceled := func() int {
		return tn.Rows(t, "deliveries", "state = 'canceled' AND reason = 'EventSubscriptionDeleted' AND attempts = 0 "+
			"AND last_outcome IS NULL")
	}
	for i, name := range []string{"single", "batched"} {
		require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, name))
		require.Equal(t, 5*(i+1), canceled(), "canceled when Delete returns")
	}
	h.unblock()
	tn.AttemptsMade(t, 3)
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE state <> 'completed'")
	require.Equal(t, 10, canceled(), "the late response changes nothing")
	require.Zero(t, tn.Recorded(t, ""))
	require.Zero(t, tn.Pending(t, ""))
}

// A node that cannot record results must not send requests.
func TestNoRequestsWhileNothingCanBeRecorded(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "in-flight")
	await(t, h.begun)
	tn.Exec(t, "ALTER TABLE postrider_internal.delivery_attempts RENAME TO hidden")
	h.unblock()
	testnode.Within(t, "commits wait", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), tick)
		defer cancel()
		return tn.System.Recorder.WaitRecording(ctx) != nil
	})
	ids := publishMany(t, tn, 20)
	tn.Become(t, 21, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'")
	require.Never(t, func() bool { return len(e.requests()) > 1 }, 500*time.Millisecond, tick)
	require.Empty(t, tn.Attempts)

	tn.Exec(t, "ALTER TABLE postrider_internal.hidden RENAME TO delivery_attempts")
	tn.AttemptsMade(t, 21)
	require.Equal(t, append(ids, "in-flight"), e.eventIDs(), "each event was sent once")
	require.Equal(t, 21, tn.Rows(t, "delivery_attempts", "reruns = 0 AND number = 1"))
	require.Equal(t, 21, tn.Rows(t, "deliveries", "state = 'delivered'"))
}

// An attempt that could not begin, however often, does not count: the event is not dead-lettered for it.
func TestAttemptsThatCannotBeginAreNoReruns(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	publishOne(t, tn, "e")
	// The body cannot be loaded; everything else works.
	tn.Exec(t, "ALTER TABLE postrider_internal.events RENAME COLUMN body TO hidden")
	tn.Start(t)
	for range 3 {
		tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.river_job WHERE state <> 'running' AND scheduled_at > now()")
		tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 minute', state = 'available'")
		tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE scheduled_at < now() - interval '30 "+
			"seconds' AND state <> 'running'")
	}
	tn.Exec(t, "ALTER TABLE postrider_internal.events RENAME COLUMN hidden TO body")
	tn.Attempt(t)
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "reruns = 0 AND outcome = 'Delivered'"))
}

// A result that PostgreSQL rejects, even without the response, must not count as recorded: its job would be completed,
// and the delivery would have none.
func TestResultThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	subscribe(t, tn, "all", closedPort, nil)
	publishOne(t, tn, "e")
	d, j := tn.Fetch(t, tn.System.Node)
	unknown := delivery.Attempt{Request: delivery.Request{Number: 1, StartedAt: time.Now()}, Decision: delivery.Decision{
		JobToken: j[0], DeliveryID: d[0], Verdict: policy.Verdict{Action: "unknown"},
	}}
	require.ErrorIs(t, tn.System.Recorder.Record(t.Context(), unknown), postgres.ErrPoison)
	require.NoError(t, tn.System.Recorder.WaitRecording(t.Context()), "the others go on")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 0"))
}

// Events that PostgreSQL's jsonb cannot hold are stored, delivered and dead-lettered, and never fail a query over all
// rows.
func TestEventsThatJSONBCannotHold(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn) // twelve rejections of one endpoint would start one
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	subscribe(t, tn, "rows", e.URL, nil)
	subscribe(t, tn, "none", e.URL, dropping)
	depth := event.DefaultLimits().MaxDepth - 1
	rows := map[string]struct {
		data string
		held bool
	}{
		"nul":            {`"a\u0000b"`, false},
		"nul-in-a-name":  {`{"\u0000":1}`, false},
		"lone-surrogate": {`["\ud800"]`, false},
		"huge-number":    {`1e999999`, false},
		"deep":           {strings.Repeat("[", depth) + strings.Repeat("]", depth), true},
		"ordinary":       {`{"a":1}`, true},
	}
	tn.Start(t)
	for id, row := range rows {
		publishBody(t, tn, jsonType, "["+eventGridBody(id, row.data)+"]")
	}
	tn.AttemptsMade(t, 2*len(rows))
	require.Len(t, everything(t, tn, "events"), len(rows))
	require.Len(t, everything(t, tn, "deliveries"), 2*len(rows))
	require.Len(t, everything(t, tn, "delivery_attempts"), 2*len(rows))
	deadLetters := everything(t, tn, "dead_letters")
	require.Len(t, deadLetters, len(rows))
	for _, deadLetter := range deadLetters {
		id := deadLetter["event_id"].(string)
		require.Equal(t, eventGridBody(id, rows[id].data), deadLetter["body_text"])
		require.Equal(t, rows[id].held, deadLetter["body"] != nil, id)
		require.Equal(t, rows[id].held, deadLetter["body_error"] == nil, id)
	}
	require.Equal(t, len(rows), tn.Rows(t, "deliveries", "state = 'dropped' "+
		"AND reason = 'UndeliverableDueToHttpBadRequest'"))
}

// A publish in progress may commit its delivery after the deletion; its attempt finds no event subscription, and knows
// the reason.
func TestAttemptOfAnExpiredSubscriptionIsCanceled(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "expired", e.URL, nil)
	subscribe(t, tn, "deleted", e.URL, nil)
	publishOne(t, tn, "e")
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now(), drained_at = now(), "+
		"expiration_time_utc = CASE name WHEN 'expired' THEN now() ELSE now() + interval '1 hour' END")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	tn.Start(t)
	tn.BecomeRows(t, 1, "deliveries", "subscription = 'expired' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionExpired'")
	tn.BecomeRows(t, 1, "deliveries", "subscription = 'deleted' AND state = 'canceled' "+
		"AND reason = 'EventSubscriptionDeleted'")
	require.Empty(t, e.requests())
}

// The process's clock may be an hour off and nothing changes: decisions about deliveries and stored times use the
// database's. testdata/clockreaders.txt lists the functions of the engine that read the process's clock, and why. All
// but NextRetry only subtract two readings, which uses the monotonic clock. The time stamps of Kafka's records are
// franz-go's. A new reader must be reviewed and listed.
func TestProcessClockDecidesNothing(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/clockreaders.txt")
	require.NoError(t, err)
	var listed, found []string
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "\t")
		listed = append(listed, name)
	}
	for _, dir := range []string{
		"jobs", "policy", "internal/catalog", "internal/access", "internal/operator", "internal/postgres", "internal/query",
		"internal/event", "internal/endpointconf",
	} {
		found = append(found, readersOfTheClock(t, dir)...)
	}
	slices.Sort(found)
	require.Equal(t, listed, slices.Compact(found), "say what each reader of the clock is for")
}

// clocks are the functions that read the process's clock, by package.
var clocks = map[string][]string{
	"time": {"Now", "Since", "Until"}, "uuid": {"NewUUID", "NewV6", "NewV7", "NewV7FromReader"},
}

// readersOfTheClock lists the functions of a package's files, without tests, that call one of clocks.
func readersOfTheClock(t *testing.T, directory string) (readers []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", directory), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		for _, declaration := range file.Decls {
			name := "(no function)"
			if function, ok := declaration.(*ast.FuncDecl); ok {
				name = function.Name.Name
			}
			if readsTheClock(declaration) {
				readers = append(readers, filepath.Base(path)+" "+name)
			}
		}
		return nil
	})
	require.NoError(t, err)
	return readers
}

func readsTheClock(node ast.Node) (reads bool) {
	ast.Inspect(node, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, named := selector.X.(*ast.Ident)
		reads = reads || named && slices.Contains(clocks[of.Name], selector.Sel.Name)
		return true
	})
	return reads
}
