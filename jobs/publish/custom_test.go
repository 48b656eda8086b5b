package publish_test

import (
	"context"
	"testing"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

func TestCustomTopicIsReadBack(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	made := tn.CustomTopic(t, "orders")
	again := tn.CustomTopic(t, "orders")
	require.Equal(t, made, again, "the same mapping once more")
	cached, ok := tn.System.Cache.Snapshot().Topic("orders")
	require.True(t, ok)
	require.Equal(t, made.InputSchemaMapping, cached.InputSchemaMapping)
	changed := *made.InputSchemaMapping
	changed.Properties.ID = nil
	_, _, err := tn.System.Topics.Put(t.Context(), "orders",
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.Custom, InputSchemaMapping: &changed})
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.Nil(t, tn.Topic(t, "plain").InputSchemaMapping)
}

// A batch is cut by the sizes of its events, which must never be less than what will be sent.
func TestSizesOfCustomEvents(t *testing.T) {
	t.Parallel()
	const bodies = `[{"no":"a\"b\\c","v":"\u0001\t","who":"\u00e9\"","kind":"k"}, {"no":1}]`
	for name, tn := range map[string]*testnode.Node{"at once": testnode.Unchecked(t), "by a route": routed(t, 0)} {
		tn.CustomTopic(t, "custom")
		subs := 6 // with two events: more deliveries than go without a route
		for i := range subs {
			tn.Subscribe(t, "custom", "sub-"+string(rune('a'+i)),
				testnode.Filtered(t, [2]string{`{}`, `{"advancedFilters":[{"operatorType":"IsNotNull","key":"id"}]}`}[i%2]))
		}
		receipt := tn.Send(t, testnode.Custom("custom", bodies))
		if name == "by a route" {
			require.Equal(t, 1, tn.Routes(t, ""))
			tn.RouteAll(t, tn.System)
		}
		for i := range receipt.Events {
			e := &receipt.Events[i]
			require.Greater(t, e.Size(), len(e.Body))
			require.Equal(t, subs, tn.Pending(t, "event_uuid = $1 AND event_bytes = $2", receipt.SystemIDs[i], e.Size()), name)
			delivered, err := event.AppendDelivery(nil, e, "custom", event.EventGrid)
			require.NoError(t, err)
			require.LessOrEqual(t, len(delivered), e.Size()+event.Overhead(event.Custom, event.EventGrid, "custom"))
		}
	}
}

// Filters see the envelope that the mapping gives, at publishing and when a route reads the events again.
func TestFiltersOfCustomEvents(t *testing.T) {
	t.Parallel()
	for name, tn := range map[string]*testnode.Node{"at once": testnode.Unchecked(t), "by a route": routed(t, 0)} {
		tn.CustomTopic(t, "custom")
		for subscription, clause := range map[string]string{
			"by-envelope": `{"operatorType":"StringIn","key":"dataVersion","values":["2"]}`,
			"by-data":     `{"operatorType":"NumberGreaterThan","key":"data.total","value":10}`,
			"by-own":      `{"operatorType":"NumberGreaterThan","key":"total","value":10}`,
			"by-time":     `{"operatorType":"StringBeginsWith","key":"eventTime","values":["2"]}`,
			"by-subject":  `{"operatorType":"StringIn","key":"subject","values":["ann"]}`,
			"all":         `{"operatorType":"IsNotNull","key":"data"}`,
		} {
			tn.Subscribe(t, "custom", subscription, testnode.Filtered(t, `{"advancedFilters":[`+clause+`]}`))
		}
		tn.Send(t, testnode.Custom("custom", `[{"no":1,"v":2,"total":5,"subject":"ann"},{"no":2,"total":11,"who":"ann"},`+
			`{"no":3,"who":"Ann","total":12,"v":"1"}]`))
		if name == "by a route" {
			require.Equal(t, 1, tn.Routes(t, ""))
			tn.RouteAll(t, tn.System)
		}
		requireDeliveries(t, tn,
			map[string]int{"by-envelope": 1, "by-data": 2, "by-own": 2, "by-time": 3, "by-subject": 2, "all": 3})
	}
}

func TestLastEvents(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	plain, custom := tn.Topic(t, "orders"), tn.CustomTopic(t, "custom")
	tn.Publish(t, "orders", "first", 3)
	tn.Send(t, testnode.Custom("custom", `[{"no":1,"v":2,"who":"ann"}]`))
	tn.Publish(t, "orders", "second", 2)

	last, err := tn.System.Reader.LastEvents(t.Context(), plain.ID, 4)
	require.NoError(t, err)
	ids := make([]string, len(last))
	for i := range last {
		ids[i] = last[i].ID
		require.Contains(t, string(last[i].Body), `"id":"`+ids[i]+`"`, "each has its own body")
	}
	require.Equal(t, []string{"second-1", "second-0", "first-2", "first-1"}, ids)

	last, err = tn.System.Reader.LastEvents(t.Context(), custom.ID, 50)
	require.NoError(t, err)
	require.Len(t, last, 1)
	require.WithinDuration(t, time.Now(), last[0].Time, time.Minute)
	last[0].Time = time.Time{}
	require.Equal(t, event.Event{
		Schema: event.Custom, ID: "1", Type: "test", Subject: "ann", DataVersion: "2",
		Body: []byte(`{"no":1,"v":2,"who":"ann"}`),
	}, last[0])
}

func TestLastEventsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	topic := tn.Topic(t, "orders")
	tn.Publish(t, "orders", "e", 1)
	tx, err := tn.System.DB.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	// before lock_timeout, 2 s, the statement's own time is up
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), "LOCK TABLE postrider_internal.events")))
	_, err = tn.System.Reader.LastEventsWithin(t.Context(), topic.ID, 50, 20*time.Millisecond)
	require.ErrorIs(t, err, postgres.ErrTooSlow)
	require.NotErrorIs(t, err, postgres.ErrUnavailable, "trying again does not help")
	require.NoError(t, tx.Rollback(t.Context()))
	last, err := tn.System.Reader.LastEvents(t.Context(), topic.ID, 50)
	require.NoError(t, err)
	require.Len(t, last, 1)
}

func TestReadFilter(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	custom := tn.CustomTopic(t, "custom")
	const text = `{"includedEventTypes":["test"],"advancedFilters":[{"operatorType":"NumberGreaterThan","key":"total",` +
		`"value":10.0}]}`
	sub := tn.Subscribe(t, "custom", "billing", testnode.Filtered(t, text))
	read, err := query.ReadFilter(t.Context(), tn.System.DB.Pool, "custom", "billing")
	require.NoError(t, err)
	require.Equal(t, sub.Filter, read.Filter)
	require.Equal(t,
		catalog.Topic{
			ID: custom.ID, Name: "custom", Kind: custom.Kind, InputSchema: event.Custom,
			InputSchemaMapping: custom.InputSchemaMapping,
		}, read.Topic)

	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "custom", "billing"))
	for _, names := range [][2]string{{"custom", "billing"}, {"nowhere", "billing"}} {
		_, err = query.ReadFilter(t.Context(), tn.System.DB.Pool, names[0], names[1])
		require.ErrorIs(t, err, postgres.ErrNotFound)
	}
}
