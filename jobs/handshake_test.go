package jobs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// validated is an event subscription whose endpoint must be validated.
func validated(url string, schema event.Schema) catalog.SubscriptionSpec {
	return catalog.SubscriptionSpec{
		EndpointURL: url, EndpointKind: policy.KindWebhook, EventDeliverySchema: schema,
		RetryPolicy:        catalog.RetryPolicySpec{Policy: policy.DefaultName},
		EndpointValidation: catalog.ValidationRequired,
	}
}

// startHandshakes starts an engine whose three tries follow one another at once.
func startHandshakes(t *testing.T, tn *testnode.Node, change func(*jobs.Options)) {
	t.Helper()
	tn.Start(t, func(o *jobs.Options) {
		o.HandshakePause = time.Millisecond
		if change != nil {
			change(o)
		}
	})
}

// begin begins a handshake.
func begin(t *testing.T, tn *testnode.Node, name string, spec catalog.SubscriptionSpec) (id int64) {
	t.Helper()
	topic, err := tn.System.Topics.Get(t.Context(), topicName)
	require.NoError(t, err)
	_, _, err = tn.System.Subscriptions.Put(t.Context(), topicName, name, spec)
	require.ErrorIs(t, err, postgres.ErrNotValidated)
	id, err = tn.System.Handshakes.BeginValidation(t.Context(), topic, name, &spec, "https://events.example.com")
	require.NoError(t, err)
	return id
}

// handshakeEnded begins a handshake and waits for its end.
func handshakeEnded(t *testing.T, tn *testnode.Node, name string, spec catalog.SubscriptionSpec) *catalog.Handshake {
	t.Helper()
	id := begin(t, tn, name, spec)
	require.NoError(t, tn.System.Handshakes.Wait(t.Context(), id, testnode.Timeout))
	return handshakeOf(t, tn, id)
}

func handshakeOf(t *testing.T, tn *testnode.Node, id int64) *catalog.Handshake {
	t.Helper()
	h, err := tn.System.Handshakes.Get(t.Context(), id)
	require.NoError(t, err)
	return h
}

// put stores an event subscription with its handshake.
func put(t *testing.T, tn *testnode.Node, name string, spec catalog.SubscriptionSpec,
	handshake int64,
) *catalog.Subscription {
	t.Helper()
	sub, _, err := tn.System.Subscriptions.PutValidated(t.Context(), topicName, name, spec, handshake)
	require.NoError(t, err)
	return sub
}

// codeIn reads the one event of a validation request.
func codeIn(body string) (code, url string) {
	var events []struct {
		Data struct{ ValidationCode, ValidationURL string }
	}
	if json.Unmarshal([]byte(body), &events) != nil || len(events) != 1 {
		return "", ""
	}
	return events[0].Data.ValidationCode, events[0].Data.ValidationURL
}

// respondWithCode responds to the validation event with its code.
func respondWithCode(w http.ResponseWriter, r request) {
	if code, _ := codeIn(r.body); code != "" {
		_, _ = fmt.Fprintf(w, `{"ValidationResponse":%q}`, code)
	}
}

