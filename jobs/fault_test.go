package jobs_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
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
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "e")
	await(t, h.begun)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "all"))
	canceled := func() int {
		return tn.Rows(t, "deliveries", "state = 'canceled' AND reason = 'EventSubscriptionDeleted' AND attempts = 0 "+
			"AND last_outcome IS NULL")
	}
	require.Equal(t, 1, canceled(), "canceled when Delete returns")
	h.letGo()
	tn.Attempt(t)
	require.Equal(t, 1, canceled(), "the late response changes nothing")
	require.Zero(t, tn.Recorded(t, ""))
	require.Zero(t, tn.Pending(t, ""))
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
}

// The cancellation of a deleted event subscription was interrupted: the next due check finds no event subscription.
func TestDeletedEventSubscriptionIsNotCalled(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, nil)
	publishOne(t, tn, "e")
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now(), drained_at = now()")
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
	tn.Start(t)
	tn.BecomeRows(t, 1, "deliveries", "state = 'canceled' AND reason = 'EventSubscriptionDeleted' AND attempts = 0")
	require.Empty(t, e.requests())
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
	h.letGo()
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
	var job queue.JobToken
	var id int64
	require.NoError(t,
		tn.Pool.QueryRow(t.Context(), "SELECT j.id, j.created_at, d.id FROM postrider_internal.deliveries d "+
			"JOIN postrider_internal.river_job j ON j.id = d.job_id").Scan(&job.JobID, &job.CreatedAt, &id))
	unknown := delivery.Result{
		JobToken: job, DeliveryID: id, Number: 1, StartedAt: time.Now(), Verdict: policy.Verdict{Action: "unknown"},
	}
	require.ErrorIs(t, tn.System.Recorder.Record(t.Context(), unknown), postgres.ErrPoison)
	require.NoError(t, tn.System.Recorder.WaitRecording(t.Context()), "the others go on")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 0"))
}

func TestDrain(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn)
	statuses := []int{http.StatusNoContent, http.StatusInternalServerError, http.StatusBadRequest, http.StatusNoContent}
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		id := r.eventID()
		w.WriteHeader(statuses[id[len(id)-1]%4])
	})
	copyPolicy(t, tn, "ga-2021", "slow", `{"steps":["1 hour"]}`) // no second attempt, however long a busy machine takes
	subscribe(t, tn, "all", e.URL, under("slow"))
	const n = 400
	publishMany(t, tn, n)
	tn.Start(t)
	tn.AttemptsMade(t, n)
	settle(t, tn)
	// '0' is 48: the last digits 0 4 8, 1 5 9, 2 6 and 3 7.
	require.Equal(t, n*5/10, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
	require.Equal(t, n*3/10, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 1"))
	require.Equal(t, n*2/10, tn.Rows(t, "deliveries", "state = 'dead_lettered' "+
		"AND reason = 'UndeliverableDueToHttpBadRequest'"))
	require.Equal(t, n*2/10, tn.Rows(t, "dead_letters", ""))
	require.Equal(t, n*3/10, tn.Jobs(t, ""))
	require.Len(t, e.requests(), n)
}

// Events that PostgreSQL's jsonb cannot hold are stored, delivered and dead-lettered, and never fail a query over all
// rows.
func TestEventsThatJSONBCannotHold(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	withoutProbation(t, tn) // twelve rejections of one endpoint would start one
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	subscribe(t, tn, "rows", e.URL, nil)
	subscribe(t, tn, "none", e.URL, func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	})
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
