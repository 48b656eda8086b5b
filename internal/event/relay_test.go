package event

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const azureTopic = "/subscriptions/5b4b650e/resourceGroups/rg/providers/microsoft.eventgrid/topics/orders"

// A relay topic accepts events of other topics, keeps their topic as the source, and changes no byte of them.
func TestEventsOfOtherTopics(t *testing.T) {
	t.Parallel()
	in := Input{Schema: EventGrid, Topic: "orders", AnyTopic: true}
	for topic, source := range map[string]string{
		azureTopic: azureTopic, "billing": "billing", "": "", "orders": "", "/topics/orders": "",
	} {
		body := with(gridEvent, `"topic":"`+strings.ReplaceAll(topic, "/", `\/`)+`","metadataVersion":"1","dataVersion":""`)
		e, err := in.ParseOne([]byte(body))
		require.NoError(t, err, topic)
		require.Equal(t, source, e.Source)
		require.Equal(t, body, string(e.Body))
		if topic != "" {
			requireDelivery(t, e, EventGrid, body, topic)
		}
		sent, err := AppendDelivery(nil, e, "orders", CloudEvents)
		require.NoError(t, err)
		if source == "" {
			source = "/topics/orders"
		}
		require.Contains(t, string(sent), `"source":"`+source+`"`)
		requireBound(t, e, CloudEvents, false, topic)
	}
	in.AnyTopic = false
	_, err := in.ParseOne([]byte(with(gridEvent, `"topic":"`+azureTopic+`"`)))
	require.ErrorContains(t, err, `topic: must be absent, empty, "orders"`)

	relay := custom(t, everyField)
	relay.AnyTopic = true
	e, err := relay.ParseOne([]byte(`{"key":"1","when":"2026-01-02T03:04:05Z","what":"t","who":"s",` +
		`"where":"` + azureTopic + `"}`))
	require.NoError(t, err)
	require.Equal(t, azureTopic, e.Source)
	for delivery, member := range map[Schema]string{EventGrid: "topic", CloudEvents: "source"} {
		sent, err := AppendDelivery(nil, e, "orders", delivery)
		require.NoError(t, err)
		require.Contains(t, string(sent), `"`+member+`":"`+azureTopic+`"`)
		requireBound(t, e, delivery, false, member)
	}
}

// What Azure adds to an event of 1 MB must not make it too large.
func TestRelayedEventsMayBeLarger(t *testing.T) {
	t.Parallel()
	in := Input{Schema: EventGrid, Topic: "orders", AnyTopic: true}
	body := []byte(grid(`"data":"` + strings.Repeat("x", 1<<20) + `"`))
	_, err := in.Parse("application/json; charset=utf-8", body)
	require.NoError(t, err)
	in.AnyTopic = false
	_, err = in.Parse("application/json; charset=utf-8", body)
	require.ErrorContains(t, err, "an event has at most 1048576 bytes")
}