// The validation event, and the request for permission to an endpoint of CloudEvents.
func TestHandshakeRequests(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWithCode)
	startHandshakes(t, tn, func(o *jobs.Options) { o.WebhookOrigin, o.WebhookRequestRate = "events.example.com", 120 })
	h := handshakeEnded(t, tn, "billing", validated(e.URL+"/in?secret=1", event.EventGrid))

	require.Equal(t, catalog.HandshakeSucceeded, h.State, h.Message)
	require.Equal(t, 1, h.Tries)
	require.NotNil(t, h.ConcludedAt)
	require.Len(t, h.Steps, 1)
	require.Equal(t, 200, h.Steps[0].Status)
	require.JSONEq(t, `{"ValidationResponse":"(code)"}`, string(h.Steps[0].Response))
	require.Zero(t, tn.Jobs(t, "kind = 'handshake'"))

	r := requireOneRequest(t, e)
	require.Equal(t, "POST /in?secret=1", r.method+" "+r.uri)
	require.Equal(t, "SubscriptionValidation", r.header.Get("Aeg-Event-Type"))
	require.Equal(t, "BILLING", r.header.Get("Aeg-Subscription-Name"))
	require.Equal(t, tn.System.Cache.Snapshot().ServerID, r.header.Get("Postrider-Origin"))
	require.Equal(t, "application/json; charset=utf-8", r.header.Get("Content-Type"))
	require.Empty(t, r.header.Get("Accept"))
	var events []map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &events))
	require.Len(t, events, 1)
	require.NotEmpty(t, events[0]["id"])
	require.NotEmpty(t, events[0]["eventTime"])
	delete(events[0], "id")
	delete(events[0], "eventTime")
	require.Equal(t, map[string]any{
		"eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "subject": "", "topic": "/topics/orders",
		"metadataVersion": "1", "dataVersion": "1",
		"data": map[string]any{"validationCode": h.Code, "validationUrl": "https://events.example.com/topics/orders/" +
			"eventsubscriptions/billing/validate?id=" + h.Code},
	}, events[0])

	sub := put(t, tn, "billing", validated(e.URL+"/in?secret=1", event.EventGrid), h.ID)
	require.Equal(t, catalog.ProvisioningSucceeded, sub.ProvisioningState)
	publishOne(t, tn, "a")
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)

	e = newEndpoint(t, func(w http.ResponseWriter, r request) {
		w.Header()["Webhook-Allowed-Origin"] = r.header["Webhook-Request-Origin"]
		w.Header().Set("WebHook-Allowed-Rate", "100")
	})
	h = handshakeEnded(t, tn, "cloudy", validated(e.URL+"/in?secret=1", event.CloudEvents))
	require.Equal(t, catalog.HandshakeSucceeded, h.State, h.Message)
	require.Contains(t, h.Message, `"100", which is not applied`)
	r = requireOneRequest(t, e)
	require.Equal(t, "OPTIONS /in?secret=1", r.method+" "+r.uri)
	require.Empty(t, r.body)
	require.Equal(t, "events.example.com", r.header.Get("WebHook-Request-Origin"))
	require.Equal(t, "120", r.header.Get("WebHook-Request-Rate"))
	require.Equal(t, h.ValidationURL(), r.header.Get("WebHook-Request-Callback"))
}

