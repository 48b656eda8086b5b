package jobs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/policy"
)

// batching switches batches on.
var batching = testnode.Batching

// both combines changes of settings.
func both(changes ...func(*catalog.SubscriptionSpec)) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		for _, change := range changes {
			change(s)
		}
	}
}

// ids returns the ids of the events in an array, in order.
func (r request) ids(t *testing.T) []string {
	t.Helper()
	var events []struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(r.body), &events))
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	return ids
}

// names lists id-0 … id-(n-1).
func names(id string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%d", id, i)
	}
	return list
}

const deliveredInBatch = "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND attempts = 1 " +
	"AND batch_id IS NOT NULL"

func TestBatchIsOneRequest(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(4, 64))
	off := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "off", off.URL, batching(4, 64))
	publishAtOnce(t, tn, "e", 10)
	subscribe(t, tn, "off", off.URL, nil)
	tn.Start(t)
	tn.AttemptsMade(t, 3+10)
	require.Equal(t, names("e", 10), off.eventIDs(), "open deliveries are sent after batches are switched off")
	var got []string
	sizes := []int{}
	for _, r := range e.requests() {
		got, sizes = append(got, r.ids(t)...), append(sizes, len(r.ids(t)))
		require.Equal(t, "application/json; charset=utf-8", r.header.Get("Content-Type"))
		require.Equal(t, "0", r.header.Get("Aeg-Delivery-Count"))
		require.NotContains(t, r.header, "Aeg-Output-Event-Id", "it would be one event's of several")
		require.NotContains(t, r.header, "Aeg-Data-Version")
	}
	slices.Sort(got)
	slices.Sort(sizes)
	require.Equal(t, names("e", 10), got)
	require.Equal(t, []int{2, 4, 4}, sizes)
	require.Equal(t, 10, tn.Count(t, deliveredInBatch+" AND subscription = 'all'"))
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", "subscription = 'all' AND delivery_id IS NULL "+
		"AND batch_id IS NOT NULL AND number = 1 AND verdict = 'deliver'"))
	require.Equal(t, 3, tn.Rows(t, "batches", "subscription = 'all' AND state = 'delivered' AND attempts = 1 "+
		"AND finished_at IS NOT NULL"))
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
}

// A delivery from before batches were switched on has its own job, and is sent alone in the format of batches.
func TestBatchOfCloudEvents(t *testing.T) {
	t.Parallel()
	tn := setupTopic(t, event.CloudEvents)
	e := newEndpoint(t, respondWith(http.StatusOK))
	const first, second = `{ "specversion":"1.0", "id":"1","source":"/s","type":"t","ext":5,"data":{"n":1.50,` +
		`"s":"\u00e9é"} }`, `{"specversion":"1.0","id":"2","source":"/s","type":"t"}`
	subscribe(t, tn, "all", e.URL, both(delivering(event.CloudEvents), signing))
	before := publishBody(t, tn, structuredType, second)
	subscribe(t, tn, "all", e.URL, both(batching(10, 64), delivering(event.CloudEvents), signing))
	tn.Start(t)
	tn.Attempt(t)
	publishBody(t, tn, "application/cloudevents-batch+json", "["+first+" , "+second+"]")
	tn.Attempt(t)
	publishBody(t, tn, structuredType, second)
	tn.Attempt(t)
	for i, body := range []string{second, first + "," + second, second} {
		r := e.requests()[i]
		require.Equal(t, "["+body+"]", r.body, "every event byte for byte, in an array, also of one: the type says so")
		require.Equal(t, "application/cloudevents-batch+json; charset=utf-8", r.header.Get("Content-Type"))
		require.NoError(t, r.verify(t, secretOf(t, tn, "all")))
	}
	require.Equal(t, before.SystemIDs[0].String(), e.requests()[0].header.Get("Webhook-Id"), "its event's, not a batch's")
}

// A batch is sent again with the same events in the same order, though more have been published since.
func TestFailedBatchIsSentAgain(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	statuses := make(chan int, 3)
	statuses <- http.StatusServiceUnavailable
	statuses <- http.StatusServiceUnavailable
	statuses <- http.StatusOK
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(<-statuses) })
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	publishAtOnce(t, tn, "e", 5)
	tn.Start(t)
	for range 3 {
		tn.Attempt(t)
		subscribe(t, tn, "all", e.URL, batching(1, 64)) // a batch keeps its members
		makeDue(t, tn)
	}
	seen := e.requests()
	require.Len(t, seen, 3)
	require.Equal(t, names("e", 5), seen[0].ids(t))
	for i, r := range seen {
		require.Equal(t, seen[0].body, r.body)
		require.Equal(t, fmt.Sprint(i), r.header.Get("Aeg-Delivery-Count"))
	}
	require.Equal(t, 5, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 3"))
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'delivered' AND attempts = 3 AND members = 5"))
}

// A status that is never retried ends every member: each with a self-contained dead letter, or dropped without a
// destination.
func TestRejectedBatchEnds(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	subscribe(t, tn, "dropping", e.URL, both(batching(5, 64), dropping))
	publishAtOnce(t, tn, "e", 5)
	tn.Start(t)
	tn.AttemptsMade(t, 2)
	require.Equal(t, 5, tn.Count(t, `SELECT count(DISTINCT dead_letter_id) FROM postrider.dead_letters
		WHERE reason = 'UndeliverableDueToHttpBadRequest' AND attempts = 1 AND body ->> 'id' = event_id AND last_status = 400
		  AND last_outcome = 'BadRequest'`))
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'dead_lettered' AND attempts = 1"))
	require.Equal(t, 5, tn.Rows(t, "deliveries", "state = 'dropped' AND reason = 'UndeliverableDueToHttpBadRequest'"))
	require.Equal(t, 1, tn.Rows(t, "batches", "state = 'dropped'"))
}

