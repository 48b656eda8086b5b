package jobs_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

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

// ageSecrets moves all times of an event subscription's secrets into the past.
func ageSecrets(t *testing.T, tn *testnode.Node, name string, by time.Duration) {
	t.Helper()
	const column = "event_subscriptions.signing_sealed"
	sealer, err := postgres.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	require.NoError(t, err)
	var sealed []byte
	require.NoError(t, tn.Pool.QueryRow(t.Context(),
		"SELECT signing_sealed FROM postrider_internal.event_subscriptions WHERE name = $1", name).Scan(&sealed))
	text, err := sealer.Open(column, sealed)
	require.NoError(t, err)
	var secrets []endpointconf.SigningSecret
	require.NoError(t, json.Unmarshal([]byte(text), &secrets))
	for i := range secrets {
		secrets[i].CreatedAt = secrets[i].CreatedAt.Add(-by)
		if secrets[i].ValidUntil != nil {
			until := secrets[i].ValidUntil.Add(-by)
			secrets[i].ValidUntil = &until
		}
	}
	aged, err := json.Marshal(secrets)
	require.NoError(t, err)
	tn.Exec(t, "UPDATE postrider_internal.event_subscriptions SET signing_sealed = $2 WHERE name = $1", name,
		sealer.Seal(column, string(aged)))
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
}

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

func TestSignedCloudEvent(t *testing.T) {
	t.Parallel()
	tn := setupTopic(t, event.CloudEvents)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "signed", e.URL,
		both(signing, func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents }))
	tn.Start(t)
	publishBody(t, tn, structuredType, `{ "specversion":"1.0", "id":"1","source":"/s","type":"t","data":{"n":1.50} }`)
	tn.Attempt(t)
	require.NoError(t, requireOneRequest(t, e).verify(t, secretOf(t, tn, "signed")))
}

// stamp is the time in the request's header.
func (r request) stamp(t *testing.T) int64 {
	t.Helper()
	seconds, err := strconv.ParseInt(r.header.Get("Webhook-Timestamp"), 10, 64)
	require.NoError(t, err)
	return seconds
}

// Receivers recognize a message by its id, and an old request by its time: a retry has the same id and a new time.
func TestSignedRetry(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusServiceUnavailable))
	subscribe(t, tn, "signed", e.URL, signing)
	tn.Start(t)
	publishOne(t, tn, "1")
	tn.Attempt(t)
	// The header's unit is a second.
	tn.Become(t, 1, "SELECT (floor(extract(epoch FROM clock_timestamp())) > $1)::int", e.requests()[0].stamp(t))
	travel(t, tn)
	tn.Attempt(t)
	seen := e.requests()
	require.Len(t, seen, 2)
	for _, r := range seen {
		require.NoError(t, r.verify(t, secretOf(t, tn, "signed")))
	}
	require.Equal(t, seen[0].header["Webhook-Id"], seen[1].header["Webhook-Id"])
	require.Greater(t, seen[1].stamp(t), seen[0].stamp(t))
	require.NotEqual(t, seen[0].header["Webhook-Signature"], seen[1].header["Webhook-Signature"])
}