// An endpoint's responses to a handshake, and the result. Endpoints repeat what they received: neither the code, in any
// case, nor secrets of their URL are stored, even partly.
func TestResponsesToHandshakes(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	startHandshakes(t, tn, nil)
	const path = "/in?code=hush%2Fhush"
	const eventGrid, cloud = event.EventGrid, event.CloudEvents
	const succeeded, awaiting, failed = catalog.HandshakeSucceeded, catalog.HandshakeAwaiting, catalog.HandshakeFailed
	with := func(status int, header, value, body string) func(http.ResponseWriter, request) {
		return func(w http.ResponseWriter, _ request) {
			if header != "" {
				w.Header().Set(header, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	origin := func(value string) func(http.ResponseWriter, request) {
		return with(200, "WebHook-Allowed-Origin", value, "")
	}
	mirror := func(w http.ResponseWriter, r request) { _, _ = io.WriteString(w, r.body) }
	broken := func(w http.ResponseWriter, _ request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
	}
	for name, c := range map[string]struct {
		schema  event.Schema
		respond func(http.ResponseWriter, request)
		state   catalog.HandshakeState
		tries   int
		says    string
	}{
		"the code":      {eventGrid, respondWithCode, succeeded, 1, "with the code"},
		"an error":      {eventGrid, respondWith(500), failed, 3, "try 3 of 3: responded 500"},
		"a redirect":    {eventGrid, with(302, "Location", "/", ""), failed, 3, "responded 302"},
		"nothing in it": {eventGrid, respondWith(200), awaiting, 1, "open validationUrl within 10 minutes"},
		"mirrored":      {eventGrid, mirror, awaiting, 1, "not a JSON object"},
		"NUL bytes":     {eventGrid, with(200, "", "", "\x00\xff{\x00"), awaiting, 1, "not a JSON object"},
		"a huge body":   {eventGrid, with(200, "", "", strings.Repeat("x", 1<<20)), awaiting, 1, "not a JSON object"},
		"a broken body": {
			eventGrid, broken, failed, 3,
			"no response: the endpoint closed the connection before its response was complete",
		},
		"permission, broken off": {cloud, func(w http.ResponseWriter, r request) {
			w.Header().Set("WebHook-Allowed-Origin", "*")
			broken(w, r)
		}, succeeded, 1, "Allowed-Origin: *"},
		"permission":            {cloud, origin("eventgrid.azure.net"), succeeded, 1, "Allowed-Origin: eventgrid.azure.net"},
		"permission for others": {cloud, origin("caf\xe9.example"), failed, 3, "which is not eventgrid.azure.net"},
		"no permission":         {cloud, respondWith(200), awaiting, 1, "responded 200 without WebHook-Allowed-Origin"},
		"code and URL": {eventGrid, func(w http.ResponseWriter, r request) {
			code, _ := codeIn(r.body)
			fill := strings.Repeat("x", 4096-37-len(r.uri)-6)
			_, _ = fmt.Fprintf(w, "%s %s %s%s", strings.ToUpper(code), r.uri, fill, "hush%2Fhush")
		}, awaiting, 1, "not a JSON object"},
		"URL in the origin": {cloud, func(w http.ResponseWriter, r request) {
			origin(strings.Repeat("x", 96)+"hush/hush "+r.header.Get("WebHook-Request-Callback"))(w, r)
		}, failed, 3, "which is not eventgrid.azure.net"},
		"callback in the origin": {cloud, func(w http.ResponseWriter, r request) {
			origin(r.header.Get("WebHook-Request-Callback"))(w, r)
		}, failed, 3, "which is not eventgrid.azure.net"},
		"URL in an error": {eventGrid, func(w http.ResponseWriter, r request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_, _ = fmt.Fprintf(conn, "%s\r\n\r\n", r.uri)
				_ = conn.Close()
			}
		}, failed, 3, "no response"},
		"URL in the rate": {cloud, func(w http.ResponseWriter, r request) {
			w.Header().Set("WebHook-Allowed-Rate", path)
			origin("*")(w, r)
		}, succeeded, 1, "which is not applied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, spec := newEndpoint(t, c.respond), validated("", c.schema)
			spec.EndpointURL = e.URL + path
			name := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			h := handshakeEnded(t, tn, name, spec)
			require.Equal(t, c.state, h.State, h.Message)
			require.Contains(t, h.Message, c.says)
			require.Equal(t, c.tries, h.Tries)
			require.Len(t, h.Steps, c.tries)
			require.Len(t, e.requests(), c.tries)
			kept := h.Message
			for _, step := range h.Steps {
				kept += step.Verdict + step.Error + string(step.Response)
				require.LessOrEqual(t, len(step.Response), 4096)
			}
			require.NotContains(t, kept, "hush")
			require.NotContains(t, strings.ToLower(kept), h.Code[:18])
			_, _, err := tn.System.Subscriptions.PutValidated(t.Context(), topicName, name, spec, h.ID)
			var rejected *catalog.ValidationFailedError
			require.Equal(t, c.state == failed, errors.As(err, &rejected), "%v", err)
			require.Zero(t, tn.Rows(t, "handshake_steps", "response LIKE '%' || $1 || '%'", h.Code))
		})
	}
}

// Endpoints of namespace topics get no URL to open, so a response without permission is a failure, like no response.
func TestNamespaceTopicsHaveNoCallback(t *testing.T) {
	t.Parallel()
	tn := setupSpec(t, catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents})
	e := newEndpoint(t, respondWith(http.StatusOK))
	startHandshakes(t, tn, func(o *jobs.Options) { o.HandshakeTimeout = time.Second })
	silent, _ := newHanging(t, respondWith(http.StatusOK))
	h := handshakeEnded(t, tn, "silent", validated(silent.URL, event.CloudEvents))
	require.Equal(t, catalog.HandshakeFailed, h.State)
	require.Contains(t, h.Message, "timed out after 1s")
	require.Equal(t, 3, h.Tries)

	h = handshakeEnded(t, tn, "billing", validated(e.URL, event.CloudEvents))
	require.Equal(t, catalog.HandshakeFailed, h.State, h.Message)
	require.Len(t, e.requests(), 3)
	require.Equal(t, "eventgrid.azure.net", e.requests()[0].header.Get("WebHook-Request-Origin"))
	require.NotContains(t, e.requests()[0].header, "Webhook-Request-Callback")
	require.NotContains(t, e.requests()[0].header, "Webhook-Request-Rate")
	require.ErrorIs(t, tn.System.Handshakes.CompleteValidation(t.Context(), topicName, "billing", h.Code),
		postgres.ErrNotFound)
}

// An endpoint is notified of the deletion of its event subscription, unless that was never ready for deliveries.
func TestEndpointIsNotifiedOfTheDeletion(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	status := make(chan int, 10)
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(<-status) })
	startHandshakes(t, tn, nil)
	subscribe(t, tn, "billing", e.URL+"/?secret=1", nil)
	subscribe(t, tn, "cloudy", e.URL, func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents })
	status <- http.StatusInternalServerError
	status <- http.StatusAccepted
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "billing"))
	tn.BecomeRows(t, 1, "handshakes", "purpose = 'deletion' AND state = 'succeeded' AND tries = 2")
	r := e.requests()[1]
	require.Equal(t, "POST /?secret=1", r.method+" "+r.uri)
	require.Equal(t, "SubscriptionDeletion", r.header.Get("Aeg-Event-Type"))
	var events []struct {
		EventType string
		Data      struct{ EventSubscriptionID string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &events))
	require.Equal(t, "Microsoft.EventGrid.SubscriptionDeletedEvent", events[0].EventType)
	require.Equal(t, "/topics/orders/eventSubscriptions/billing", events[0].Data.EventSubscriptionID)

	status <- http.StatusOK
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "cloudy"))
	tn.BecomeRows(t, 2, "handshakes", "purpose = 'deletion' AND state = 'succeeded'")
	r = e.requests()[2]
	require.Equal(t, "application/cloudevents+json; charset=utf-8", r.header.Get("Content-Type"))
	var one struct{ Specversion, Type, Source, ID, Time string }
	require.NoError(t, json.Unmarshal([]byte(r.body), &one))
	require.Equal(t, "1.0 Microsoft.EventGrid.SubscriptionDeletedEvent /topics/orders",
		one.Specversion+" "+one.Type+" "+one.Source)

	status <- http.StatusOK
	spec := validated(e.URL, event.EventGrid)
	put(t, tn, "unvalidated", spec, handshakeEnded(t, tn, "unvalidated", spec).ID)
	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "unvalidated"))
	require.Equal(t, 2, tn.Rows(t, "handshakes", "purpose = 'deletion'"))
}

