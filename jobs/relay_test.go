package jobs_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
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
	edited := strings.Replace(body, "1.50", "2", 1)
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id, event => $1::jsonb) FROM postrider.dead_letters", edited)
	tn.AttemptsMade(t, 1)
	seen := e.requests()
	require.Len(t, seen, 2)
	require.Contains(t, seen[1].body, azureTopics+"one")
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "source = $1", azureTopics+"one"))
}
