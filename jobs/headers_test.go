package jobs_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/jobs"
)

// sending sets custom headers.
func sending(list ...endpointconf.DeliveryAttribute) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.DeliveryAttributes = list }
}

func staticHeader(name, value string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeStatic, AttributeProperties: endpointconf.AttributeProperties{Value: &value},
	}
}

func secretHeader(name, value string) endpointconf.DeliveryAttribute {
	a := staticHeader(name, value)
	a.IsSecret = true
	return a
}

func dynamicHeader(name, sourceField string) endpointconf.DeliveryAttribute {
	return endpointconf.DeliveryAttribute{
		Name: name, Type: endpointconf.AttributeDynamic,
		AttributeProperties: endpointconf.AttributeProperties{SourceField: sourceField},
	}
}

// custom returns the request's headers that begin with X-.
func (r request) custom() map[string]string {
	list := map[string]string{}
	for name, values := range r.header {
		if strings.HasPrefix(name, "X-") {
			list[name] = strings.Join(values, "|")
		}
	}
	return list
}

func TestCustomHeadersOfEachSchema(t *testing.T) {
	t.Parallel()
	custom := `"id":{"sourceField":"no"},"eventTime":{"sourceField":"at"},"eventType":{"sourceField":"kind"},` +
		`"subject":{"sourceField":"who"},"dataVersion":{"defaultValue":"3"}`
	tn := setup(t)
	putTopic(t, tn, "custom", customTopic(t, custom))
	const full = "as-many-bytes-as-are-allowed"
	tn.Start(t, func(o *jobs.Options) { o.MaxHeaderBytes = len(full) })
	for _, row := range []struct {
		schema  event.Schema
		topic   string
		body    string
		headers []endpointconf.DeliveryAttribute
		want    map[string]string
	}{
		{
			event.EventGrid, topicName, "[" +
				eventGridBody("7", `{"system":"crm","n":1.50,"deep":{"yes":true},"list":[1],"full":"`+full+`","long":"`+
					full+`!"}`) + "]",
			[]endpointconf.DeliveryAttribute{
				staticHeader("X-Fixed", "é v"), dynamicHeader("X-System", "data.system"), dynamicHeader("X-N", "data.n"),
				dynamicHeader("X-Yes", "Data.deep.yes"),
				dynamicHeader("X-Type", "eventtype"), dynamicHeader("X-Id", "id"), dynamicHeader("X-Topic", "topic"),
				dynamicHeader("X-Version", "dataversion"),
				dynamicHeader("X-None", "data.none"), dynamicHeader("X-List", "data.list"),
				dynamicHeader("X-Full", "data.full"), dynamicHeader("X-Long", "data.long"),
			},
			map[string]string{
				"X-Fixed": "é v", "X-System": "crm", "X-N": "1.50", "X-Yes": "true", "X-Type": "test", "X-Id": "7",
				"X-Topic": "/topics/orders", "X-Version": "2.1", "X-Full": full,
			},
		},
		{
			event.CustomInput, "custom",
			`{"no":7,"at":"2026-01-01T01:00:00.123456789+01:00","kind":"order","who":"me","total":1e3}`,
			[]endpointconf.DeliveryAttribute{
				dynamicHeader("X-Id", "id"), dynamicHeader("X-Time", "eventTime"), dynamicHeader("X-Type", "eventType"),
				dynamicHeader("X-Total", "total"), dynamicHeader("X-Data", "data.total"),
			},
			map[string]string{
				"X-Id": "7", "X-Time": "2026-01-01T00:00:00.123456Z", "X-Type": "order", "X-Total": "1e3", "X-Data": "1e3",
			},
		},
	} {
		e := newSwitchable(t, http.StatusServiceUnavailable)
		subscribeTo(t, tn, row.topic, "all", e.URL, both(delivering(row.schema), sending(row.headers...)))
		publishTo(t, tn, row.topic, http.Header{"Content-Type": {jsonType}}, row.body)
		tn.Attempt(t)
		e.status.Store(http.StatusOK)
		makeDue(t, tn)
		tn.Attempt(t)
		seen := e.requests()
		require.Len(t, seen, 2)
		require.Equal(t, row.want, seen[0].custom())
		require.Equal(t, row.want, seen[1].custom(), "a retry sends what the first attempt sent")
		require.Equal(t, event.ContentType(row.schema, false), seen[0].header.Get("Content-Type"))
	}
}

