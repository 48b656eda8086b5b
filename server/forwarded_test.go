package server_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/server"
	"postrider/server/auth"
)

// trust makes the addresses of a range those of trusted proxies.
func trust(prefix string) func(*server.Options) {
	return func(o *server.Options) { o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(prefix)} }
}

// Only a trusted proxy reports the scheme of a request, which validationUrl begins with. The host is always the
// request's, unless the operator has set the public URL.
func TestForwardedSchemeOfTrustedProxies(t *testing.T) {
	t.Parallel()
	node := setup(t)
	node.topic("orders", "")
	public := func(o *server.Options) { o.PublicURL = "https://events.example.com/bus" }
	written := func(o *server.Options) { o.ForwardedHeader = auth.Forwarded }
	const hops = "for=203.0.113.7;proto=http, for=203.0.113.8;proto=https"
	https := []string{
		"X-Forwarded-Proto", "https", "X-Forwarded-Protocol", "https", "X-Forwarded-Ssl", "on", "X-Url-Scheme", "https",
		"X-Forwarded-Host", "evil.example.com", "X-Forwarded-For", "203.0.113.7",
	}
	type options = []func(*server.Options)
	for name, row := range map[string]struct {
		headers []string
		change  options
		base    string // "http" and "https": with the request's host
	}{
		"the public URL":                   {https, options{public, trust("127.0.0.0/8")}, "https://events.example.com/bus"},
		"no trusted proxies":               {https, nil, "http"},
		"a peer that is none":              {https, options{trust("10.0.0.0/8")}, "http"},
		"a trusted proxy":                  {https, options{trust("127.0.0.0/8")}, "https"},
		"one that writes Forwarded":        {https, options{trust("127.0.0.0/8"), written}, "http"},
		"Forwarded of a trusted proxy":     {[]string{"Forwarded", hops}, options{trust("127.0.0.0/8"), written}, "https"},
		"Forwarded of a peer that is none": {[]string{"Forwarded", hops}, options{trust("10.0.0.0/8"), written}, "http"},
		"a client's word before a proxy's": {
			[]string{"Forwarded", "proto=https, for=203.0.113.8;proto=http"}, options{trust("127.0.0.0/8"), written}, "http",
		},
	} {
		s := node.with(append(row.change, func(o *server.Options) { o.DefaultValidation = nil })...)
		s.send(http.MethodPut, billing, `{"endpointUrl":"https://example.com/"}`, append([]string{
			"Authorization", "Bearer " + adminToken, "Content-Type", "application/json",
		}, row.headers...)...).is(201)
		base := s.rows("SELECT public_url FROM postrider.handshakes WHERE current")[0]["public_url"]
		if !strings.Contains(row.base, ":") {
			row.base += strings.TrimPrefix(s.url, "http")
		}
		require.Equal(t, row.base, base, name)
		s.delete(billing).is(204)
	}
}

// Only trusted proxies can report the address of a client, which the audit then has.
func TestAddressOfTheClient(t *testing.T) {
	t.Parallel()
	node := setup(t)
	node.topic("orders", "")
	address := func(s *service) any {
		s.send(http.MethodPost, "/v1/topics/orders/listKeys", "", "Authorization", "Bearer "+adminToken, "X-Forwarded-For",
			"203.0.113.7, 198.51.100.1", "Forwarded", "for=203.0.113.7", "X-Real-Ip", "203.0.113.7").is(200)
		return s.rows("SELECT address FROM postrider.audit ORDER BY audit_id DESC LIMIT 1")[0]["address"]
	}
	require.Equal(t, "127.0.0.1", address(node))
	require.Equal(t, "127.0.0.1", address(node.with(trust("10.0.0.0/8"))))
	require.Equal(t, "198.51.100.1", address(node.with(trust("127.0.0.0/8"))))
}
