package jobs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/internal/testnode/azurefake"
	"postrider/jobs"
	"postrider/policy"
)

const (
	busKeyName   = "sender"
	busKey       = "cGxhbnRlZC1wcmltYXJ5LWtleS1vZi10aGUtYnVzIS8r"
	busSecondKey = "cGxhbnRlZC1zZWNvbmQta2V5LW9mLXRoZS1idXMhIS8r"
)

// azureTypes are the destinations that the fake of Azure serves.
var azureTypes = []destination.Type{
	destination.ServiceBusQueue, destination.ServiceBusTopic, destination.EventHub, destination.HybridConnection,
}

func newAzure(t *testing.T) *azurefake.Server {
	t.Helper()
	return azurefake.New(t, azurefake.Options{
		Keys: []azurefake.Keys{{Name: busKeyName, Primary: busKey, Secondary: busSecondKey}}, MaxLifetime: 10 * time.Minute,
	})
}

// addEntity adds an entity of a type. The listener of a hybrid connection responds with 200.
func addEntity(fake *azurefake.Server, kind destination.Type, name string) {
	switch kind {
	case destination.EventHub:
		fake.AddHub(name, azurefake.Entity{})
	case destination.HybridConnection:
		fake.AddHybridConnection(name, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	case destination.ServiceBusTopic:
		fake.AddTopic(name, azurefake.Entity{DetectDuplicates: true})
	default:
		fake.AddQueue(name, azurefake.Entity{DetectDuplicates: true})
	}
}

// toAzure sends the events to an entity, signed with the first key.
func toAzure(
	base string, kind destination.Type, entity string, changes ...func(*destination.Properties),
) func(*catalog.SubscriptionSpec) {
	p := &destination.Properties{Endpoint: base, EntityName: entity, SharedAccessKeyName: busKeyName, PrimaryKey: busKey}
	for _, change := range changes {
		change(p)
	}
	return func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.EndpointKind = "", ""
		s.Destination = &destination.Destination{EndpointType: kind, Properties: p}
	}
}

// keys replaces the keys of a destination.
func keys(primary, secondary string) func(*destination.Properties) {
	return func(p *destination.Properties) { p.PrimaryKey, p.SecondaryKey = primary, secondary }
}

func static(name, value string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeStatic, AttributeProperties: endpointconf.AttributeProperties{Value: &value},
	}
}

func dynamic(name, field string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeDynamic,
		AttributeProperties: endpointconf.AttributeProperties{SourceField: field},
	}
}

// attributes sets the custom properties of messages.
func attributes(list ...endpointconf.DeliveryAttribute) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.DeliveryAttributes = list }
}

// A message is the event alone in the delivery schema, with the properties of Event Grid and the custom ones, whose
// names keep their case. A hybrid connection gets the request of a webhook.
func TestAzureMessages(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	custom := attributes(static("AppType", `Größe "1"`), dynamic("customerId", "data.customer"))
	for _, kind := range azureTypes {
		addEntity(fake, kind, "shop/"+string(kind))
		subscribe(t, tn, string(kind), "", both(toAzure(fake.URL(), kind, "shop/"+string(kind)), custom))
	}
	fake.AddQueue("cloud", azurefake.Entity{})
	subscribe(t, tn, "cloud", "", both(toAzure(fake.URL(), destination.ServiceBusQueue, "cloud"),
		attributes(static("Label", "paid"), dynamic("MessageId", "data.customer")),
		func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents }))
	tn.Start(t)
	published := eventGridBody("1", `{"customer":42}`)
	receipt := publishBody(t, tn, jsonType, "["+published+"]")
	tn.AttemptsMade(t, 5)
	require.Empty(t, fake.Violations())
	require.Equal(t, 5, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 1"))
	require.Equal(t, 5, tn.Rows(t, "delivery_attempts", "status = 200 AND outcome = 'Delivered' AND error IS NULL"))

	var plain struct{ Topic, MetadataVersion string }
	for _, kind := range azureTypes {
		messages := fake.Messages("shop/" + string(kind))
		require.Len(t, messages, 1, kind)
		m := messages[0]
		if kind == destination.HybridConnection {
			require.Equal(t, "[", string(m.Body[:1]))
			require.Equal(t, []string{"Notification"}, m.Header["Aeg-Event-Type"])
			require.Equal(t, []string{"42"}, m.Header["Customerid"])
			require.NotContains(t, m.Header, "Servicebusauthorization")
			require.NotContains(t, m.Header, "Authorization")
			continue
		}
		require.NoError(t, json.Unmarshal(m.Body, &plain), "one object")
		require.Equal(t, "/topics/orders", plain.Topic)
		require.Equal(t, "1", plain.MetadataVersion)
		require.Equal(t, map[string]any{
			"aeg-event-type": "Notification", "aeg-subscription-name": strings.ToUpper(string(kind)),
			"aeg-delivery-count": "0", "aeg-metadata-version": "1", "aeg-data-version": "2.1",
			"aeg-output-event-id": receipt.SystemIDs[0].String(), "AppType": `Größe "1"`, "customerId": "42",
		}, m.User, kind)
		if kind == destination.EventHub {
			require.Empty(t, m.Broker)
			continue
		}
		require.Equal(t, map[string]any{
			"ContentType": "application/json; charset=utf-8",
			"MessageId": fmt.Sprintf("%s-%s", receipt.SystemIDs[0], tn.Text(t,
				"SELECT delivery_id::text FROM postrider.deliveries WHERE subscription = $1", string(kind))),
		}, m.Broker, kind)
	}
	cloud := fake.Messages("cloud")[0]
	require.Equal(t, map[string]any{
		"ContentType": "application/cloudevents+json; charset=utf-8", "MessageId": "42", "Label": "paid",
	}, cloud.Broker)
	require.Contains(t, string(cloud.Body), `"specversion":"1.0"`)
	require.NotContains(t, cloud.User, "Label")
}

