package server_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
	"postrider/server/auth"
)

// Only a trusted proxy reports the scheme of a request, which validationUrl begins with. The host is always the
// request's.
func TestForwardedSchemeOfTrustedProxies(t *testing.T) {
	t.Parallel()
	trust := func(prefix string) func(*server.Options) {
		return func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(prefix)} }
	}
	written := func(o *server.Options) { o.ForwardedHeader = auth.Forwarded }
	const hops = "for=203.0.113.7;proto=http, for=203.0.113.8;proto=https"
	https := []string{
		"X-Forwarded-Proto", "https", "X-Forwarded-Protocol", "https", "X-Forwarded-Ssl", "on", "X-Url-Scheme", "https",
		"X-Forwarded-Host", "evil.example.com", "X-Forwarded-For", "203.0.113.7",
	}
	for name, row := range map[string]struct {
		headers []string
		change  []func(*server.Options)
		scheme  string
	}{
		"no trusted proxies":        {https, nil, "http"},
		"a peer that is none":       {https, []func(*server.Options){trust("10.0.0.0/8")}, "http"},
		"a trusted proxy":           {https, []func(*server.Options){trust("127.0.0.0/8")}, "https"},
		"one that writes Forwarded": {https, []func(*server.Options){trust("127.0.0.0/8"), written}, "http"},
		"Forwarded of a trusted proxy": {
			[]string{"Forwarded", hops}, []func(*server.Options){trust("127.0.0.0/8"), written}, "https",
		},
		"Forwarded of a peer that is none": {
			[]string{"Forwarded", "for=203.0.113.7;proto=https"}, []func(*server.Options){trust("10.0.0.0/8"), written}, "http",
		},
		"a client's word before a proxy's": {
			[]string{"Forwarded", "proto=https, for=203.0.113.8;proto=http"},
			[]func(*server.Options){trust("127.0.0.0/8"), written},
			"http",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, append(row.change, func(o *server.Options) { o.DefaultValidation = nil })...)
			b.topic("orders", "")
			headers := append([]string{"Authorization", "Bearer " + adminToken, "Content-Type", "application/json"},
				row.headers...)
			b.send(http.MethodPut, "/v1/topics/orders/subscriptions/billing", `{"endpointUrl":"https://example.com/"}`,
				headers...)
			base := b.rows("SELECT public_url FROM postrider.handshakes")[0]["public_url"].(string)
			require.Equal(t, row.scheme+b.url[len("http"):], base)
		})
	}
}
