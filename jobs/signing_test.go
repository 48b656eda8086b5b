package jobs_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
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
	engine := other.Engine(t)
	testnode.Within(t, "the other node knows the secret", func() bool {
		known, ok := other.System.Cache.Snapshot().Subscription(sub.ID)
		return ok && known.SigningKeys.Secrets[0].Text() == secret
	})
	require.NoError(t, engine.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, engine) })
	publishOne(t, tn, "1")
	tn.Attempt(t)
	r := requireOneRequest(t, e)
	require.Equal(t, 2, r.signatures())
	require.NoError(t, r.verify(t, secret))
	require.NoError(t, r.verify(t, first))

	subscribe(t, tn, "signed", e.URL, nil)
	require.NotEqual(t, secret, secretOf(t, tn, subscribe(t, tn, "signed", e.URL, signing).Name))
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
	require.Equal(t, 1, tn.Rows(t, "batches", "batch_id = split_part($1, '-', 2)::bigint "+
		"AND members = 5", seen[0].header.Get("Webhook-Id")))
}