// azureFloors are the shortest waits of ga-2021 for Azure's own destinations; other outcomes wait 10 seconds.
var azureFloors = map[string]time.Duration{
	"Unauthorized": 5 * time.Minute, "NotFound": 5 * time.Minute, "TimedOut": 2 * time.Minute, "Busy": 30 * time.Second,
}

// Every response has its outcome, and its verdict by the column azure-resource of ga-2021. The attempt's error has the
// service's own status and code. A listener's responses are recorded as those of a webhook.
func TestAzureResponses(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	wants := map[string]azurefake.Response{}
	add := func(r azurefake.Response, kind destination.Type, prefix string) {
		name := prefix + strings.ToLower(r.Name)
		wants[name] = r
		base, change := fake.URL(), func(*destination.Properties) {}
		if kind == destination.StorageQueue {
			base = newEndpoint(t, func(w http.ResponseWriter, _ request) {
				for header, values := range r.Header {
					w.Header()[header] = values
				}
				w.WriteHeader(r.Status)
				_, _ = io.WriteString(w, r.Body)
			}).URL + "/account"
			change = func(p *destination.Properties) { p.EntityName, p.QueueName = "", "orders" }
		} else {
			addEntity(fake, kind, name)
			fake.Fail(name, 1, r)
		}
		subscribe(t, tn, name, "", toAzure(base, kind, name, change))
	}
	for _, r := range azurefake.Responses() {
		switch r.Service {
		case azurefake.ServiceBus:
			add(r, destination.ServiceBusQueue, "")
			add(r, destination.ServiceBusTopic, "topic-")
		case azurefake.EventHubs:
			add(r, destination.EventHub, "")
		case azurefake.Relay:
			add(r, destination.HybridConnection, "")
		case azurefake.StorageQueue:
			add(r, destination.StorageQueue, "")
		}
	}
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.BecomeRows(t, len(wants), "delivery_attempts", "number = 1")
	require.Empty(t, fake.Violations())
	for _, row := range everything(t, tn, "delivery_attempts") {
		name, _ := row["subscription"].(string)
		requireResponse(t, tn, name, wants[name], row)
	}
}

func at(t *testing.T, value any) time.Time {
	t.Helper()
	text, _ := value.(string)
	moment, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return moment
}

