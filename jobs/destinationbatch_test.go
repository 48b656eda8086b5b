package jobs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/testnode/azurefake"
	"postrider/policy"
)

// An event without a session id is retried, as the queue may change; one with it is delivered.
func TestAzureSessions(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	fake.AddQueue("orders", azurefake.Entity{RequiresSession: true})
	subscribe(t, tn, "all", "", both(toAzure(fake.URL(), destination.ServiceBusQueue, "orders"),
		attributes(dynamic("SessionId", "data.customer"), dynamic("PartitionKey", "data.customer"))))
	tn.Start(t)
	publishBody(t, tn, jsonType, "["+eventGridBody("without", "{}")+","+eventGridBody("with", `{"customer":"7"}`)+"]")
	tn.AttemptsMade(t, 2)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "event_id = 'without' AND state = 'pending' "+
		"AND last_outcome = 'SessionQueueNotSupported' AND last_status IS NULL"))
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", "verdict = 'retry' AND floor_ms = 10000 "+
		"AND error LIKE 'Service Bus responded 400 (40000): %SessionId%'"))
	require.Equal(t, 1, tn.Rows(t, "deliveries", "event_id = 'with' AND state = 'delivered'"))
	require.Equal(t, "7", fake.Messages("orders")[0].SessionID)
	require.Equal(t, "7", fake.Messages("orders")[0].PartitionKey)
	require.Empty(t, fake.Violations())
}

// An event hub gets batches without a setting. Each has events of one partition key, which the fake requires.
func TestEventHubBatchesByPartitionKey(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	addEntity(fake, destination.EventHub, "orders")
	subscribe(t, tn, "all", "", both(toAzure(fake.URL(), destination.EventHub, "orders"),
		attributes(dynamic("PartitionKey", "data.customer"))))
	const events = 60
	bodies := make([]string, events)
	for i := range bodies {
		bodies[i] = eventGridBody(fmt.Sprint(i), []string{`{"customer":"a"}`, `{"customer":"b"}`, "{}"}[i%3])
	}
	publishBody(t, tn, jsonType, "["+strings.Join(bodies, ",")+"]")
	tn.Start(t)
	tn.BecomeRows(t, events, "deliveries", "state = 'delivered' AND attempts = 1")
	require.Empty(t, fake.Violations())
	keys, requests := map[string]int{}, map[int]string{}
	for _, m := range fake.Messages("orders") {
		keys[m.PartitionKey]++
		if other, known := requests[m.Request]; known {
			require.Equal(t, other, m.PartitionKey)
		}
		requests[m.Request] = m.PartitionKey
	}
	require.Equal(t, map[string]int{"a": events / 3, "b": events / 3, "": events / 3}, keys)
	require.Len(t, requests, 3)
}

// Messages of a batch to Service Bus have one session: a partitioned entity rejects others.
func TestServiceBusBatchesBySession(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	addEntity(fake, destination.ServiceBusQueue, "orders")
	subscribe(t, tn, "all", "", both(toAzure(fake.URL(), destination.ServiceBusQueue, "orders"), both(batching(10, 64),
		attributes(dynamic("SessionId", "data.customer"), dynamic("CorrelationId", "id")))))
	publishBody(t, tn, jsonType, "["+eventGridBody("1", `{"customer":"a"}`)+","+eventGridBody("2", `{"customer":"b"}`)+","+
		eventGridBody("3", `{"customer":"a"}`)+"]")
	tn.Start(t)
	tn.BecomeRows(t, 3, "deliveries", "state = 'delivered' AND attempts = 1")
	require.Equal(t, 2, fake.Requests("orders"), "one for each session, whatever the other properties")
	require.Empty(t, fake.Violations())
}

// The partition key changes after a batch was cut: members with another value leave it.
func TestEventHubPartitionKeyIsSetLater(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	addEntity(fake, destination.EventHub, "orders")
	fake.Fail("orders", 1, azurefake.Named("eh-503"))
	subscribe(t, tn, "all", "", toAzure(fake.URL(), destination.EventHub, "orders"))
	publishBody(t, tn, jsonType, "["+eventGridBody("1", `{"customer":"a"}`)+","+eventGridBody("2", `{"customer":"b"}`)+"]")
	tn.Start(t)
	require.Equal(t, policy.OutcomeBusy, tn.Attempt(t).Outcome)
	subscribe(t, tn, "all", "", both(toAzure(fake.URL(), destination.EventHub, "orders"),
		attributes(dynamic("PartitionKey", "data.customer"))))
	tn.System.Closed.IgnoreResponses()
	makeDue(t, tn)
	tn.BecomeRows(t, 2, "deliveries", "state = 'delivered'")
	require.Empty(t, fake.Violations())
	require.NotEqual(t, fake.Messages("orders")[0].PartitionKey, fake.Messages("orders")[1].PartitionKey)
}