// All members of a batch have the header values of their request, also at the next attempt. Members that differ in a
// header that was added after their batch was cut leave it and are sent alone.
func TestCustomHeadersOfBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribe(t, tn, "cut", e.URL+"/cut", both(batching(10, 64),
		sending(staticHeader("X-Fixed", "v"), dynamicHeader("X-Kind", "data.kind"))))
	subscribe(t, tn, "added", e.URL+"/added", batching(10, 64))
	var list []string
	for i, data := range []string{`{"kind":"a"}`, `{"kind":"b"}`, `{}`, `{"kind":"a"}`, `{"kind":null}`, `{"kind":"b"}`} {
		list = append(list, eventGridBody(strconv.Itoa(i), data))
	}
	publishBody(t, tn, jsonType, "["+strings.Join(list, ",")+"]")
	tn.Start(t)
	tn.AttemptsMade(t, 3+1)
	subscribe(t, tn, "added", e.URL+"/added", both(batching(10, 64),
		sending(staticHeader("X-Fixed", "v"), dynamicHeader("X-Kind", "data.kind"))))
	require.Equal(t, 3+1, makeDue(t, tn))
	tn.AttemptsMade(t, 3+5)
	got := map[string]int{}
	for _, r := range e.requests() {
		got[r.uri+" "+strings.Join(r.ids(t), ",")+" "+r.custom()["X-Fixed"]+"="+r.custom()["X-Kind"]]++
	}
	require.Equal(t, map[string]int{
		"/cut 0,3 v=a": 2, "/cut 1,5 v=b": 2, "/cut 2,4 v=": 2,
		"/added 0,1,2,3,4,5 =": 1, "/added 0,3 v=a": 1, "/added 1 v=b": 1, "/added 5 v=b": 1, "/added 2 v=": 1,
		"/added 4 v=": 1,
	}, got)
	require.Equal(t, 4, tn.Rows(t, "batch_members", "left_reason = 'HeaderValue'"))

	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), topicName, "added"))
	publishBody(t, tn, jsonType, "["+eventGridBody("lone", `{"kind":"c"}`)+"]")
	tn.Attempt(t)
	lone := e.delivered()[4+8]
	require.Equal(t, map[string]string{"X-Fixed": "v", "X-Kind": "c"}, lone.custom(), "a batch of one")
	require.NotEmpty(t, lone.header.Get("Aeg-Output-Event-Id"))
}

// More events than one cut reads, of many values and sizes: every event is delivered once, with its own value.
func TestDynamicHeadersOfManyBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL, both(batching(20, 64), sending(dynamicHeader("X-Kind", "data.kind"))))
	const large, small = 40, 1100
	var list []string
	for range large {
		id := uuid.NewString()
		list = append(list, eventGridBody(id, `{"kind":"`+id[:1]+`","fill":"`+strings.Repeat("x", 25_000)+`"}`))
	}
	for range small {
		id := uuid.NewString()
		list = append(list, eventGridBody(id, `{"kind":"`+id[:1]+`"}`))
	}
	publishBody(t, tn, jsonType, "["+strings.Join(list, ",")+"]")
	tn.Start(t)
	tn.Become(t, large+small, deliveredInBatch)
	for _, r := range e.requests() {
		for _, id := range r.ids(t) {
			require.Equal(t, id[:1], r.custom()["X-Kind"])
		}
	}
	require.Less(t, len(e.requests()), 250, "events of one value go together")
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
}

// A custom header may replace the user agent. It replaces no header of ours, even if its name was reserved later.
func TestCustomHeadersThatReplace(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", e.URL+"/own",
		sending(staticHeader("user-agent", "shop/1"), secretHeader("authorization", "Bearer t"),
			staticHeader("Aeg-Event-Type", "theirs"), staticHeader("content-type", "text/plain")))
	subscribe(t, tn, "none", e.URL+"/none", nil)
	tn.Start(t, func(o *jobs.Options) { o.UserAgent = "postrider/test" })
	publishOne(t, tn, "1")
	tn.AttemptsMade(t, 2)
	for _, r := range e.requests() {
		require.Equal(t, []string{"Notification"}, r.header["Aeg-Event-Type"])
		require.Equal(t, []string{"application/json; charset=utf-8"}, r.header["Content-Type"])
		if r.uri == "/own" {
			require.Equal(t, []string{"shop/1"}, r.header["User-Agent"])
			require.Equal(t, []string{"Bearer t"}, r.header["Authorization"])
			continue
		}
		require.Equal(t, []string{"postrider/test"}, r.header["User-Agent"])
		require.NotContains(t, r.header, "Authorization", "no other event subscription's")
	}
}