func requireResponse(t *testing.T, tn *testnode.Node, name string, sent azurefake.Response, row map[string]any) {
	t.Helper()
	require.Equal(t, sent.Want.Outcome, row["outcome"], name)
	via := strings.HasPrefix(sent.Name, "via-")
	switch {
	case via:
		require.EqualValues(t, sent.Status, row["status"], name)
	case sent.Want.Status == 0:
		require.Nil(t, row["status"], name)
	default:
		require.EqualValues(t, sent.Want.Status, row["status"], name)
	}
	if via || sent.Status < 300 {
		require.Nil(t, row["error"], name)
	} else {
		text, _ := row["error"].(string)
		require.Contains(t, text, fmt.Sprintf(" responded %d", sent.Status), name)
		if code := sent.Header.Get("X-Ms-Error-Code"); code != "" {
			require.Contains(t, text, "("+code+")", name)
		}
		if _, code, found := strings.Cut(sent.Body, "SubCode="); found {
			require.Contains(t, text, "("+code[:5]+")", name)
		}
	}
	switch sent.Want.Outcome {
	case "Delivered":
		require.Equal(t, "deliver", row["verdict"], name)
	case "BadRequest", "Forbidden", "PayloadTooLarge":
		require.Equal(t, "dead_letter", row["verdict"], name)
		reason := policy.ReasonClientError
		if sent.Want.Outcome == "BadRequest" {
			reason = policy.ReasonHTTPBadRequest
		}
		require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = $1 AND reason = $2 AND last_outcome = $3", name,
			reason, sent.Want.Outcome), name)
	default:
		require.Equal(t, "retry", row["verdict"], name)
		floor := max(azureFloors[sent.Want.Outcome], 10*time.Second)
		if sent.Name == "via-429" { // as for webhooks, the page has no row for it
			floor = 10 * time.Second
		}
		require.WithinRange(t, at(t, row["next_attempt_at"]), at(t, row["started_at"]).Add(floor),
			at(t, row["started_at"]).Add(floor+10*time.Second), name)
		require.EqualValues(t, floor.Milliseconds(), row["floor_ms"], name)
	}
}

// A request without a response is retried. Its MessageId is the same at every attempt, so that Service Bus drops what
// it has accepted before; an event hub cannot. A redelivery is another message.
func TestAzureWithoutResponse(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	copyPolicy(t, tn, "ga-2021", "one-second", `{"ackTimeoutInSeconds": 1, "lateResponseWindowInSeconds": 0}`)
	for _, kind := range azureTypes {
		name := string(kind)
		addEntity(fake, kind, name)
		fake.Hang(name, 1)
		fake.Break(name, 1)
		fake.LoseResponse(name, 1)
		subscribe(t, tn, name, "", both(toAzure(fake.URL(), kind, name), under("one-second")))
	}
	tn.Start(t)
	publishOne(t, tn, "1")
	for _, kind := range []policy.ErrorKind{policy.ErrorTimeout, policy.ErrorSocket, policy.ErrorSocket, ""} {
		for range azureTypes {
			require.Equal(t, kind, tn.Attempt(t).Result.Err)
		}
		settle(t, tn)
		makeDue(t, tn)
	}
	require.Equal(t, 4, tn.Rows(t, "deliveries", "state = 'delivered' AND attempts = 4"))
	require.Equal(t, 4, tn.Rows(t, "delivery_attempts", "error = 'no response within 1 s' AND number = 1"))
	for _, kind := range azureTypes {
		name, want := string(kind), 2
		if kind == destination.ServiceBusQueue || kind == destination.ServiceBusTopic {
			want = 1
			require.Equal(t, 1, fake.Duplicates(name), name)
		}
		require.Len(t, fake.Messages(name), want, name)
	}
	require.Empty(t, fake.Violations())
}

func TestAzureRedeliveryIsAnotherMessage(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	addEntity(fake, destination.ServiceBusQueue, "orders")
	fake.LoseResponse("orders", 1)
	fake.Fail("orders", 1, azurefake.Named("sb-400"))
	subscribe(t, tn, "all", "", toAzure(fake.URL(), destination.ServiceBusQueue, "orders"))
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.Attempt(t)
	require.Equal(t, 1, makeDue(t, tn))
	require.Equal(t, 400, tn.Attempt(t).Result.Status)
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id) FROM postrider.dead_letters")
	require.Equal(t, 200, tn.Attempt(t).Result.Status)
	messages := fake.Messages("orders")
	require.Len(t, messages, 2, "the broker knows the id of the first, and would have dropped the second")
	require.NotEqual(t, messages[0].MessageID, messages[1].MessageID)
	require.Equal(t, messages[0].User["aeg-output-event-id"], messages[1].User["aeg-output-event-id"])
}