// A receiver with the old secret can verify requests until the old secret ends.
func TestRotatedSecrets(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "signed", e.URL, signing)
	tn.Start(t)
	sent := 0
	next := func() request {
		publishOne(t, tn, fmt.Sprint(sent))
		tn.Attempt(t)
		sent++
		seen := e.requests()
		require.Len(t, seen, sent)
		return seen[sent-1]
	}
	first := secretOf(t, tn, "signed")
	require.NoError(t, next().verify(t, first))

	second := rotate(t, tn, "signed", 24*time.Hour)
	third := rotate(t, tn, "signed", 48*time.Hour)
	r := next()
	require.Equal(t, 3, r.signatures())
	for _, secret := range []string{first, second, third} {
		require.NoError(t, r.verify(t, secret))
	}
	newest := r
	newest.header = r.header.Clone()
	newest.header.Set("Webhook-Signature", strings.Fields(r.header.Get("Webhook-Signature"))[0])
	require.NoError(t, newest.verify(t, third), "the newest comes first")

	ageSecrets(t, tn, "signed", 24*time.Hour-time.Minute)
	require.NoError(t, next().verify(t, first), "a minute before its end")
	ageSecrets(t, tn, "signed", time.Minute)
	r = next()
	require.Equal(t, 2, r.signatures())
	require.ErrorIs(t, r.verify(t, first), standardwebhooks.ErrNoMatchingSignature)
	require.NoError(t, r.verify(t, second))
	require.NoError(t, r.verify(t, third))

	alone := rotate(t, tn, "signed", 0)
	r = next()
	require.Equal(t, 1, r.signatures())
	require.NoError(t, r.verify(t, alone))

	subscribe(t, tn, "signed", e.URL, nil)
	require.NotContains(t, next().header, "Webhook-Signature", "switched off")
	subscribe(t, tn, "signed", e.URL, signing)
	require.ErrorIs(t, next().verify(t, alone), standardwebhooks.ErrNoMatchingSignature, "and on again, with another one")
}

// Every node uses a secret that was rotated on one of them.
func TestRotatedSecretsOnEveryNode(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	sub := subscribe(t, tn, "signed", e.URL, signing)
	other := tn.Beside(t, node.Options{Node: "node-2"})
	secret := rotate(t, tn, "signed", 0)
	engine := other.Engine(t)
	testnode.Within(t, "the other node knows the secret", func() bool {
		known, ok := other.System.Cache.Snapshot().Subscription(sub.ID)
		return ok && known.SigningKeys.Secrets[0].Text() == secret
	})
	require.NoError(t, engine.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, engine) })
	publishOne(t, tn, "1")
	tn.Attempt(t)
	require.NoError(t, requireOneRequest(t, e).verify(t, secret))
}

func TestSignedBatch(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	statuses := make(chan int, 3)
	statuses <- http.StatusServiceUnavailable
	statuses <- http.StatusOK
	statuses <- http.StatusOK
	e := newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(<-statuses) })
	subscribe(t, tn, "signed", e.URL, both(signing, batching(5, 64)))
	publishAtOnce(t, tn, "e", 5)
	tn.Start(t)
	tn.Attempt(t)
	travel(t, tn)
	tn.Attempt(t)
	lone := publishOne(t, tn, "lone")
	tn.Attempt(t)
	seen := e.requests()
	require.Len(t, seen, 3)
	for _, r := range seen {
		require.NoError(t, r.verify(t, secretOf(t, tn, "signed")))
		require.Regexp(t, `^batch-\d+-\d{16}$`, r.header.Get("Webhook-Id"))
	}
	require.Equal(t, seen[0].header["Webhook-Id"], seen[1].header["Webhook-Id"], "a retry")
	require.NotEqual(t, seen[1].header["Webhook-Id"], seen[2].header["Webhook-Id"], "another batch")
	require.Equal(t, lone.SystemIDs[0].String(), seen[2].header.Get("Aeg-Output-Event-Id"),
		"a batch of one is a batch, too: it may be sent again as it was")
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(*) FROM postrider.batches WHERE batch_id = split_part($1, '-', 2)::bigint AND members = 5",
			seen[0].header.Get("Webhook-Id")))
}

// A delivery that is sent alone despite batches has its event's id.
func TestSignedDeliveryFromBeforeBatches(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "signed", e.URL, signing)
	receipt := publishOne(t, tn, "1")
	subscribe(t, tn, "signed", e.URL, both(signing, batching(10, 64)))
	tn.Start(t)
	tn.Attempt(t)
	r := requireOneRequest(t, e)
	require.NoError(t, r.verify(t, secretOf(t, tn, "signed")))
	require.Equal(t, receipt.SystemIDs[0].String(), r.header.Get("Webhook-Id"))
}
