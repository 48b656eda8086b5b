package endpointconf_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"postrider/internal/endpointconf"
)

// FuzzConnection: checks do not panic, and no message repeats a secret.
func FuzzConnection(f *testing.F) {
	const certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	f.Add("1.3", certificate, certificate, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
		"https://a.example/t", "id", "pl4nted-secret", "s")
	f.Add("1.0", "x", certificate+certificate, "", "http://127.0.0.1", "\x00", "pl4nted-secret\r\n", "é")
	endpoint, _ := url.Parse("https://example.com/")
	f.Fuzz(func(t *testing.T, version, authorities, certificate, key, tokenURL, id, secret, scope string) {
		c := endpointconf.Connection{MinimumTLSVersion: endpointconf.TLSVersion(version), CertificateAuthorities: authorities}
		if certificate != "" {
			c.ClientCertificate = &endpointconf.ClientCertificate{Certificate: certificate, PrivateKey: key}
		}
		if tokenURL != "" {
			c.OAuth2 = &endpointconf.OAuth2{TokenURL: tokenURL, ClientID: id, ClientSecret: secret, Scope: scope}
		}
		mistakes := c.Mistakes(endpoint, nil)
		for _, m := range mistakes {
			require.NotContains(t, m.Error(), "pl4nted", "no message has the secret of the seeds")
		}
		require.Empty(t, secretsOf(c.WithoutSecrets()))
		kept, err := endpointconf.KeepConnectionSecrets(c, &c)
		if err == nil {
			require.Equal(t, c, kept)
		}
	})
}

func secretsOf(c endpointconf.Connection) (secrets string) {
	if c.ClientCertificate != nil {
		secrets += c.ClientCertificate.PrivateKey
	}
	if c.OAuth2 != nil {
		secrets += c.OAuth2.ClientSecret
	}
	return secrets
}

// FuzzParseSigningSecret: accepted secrets are formatted as text that parses to the same.
func FuzzParseSigningSecret(f *testing.F) {
	for _, text := range []string{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!",
		"whsec_" + strings.Repeat("A", 200),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := endpointconf.ParseSigningSecret(text)
		if err != nil {
			if len(text) > 12 {
				require.NotContains(t, err.Error(), text)
			}
			return
		}
		again, err := endpointconf.ParseSigningSecret(endpointconf.SigningSecret{Key: key}.Text())
		require.NoError(t, err)
		require.Equal(t, key, again)
	})
}

// FuzzParseLocation: accepted locations are formatted as text that parses to the same without the query, and stay below
// their directory.
func FuzzParseLocation(f *testing.F) {
	for _, text := range []string{
		"file:///var/letters", "s3://bucket/prefix", "s3://bucket?region=eu-west-1",
		"https://account.blob.core.windows.net/container", "file:///a/../b", "file://host/a", "", "file:///%2e%2e/",
		"file:///a%2520%3F%25",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := endpointconf.ParseLocation(text)
		if err != nil {
			return
		}
		again, err := endpointconf.ParseLocation(l.String())
		require.NoError(t, err, l.String())
		require.NotContains(t, l.String(), "?")
		l.Query = ""
		require.Equal(t, l, again)
		require.NotContains(t, strings.Split(l.String(), "/"), "..")
	})
}

// FuzzRedact: no secret of some length remains in a text.
func FuzzRedact(f *testing.F) {
	f.Add("Bearer pl4nted-token", "you said ", " to me")
	f.Add("pl4nted\"secret", `{"a":"`, `"}`)
	f.Add("aaaaaaaa", "aaa", "aaaaaaaaaaaa")
	f.Fuzz(func(t *testing.T, secret, before, after string) {
		if len(secret) < 8 {
			return
		}
		secrets := (*endpointconf.Secrets)(nil).With(secret)
		require.NotContains(t, strings.ReplaceAll(secrets.Redact(before+secret+after), "***", "\x00"), secret)
	})
}

// FuzzHandshakeResponses: only the exact code or origin is accepted, and no response makes a long message.
func FuzzHandshakeResponses(f *testing.F) {
	const code = "c0de-of-the-test"
	for _, body := range []string{
		"", "{}", `{"validationResponse":"` + code + `"}`, `{"ValidationResponse":"c0d\u0065-of-the-test"}`,
		`{"validationResponse":"other","validationResponse":"` + code + `"}`, `{"validationResponse":1}`, "\ufeff{}", "[]",
	} {
		f.Add(200, []byte(body), "*")
	}
	f.Fuzz(func(t *testing.T, status int, body []byte, origin string) {
		a := endpointconf.HandshakeResponse{
			Status: status, Body: body, AllowedOrigin: []string{origin}, AllowedRate: []string{origin},
		}
		outcome, why := endpointconf.HandshakeByCode(a, code)
		require.NotEmpty(t, why)
		if outcome == endpointconf.HandshakeAccepted {
			var members map[string]any
			require.Equal(t, 200, status)
			require.NoError(t, json.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &members))
			require.Contains(t, slices.Collect(maps.Values(members)), any(code))
		}
		outcome, why = endpointconf.HandshakeByOrigin(a, "events.example.com", true)
		require.True(t, utf8.ValidString(why) && len(why) < 1000, "%q", why)
		allowed := strings.TrimSpace(origin)
		require.Equal(t, allowed == "*" || strings.EqualFold(allowed, "events.example.com"),
			outcome == endpointconf.HandshakeAccepted)
	})
}