// A queue accepts all messages of a batch or none. Their ids stay, alone and in a batch.
func TestAzureBatchIsAcceptedAsAWhole(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	addEntity(fake, destination.ServiceBusQueue, "orders")
	fake.Fail("orders", 1, azurefake.Named("sb-500"))
	fake.LoseResponse("orders", 1)
	subscribe(t, tn, "all", "", both(toAzure(fake.URL(), destination.ServiceBusQueue, "orders"), batching(10, 64)))
	publishAtOnce(t, tn, "e", 5)
	tn.Start(t)
	require.Equal(t, 500, tn.Attempt(t).Result.Status)
	require.Empty(t, fake.Messages("orders"))
	settle(t, tn)
	makeDue(t, tn)
	require.Equal(t, policy.ErrorSocket, tn.Attempt(t).Result.Err)
	require.Len(t, fake.Messages("orders"), 5)
	settle(t, tn)
	makeDue(t, tn)
	report := tn.Attempt(t)
	require.Equal(t, policy.Delivered, report.Verdict.Action)
	require.Equal(t, 5, report.Events)
	require.Equal(t, 5, fake.Duplicates("orders"))
	require.Equal(t, 3, fake.Requests("orders"))
	require.Equal(t, 5, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 3"))
	require.Empty(t, fake.Violations())
}

// A tier may accept less than its default. A batch that is too large for it is divided, and no event is dead-lettered,
// also none that is just small enough.
func TestBatchThatTheServiceRejectsIsDivided(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	fake.AddHub("orders", azurefake.Entity{MaxBytes: 3000})
	subscribe(t, tn, "all", "", toAzure(fake.URL(), destination.EventHub, "orders"))
	data := func(bytes int) string { return fmt.Sprintf("%q", strings.Repeat("x", bytes)) }
	publishBody(t, tn, jsonType, "["+eventGridBody("small", data(600))+","+eventGridBody("large", data(1900))+","+
		eventGridBody("other", data(600))+"]")
	tn.Start(t)
	report := tn.Attempt(t)
	require.Equal(t, policy.OutcomePayloadTooLarge, report.Outcome)
	require.Equal(t, policy.Retry, report.Verdict.Action)
	makeDue(t, tn)
	tn.BecomeRows(t, 3, "deliveries", "state = 'delivered' AND attempts = 2")
	require.Len(t, fake.Messages("orders"), 3)
	require.Empty(t, fake.Violations())
}

// An event that the service does not accept ends alone, not with its batch.
func TestBatchWithAnEventThatTheServiceRejects(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	addEntity(fake, destination.ServiceBusQueue, "orders")
	subscribe(t, tn, "all", "", both(toAzure(fake.URL(), destination.ServiceBusQueue, "orders"), both(batching(10, 64),
		attributes(dynamic("CorrelationId", "data")))))
	fake.Fail("orders", 1, azurefake.Named("sb-400"))
	publishAtOnce(t, tn, "e", 3)
	tn.Start(t)
	require.Equal(t, policy.Retry, tn.Attempt(t).Verdict.Action)
	fake.Fail("orders", 1, azurefake.Named("sb-400"))
	makeDue(t, tn)
	tn.BecomeRows(t, 2, "deliveries", "state = 'delivered'")
	tn.BecomeRows(t, 1, "deliveries", "state = 'dead_lettered' AND attempts = 2")
}

// A destination that takes one event of a request gets the members of an earlier batch one by one.
func TestBatchIsDividedForAnotherDestination(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(201))
	failing := newEndpoint(t, respondWith(500))
	subscribe(t, tn, "all", failing.URL, batching(10, 64))
	publishAtOnce(t, tn, "e", 5)
	tn.Start(t)
	require.Equal(t, 5, tn.Attempt(t).Events)
	subscribe(t, tn, "all", "", toAzure(e.URL+"/account", destination.StorageQueue, "",
		func(p *destination.Properties) { p.QueueName = "orders" }))
	makeDue(t, tn)
	tn.BecomeRows(t, 5, "deliveries", "state = 'delivered'")
	require.Len(t, e.requests(), 5)
	require.Len(t, failing.requests(), 1)
}

// A token takes the place of keys. A listener of Relay gets the token, and the service itself the key: if that is
// rejected, the second one.
func TestAzureTokens(t *testing.T) {
	t.Parallel()
	tn, fake, tokens := setup(t), newAzure(t), newTokenServer(t)
	withToken := func(s *catalog.SubscriptionSpec) { s.Connection = tokens.credentials() }
	fake.SetBearers("planted-token-1")
	withoutKeys := func(p *destination.Properties) { p.SharedAccessKeyName, p.PrimaryKey = "", "" }
	for _, kind := range []destination.Type{destination.ServiceBusQueue, destination.EventHub} {
		addEntity(fake, kind, string(kind))
		subscribe(t, tn, string(kind), "", both(toAzure(fake.URL(), kind, string(kind), withoutKeys), withToken))
	}
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.BecomeRows(t, 2, "deliveries", "state = 'delivered' AND attempts = 1")
	require.Equal(t, 1, fake.Requests("EventHub"))
	require.Empty(t, fake.Violations())
	require.EqualValues(t, 1, tokens.requests.Load())

	addEntity(fake, destination.HybridConnection, "relay")
	subscribe(t, tn, "relay", "", both(withToken, only("other"),
		toAzure(fake.URL(), destination.HybridConnection, "relay", keys("an old key", busSecondKey))))
	publishOther(t, tn, "3")
	tn.BecomeRows(t, 1, "deliveries", "subscription = 'relay' AND state = 'delivered' AND attempts = 1")
	require.Equal(t, "Bearer planted-token-1", fake.Messages("relay")[0].Header.Get("Authorization"))
	require.Equal(t, 2, fake.Requests("relay"))
}
