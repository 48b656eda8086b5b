package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/server"
)

// selfSigned is a certificate with its key, in PEM, as JSON strings.
func selfSigned(t *testing.T) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	quoted := func(kind string, der []byte) string {
		text, _ := json.Marshal(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
		return string(text)
	}
	return quoted("CERTIFICATE", der), quoted("PRIVATE KEY", secret)
}

// Settings of the connection come back without their secrets, are kept by who puts or patches without them, and go
// nowhere else.
func TestConnectionRoundTrip(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	cert, key := selfSigned(t)
	shown := `"endpointUrl":"https://example.com/in","minimumTlsVersionAllowed":"1.3","certificateAuthorities":` + cert +
		`,"clientCertificate":{"certificate":` + cert
	oauth := `,"oauth2":{"tokenUrl":"https://login.example.com/token","clientId":"shop","scope":"orders"`
	s.put(billing, "{"+shown+`}`+oauth+`}}`).rejected(400, "InvalidRequest")
	made := s.put(billing, "{"+shown+`,"privateKey":`+key+`}`+oauth+`,"clientSecret":"planted-secret"}}`)
	require.Equal(t, map[string]any{"tokenUrl": "https://login.example.com/token", "clientId": "shop", "scope": "orders"},
		made.json(201)["oauth2"])
	requireSecrets := func(want string) {
		sub, err := s.store.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		require.Contains(t, sub.Connection.ClientCertificate.PrivateKey, "PRIVATE KEY")
		require.Equal(t, want, sub.Connection.OAuth2.ClientSecret)
	}
	requireSecrets("planted-secret")
	s.put(billing, "{"+shown+`}`+oauth+`}}`).json(200)
	requireSecrets("planted-secret")
	s.patch(billing, `{"labels":["a"]}`).json(200)
	requireSecrets("planted-secret")
	s.patch(billing, `{"oauth2":{"clientSecret":"planted-other"}}`).json(200)
	requireSecrets("planted-other")

	// Certificates are shown, so a file that also has the key is rejected.
	both, err := json.Marshal(unquoted(t, cert) + unquoted(t, key))
	require.NoError(t, err)
	require.Contains(t, s.patch(billing, `{"clientCertificate":{"certificate":`+string(both)+
		`,"privateKey":`+key+`}}`).rejected(400, "InvalidRequest").Message, "must be certificates and nothing else")

	// A stored secret is not used for another URL or client.
	for _, elsewhere := range []string{
		`{"oauth2":{"tokenUrl":"https://evil.example/token"}}`, `{"oauth2":{"clientId":"other"}}`,
	} {
		require.Contains(t, s.patch(billing, elsewhere).body, "oauth2.clientSecret")
	}
	other, _ := selfSigned(t)
	require.Contains(t, s.patch(billing, `{"clientCertificate":{"certificate":`+other+`}}`).body,
		"its privateKey (PEM, not encrypted)")
	requireSecrets("planted-other")

	for _, page := range []string{billing, "/v1/topics/orders/subscriptions"} {
		body := s.get(page).is(200).body
		require.NotContains(t, body, "planted-", page)
		require.NotContains(t, body, "PRIVATE KEY", page)
	}
	got := s.get(billing).json(200)
	require.Equal(t, "1.3", got["minimumTlsVersionAllowed"])
	require.Contains(t, got["certificateAuthorities"], "BEGIN CERTIFICATE")
	audit := strings.Join(s.audited(), "\n")
	require.Contains(t, audit, `"settings":["oauth2"]`)
	require.Contains(t, audit, `"settings":["certificateAuthorities","clientCertificate","endpointUrl",`+
		`"endpointValidation","minimumTlsVersionAllowed","oauth2"]`)
	require.NotContains(t, audit, "planted-")
	s.patch(billing, `{"oauth2":null,"clientCertificate":null,"certificateAuthorities":null,`+
		`"minimumTlsVersionAllowed":null}`).json(200)
	require.Zero(t, s.count("SELECT count(*) FROM postrider_internal.event_subscriptions "+
		"WHERE settings::text ~ 'oauth2|ertificate|Tls'"))
}

func TestConnectionMistakes(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	cert, key := selfSigned(t)
	other, _ := selfSigned(t)
	for settings, problem := range map[string]string{
		`"minimumTlsVersionAllowed":"1.1"`: "TLS 1.1 is withdrawn (RFC 8996)",
		`"minimumTlsVersionAllowed":"9"`:   "must be 1.2 or 1.3",
		`"certificateAuthorities":"x"`:     "must be one or more certificates in PEM",
		`"certificateAuthorities":` + key:  "must be certificates and nothing else",
		`"certificateAuthorities":"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"`: "number 1 cannot be read",
		`"clientCertificate":{"certificate":` + other + `,"privateKey":` + key + `}`:              "and its privateKey",
		`"clientCertificate":{"certificate":` + cert + `}`:                                        "none is stored",
		`"oauth2":{"tokenUrl":"https://169.254.169.254/","clientId":"a","clientSecret":"b"}`:      "cloud metadata",
		`"oauth2":{"tokenUrl":"https://a.example/?b=c","clientId":"a","clientSecret":"b"}`:        "must have no query",
		`"oauth2":{"tokenUrl":"http://a.example/","clientId":"a","clientSecret":"planted"}`: "must be https: the " +
			"client secret is sent there",
		`"oauth2":{"tokenUrl":"https://a.example/","clientId":"","clientSecret":"b"}`: "oauth2.clientId",
		`"oauth2":{"tokenUrl":"https://a.example/","clientId":"a\r\n","clientSecret":"planted"}`: "must have no control " +
			"characters",
		`"oauth2":{"tokenUrl":"https://a.example/","clientId":"a"}`:     "none is stored for this tokenUrl and clientId",
		`"oauth2":{"tokenUrl":"https://a.example/","clientSecret":"b"}`: "oauth2.clientId",
	} {
		rejected := s.put(billing, `{"endpointUrl":"https://example.com",`+settings+`}`)
		require.Equal(t, http.StatusBadRequest, rejected.status, settings)
		require.Contains(t, rejected.body, problem, settings)
		require.NotContains(t, rejected.body, "planted")
	}
}

// Without TLS only networks that were opened may be named, unless the operator allows more.
func TestPlainHTTPEndpoints(t *testing.T) {
	t.Parallel()
	closed := setup(t)
	closed.topic("orders", "")
	opened := closed.with(func(o *server.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	allowing := closed.with(func(o *server.Options) { o.AllowHTTP = true })
	for _, row := range []struct {
		server    *service
		url, says string // "" = accepted
	}{
		{closed, "http://example.com/", "must be https"},
		{closed, "http://8.8.8.8/", "must be https"},
		{closed, "https://example.com/", ""},
		{opened, "http://10.1.2.3/", ""},
		{opened, "http://billing.internal/", ""}, // a name is checked when it is called
		{opened, "http://8.8.8.8/", "must be https"},
		{opened, `http://10.1.2.3/","minimumTlsVersionAllowed":"1.3`, "must be https if"},
		{allowing, "http://example.com/", ""},
		{allowing, "http://127.0.0.1/", "loopback"},
		{allowing, "http://0x7f.1/", "four decimal numbers"},
	} {
		response := row.server.put(billing, `{"endpointUrl":"`+row.url+`"}`)
		require.Equal(t, row.says == "", response.status < 300, "%s: %s", row.url, response.body)
		require.Contains(t, response.body, row.says, row.url)
	}
}

func unquoted(t *testing.T, text string) (value string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &value))
	return value
}
