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
	"postrider/jobs/delivery"
	"postrider/jobs/queue"
	"postrider/policy"
)

// publishMany stores n events in requests of at most 500 and returns their ids, sorted.
func (b *bundle) publishMany(t *testing.T, n int) []string {
	t.Helper()
	ids := make([]string, n)
	bodies := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%05d", i)
		bodies[i] = eventGridBody(ids[i], "{}")
	}
	for part := range slices.Chunk(bodies, 500) {
		b.publish(t, jsonType, "["+strings.Join(part, ",")+"]")
	}
	return ids
}

func TestDeletingTheEventSubscriptionDuringARequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e, h := newHanging(t, respondWith(http.StatusServiceUnavailable))
	b.subscribe(t, "all", e.URL, nil)
	b.start(t, nil)
	b.publishOne(t, "e")
	<-h.begun
	require.NoError(t, b.store.Subscriptions.Delete(t.Context(), topicName, "all"))
	canceled := func() int {
		return b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled' "+
			"AND reason = 'EventSubscriptionDeleted' AND attempts = 0 AND last_outcome IS NULL")
	}
	require.Equal(t, 1, canceled(), "canceled when Delete returns")
	h.letGo()
	b.attempt(t)
	require.Equal(t, 1, canceled(), "the late response changes nothing")
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.delivery_attempts"))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.deliveries"))
	b.become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
}

// The cancellation of a deleted event subscription was interrupted: the next due check finds no event subscription.
func TestDeletedEventSubscriptionIsNotCalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribe(t, "all", e.URL, nil)
	b.publishOne(t, "e")
	b.exec(t, "UPDATE postrider_internal.event_subscriptions SET deleted_at = now(), drained_at = now()")
	require.NoError(t, b.store.Cache.Reload(t.Context()))
	b.start(t, nil)
	b.become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled' "+
		"AND reason = 'EventSubscriptionDeleted' AND attempts = 0")
	require.Empty(t, e.requests())
}

// A node that cannot record results must not send requests.
func TestNoRequestsWhileNothingCanBeRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	b.subscribe(t, "all", e.URL, nil)
	b.start(t, nil)
	b.publishOne(t, "in-flight")
	<-h.begun
	b.exec(t, "ALTER TABLE postrider_internal.delivery_attempts RENAME TO hidden")
	h.letGo()
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), tick)
		defer cancel()
		return b.store.Recorder.WaitRecording(ctx) != nil
	}, waitTimeout, tick)
	ids := b.publishMany(t, 20)
	b.become(t, 21, "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'")
	require.Never(t, func() bool { return len(e.requests()) > 1 }, 500*time.Millisecond, tick)
	require.Empty(t, b.attempts)

	b.exec(t, "ALTER TABLE postrider_internal.hidden RENAME TO delivery_attempts")
	b.attemptsMade(t, 21)
	require.Equal(t, append(ids, "in-flight"), e.eventIDs(), "each event was sent once")
	require.Equal(t, 21, b.count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns = 0 AND number = 1"))
	require.Equal(t, 21, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"))
}

// An attempt that could not begin, however often, does not count: the event is not dead-lettered for it.
func TestAttemptsThatCannotBeginAreNoReruns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	b.subscribe(t, "all", e.URL, nil)
	b.publishOne(t, "e")
	// The body cannot be loaded; everything else works.
	b.exec(t, "ALTER TABLE postrider_internal.events RENAME COLUMN body TO hidden")
	b.start(t, nil)
	for range 3 {
		b.become(t, 1, "SELECT count(*) FROM postrider_internal.river_job WHERE state <> 'running' AND scheduled_at > now()")
		b.exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() - interval '1 minute', state = 'available'")
		b.become(t, 0, "SELECT count(*) FROM postrider_internal.river_job WHERE scheduled_at < now() - interval '30 "+
			"seconds' AND state <> 'running'")
	}
	b.exec(t, "ALTER TABLE postrider_internal.events RENAME COLUMN hidden TO body")
	b.attempt(t)
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns = 0 AND outcome = 'Delivered'"))
}

