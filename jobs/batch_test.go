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
)

// batching switches batches on.
func batching(maxEvents, kilobytes int) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes = &maxEvents, &kilobytes
	}
}

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
	publishAtOnce(t, tn, "e", 10)
	tn.Start(t)
	tn.AttemptsMade(t, 3)
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
	require.Equal(t, 10, tn.Count(t, deliveredInBatch))
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", "delivery_id IS NULL AND batch_id IS NOT NULL AND number = 1 "+
		"AND verdict = 'deliver'"))
	require.Equal(t, 3, tn.Rows(t, "batches", "state = 'delivered' AND attempts = 1 AND finished_at IS NOT NULL"))
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
}

func TestBatchOfCloudEvents(t *testing.T) {
	t.Parallel()
	tn := setupTopic(t, event.CloudEvents)
	e := newEndpoint(t, respondWith(http.StatusOK))
	cloud := func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents }
	subscribe(t, tn, "all", e.URL, both(batching(10, 64), cloud))
	const first, second = `{ "specversion":"1.0", "id":"1","source":"/s","type":"t","ext":5,"data":{"n":1.50,` +
		`"s":"\u00e9é"} }`, `{"specversion":"1.0","id":"2","source":"/s","type":"t"}`
	publishBody(t, tn, "application/cloudevents-batch+json", "["+first+" , "+second+"]")
	tn.Start(t)
	tn.Attempt(t)
	r := requireOneRequest(t, e)
	require.Equal(t, "application/cloudevents-batch+json; charset=utf-8", r.header.Get("Content-Type"))
	require.Equal(t, "["+first+","+second+"]", r.body, "every event byte for byte")

	publishBody(t, tn, structuredType, second)
	tn.Attempt(t)
	require.Equal(t, "["+second+"]", e.requests()[1].body, "an array, also of one: the type says so")
	require.Equal(t, "application/cloudevents-batch+json; charset=utf-8", e.requests()[1].header.Get("Content-Type"))
}

// A delivery from before batches were switched on has its own job, and is sent alone in the format of batches.
func TestDeliveryFromBeforeBatchesIsSentAlone(t *testing.T) {
	t.Parallel()
	tn := setupTopic(t, event.CloudEvents)
	e := newEndpoint(t, respondWith(http.StatusOK))
	cloud := func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents }
	subscribe(t, tn, "all", e.URL, both(cloud, signing))
	receipt := publishBody(t, tn, structuredType, `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`)
	subscribe(t, tn, "all", e.URL, both(batching(10, 64), cloud, signing))
	tn.Start(t)
	tn.Attempt(t)
	r := requireOneRequest(t, e)
	require.Equal(t, []string{"1"}, r.ids(t))
	require.Equal(t, "application/cloudevents-batch+json; charset=utf-8", r.header.Get("Content-Type"))
	require.NoError(t, r.verify(t, secretOf(t, tn, "all")))
	require.Equal(t, receipt.SystemIDs[0].String(), r.header.Get("Webhook-Id"), "its event's, not a batch's")
}

// Open deliveries are still sent after batches are switched off.
func TestBatchesSwitchedOff(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, batching(10, 64))
	publishAtOnce(t, tn, "e", 3)
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	tn.AttemptsMade(t, 3)
	require.Equal(t, []string{"e-0", "e-1", "e-2"}, e.eventIDs())
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
		travel(t, tn)
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
	subscribe(t, tn, "dropping", e.URL, both(batching(5, 64), func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	}))
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
