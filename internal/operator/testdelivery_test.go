package operator_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

// One event for one event subscription whose filter it does not match, on hold until the refill lets it go as any
// other.
func TestTestDeliveryHasOneSubscription(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	sub := tn.Subscribe(t, "orders", "choosy",
		func(s *catalog.SubscriptionSpec) { s.Filter.SubjectBeginsWith = "nothing begins so" })
	ctx := access.WithActor(t.Context(), access.Actor{Name: "anna", Address: "192.0.2.1"})
	id, err := tn.System.Operator.TestDelivery(ctx, "orders", "choosy")
	require.NoError(t, err)
	const pending = `SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1 AND subscription = 'choosy'
		    AND state = 'pending' AND event_type = 'postrider.TestEvent'`
	require.Equal(t, 1, tn.Count(t, pending+" AND hold = 'admission'", id))
	require.Equal(t, 1, tn.Rows(t, "deliveries", ""))
	require.Equal(t, 1, tn.Rows(t, "events",
		"matched = 1 AND subject = 'postrider/test/choosy' AND body #>> '{data,test}' = 'true'"))
	require.Equal(t, 1, tn.Count(t,
		"SELECT coalesce(sum(count), 0) FROM postrider.delivery_counts WHERE kind = 'matched' AND subscription = 'choosy'"))
	require.Equal(t, 1, tn.Rows(t, "audit", "actor = 'anna' AND address = '192.0.2.1' AND action = "+
		"'test_delivery_created' AND topic = 'orders' AND subscription = 'choosy' AND (details -> 'deliveryId')::bigint = $1",
		id))

	released, err := tn.System.Releaser.Refill(t.Context(), sub.ID, false, 10)
	require.NoError(t, err)
	require.Equal(t, 1, released)
	require.Equal(t, 1, tn.Count(t, pending+" AND hold IS NULL", id))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

// Whatever the topic takes, the event is one that could have been published.
func TestTestDeliveryInEverySchema(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Topic(t, "grid")
	tn.CustomTopic(t, "own")
	paths := &event.Mapping{Type: "Json", Properties: event.MappingProperties{
		ID:          &event.MappedField{SourceField: "message.id"}, // the sample's message is a text
		EventType:   &event.MappedFieldWithDefault{SourceField: "about.event.type"},
		Subject:     &event.MappedFieldWithDefault{SourceField: "about.subject"},
		DataVersion: &event.MappedFieldWithDefault{SourceField: "version"},
	}}
	tn.PutTopic(t, "deep",
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.Custom, InputSchemaMapping: paths})
	tn.PutTopic(t, "cloud", testnode.CloudEvents)
	for topic, schema := range map[string]event.Schema{
		"grid": event.CloudEvents, "own": event.EventGrid, "deep": event.EventGrid, "cloud": event.CloudEvents,
	} {
		tn.Subscribe(t, topic, "all", func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = schema })
		require.NoError(t, testnode.ErrorOf(tn.System.Operator.TestDelivery(t.Context(), topic, "all")), topic)
		made, err := tn.System.Topics.Get(t.Context(), topic)
		require.NoError(t, err)
		events, err := tn.System.Reader.LastEvents(t.Context(), made.ID, 1)
		require.NoError(t, err)
		require.Len(t, events, 1)
		in := event.Input{
			Schema: made.InputSchema, Topic: topic, Mapping: made.InputSchemaMapping, NewID: func() string { return "made" },
			Now: time.Now(), Limits: event.DefaultLimits(),
		}
		read, err := in.Parse("application/json", append(append([]byte("["), events[0].Body...), ']'))
		require.NoError(t, err, "%s", events[0].Body)
		for _, pair := range [][2]string{
			{read[0].Type, events[0].Type},
			{read[0].ID, events[0].ID},
			{read[0].Subject, events[0].Subject},
			{read[0].Source, events[0].Source},
			{read[0].DataVersion, events[0].DataVersion},
		} {
			require.Equal(t, pair[0], pair[1], topic)
		}
		require.Equal(t, "postrider.TestEvent", events[0].Type)
		require.Equal(t, 1, tn.Pending(t, "topic_id = $1 AND event_bytes = $2", made.ID, events[0].Size()), topic)
	}
}

func TestTestDeliveryWaitsOrIsRejected(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	operator := tn.System.Operator
	tn.Pause(t, "orders", "all")
	_, err := operator.TestDelivery(t.Context(), "orders", "all")
	require.NoError(t, err)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "hold = 'paused'"))

	_, err = operator.TestDelivery(t.Context(), "orders", "missing")
	require.ErrorIs(t, err, postgres.ErrNotFound)
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET expiration_time_utc = now() - interval '1 s' "+
		"WHERE id = $1", sub.ID)
	_, err = operator.TestDelivery(t.Context(), "orders", "all")
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.Contains(t, functionError(t, err).Message, "has expired")
	require.Equal(t, 1, tn.Rows(t, "events", ""))
}
