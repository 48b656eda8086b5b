package delivery_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs/delivery"
	"postrider/policy"
)

// fail publishes n events and ends their deliveries to sub so.
func fail(t *testing.T, tn *testnode.Node, topic string, sub *catalog.Subscription, n int, verdict policy.Verdict) {
	t.Helper()
	d, j := tn.Started(t, topic, "e", n)
	testnode.AtOnce(len(d), func(i int) {
		assert.NoError(t, tn.System.Recorder.Record(t.Context(), testnode.Result(d[i], j[i], sub, verdict)))
	})
}

var (
	rejected  = policy.Verdict{Action: policy.DeadLetter, Reason: policy.ReasonHTTPBadRequest}
	exhausted = policy.Verdict{Action: policy.Drop, Reason: policy.ReasonMaxDeliveryAttemptsExceeded}
)

func TestDeadLettersAndDropsAreNotified(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	fail(t, tn, "orders", sub, 1, rejected)
	fail(t, tn, "orders", sub, 1, exhausted)
	require.Equal(t, 2, tn.Noted(t))
	notices := tn.PublishNotices(t)
	require.Len(t, notices, 2)

	letter, drop := notices[0], notices[1]
	require.Equal(t, "postrider.deadLetter.created", letter.Type)
	require.Equal(t, tn.Text(t, "SELECT dead_letter_id::text FROM postrider.dead_letters"), letter.ID)
	require.Equal(t, letter.ID, letter.Data["deadLetterId"])
	require.Equal(t, "postrider.delivery.dropped", drop.Type)
	require.NotEmpty(t, drop.ID)
	for i, n := range notices {
		require.Equal(t, "/topics/orders", n.Source)
		require.Equal(t, "/topics/orders/subscriptions/billing", n.Subject)
		delete(n.Data, "deadLetterId")
		for _, name := range []string{
			"publishedAt", "firstAttemptAt", "lastAttemptAt", []string{"deadLetteredAt", "droppedAt"}[i], "systemId",
		} {
			require.NotEmpty(t, n.Data[name], name)
			delete(n.Data, name)
		}
		require.Positive(t, n.Data["deliveryId"])
		delete(n.Data, "deliveryId")
		require.Equal(t, map[string]any{
			"count": 1.0, "topic": "orders", "subscription": "billing",
			"reason": string([]policy.Verdict{rejected, exhausted}[i].Reason), "eventId": "e-0", "eventType": "test",
			"attempts": 1.0, "lastOutcome": "Busy", "lastStatus": 503.0, "endpointBaseUrl": "https://example.com/hook",
			"retryPolicy": policy.DefaultName,
		}, n.Data)
	}
	require.Equal(t, 2, tn.Rows(t, "events", "topic = $1 AND matched IS NULL", catalog.SystemTopic),
		"each is to be routed")
}

// Without an event subscription no notice is stored, and stored notices of a deleted one are removed.
func TestNoNoticesWithoutSubscription(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	require.NoError(t, tn.System.Topics.EnsureSystem(t.Context()))
	sub := tn.Subscribe(t, "orders", "billing", nil)
	fail(t, tn, "orders", sub, 3, rejected)
	require.Zero(t, tn.Noted(t))
	tn.SubscribeToNotices(t)
	fail(t, tn, "orders", sub, 1, rejected)
	require.Equal(t, 1, tn.Noted(t))
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), catalog.SystemTopic, "operators"))
	fail(t, tn, "orders", sub, 1, rejected)
	require.Equal(t, 1, tn.Noted(t))

	stays := tn.SubscribeToNotices(t)
	require.Empty(t, tn.PublishNotices(t), "it was before their time")
	fail(t, tn, "orders", sub, 1, rejected)
	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
	require.Equal(t, 1, tn.Noted(t))
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), catalog.SystemTopic, stays.Name))
	require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
	require.Zero(t, tn.Noted(t))
}

