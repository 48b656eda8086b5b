package web_test

import (
	"encoding/base64"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

var deliveries = flag.Int("deliveries", 100_000, "number of `deliveries` in the database of BenchmarkPages")

// BenchmarkPages measures pages with filters that match many, few and no rows. Searches without a match take the
// longest.
func BenchmarkPages(b *testing.B) {
	d := setup(b)
	require.NoError(b, testnode.FillWeek(b.Context(), d.pool, *deliveries))
	sealer, err := postgres.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	require.NoError(b, err)
	_, err = d.pool.Exec(b.Context(), "UPDATE postrider_internal.event_subscriptions SET secrets_sealed = $1",
		sealer.Seal("event_subscriptions.secrets_sealed", `{"endpointUrl":"https://example.com/"}`))
	require.NoError(b, err)
	require.NoError(b, d.store.Cache.Reload(b.Context()))
	pages := []string{
		"/ui/", "/ui/?range=24h", "/ui/?range=7d", "/ui/problems?within=1h", "/ui/problems", "/ui/problems?within=7d",
		"/ui/tail", "/ui/events", "/ui/events?topic=vouchers", "/ui/events?event=order-42", "/ui/events?unmatched=1",
		"/ui/events?type=Shop.Closed", "/ui/events?subject=/people/", "/ui/deliveries", "/ui/deliveries?topic=orders",
		"/ui/deliveries?topic=vouchers&subscription=mail", "/ui/deliveries?state=pending", "/ui/deliveries?state=dropped",
		"/ui/deliveries?hold=not_validated", "/ui/deliveries?outcome=TimedOut",
		"/ui/deliveries?topic=orders&subscription=billing&outcome=TimedOut", "/ui/batches", "/ui/dead-letters",
		"/ui/dead-letters?topic=orders", "/ui/dead-letters?reason=TimeToLiveExceeded", "/ui/dead-letters?status=0",
		"/ui/dead-letters?eventType=Shop.Closed", "/ui/dead-letters/redeliver", "/ui/dead-letters/purge",
		"/ui/operations", "/ui/topics", "/ui/topics/orders?range=7d", "/ui/subscriptions", "/ui/subscriptions?hold=any",
		"/ui/subscriptions/orders/billing", "/ui/subscriptions/orders/billing?range=7d", "/ui/policies", "/ui/jobs",
		"/ui/storage", "/ui/audit", "/ui/events?within=1h", "/ui/events?order=oldest", "/ui/deliveries?within=1h",
		"/ui/deliveries?within=7d", "/ui/deliveries?order=oldest", "/ui/dead-letters?order=oldest", "/ui/audit?within=24h",
		"/ui/search?q=order-42", "/ui/search?q=42", "/ui/search?q=zz",
	}
	for path, query := range map[string]string{
		"/ui/events/%s":       "SELECT id FROM postrider_internal.events ORDER BY id DESC OFFSET 1000 LIMIT 1",
		"/ui/deliveries/%s":   "SELECT id FROM postrider_internal.delivery_history WHERE attempts = 2 ORDER BY id LIMIT 1",
		"/ui/dead-letters/%s": "SELECT id FROM postrider_internal.dead_letters ORDER BY dead_lettered_at LIMIT 1",
		"/ui/events?before=%s": "SELECT to_json(id) FROM postrider_internal.events WHERE day = (SELECT min(day) " +
			"FROM postrider_internal.events) ORDER BY id DESC LIMIT 1",
		"/ui/deliveries?state=dropped&before=%s": `SELECT format('{"SystemID":"00000000-0000-0000-0000-000000000000",` +
			`"DeliveryID":%s}', max(id) / 10) FROM postrider_internal.delivery_history`,
	} {
		var value string
		require.NoError(b, d.pool.QueryRow(b.Context(), "SELECT ("+query+")::text").Scan(&value))
		if strings.Contains(path, "before=") {
			value = base64.RawURLEncoding.EncodeToString([]byte(value))
		}
		pages = append(pages, fmt.Sprintf(path, value))
	}
	for _, path := range pages {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				require.Less(b, d.request(http.MethodGet, path).Code, http.StatusBadRequest)
			}
		})
	}
}
