package jobs_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/policy"
)

// No page promises an order: an event that waits for its retry delays no later event.
func TestRetryDelaysNoLaterEvent(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	var rejected atomic.Bool
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if r.eventID() == "first" && rejected.CompareAndSwap(false, true) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "first")
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	publishOne(t, tn, "second")
	require.Equal(t, "second", tn.Attempt(t).EventID)
	require.Equal(t, 1, travel(t, tn))
	require.Equal(t, "first", tn.Attempt(t).EventID)
	require.Len(t, e.requests(), 3)
	require.Equal(t, "second", e.requests()[1].eventID())
}

// A dead letter has the properties that Event Grid adds to the event, whatever the schema, and has them at once.
func TestDeadLetterHasEventGridsFields(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name              string
		setup             func(*testing.T) *testnode.Node
		delivery          event.Schema
		contentType, body string // of one event with id 7, type order and subject ann
	}{
		{
			"Event Grid", setup, event.EventGrid, jsonType,
			`{"id":"7","subject":"ann","eventType":"order","eventTime":"2026-01-01T00:00:00Z","dataVersion":"1",` +
				`"data":{"n":1.50}}`,
		},
		{
			"CloudEvents", func(t *testing.T) *testnode.Node { t.Helper(); return setupTopic(t, event.CloudEvents) },
			event.CloudEvents,
			structuredType,
			`{"specversion":"1.0","id":"7","source":"/s","type":"order","subject":"ann","time":"2026-01-01T00:00:00Z"}`,
		},
		{
			"custom", func(t *testing.T) *testnode.Node { t.Helper(); return setupCustom(t, wholeMapping) }, event.EventGrid,
			jsonType,
			`{"no":7,"at":"2026-01-01T00:00:00Z","who":"ann","total":1.50}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			tn := row.setup(t)
			e := newEndpoint(t, respondWith(http.StatusNotFound))
			subscribe(t, tn, "all", e.URL, delivering(row.delivery))
			tn.Start(t)
			body := row.body
			if row.name == "Event Grid" {
				body = "[" + body + "]"
			}
			publishBody(t, tn, row.contentType, body)
			require.Equal(t, policy.DeadLetter, tn.Attempt(t).Verdict.Action)
			require.Equal(t, 1,
				tn.Count(t, `SELECT count(*) FROM postrider.dead_letters l JOIN postrider.events e USING (system_id)
				WHERE l.reason = 'UndeliverableDueToClientError' AND l.attempts = 1 AND l.last_outcome = 'NotFound'
				  AND l.last_status = 404
				  AND l.published_at = e.published_at AND l.last_attempt_at BETWEEN l.published_at AND l.dead_lettered_at
				  AND l.dead_lettered_at < l.last_attempt_at + interval '1 minute'
				  AND l.event_id = '7' AND l.event_type = 'order' AND l.subject = 'ann' AND l.event_time = '2026-01-01'
				      AND l.body_text = $1`, row.body))
		})
	}
}