// A node dies during a handshake: another node repeats the request, with a new row.
func TestHandshakeOfADeadNodeIsReclaimed(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWithCode)
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	job := int64(tn.Count(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, "+
		"attempted_at = now(), attempted_by = '{dead}' RETURNING id"))
	died, err := tn.System.Handshakes.Load(t.Context(), id, job)
	require.NoError(t, err)
	sub := put(t, tn, "billing", spec, id)
	require.Equal(t, catalog.ProvisioningCreating, sub.ProvisioningState)
	lost := *died
	lost.CreatedAt = died.CreatedAt.Add(-time.Second)
	require.NoError(t, tn.System.Handshakes.Record(t.Context(),
		&catalog.HandshakeResult{Job: job, Handshake: &lost, State: catalog.HandshakeFailed, Message: "lost"}))
	require.Equal(t, catalog.HandshakePending, handshakeOf(t, tn, id).State,
		"nor does a word on a handshake that a failover lost, whose ids this one has")

	startHandshakes(t, tn, nil)
	tn.BecomeRows(t, 1, "event_subscriptions", "provisioning_state = 'Succeeded' AND hold IS NULL")
	require.NoError(t, tn.System.Handshakes.Record(t.Context(),
		&catalog.HandshakeResult{Job: job, Handshake: died, State: catalog.HandshakeFailed, Message: "late"}))
	h := handshakeOf(t, tn, id)
	require.Equal(t, catalog.HandshakeSucceeded, h.State, "the dead node's word counts no more")
	require.Len(t, h.Steps, 1)
	require.Len(t, e.requests(), 1)
}

// A stop cuts the request; another node repeats it. A hold that ends on one of two nodes ends on both.
func TestStopDuringAHandshake(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, hang := newHanging(t, respondWithCode)
	engine := tn.Engine(t, func(o *jobs.Options) { o.StopTimeout = 50 * time.Millisecond })
	require.NoError(t, engine.Start(t.Context()))
	spec := validated(e.URL, event.EventGrid)
	id := begin(t, tn, "billing", spec)
	await(t, hang.begun)
	put(t, tn, "billing", spec, id)
	publishOne(t, tn, "a")
	testnode.RequireStops(t, engine)
	hang.unblock()
	require.Equal(t, catalog.HandshakePending, handshakeOf(t, tn, id).State)
	require.Empty(t, handshakeOf(t, tn, id).Steps, "a request that we cut is no try")

	startNode(t, tn, "node-2", nil)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	require.Equal(t, catalog.HandshakeSucceeded, handshakeOf(t, tn, id).State)
	publishOne(t, tn, "b")
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
}