// Only secrets are removed from stored responses and request headers, and only if there are any, whatever the result.
func TestResponsesAreStoredWithoutSecrets(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		w.Header().Set("X-Echo", r.header.Get("X-Secret"))
		status, _ := strconv.Atoi(r.uri[1:4])
		w.WriteHeader(status)
		_, _ = w.Write([]byte("got " + r.header.Get("X-Secret") + " and " + r.header.Get("X-Open") + " at " + r.uri))
	})
	subscribe(t, tn, "open", e.URL+"/503?code=1234567",
		sending(staticHeader("X-Secret", "hush-hush"), staticHeader("X-Open", "open")))
	for _, status := range []string{"200", "503"} {
		subscribe(t, tn, "secret-"+status, e.URL+"/"+status+"?code=12345678", both(signing, sending(
			staticHeader("X-Open", "open"), staticHeader("X-Repeats", "of hush-hush"), secretHeader("X-Secret", "hush-hush"),
			secretHeader("Authorization", "Bearer token-1234"), staticHeader("X-Long", strings.Repeat("l", 3000)))))
	}
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.AttemptsMade(t, 3)
	const kept = "subscription = $1 AND response_excerpt = $2 AND response_headers LIKE '%X-Echo: ' || $3 || '%'"
	require.Equal(t, 1, tn.Rows(t, "delivery_attempts", kept, "open", "got hush-hush and open at /503?code=1234567",
		"hush-hush"))
	for _, status := range []string{"200", "503"} {
		require.Equal(t, 1, tn.Rows(t, "delivery_attempts", kept, "secret-"+status,
			"got *** and open at /"+status+"?code=***", "***"))
		sent := tn.Text(t, "SELECT request_headers FROM postrider.delivery_attempts WHERE subscription = $1",
			"secret-"+status)
		for _, line := range []string{
			"Aeg-Delivery-Count: 0", "Aeg-Event-Type: Notification", "Aeg-Subscription-Name: SECRET-" + status,
			"Authorization: ***", "Content-Type: application/json",
		} {
			require.Contains(t, sent, line)
		}
		require.NotContains(t, sent, "hush")
		require.NotContains(t, sent, "token-1234")
		require.LessOrEqual(t, len(sent), 2048)
	}
}

// signing switches signatures on.
func signing(s *catalog.SubscriptionSpec) { s.Signing.Enabled = true }

// secret returns the newest secret of an event subscription.
func secretOf(t *testing.T, tn *testnode.Node, name string) string {
	t.Helper()
	sub, err := tn.System.Subscriptions.Get(t.Context(), topicName, name)
	require.NoError(t, err)
	return sub.SigningKeys.Secrets[0].Text()
}

// rotate rotates the secret of an event subscription and returns the new one.
func rotate(t *testing.T, tn *testnode.Node, name string, previous time.Duration) string {
	t.Helper()
	sub, err := tn.System.Subscriptions.RotateSigningSecret(t.Context(), topicName, name, nil, previous)
	require.NoError(t, err)
	return sub.SigningKeys.Secrets[0].Text()
}

// verify uses Standard Webhooks' own library, which also rejects a time that is more than five minutes off.
func (r request) verify(t *testing.T, secret string) error {
	t.Helper()
	receiver, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	return receiver.Verify([]byte(r.body), r.header)
}

// signatures returns the number of signatures.
func (r request) signatures() int { return len(strings.Fields(r.header.Get("Webhook-Signature"))) }