// What becomes of notices is no notice.
func TestEndsOfNoticesAreNotNotified(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	notices := tn.SubscribeToNotices(t)
	fail(t, tn, catalog.SystemTopic, notices, 2, rejected)
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "topic = $1", catalog.SystemTopic))
	batched := tn.Subscribe(t, catalog.SystemTopic, "batched", func(s *catalog.SubscriptionSpec) {
		s.EventDeliverySchema, s.MaxEventsPerBatch = event.CloudEvents, new(10)
	})
	tn.Publish(t, catalog.SystemTopic, "batched", 2)
	batch := tn.CutOne(t, batched)
	tn.Record(t, testnode.BatchResult(batch, batched, exhausted))
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'dropped'"))
	// As functions that people call end deliveries: in a transaction of their own.
	const endedBySQL = "UPDATE postrider_internal.delivery_history SET finished_at = now(); " +
		"SELECT postrider_internal.note_ends(array_agg(id)) FROM postrider_internal.delivery_history"
	tn.Exec(t, endedBySQL)
	tn.Exec(t,
		"SELECT postrider_internal.note_exports_abandoned(array_agg(id), 'Forbidden') FROM postrider_internal.dead_letters")
	require.Zero(t, tn.Noted(t))

	tn.Exec(t, "UPDATE postrider_internal.delivery_history SET topic_id = (SELECT id FROM postrider_internal.topics "+
		"WHERE name = 'orders')")
	tn.Exec(t, endedBySQL)
	require.Equal(t, 4, tn.Count(t, "SELECT sum(count) FROM postrider_internal.notices"), "of another topic they would be")
}

// Members of batches are notified like other deliveries, each with its own end.
func TestMembersOfBatchesAreNotified(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "all", testnode.Batching(10, 64))
	tn.Publish(t, "orders", "e", 3)
	batch := tn.CutOne(t, sub)
	failed := testnode.BatchResult(batch, sub, exhausted)
	failed.Fates = []delivery.Fate{{DeliveryID: batch.Members[0].DeliveryID, Verdict: rejected}}
	tn.Record(t, failed)
	require.ErrorIs(t, tn.System.Recorder.Record(t.Context(), failed), postgres.ErrNotFound)
	types := map[string]int{}
	for _, n := range tn.PublishNotices(t) {
		types[n.Type]++
	}
	require.Equal(t, map[string]int{"postrider.deadLetter.created": 1, "postrider.delivery.dropped": 2}, types)

	tn.Publish(t, "orders", "f", 2)
	batch = tn.CutOne(t, sub)
	retried := testnode.BatchResult(batch, sub, policy.Verdict{Action: policy.Retry, At: time.Now().Add(time.Hour)})
	retried.Fates = []delivery.Fate{{DeliveryID: batch.Members[0].DeliveryID, Verdict: rejected}}
	tn.Record(t, retried)
	require.Len(t, tn.PublishNotices(t), 4, "who leaves a batch that goes on")
}

// A notice is committed with the change that it reports, or not at all; a repeated flush stores none twice.
func TestNoticesAreCommittedWithTheirChange(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	tn.Exec(t, "CREATE SEQUENCE postrider_internal.commits")
	tn.Exec(t, `CREATE FUNCTION postrider_internal.fail_first_commit() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF nextval('postrider_internal.commits') = 1 THEN RAISE EXCEPTION USING ERRCODE = '57014',
		    MESSAGE = 'no commit'; END IF; RETURN NULL; END $$`)
	tn.Exec(t,
		`CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON postrider_internal.notices DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			    EXECUTE FUNCTION postrider_internal.fail_first_commit()`)
	d, j := tn.Started(t, "orders", "e", 1)
	tn.Record(t, testnode.Result(d[0], j[0], sub, rejected))
	require.Equal(t, 2, tn.Count(t, "SELECT last_value FROM postrider_internal.commits"),
		"the first transaction was rolled back")
	require.Equal(t, 1, tn.Noted(t))
	require.NoError(t, tn.System.Recorder.Record(t.Context(), testnode.Result(d[0], j[0], sub, rejected)),
		"its response was lost: once more")
	tn.Exec(t, "SELECT postrider_internal.note_ends(array_agg(id)) FROM postrider_internal.delivery_history")
	require.Equal(t, 1, tn.Noted(t))

	tn.Exec(t, "SELECT setval('postrider_internal.commits', 1, false)")
	tn.Exec(t, "ALTER TABLE postrider_internal.notices DISABLE TRIGGER fail")
	tn.Exec(t, "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON postrider_internal.events DEFERRABLE INITIALLY DEFERRED "+
		"FOR EACH ROW EXECUTE FUNCTION postrider_internal.fail_first_commit()")
	require.Error(t, testnode.ErrorOf(tn.System.Maintenance.PublishNotices(t.Context())))
	require.Equal(t, 1, tn.Noted(t), "what is not published is not forgotten")
	require.Len(t, tn.PublishNotices(t), 1)
}

