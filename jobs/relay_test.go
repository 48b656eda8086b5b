package jobs_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/jobs"
)

const azureTopics = "/subscriptions/5b4b650e/resourceGroups/rg/providers/microsoft.eventgrid/topics/"

// azureEvent is an event as Azure delivers it: its topic has an id there, and its time has seven digits.
func azureEvent(id, topic string) string {
	return fmt.Sprintf(`{"id":%q,"topic":%q,"subject":"s","eventType":"t","data":{"n":1.50},`+
		`"eventTime":"2026-01-01T00:00:00.0000001Z","dataVersion":"","metadataVersion":"1"}`, id, azureTopics+topic)
}

// An event that Azure delivers into a relay topic keeps its topic: in the view, for filters and in deliveries, which
// repeat its bytes. The same id of another topic is another event.
func TestRelayedEventKeepsItsTopic(t *testing.T) {
	t.Parallel()
	tn := setupSpec(t, catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Relay: catalog.RelayAzure, DuplicateWindow: time.Hour,
	})
	grid, cloud := newEndpoint(t, respondWith(http.StatusOK)), newEndpoint(t, respondWith(http.StatusOK))
	filter := `{"advancedFilters":[{"operatorType":"StringEndsWith","key":"Topic","values":["/topics/ONE"]}]}`
	subscribe(t, tn, "grid", grid.URL, testnode.Filtered(t, filter))
	subscribe(t, tn, "cloud", cloud.URL, func(s *catalog.SubscriptionSpec) {
		s.EventDeliverySchema = event.CloudEvents
		testnode.Filtered(t, filter)(s)
	})
	tn.Start(t)
	one, two := azureEvent("1", "one"), azureEvent("1", "two")
	first := publishBody(t, tn, jsonType, "["+one+","+two+"]")
	require.Equal(t, []int{2, 0}, first.Matched)
	again := publishBody(t, tn, jsonType, "["+one+","+two+"]")
	require.Equal(t, first.SystemIDs, again.SystemIDs)
	require.Equal(t, []bool{true, true}, again.Duplicates)
	tn.AttemptsMade(t, 2)

	require.Equal(t, "["+one+"]", requireOneRequest(t, grid).body)
	require.Contains(t, requireOneRequest(t, cloud).body, `"source":"`+azureTopics+`one"`)
	require.Equal(t, 1, tn.Rows(t, "events", "source = $1", azureTopics+"two"))

	// By SQL the same events are the same.
	require.Equal(t, first.SystemIDs[1].String(), tn.Text(t, "SELECT postrider.publish('orders', $1)", two))
	require.Equal(t, 2, tn.Rows(t, "events", ""))
	tn.Exec(t, "SELECT postrider.publish('orders', $1)", azureEvent("2", "two"))
	require.Equal(t, 1, tn.Rows(t, "events", "event_id = '2' AND source = $1", azureTopics+"two"))
	putTopic(t, tn, "plain", catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.publish('plain', $1)", two), "event.topic must be")
}

// A dead letter of a relayed event is delivered again as it was accepted, and can be edited.
func TestRelayedEventIsRepaired(t *testing.T) {
	t.Parallel()
	tn := setupSpec(t, catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Relay: catalog.RelayAzure,
	})
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	subscribe(t, tn, "all", e.URL, nil)
	tn.Start(t)
	body := azureEvent("1", "one")
	publishBody(t, tn, jsonType, "["+body+"]")
	tn.AttemptsMade(t, 1)
	edited := strings.Replace(body, "1.50", `"`+strings.Repeat("x", 1<<20)+`"`, 1) // relayed events may be larger
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id, event => $1::jsonb) FROM postrider.dead_letters", edited)
	tn.AttemptsMade(t, 1)
	seen := e.requests()
	require.Len(t, seen, 2)
	require.Contains(t, seen[1].body, azureTopics+"one")
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "source = $1", azureTopics+"one"))
}

// A callback is requested once, after an operator has opened it, and only at an address that deliveries may be sent to.
func TestRelayCallback(t *testing.T) {
	t.Parallel()
	tn := setupSpec(t, catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.CloudEvents, Relay: catalog.RelayAzure,
	})
	e := newEndpoint(t, respondWith(http.StatusOK))
	offer := func(callback string) string {
		u, err := url.Parse(callback)
		require.NoError(t, err)
		topic, err := tn.System.Topics.Get(t.Context(), topicName)
		require.NoError(t, err)
		noted, err := tn.System.Relays.NoteHandshake(t.Context(), &catalog.RelayHandshake{
			TopicID: topic.ID, Subscription: "feed", Schema: event.CloudEvents, Origin: "eventgrid.azure.net", Callback: u,
		})
		require.NoError(t, err)
		require.True(t, noted)
		return tn.Text(t, "SELECT relay_feed_id FROM postrider.relay_feeds WHERE callback = 'awaiting'")
	}
	const open = "SELECT postrider.open_relay_callback($1::bigint)"
	engine := tn.Start(t)
	feed := offer(e.URL + "/validate?id=1&token=hush-hush")
	require.Empty(t, e.requests())
	require.Equal(t, "pending", tn.Text(t, open, feed))
	tn.BecomeRows(t, 1, "relay_feeds", "callback = 'succeeded' AND callback_message = 'acknowledged: responded 200'")
	r := requireOneRequest(t, e)
	require.Equal(t, http.MethodGet+" /validate?id=1&token=hush-hush", r.method+" "+r.uri)
	require.Contains(t, tn.RejectedBy(t, open, feed), "it was opened before")
	require.Zero(t, tn.Rows(t, "handshakes", "handshakes::text LIKE '%hush%'"))
	require.Zero(t, tn.Rows(t, "handshake_steps", "handshake_steps::text LIKE '%hush%'"))
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'relay_callback_opened' AND subscription = 'feed'"))

	feed = offer(e.URL + "/late")
	tn.Exec(t, "UPDATE postrider_internal.handshakes SET callback_expires_at = now() WHERE state = 'awaiting'")
	require.Contains(t, tn.RejectedBy(t, open, feed), "it has expired or failed")
	require.NoError(t, tn.System.Handshakes.Expire(t.Context()))
	require.Equal(t, 1, tn.Rows(t, "relay_feeds", "callback_message = 'no operator has opened it in time'"))
	require.Contains(t, tn.RejectedBy(t, open, "4711"), "relay feed 4711 does not exist")
	testnode.RequireStops(t, engine)

	failing := newEndpoint(t, respondWith(http.StatusInternalServerError))
	engine = tn.Start(t, func(o *jobs.Options) { o.HandshakePause = time.Millisecond })
	tn.Exec(t, open, offer(failing.URL+"/validate"))
	tn.BecomeRows(t, 1, "relay_feeds", "callback = 'failed' AND callback_message LIKE 'try 1 of 1:%'")
	requireOneRequest(t, failing)
	testnode.RequireStops(t, engine)

	tn.Start(t, func(o *jobs.Options) { o.AllowCIDR, o.HandshakePause = nil, time.Millisecond })
	tn.Exec(t, open, offer(e.URL+"/guarded"))
	tn.BecomeRows(t, 1, "relay_feeds", "callback = 'failed' AND callback_message LIKE '%must not be%'")
	require.Len(t, e.requests(), 1)
}