// An event that the destination cannot accept is dead-lettered without a request; a batch is divided.
func TestAzureSizes(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	for _, kind := range []destination.Type{destination.ServiceBusQueue, destination.EventHub} {
		addEntity(fake, kind, string(kind))
		subscribe(t, tn, string(kind), "", both(toAzure(fake.URL(), kind, string(kind)), batching(100, 1024)))
	}
	fake.AddQueue("single", azurefake.Entity{})
	subscribe(t, tn, "single", "", both(toAzure(fake.URL(), destination.ServiceBusQueue, "single"), only("other")))
	storage := newEndpoint(t, respondWith(http.StatusCreated))
	subscribe(t, tn, "storage", "", both(only("other"), toAzure(storage.URL+"/account", destination.StorageQueue, "",
		func(p *destination.Properties) { p.QueueName = "orders" })))
	tn.Start(t)
	data := `"` + strings.Repeat(`\"`, 100<<10) + `"` // 200 KB, and 400 KB as a text in JSON
	publishBody(t, tn, jsonType, "["+strings.Replace(eventGridBody("large", data), `"test"`, `"other"`, 1)+"]")
	tn.BecomeRows(t, 3, "dead_letters", "last_outcome = 'PayloadTooLarge' AND last_status = 413 AND "+
		"reason = 'UndeliverableDueToClientError'")
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", "status = 413 AND error LIKE 'not sent: the message has %'"))
	require.Zero(t, fake.Requests("single")+fake.Requests("ServiceBusQueue")+len(storage.requests()))
	tn.BecomeRows(t, 1, "deliveries", "state = 'delivered'") // an event hub accepts 1 MB

	const events = 30
	bodies := make([]string, events)
	for i := range bodies {
		bodies[i] = eventGridBody(fmt.Sprint("e-", i), `"`+strings.Repeat("\u0007é", 5<<10)+strings.Repeat(`\"`, 5<<10)+`"`)
	}
	publishBody(t, tn, jsonType, "["+strings.ReplaceAll(strings.Join(bodies, ","), "\u0007", "\\u0007")+"]")
	tn.BecomeRows(t, 2*events+1, "deliveries", "state = 'delivered'")
	require.Equal(t, 3, tn.Rows(t, "dead_letters", ""))
	require.Len(t, fake.Messages("ServiceBusQueue"), events)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = 'ServiceBusQueue'"))
	require.Len(t, fake.Messages("EventHub"), events+1)
	require.Greater(t, fake.Requests("ServiceBusQueue"), 1)
	require.Less(t, fake.Requests("EventHub"), events)
	require.Empty(t, fake.Violations())
}

// A key that was replaced costs a wait, never an event. The second key is used in the same attempt.
func TestAzureKeys(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	const old = "an old key"
	for _, kind := range azureTypes {
		addEntity(fake, kind, "wrong-"+string(kind))
		addEntity(fake, kind, "second-"+string(kind))
		subscribe(t, tn, "wrong-"+string(kind), "", toAzure(fake.URL(), kind, "wrong-"+string(kind), keys(old, "")))
		subscribe(t, tn, "second-"+string(kind), "", toAzure(fake.URL(), kind, "second-"+string(kind), keys(old, busKey)))
	}
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.BecomeRows(t, 4, "delivery_attempts", "subscription LIKE 'second-%' AND status = 200 AND number = 1")
	tn.BecomeRows(t, 4, "delivery_attempts", "subscription LIKE 'wrong-%' AND status = 401 AND outcome = 'Unauthorized' "+
		"AND verdict = 'retry' AND error LIKE '% responded 401 (40103): InvalidSignature%'")
	for _, kind := range azureTypes {
		require.Equal(t, 1, fake.Requests("wrong-"+string(kind)))
		require.Equal(t, 2, fake.Requests("second-"+string(kind)))
		require.Len(t, fake.Messages("second-"+string(kind)), 1)
	}
	fake.SetKeys(azurefake.Keys{Name: busKeyName, Primary: old})
	settle(t, tn)
	require.Equal(t, 4, makeDue(t, tn))
	tn.BecomeRows(t, 8, "deliveries", "state = 'delivered'")
	require.Empty(t, fake.Violations())
}

// A listener's own 401 does not mean that the key was rejected: the event is not sent to it twice.
func TestAzureListenerRejects(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	addEntity(fake, destination.HybridConnection, "orders")
	fake.Fail("orders", 1, azurefake.Named("via-401"))
	subscribe(t, tn, "all", "",
		toAzure(fake.URL(), destination.HybridConnection, "orders", keys(busKey, busSecondKey)))
	tn.Start(t)
	publishOne(t, tn, "1")
	require.Equal(t, 401, tn.Attempt(t).Result.Status)
	require.Equal(t, 1, fake.Requests("orders"))
}