// A member whose time to live has passed, whose row is gone or that cannot be written leaves before the request and
// delays no other. A batch with only such members ends without a request.
func TestMembersLeaveTheirBatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, both(batching(4, 64),
		func(s *catalog.SubscriptionSpec) { s.RetryPolicy.EventTimeToLiveInMinutes = new(1) }))
	publishAtOnce(t, tn, "old", 2)
	tn.Exec(t, olderBy, "1 minute")
	publishAtOnce(t, tn, "new", 2)
	publishAtOnce(t, tn, "e", 4)
	publishAtOnce(t, tn, "broken", 2)
	tn.Exec(t, "DELETE FROM postrider_internal.events WHERE event_id = 'e-1'")
	tn.Exec(t, "UPDATE postrider_internal.events SET body = 'not an object' WHERE event_id = 'e-2' "+
		"OR event_id LIKE 'broken-%'")
	tn.Start(t)
	tn.AttemptsMade(t, 2)
	tn.BecomeRows(t, 1, "batches", "state = 'canceled' AND members = 0")
	var sent [][]string
	for _, r := range e.requests() {
		sent = append(sent, r.ids(t))
	}
	require.ElementsMatch(t, [][]string{names("new", 2), {"e-0", "e-3"}}, sent)
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "event_id LIKE 'old-%' AND reason = 'TimeToLiveExceeded' "+
		"AND attempts = 0"))
	require.Equal(t, 2, tn.Rows(t, "batch_members", "event_id LIKE 'old-%' AND left_at IS NOT NULL "+
		"AND left_reason = 'TimeToLiveExceeded'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "state = 'dropped' AND reason = 'EventMissing'"))
	require.Equal(t, 3, tn.Rows(t, "batch_members", "left_reason = 'Unsendable'"))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 0 AND batch_id IS NULL"))
	require.Equal(t, 2, tn.Rows(t, "batches", "state = 'delivered' AND members = 2"))
}

// The probe of an event subscription with batches is one event in an array: its failure costs one attempt. If only
// batches are held, the oldest is the probe.
func TestProbeOfBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation": {"trigger": 1},"stepsInSeconds": [3600]}`)
	subscribe(t, tn, "billing", e.URL, both(batching(3, 64), under("touchy")))
	publishAtOnce(t, tn, "first", 3)
	tn.Start(t)
	tn.Attempt(t)
	require.Equal(t, 1, tn.Rows(t, "event_subscriptions", "hold = 'probation'"), "one request has failed")
	makeDue(t, tn)
	tn.Become(t, 3, inProbation)

	passHold(t, tn)
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	require.Equal(t, e.requests()[0].body, e.requests()[1].body, "the held batch is the probe")
	tn.Become(t, 1, "SELECT count(*) FROM postrider_internal.probations WHERE step = 2 AND probe_job_id IS NULL")

	publishAtOnce(t, tn, "second", 4)
	require.Equal(t, 4, tn.Count(t, inProbation))
	e.status.Store(http.StatusOK)
	passHold(t, tn)
	tn.Attempt(t)
	require.Equal(t, []string{"second-0"}, e.requests()[2].ids(t))
	tn.BecomeRows(t, 4, "deliveries", "state = 'delivered'")
	require.Zero(t, tn.Probations(t, ""))
}

func TestLateSuccessOfABatchWhileTheRetryRuns(t *testing.T) {
	t.Parallel()
	tn, x := lateSetup(t)
	subscribe(t, tn, "all", x.URL, both(batching(3, 64), under("one-second")))
	publishAtOnce(t, tn, "e", 3)
	tn.Start(t)
	first := x.next(t)
	tn.Attempt(t)
	subscribe(t, tn, "all", x.URL, both(batching(3, 64), under("ga-2021")))
	makeDue(t, tn)
	second := x.next(t)
	first.respond(http.StatusOK)
	tn.Become(t, 1, lateRows, 1, "Delivered", "note",
		"response after the ack timeout: 200: success; only noted: no retry was waiting in the queue")
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'pending' AND attempts = 1"))
	second.respond(http.StatusOK)
	tn.Attempt(t)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 2"))
}

// After a failover that lost commits another batch may have the job's id. The result of the lost batch must not end the
// other's row, as River would, which knows only ids.
func TestStaleBatchLeavesTheRowOfItsID(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, h := newHanging(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(5, 64))
	publishAtOnce(t, tn, "e", 5)
	first := tn.Engine(t)
	require.NoError(t, first.Start(t.Context()))
	await(t, h.begun)
	tn.Exec(t, "UPDATE postrider_internal.river_job SET created_at = created_at + interval '1 second'")
	h.unblock()
	testnode.RequireStops(t, first)
	require.Zero(t, tn.Jobs(t, "finalized_at IS NOT NULL"))
	require.Zero(t, tn.Rows(t, "delivery_attempts", ""))
}