// Hanging handshakes take no workers of deliveries and delay none.
func TestHangingHandshakesDelayNoDelivery(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	silent, hang := newHanging(t, respondWith(http.StatusInternalServerError))
	e := newEndpoint(t, respondWith(http.StatusOK))
	useWorkers(t, tn, 2)
	tn.Start(t)
	for n := range 20 {
		begin(t, tn, fmt.Sprintf("silent-%d", n), validated(silent.URL, event.EventGrid))
	}
	for range 20 {
		await(t, hang.begun)
	}
	subscribe(t, tn, "billing", e.URL, nil)
	publishOne(t, tn, "a")
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	hang.unblock()
}

// A handshake whose job is gone gets a new one.
func TestSweeperRepairsHandshakes(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	begin(t, tn, "billing", validated("https://example.com/", event.EventGrid))
	tn.Exec(t, "DELETE FROM postrider_internal.river_job")
	tn.Exec(t, "UPDATE postrider_internal.handshakes SET created_at = now() - interval '2 minutes'")
	require.Equal(t, jobs.Swept{Repaired: 1}, tn.Sweep(t))
	require.Equal(t, 1, tn.Jobs(t, "kind = 'handshake' AND id = (SELECT job_id FROM postrider_internal.handshakes)"))
}

// Handshake requests have the static headers of deliveries. What is stored of them has no secret. A secret header
// without a new value is sent with the stored value.
func TestHandshakesHaveStaticHeaders(t *testing.T) {
	t.Parallel()
	tn, log := setup(t), &logged{}
	startHandshakes(t, tn, func(o *jobs.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	for _, schema := range []event.Schema{event.EventGrid, event.CloudEvents} {
		e := newEndpoint(t, func(w http.ResponseWriter, r request) {
			w.Header().Set("WebHook-Allowed-Origin", r.header.Get("Authorization"))
			_, _ = w.Write([]byte("I know " + r.header.Get("Authorization") + " and " + r.header.Get("X-Key")))
		})
		spec := validated(e.URL, schema)
		spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{
			secretHeader("Authorization", "Bearer s3cret-t0ken"), staticHeader("X-Key", "shown"),
			staticHeader("User-Agent", "shop/1"),
			staticHeader("Aeg-Event-Type", "theirs"), dynamicHeader("X-Id", "id"),
		}
		h := handshakeEnded(t, tn, string(schema), spec)
		require.NotEmpty(t, e.requests())
		for _, r := range e.requests() {
			require.Equal(t, []string{"Bearer s3cret-t0ken"}, r.header["Authorization"])
			require.Equal(t, []string{"shop/1"}, r.header["User-Agent"])
			require.Equal(t, map[string]string{"X-Key": "shown"}, r.custom())
			if schema == event.EventGrid {
				require.Equal(t, "SubscriptionValidation", r.header.Get("Aeg-Event-Type"))
			}
		}
		require.Contains(t, string(h.Steps[0].Response), "I know *** and shown")
	}
	kept := log.String()
	for _, table := range []string{
		"postrider.handshake_steps", "postrider.handshakes", "postrider_internal.handshakes",
		"postrider_internal.handshake_steps",
	} {
		kept += tn.Text(t, "SELECT string_agg(t::text, ' ') FROM "+table+" t")
	}
	require.NotContains(t, kept, "s3cret-t0ken")

	e := newEndpoint(t, respondWithCode)
	spec := validated(e.URL+"/one", event.EventGrid)
	spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{secretHeader("X-Key", "s3cret")}
	put(t, tn, "billing", spec, handshakeEnded(t, tn, "billing", spec).ID)
	spec.EndpointURL += "/two"
	spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{{
		Name: "x-key", Type: endpointconf.AttributeStatic,
		AttributeProperties: endpointconf.AttributeProperties{IsSecret: true},
	}}
	require.Equal(t, catalog.HandshakeSucceeded, handshakeEnded(t, tn, "billing", spec).State)
	require.Equal(t, map[string]string{"X-Key": "s3cret"}, e.requests()[1].custom())
}