// However many nodes run, notices are published once a second, and each notice once.
func TestOneNodePublishesNotices(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	nodes := []*node.System{tn.System, tn.Beside(t, node.Options{Node: "node-2"}).System}
	fail(t, tn, "orders", sub, 5, rejected)
	began := time.Now()
	testnode.AtOnce(10, func(i int) {
		_, err := nodes[i%2].Maintenance.PublishNotices(t.Context())
		assert.NoError(t, err)
	})
	require.Equal(t, 5, tn.Rows(t, "events", "topic = $1", catalog.SystemTopic))
	fail(t, tn, "orders", sub, 1, rejected)
	_, err := nodes[1].Maintenance.PublishNotices(t.Context())
	require.NoError(t, err)
	if time.Since(began) < time.Second {
		require.Equal(t, 1, tn.Noted(t), "not twice in a second")
	}
	require.Len(t, tn.PublishNotices(t), 6)
}

func TestExpiredSubscriptionsAreNotified(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	at := tn.System.Clock.Now().Add(300 * time.Millisecond)
	tn.Subscribe(t, "orders", "brief", func(s *catalog.SubscriptionSpec) { s.ExpirationTimeUTC = &at })
	tn.Subscribe(t, "orders", "deleted", nil)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "deleted"))
	testnode.Within(t, "the event subscription expires", func() bool {
		return tn.System.Subscriptions.Expire(t.Context()) == nil &&
			tn.Count(t, "SELECT count(*) FROM postrider.event_subscriptions WHERE subscription = 'brief'") == 0
	})
	notices := tn.PublishNotices(t)
	require.Len(t, notices, 1)
	require.Equal(t, "postrider.subscription.expired", notices[0].Type)
	require.Equal(t, "/topics/orders/subscriptions/brief", notices[0].Subject)
	require.NotEmpty(t, notices[0].Data["expirationTimeUtc"])
	delete(notices[0].Data, "expirationTimeUtc")
	require.Equal(t,
		map[string]any{
			"count": 1.0, "topic": "orders", "subscription": "brief", "endpointBaseUrl": "https://example.com/hook",
		}, notices[0].Data)
}

func TestAbandonedExportsAreNotified(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	fail(t, tn, "orders", sub, 2, rejected)
	tn.PublishNotices(t)
	tn.Exec(t, `SELECT postrider_internal.note_exports_abandoned(array_agg(id), 'AuthorizationFailure',
		    '{"exportAttempts": 48}') FROM postrider_internal.dead_letters`)
	require.Equal(t, 1, tn.Noted(t))
	var given []testnode.Notice
	for _, n := range tn.PublishNotices(t) {
		if n.Type == "postrider.deadLetter.exportAbandoned" {
			given = append(given, n)
		}
	}
	require.Len(t, given, 2)
	for _, n := range given {
		require.Equal(t, fmt.Sprint(n.Data["deadLetterId"], "/exportAbandoned"), n.ID)
		require.EqualValues(t, 48, n.Data["exportAttempts"])
		require.Equal(t, "AuthorizationFailure", n.Data["reason"])
		require.Equal(t, "e-", n.Data["eventId"].(string)[:2])
	}
}

