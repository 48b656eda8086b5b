package jobs_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/testnode"
	"postrider/jobs"
)

// Handshake requests have the static headers of deliveries. What is stored of them has no secret.
func TestHandshakesHaveStaticHeaders(t *testing.T) {
	t.Parallel()
	for _, schema := range []event.Schema{event.EventGrid, event.CloudEvents} {
		t.Run(string(schema), func(t *testing.T) {
			t.Parallel()
			tn := setupTopic(t, schema)
			log := &logged{}
			e := newEndpoint(t, func(w http.ResponseWriter, r request) {
				w.Header().Set("WebHook-Allowed-Origin", r.header.Get("Authorization"))
				_, _ = w.Write([]byte("I know " + r.header.Get("Authorization") + " and " + r.header.Get("X-Key")))
			})
			startHandshakes(t, tn, func(o *jobs.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
			spec := validated(e.URL, schema)
			spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{
				secretHeader("Authorization", "Bearer s3cret-t0ken"), staticHeader("X-Key", "shown"),
				staticHeader("User-Agent", "shop/1"),
				staticHeader("Aeg-Event-Type", "theirs"), dynamicHeader("X-Id", "id"),
			}
			h := handshakeEnded(t, tn, "billing", spec)
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
			for _, kept := range []string{
				log.String(), textOf(t, tn, "postrider.handshake_steps"), textOf(t, tn, "postrider.handshakes"),
				textOf(t, tn, "postrider_internal.handshakes"), textOf(t, tn, "postrider_internal.handshake_steps"),
			} {
				require.NotEmpty(t, kept)
				require.NotContains(t, kept, "s3cret-t0ken")
			}
		})
	}
}

// A secret header without a new value is sent with the stored value.
func TestHandshakesHaveStoredSecrets(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, sendsBack)
	startHandshakes(t, tn, nil)
	spec := validated(e.URL+"/one", event.EventGrid)
	spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{secretHeader("X-Key", "s3cret")}
	put(t, tn, "billing", spec, handshakeEnded(t, tn, "billing", spec).ID)
	spec.EndpointURL += "/two"
	spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{
		{
			Name: "x-key", Type: endpointconf.AttributeStatic,
			AttributeProperties: endpointconf.AttributeProperties{IsSecret: true},
		},
	}
	require.Equal(t, catalog.HandshakeSucceeded, handshakeEnded(t, tn, "billing", spec).State)
	require.Equal(t, map[string]string{"X-Key": "s3cret"}, e.requests()[1].custom())
}

// text returns the rows of a table as text.
func textOf(t *testing.T, tn *testnode.Node, table string) (text string) {
	t.Helper()
	require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT string_agg(t::text, ' ') FROM "+table+" t").Scan(&text))
	return text
}
