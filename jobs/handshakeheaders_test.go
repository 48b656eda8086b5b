package jobs_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/jobs"
)

// Handshake requests have the static headers of deliveries. What is stored of them has no secret.
func TestHandshakesHaveStaticHeaders(t *testing.T) {
	t.Parallel()
	for _, schema := range []event.Schema{event.EventGrid, event.CloudEvents} {
		t.Run(string(schema), func(t *testing.T) {
			t.Parallel()
			b := setupTopic(t, schema)
			log := &logged{}
			e := newEndpoint(t, func(w http.ResponseWriter, r request) {
				w.Header().Set("WebHook-Allowed-Origin", r.header.Get("Authorization"))
				_, _ = w.Write([]byte("I know " + r.header.Get("Authorization") + " and " + r.header.Get("X-Key")))
			})
			b.startHandshakes(t, func(o *jobs.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
			spec := validated(e.URL, schema)
			spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{
				secretHeader("Authorization", "Bearer s3cret-t0ken"), staticHeader("X-Key", "shown"),
				staticHeader("User-Agent", "shop/1"),
				staticHeader("Aeg-Event-Type", "theirs"), dynamicHeader("X-Id", "id"),
			}
			h := b.handshakeEnded(t, "billing", spec)
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
				log.String(), b.text(t, "postrider.handshake_steps"), b.text(t, "postrider.handshakes"),
				b.text(t, "postrider_internal.handshakes"), b.text(t, "postrider_internal.handshake_steps"),
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
	b := setup(t)
	e := newEndpoint(t, sendsBack)
	b.startHandshakes(t, nil)
	spec := validated(e.URL+"/one", event.EventGrid)
	spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{secretHeader("X-Key", "s3cret")}
	b.put(t, "billing", spec, b.handshakeEnded(t, "billing", spec).ID)
	spec.EndpointURL += "/two"
	spec.DeliveryAttributes = []endpointconf.DeliveryAttribute{
		{
			Name: "x-key", Type: endpointconf.AttributeStatic,
			AttributeProperties: endpointconf.AttributeProperties{IsSecret: true},
		},
	}
	require.Equal(t, catalog.HandshakeSucceeded, b.handshakeEnded(t, "billing", spec).State)
	require.Equal(t, map[string]string{"X-Key": "s3cret"}, e.requests()[1].custom())
}

// text returns the rows of a table as text.
func (b *bundle) text(t *testing.T, table string) (text string) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT string_agg(t::text, ' ') FROM "+table+" t").Scan(&text))
	return text
}
