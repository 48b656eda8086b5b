package web_test

import (
	"flag"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

var benchDeliveries = flag.Int("deliveries", 100_000, "how many `deliveries` the database of BenchmarkPages has")

// benchPages have filters that match many, few and no rows. Searches without a match take the longest.
var benchPages = []string{
	"/ui/", "/ui/?range=24h", "/ui/?range=7d", "/ui/problems?within=1h", "/ui/problems", "/ui/problems?within=7d",
	"/ui/events", "/ui/events?topic=vouchers", "/ui/events?event=order-42", "/ui/events?unmatched=1",
	"/ui/events?type=Shop.Closed", "/ui/events?subject=/people/", "/ui/events?within=1h", "/ui/events?order=oldest",
	"/ui/deliveries", "/ui/deliveries?topic=orders", "/ui/deliveries?topic=vouchers&subscription=mail",
	"/ui/deliveries?state=pending", "/ui/deliveries?state=dropped", "/ui/deliveries?outcome=TimedOut",
	"/ui/deliveries?topic=orders&subscription=billing&outcome=TimedOut", "/ui/deliveries?order=oldest",
	"/ui/deliveries?within=7d", "/ui/deliveries/1", "/ui/batches", "/ui/dead-letters", "/ui/dead-letters?topic=orders",
	"/ui/dead-letters?reason=TimeToLiveExceeded", "/ui/dead-letters?order=oldest", "/ui/operations", "/ui/topics",
	"/ui/topics/orders?range=7d", "/ui/subscriptions", "/ui/subscriptions?hold=any", "/ui/subscriptions/orders/billing",
	"/ui/subscriptions/orders/billing?range=7d", "/ui/policies", "/ui/jobs", "/ui/storage", "/ui/audit",
	"/ui/search?q=42", "/ui/search?q=zz",
}

// BenchmarkPages is how long pages of the dashboard take.
func BenchmarkPages(b *testing.B) {
	d := setup(b)
	require.NoError(b, testnode.FillWeek(b.Context(), d.Pool, *benchDeliveries))
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(b, err)
	_, err = d.Pool.Exec(b.Context(), "UPDATE postrider_internal.event_subscriptions SET secrets_sealed = $1",
		sealer.Seal("event_subscriptions.secrets_sealed", `{"endpointUrl":"https://example.com/"}`))
	require.NoError(b, err)
	require.NoError(b, d.System.Cache.Reload(b.Context()))
	for _, path := range benchPages {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				require.Equal(b, http.StatusOK, d.request(http.MethodGet, path).Code)
			}
		})
	}
}