// A result that PostgreSQL rejects, even without the response, must not count as recorded: its job would be completed,
// and the delivery would have none.
func TestResultThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "all", closedPort, nil)
	b.publishOne(t, "e")
	var job queue.JobToken
	var id int64
	require.NoError(t,
		b.pool.QueryRow(t.Context(), "SELECT j.id, j.created_at, d.id FROM postrider_internal.deliveries d "+
			"JOIN postrider_internal.river_job j ON j.id = d.job_id").Scan(&job.JobID, &job.CreatedAt, &id))
	unknown := delivery.Result{
		JobToken: job, DeliveryID: id, Number: 1, StartedAt: time.Now(), Verdict: policy.Verdict{Action: "unknown"},
	}
	require.ErrorIs(t, b.store.Recorder.Record(t.Context(), unknown), postgres.ErrPoison)
	require.NoError(t, b.store.Recorder.WaitRecording(t.Context()), "the others go on")
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 0"))
}

func TestDrain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withoutProbation(t)
	statuses := []int{http.StatusNoContent, http.StatusInternalServerError, http.StatusBadRequest, http.StatusNoContent}
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		id := r.eventID()
		w.WriteHeader(statuses[id[len(id)-1]%4])
	})
	b.copyPolicy(t, "ga-2021", "slow", `{"steps":["1 hour"]}`) // no second attempt, however long a busy machine takes
	b.subscribe(t, "all", e.URL, under("slow"))
	const n = 2000
	b.publishMany(t, n)
	b.start(t, nil)
	b.attemptsMade(t, n)
	b.settle(t)
	// '0' is 48: the last digits 0 4 8, 1 5 9, 2 6 and 3 7.
	require.Equal(t, n*5/10,
		b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 1"))
	require.Equal(t, n*3/10,
		b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'pending' AND attempts = 1"))
	require.Equal(t, n*2/10, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'dead_lettered' "+
		"AND reason = 'UndeliverableDueToHttpBadRequest'"))
	require.Equal(t, n*2/10, b.count(t, "SELECT count(*) FROM postrider.dead_letters"))
	require.Equal(t, n*3/10, b.count(t, "SELECT count(*) FROM postrider_internal.river_job"))
	require.Len(t, e.requests(), n)
}

// Events that PostgreSQL's jsonb cannot hold are stored, delivered and dead-lettered, and never fail a query over all
// rows.
func TestEventsThatJSONBCannotHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withoutProbation(t) // twelve rejections of one endpoint would start one
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "rows", e.URL, nil)
	b.subscribe(t, "none", e.URL, func(s *catalog.SubscriptionSpec) {
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
	b.start(t, nil)
	for id, row := range rows {
		b.publish(t, jsonType, "["+eventGridBody(id, row.data)+"]")
	}
	b.attemptsMade(t, 2*len(rows))
	require.Len(t, b.everything(t, "events"), len(rows))
	require.Len(t, b.everything(t, "deliveries"), 2*len(rows))
	require.Len(t, b.everything(t, "delivery_attempts"), 2*len(rows))
	deadLetters := b.everything(t, "dead_letters")
	require.Len(t, deadLetters, len(rows))
	for _, deadLetter := range deadLetters {
		id := deadLetter["event_id"].(string)
		require.Equal(t, eventGridBody(id, rows[id].data), deadLetter["body_text"])
		require.Equal(t, rows[id].held, deadLetter["body"] != nil, id)
		require.Equal(t, rows[id].held, deadLetter["body_error"] == nil, id)
	}
	require.Equal(t, len(rows), b.count(t,
		"SELECT count(*) FROM postrider.deliveries WHERE state = 'dropped' AND reason = 'UndeliverableDueToHttpBadRequest'"))
}