func TestSignedDelivery(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "signed", e.URL+"/signed", signing)
	subscribe(t, tn, "other", e.URL+"/other", signing)
	subscribe(t, tn, "plain", e.URL+"/plain", nil)
	tn.Start(t)
	receipt := publishBody(t, tn, jsonType, "["+eventGridBody("1", `{"n":1.50,  "a":"\u0041é"}`)+"]")
	tn.AttemptsMade(t, 3)
	for _, r := range e.requests() {
		switch r.uri {
		case "/plain":
			for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
				require.NotContains(t, r.header, name)
			}
		default:
			own, foreign := secretOf(t, tn, r.uri[1:]), secretOf(t, tn, map[string]string{
				"/signed": "other",
				"/other":  "signed",
			}[r.uri])
			require.NoError(t, r.verify(t, own))
			require.ErrorIs(t, r.verify(t, foreign), standardwebhooks.ErrNoMatchingSignature, "each has its own secret")
			require.Equal(t, receipt.SystemIDs[0].String(), r.header.Get("Webhook-Id"), "the event's, as in aeg-output-event-id")
			require.Equal(t, 1, r.signatures())
			r.body = strings.Replace(r.body, "1.50", "1.51", 1)
			require.ErrorIs(t, r.verify(t, own), standardwebhooks.ErrNoMatchingSignature, "a body that was changed")
		}
	}
	require.Zero(t, tn.Count(t, `SELECT count(*) FROM postrider.event_subscriptions s WHERE strpos(s::text, 'whsec') > 0`))
}

// stamp is the time in the request's header.
func (r request) stamp(t *testing.T) int64 {
	t.Helper()
	seconds, err := strconv.ParseInt(r.header.Get("Webhook-Timestamp"), 10, 64)
	require.NoError(t, err)
	return seconds
}

// Every node signs with a secret that was rotated on one of them and, until it ends, with the previous one. Signatures
// that are switched off and on again have another secret.
func TestRotatedSecretsOnEveryNode(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	sub := subscribe(t, tn, "signed", e.URL, signing)
	other := tn.Beside(t, node.Options{Node: "node-2"})
	first := secretOf(t, tn, "signed")
	secret := rotate(t, tn, "signed", time.Hour)
	testnode.Within(t, "the other node knows the secret", func() bool {
		known, ok := other.System.Cache.Snapshot().Subscription(sub.ID)
		return ok && known.SigningKeys.Secrets[0].Text() == secret
	})
	other.Start(t)
	publishOne(t, tn, "1")
	tn.Attempt(t)
	r := requireOneRequest(t, e)
	require.Equal(t, 2, r.signatures())
	require.NoError(t, r.verify(t, secret))
	require.NoError(t, r.verify(t, first))

	subscribe(t, tn, "signed", e.URL, nil)
	require.NotEqual(t, secret, secretOf(t, tn, subscribe(t, tn, "signed", e.URL, signing).Name))
}

// Receivers recognize a message by its id, and an old request by its time: a retry has the same id and a new time.
func TestSignedRetry(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusServiceUnavailable)
	subscribe(t, tn, "single", e.URL+"/single", both(signing, only("other")))
	subscribe(t, tn, "batched", e.URL+"/batched", both(signing, batching(5, 64), only("test")))
	publishOther(t, tn, "1")
	publishAtOnce(t, tn, "e", 5)
	tn.Start(t)
	tn.AttemptsMade(t, 2)
	first := e.requests()
	// The header's unit is a second.
	tn.Become(t, 1, "SELECT (floor(extract(epoch FROM clock_timestamp())) > $1)::int",
		max(first[0].stamp(t), first[1].stamp(t)))
	e.status.Store(http.StatusOK)
	makeDue(t, tn)
	tn.AttemptsMade(t, 2)
	lone := publishOne(t, tn, "lone")
	tn.Attempt(t)
	sent := map[string][]request{}
	for _, r := range e.requests() {
		require.NoError(t, r.verify(t, secretOf(t, tn, r.uri[1:])))
		sent[r.uri] = append(sent[r.uri], r)
	}
	for _, seen := range sent {
		require.Equal(t, seen[0].header["Webhook-Id"], seen[1].header["Webhook-Id"])
		require.Greater(t, seen[1].stamp(t), seen[0].stamp(t))
		require.NotEqual(t, seen[0].header["Webhook-Signature"], seen[1].header["Webhook-Signature"])
	}
	batches := sent["/batched"]
	require.Len(t, batches, 3)
	for _, r := range batches {
		require.Regexp(t, `^batch-\d+-\d{16}$`, r.header.Get("Webhook-Id"))
	}
	require.NotEqual(t, batches[1].header["Webhook-Id"], batches[2].header["Webhook-Id"], "another batch")
	require.Equal(t, lone.SystemIDs[0].String(), batches[2].header.Get("Aeg-Output-Event-Id"),
		"a batch of one is a batch, too: it may be sent again as it was")
	require.Equal(t, 1, tn.Rows(t, "batches", "batch_id = split_part($1, '-', 2)::bigint AND members = 5",
		batches[0].header.Get("Webhook-Id")))
}
