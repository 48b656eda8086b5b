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
	"os"
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
	b := setup(t)
	b.topic("orders", "")
	const path = "/v1/topics/orders/subscriptions/billing"
	cert, key := selfSigned(t)
	shown := `"endpointUrl":"https://example.com/in","minimumTlsVersionAllowed":"1.3","certificateAuthorities":` + cert +
		`,"clientCertificate":{"certificate":` + cert
	oauth := `,"oauth2":{"tokenUrl":"https://login.example.com/token","clientId":"shop","scope":"orders"`
	b.manage(http.MethodPut, path, "{"+shown+`}`+oauth+`}}`).rejected(400, "InvalidRequest")
	made := b.manage(http.MethodPut, path, "{"+shown+`,"privateKey":`+key+`}`+oauth+`,"clientSecret":"planted-secret"}}`)
	require.Equal(t, map[string]any{"tokenUrl": "https://login.example.com/token", "clientId": "shop", "scope": "orders"},
		made.json(http.StatusCreated)["oauth2"])
	stored := func() (privateKey, secret string) {
		sub, err := b.store.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		return sub.Connection.ClientCertificate.PrivateKey, sub.Connection.OAuth2.ClientSecret
	}
	requireSecrets := func(want string) {
		privateKey, secret := stored()
		require.Contains(t, privateKey, "PRIVATE KEY")
		require.Equal(t, want, secret)
	}
	requireSecrets("planted-secret")
	b.manage(http.MethodPut, path, "{"+shown+`}`+oauth+`}}`).json(http.StatusOK)
	requireSecrets("planted-secret")
	b.manage(http.MethodPatch, path, `{"labels":["a"]}`).json(http.StatusOK)
	requireSecrets("planted-secret")
	b.manage(http.MethodPatch, path, `{"oauth2":{"clientSecret":"planted-other"}}`).json(http.StatusOK)
	requireSecrets("planted-other")

	// Certificates are shown, so a file that also has the key is rejected.
	both, err := json.Marshal(unquoted(t, cert) + unquoted(t, key))
	require.NoError(t, err)
	require.Contains(t, b.manage(http.MethodPatch, path, `{"clientCertificate":{"certificate":`+string(both)+
		`,"privateKey":`+key+`}}`).rejected(400, "InvalidRequest").Message, "must be certificates and nothing else")

	// A stored secret is not used for another URL or client.
	for _, elsewhere := range []string{
		`{"oauth2":{"tokenUrl":"https://evil.example/token"}}`, `{"oauth2":{"clientId":"other"}}`,
	} {
		require.Contains(t, b.manage(http.MethodPatch, path, elsewhere).body, "oauth2.clientSecret")
	}
	other, _ := selfSigned(t)
	require.Contains(t, b.manage(http.MethodPatch, path, `{"clientCertificate":{"certificate":`+other+`}}`).body,
		"its privateKey (PEM, not encrypted)")
	requireSecrets("planted-other")

	for _, page := range []string{path, "/v1/topics/orders/subscriptions"} {
		body := b.manage(http.MethodGet, page, "").body
		require.NotContains(t, body, "planted-", page)
		require.NotContains(t, body, "PRIVATE KEY", page)
	}
	got := b.manage(http.MethodGet, path, "").json(http.StatusOK)
	require.Equal(t, "1.3", got["minimumTlsVersionAllowed"])
	require.Contains(t, got["certificateAuthorities"], "BEGIN CERTIFICATE")
	audit := strings.Join(b.audited(), "\n")
	require.Contains(t, audit, `"settings":["oauth2"]`)
	require.Contains(t, audit, `"settings":["certificateAuthorities","clientCertificate","endpointUrl",`+
		`"endpointValidation","minimumTlsVersionAllowed","oauth2"]`)
	require.NotContains(t, audit, "planted-")
	b.manage(http.MethodPatch, path, `{"oauth2":null,"clientCertificate":null,"certificateAuthorities":null,`+
		`"minimumTlsVersionAllowed":null}`).json(http.StatusOK)
	var rest int
	require.NoError(t,
		b.store.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM postrider_internal.event_subscriptions "+
			"WHERE settings::text ~ 'oauth2|ertificate|Tls'").Scan(&rest))
	require.Zero(t, rest)
}

func TestConnectionMistakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
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
		rejected := b.manage(http.MethodPut, "/v1/topics/orders/subscriptions/billing",
			`{"endpointUrl":"https://example.com",`+settings+`}`)
		require.Equal(t, http.StatusBadRequest, rejected.status, settings)
		require.Contains(t, rejected.body, problem, settings)
		require.NotContains(t, rejected.body, "planted")
	}
}

// Without TLS only networks that were opened may be named, unless the operator allows more.
func TestPlainHTTPEndpoints(t *testing.T) {
	t.Parallel()
	const path = "/v1/topics/orders/subscriptions/"
	put := func(b *bundle, name, url string) response {
		return b.manage(http.MethodPut, path+name, `{"endpointUrl":"`+url+`"}`)
	}
	closed := setup(t)
	closed.topic("orders", "")
	require.Contains(t, put(closed, "name", "http://example.com/").body, "must be https")
	require.Contains(t, put(closed, "literal", "http://8.8.8.8/").body, "must be https")
	require.Equal(t, http.StatusCreated, put(closed, "secure", "https://example.com/").status)

	opened := setup(t, func(o *server.Options) { o.AllowCIDR = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	opened.topic("orders", "")
	require.Equal(t, http.StatusCreated, put(opened, "literal", "http://10.1.2.3/").status)
	require.Equal(t, http.StatusCreated, put(opened, "name", "http://billing.internal/").status,
		"a name is checked when it is called")
	require.Contains(t, put(opened, "public", "http://8.8.8.8/").body, "must be https")
	require.Contains(t, put(opened, "tls", `http://10.1.2.3/","minimumTlsVersionAllowed":"1.3`).body,
		"must be https if")

	allowing := setup(t, func(o *server.Options) { o.AllowHTTP = true })
	allowing.topic("orders", "")
	require.Equal(t, http.StatusCreated, put(allowing, "name", "http://example.com/").status)
	require.Contains(t, put(allowing, "inside", "http://127.0.0.1/").body, "loopback")
}

// A disguised URL is rejected when it is stored: as an endpoint, and as a token server.
func TestRejectedEndpointsAreNotStored(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *server.Options) { o.AllowHTTP = true })
	b.topic("orders", "")
	text, err := os.ReadFile("../internal/endpointconf/testdata/rejected-endpoints.txt")
	require.NoError(t, err)
	const path = "/v1/topics/orders/subscriptions/billing"
	put := 0
	for line := range strings.Lines(strings.ReplaceAll(string(text), "{port}", "8080")) {
		raw, says, found := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !found {
			continue
		}
		put++
		quoted, err := json.Marshal(raw)
		require.NoError(t, err)
		rejected := b.manage(http.MethodPut, path, `{"endpointUrl":`+string(quoted)+`}`).
			rejected(http.StatusBadRequest, "InvalidRequest")
		require.Equal(t, "endpointUrl", rejected.Details[0].Target, raw)
		require.Contains(t, rejected.Details[0].Message, says, raw)
		rejected = b.manage(http.MethodPut, path,
			`{"endpointUrl":"https://example.com/","oauth2":{"clientId":"a","clientSecret":"b","tokenUrl":`+string(quoted)+`}}`).
			rejected(http.StatusBadRequest, "InvalidRequest")
		require.Equal(t, "oauth2.tokenUrl", rejected.Details[0].Target, raw)
		require.Contains(t, rejected.Details[0].Message, says, raw)
	}
	require.Greater(t, put, 100)
	require.Empty(t, b.rows("SELECT FROM postrider.event_subscriptions"))
}

func unquoted(t *testing.T, text string) (value string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &value))
	return value
}
