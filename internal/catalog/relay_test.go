package catalog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/testnode"
)

// relayTopic returns a relay topic.
func relayTopic(t *testing.T, tn *testnode.Node) *catalog.Topic {
	t.Helper()
	topic, _, err := tn.System.Topics.Put(t.Context(), "grid", catalog.TopicSpec{
		Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Relay: catalog.RelayAzure,
	})
	require.NoError(t, err)
	return topic
}

// Deliveries count for the source of a handshake, or else for the newest feed of their name: each topic of a domain is
// another source. A topic that no longer exists, and one with too many feeds, do not stop the counts of others.
func TestCountsOfRelayFeeds(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	topic, relays := relayTopic(t, tn), tn.System.Relays
	for _, source := range []string{"/topics/a", "/topics/b"} {
		noted, err := relays.NoteHandshake(t.Context(), &catalog.RelayHandshake{
			TopicID: topic.ID, Subscription: "feed", Source: source, Schema: event.EventGrid,
		})
		require.NoError(t, err)
		require.True(t, noted)
	}
	now := time.Now()
	count := func(id int64, name, source string, ago time.Duration, attempts *int) *catalog.Relayed {
		return &catalog.Relayed{
			TopicID: id, Subscription: name, Source: source, Last: now.Add(-ago), Requests: 1, Events: 2, Rejected: 3,
			Looped: 4, Duplicates: 5, DeliveryCount: attempts,
		}
	}
	list := []*catalog.Relayed{
		count(topic.ID, "FEED", "/TOPICS/A", 0, nil), count(4711, "FEED", "", 0, nil),
		count(topic.ID, "FEED", "/domain/1", time.Minute, new(7)), count(topic.ID, "FEED", "/domain/2", 0, nil),
		count(topic.ID, "FEED", "", time.Hour, new(9)), count(topic.ID, "NEW", "/topics/c", 0, nil),
	}
	skipped, err := relays.Count(t.Context(), list)
	require.NoError(t, err)
	require.Zero(t, skipped)
	const of = "azure_subscription = $1 AND source IS NOT DISTINCT FROM nullif($2, '') AND requests = $3 AND " +
		"events = 2 * requests AND rejected_requests = 3 * requests AND looped_requests = 4 * requests AND " +
		"duplicates = 5 * requests"
	require.Equal(t, 3, tn.Rows(t, "relay_feeds", ""))
	require.Equal(t, 1, tn.Rows(t, "relay_feeds", of, "feed", "/topics/a", 1))
	require.Equal(t, 1, tn.Rows(t, "relay_feeds", of+" AND last_delivery_count = 7 AND created_at < now() - interval "+
		"'50 minutes' AND last_received_at > now() - interval '30 seconds'", "feed", "/topics/b", 3))
	require.Equal(t, 1, tn.Rows(t, "relay_feeds", of+" AND state = 'unvalidated'", "NEW", "", 1))

	many := make([]*catalog.Relayed, 1000)
	for i := range many {
		many[i] = count(topic.ID, fmt.Sprint("other-", i), "", 0, nil)
	}
	skipped, err = relays.Count(t.Context(), many)
	require.NoError(t, err)
	require.Zero(t, skipped, "new feeds take the places of those without a handshake")
	require.Equal(t, 1000, tn.Rows(t, "relay_feeds", ""))
	require.Equal(t, 2, tn.Rows(t, "relay_feeds", "state = 'active' AND azure_subscription = 'feed'"))
	require.Zero(t, tn.Rows(t, "relay_feeds", "azure_subscription = 'NEW'"))
	tn.Exec(t, "UPDATE postrider_internal.relay_feeds SET validated_at = now(), ended_at = NULL")
	skipped, err = relays.Count(t.Context(), []*catalog.Relayed{count(topic.ID, "more", "", 0, nil), list[0]})
	require.NoError(t, err)
	require.Equal(t, 1, skipped)
	require.Equal(t, 1, tn.Rows(t, "relay_feeds", of, "feed", "/topics/a", 2))
	noted, err := relays.NoteHandshake(t.Context(), &catalog.RelayHandshake{
		TopicID: topic.ID, Subscription: "more", Schema: event.EventGrid,
	})
	require.NoError(t, err)
	require.False(t, noted)
}