// A notice contains no secret and no data of a publisher: neither the event's body nor the endpoint's response.
func TestNoticesContainNoSecret(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	const planted = "planted-secret"
	sub := tn.Subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = "https://example.com/hook?code=" + planted
		s.DeliveryAttributes = []endpointconf.DeliveryAttribute{
			{Name: "X-Key", Type: endpointconf.AttributeStatic, AttributeProperties: endpointconf.AttributeProperties{
				Value: new(string(planted)), IsSecret: true,
			}},
		}
		s.Signing.Enabled, s.Description = true, new("Invoices; #team-billing")
	})
	publication := testnode.Publication("orders", "e", 1)
	publication.Parse = func(*catalog.Topic) ([]event.Event, error) {
		return []event.Event{
			{Schema: event.EventGrid, ID: "1", Type: "test", Subject: planted, Body: []byte(`{"id":"1","subject":"` + planted +
				`","eventType":"test","data":"` + planted + `"}`)},
		}, nil
	}
	for _, verdict := range []policy.Verdict{rejected, exhausted} {
		tn.Send(t, publication)
		d, j := tn.Fetch(t, "node-1")
		failed := testnode.Result(d[0], j[0], sub, verdict)
		failed.Error, failed.ResponseExcerpt, failed.ResponseHeaders = planted, []byte(planted), []byte("X: "+planted)
		tn.Record(t, failed)
	}
	require.Len(t, tn.PublishNotices(t), 2)
	require.Positive(t, tn.Rows(t, "dead_letters", "dead_letters::text LIKE '%' || $1 || '%'", planted), "it was planted")
	require.Zero(t, tn.Rows(t, "events", "topic = $1 AND events::text LIKE '%' || $2 || '%'", catalog.SystemTopic,
		planted))
	require.Equal(t, 2, tn.Rows(t, "events", "topic = $1 AND events::text LIKE '%Invoices; #team-billing%'",
		catalog.SystemTopic), "who to ask")
}

func TestSystemTopicIsReadOnly(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	stores := []*node.System{tn.System}
	for i := range 3 {
		stores = append(stores, tn.Beside(t, node.Options{Node: fmt.Sprint("other-", i)}).System)
	}
	testnode.AtOnce(8, func(i int) { assert.NoError(t, stores[i%4].Topics.EnsureSystem(t.Context())) })
	require.Equal(t, 1, tn.Rows(t, "topics", "topic = $1 AND input_schema = 'CloudEventSchemaV1_0'", catalog.SystemTopic))

	require.ErrorIs(t, tn.System.Topics.Delete(t.Context(), catalog.SystemTopic), catalog.ErrSystemTopic)
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Topics.Keys(t.Context(), catalog.SystemTopic)), catalog.ErrSystemTopic)
	_, err := tn.System.Topics.RegenerateKey(t.Context(), catalog.SystemTopic, catalog.Key1)
	require.ErrorIs(t, err, catalog.ErrSystemTopic)
	require.ErrorIs(t, tn.System.Topics.SetKeys(t.Context(), catalog.SystemTopic, catalog.AccessKeys{}),
		catalog.ErrSystemTopic)
	for _, call := range []string{
		`postrider.publish('postrider.system', '{"type": "a", "source": "b"}')`,
		`postrider.publish_batch('postrider.system', '[]')`,
		`postrider.publish_data('postrider.system', 'a', 'b', '{}')`,
	} {
		_, err := tn.Pool.Exec(t.Context(), "SELECT "+call)
		require.ErrorContains(t, err, "postrider's own", call)
	}
	tn.Exec(t, "CREATE TABLE public.shop (id int PRIMARY KEY)")
	tn.Exec(t, "CREATE TRIGGER noticed AFTER INSERT ON public.shop FOR EACH ROW EXECUTE FUNCTION "+
		"postrider.publish_row_change('postrider.system')")
	_, err = tn.Pool.Exec(t.Context(), "INSERT INTO public.shop VALUES (1)")
	require.ErrorContains(t, err, "postrider's own")
	require.Zero(t, tn.Rows(t, "events", ""))
}
