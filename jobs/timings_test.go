package jobs_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
)

// The phases of an attempt add up to at most its duration, also on a reused connection.
func TestPhasesAddUpToTheAttempt(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	trusted := newAuthority(t)
	e := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	e.TLS = trusted.server(t)
	e.StartTLS()
	t.Cleanup(e.Close)
	subscribe(t, tn, "all", e.URL, func(s *catalog.SubscriptionSpec) {
		s.Connection = endpointconf.Connection{CertificateAuthorities: trusted.pem}
	})
	tn.Start(t)
	for range 3 {
		publishOne(t, tn, "1")
		require.Equal(t, http.StatusOK, tn.Attempt(t).Result.Status)
	}
	const attempts = "SELECT count(*) FROM postrider.delivery_attempts WHERE "
	require.Equal(t, 1, tn.Count(t, attempts+"connect_ms > 0 AND tls_ms > 0 AND first_byte_ms > 0"))
	require.Equal(t, 2, tn.Count(t, attempts+"connect_ms IS NULL AND tls_ms IS NULL AND first_byte_ms > 0"))
	require.Equal(t, 3, tn.Count(t, attempts+
		"coalesce(dns_ms, 0) + coalesce(connect_ms, 0) + coalesce(tls_ms, 0) + first_byte_ms <= duration_ms"))
	require.Equal(t, 3, tn.Count(t, attempts+
		"scale(duration_ms) = 3 AND scale(first_byte_ms) = 3 AND scale(waited_ms::numeric) <= 3"))
}