// Both keys change while 500 events are sent, and the event subscription gets the new one later.
func TestAzureKeysChangeUnderLoad(t *testing.T) {
	t.Parallel()
	tn, fake := setup(t), newAzure(t)
	withoutProbation(t, tn)
	addEntity(fake, destination.ServiceBusQueue, "orders")
	arrived, release := fake.Block("orders")
	subscribe(t, tn, "all", "", toAzure(fake.URL(), destination.ServiceBusQueue, "orders"))
	tn.Start(t)
	const events = 500
	publishMany(t, tn, events)
	await(t, arrived)
	fake.SetKeys(azurefake.Keys{Name: busKeyName, Primary: "a new key"})
	release()
	tn.BecomeRows(t, events, "delivery_attempts", "number = 1")
	require.NotZero(t, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.NotZero(t, tn.Rows(t, "deliveries", "state = 'pending' AND last_outcome = 'Unauthorized'"))
	subscribe(t, tn, "all", "", toAzure(fake.URL(), destination.ServiceBusQueue, "orders", keys("a new key", "")))
	settle(t, tn)
	makeDue(t, tn)
	tn.BecomeRows(t, events, "deliveries", "state = 'delivered'")
	require.Zero(t, tn.Rows(t, "dead_letters", ""))
	ids := map[any]bool{}
	for _, m := range fake.Messages("orders") {
		ids[m.User["aeg-output-event-id"]] = true
	}
	require.Len(t, ids, events)
	require.Len(t, fake.Messages("orders"), events)
}

// No stored text and no line of the log has a key or a signature, whatever the service repeats.
func TestAzureSecretsAreNotStored(t *testing.T) {
	t.Parallel()
	tn, log := setup(t), &logged{}
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization") + r.Header.Get("ServiceBusAuthorization")
		w.Header().Set("X-Sent", sent)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, "you sent %s %s", r.URL, sent)
		if !strings.Contains(r.URL.RawQuery+sent, "pl4nted") {
			_, _ = fmt.Fprintf(w, " with %s or %s", busKey, busSecondKey)
		}
	}))
	t.Cleanup(echo.Close)
	const signature = "sv=2021&sig=pl4nted%2Bsignature%3D"
	for _, kind := range azureTypes {
		subscribe(t, tn, string(kind), "", toAzure(echo.URL, kind, "orders", keys(busKey, busSecondKey)))
		subscribe(t, tn, "signed-"+string(kind), "", toAzure(echo.URL, kind, "orders", keys("", ""),
			func(p *destination.Properties) { p.SharedAccessSignature = "SharedAccessSignature sr=x&" + signature }))
	}
	for name, change := range map[string]func(*destination.Properties){
		"storage": keys(busKey, busSecondKey),
		"signed":  func(p *destination.Properties) { p.PrimaryKey, p.SharedAccessSignature = "", signature },
		"down":    func(p *destination.Properties) { p.Endpoint = "http://127.0.0.1:9/account" },
	} {
		subscribe(t, tn, name, "", toAzure(echo.URL+"/account", destination.StorageQueue, "", change,
			func(p *destination.Properties) { p.QueueName = "orders" }))
	}
	tn.Start(t, func(o *jobs.Options) {
		o.Logger, o.LogAttempts = slog.New(slog.NewJSONHandler(log, nil)), jobs.LogAll
	})
	publishOne(t, tn, "1")
	tn.AttemptsMade(t, 11)
	texts := map[string]string{"log": log.String()}
	for _, view := range []string{"delivery_attempts", "dead_letters", "event_subscriptions", "audit", "deliveries"} {
		text, err := json.Marshal(everything(t, tn, view))
		require.NoError(t, err)
		texts[view] = string(text)
	}
	require.Contains(t, texts["delivery_attempts"], "you sent ")
	for where, text := range texts {
		for _, secret := range []string{busKey, busSecondKey, "pl4nted", "SharedKey account:"} {
			if at := strings.Index(text, secret); at >= 0 {
				require.Fail(t, "a secret is stored", "%s: …%s", where, text[max(0, at-300):min(len(text), at+200)])
			}
			require.NotRegexp(t, `sig=[^*]`, text, where)
		}
	}
	names := slices.Sorted(slices.Values(strings.Fields(tn.Text(t,
		"SELECT string_agg(DISTINCT subscription, ' ') FROM postrider.delivery_attempts"))))
	require.Len(t, names, 11)
}
