package endpointconf

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"postrider/internal/filter"
)

// TLSVersion is the lowest version of TLS that an endpoint may use, as Event Grid's minimumTlsVersionAllowed has it.
type TLSVersion string

// The versions. Event Grid also knows 1.0 and 1.1, which are withdrawn (RFC 8996) and rejected here.
const (
	TLS12 TLSVersion = "1.2"
	TLS13 TLSVersion = "1.3"
)

// Number is the version's number in crypto/tls; TLS 1.2 for "".
func (v TLSVersion) Number() uint16 {
	if v == TLS13 {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// Connection has the settings of connections to an endpoint beyond its URL: certificates and credentials.
type Connection struct {
	// MinimumTLSVersion is "" for TLS 1.2.
	MinimumTLSVersion TLSVersion `json:"minimumTlsVersionAllowed,omitempty" minLength:"1"`
	// CertificateAuthorities are PEM certificates. One of them must have issued the endpoint's; "" = those that the system
	// trusts.
	CertificateAuthorities string `json:"certificateAuthorities,omitempty"`
	// Client certificate for the endpoint; by default none.
	ClientCertificate *ClientCertificate `json:"clientCertificate,omitempty"`
	// OAuth credentials for an access token in deliveries; by default none.
	OAuth2 *OAuth2 `json:"oauth2,omitempty"`
}

// ClientCertificate is a client certificate for the endpoint.
type ClientCertificate struct {
	// Certificate is PEM, followed by its chain.
	Certificate string `json:"certificate"`
	// PrivateKey is PEM and a secret. "" means the stored one, see KeepConnectionSecrets.
	PrivateKey string `json:"privateKey,omitempty"`
}

// OAuth2 are OAuth client credentials. The client secret is never shown.
//
// Source: RFC 6749, 4.4.
type OAuth2 struct {
	TokenURL string `json:"tokenUrl"`
	ClientID string `json:"clientId"`
	// ClientSecret is a secret. "" means the stored one, see KeepConnectionSecrets.
	ClientSecret string `json:"clientSecret,omitempty"`
	Scope        string `json:"scope,omitempty"`
}

// DefaultTLS reports whether the TLS settings are those of every connection.
func (c *Connection) DefaultTLS() bool {
	return c.MinimumTLSVersion.Number() == tls.VersionTLS12 && c.CertificateAuthorities == "" && c.ClientCertificate == nil
}

// WithoutSecrets returns what may be shown.
func (c *Connection) WithoutSecrets() Connection {
	open := *c
	if c.ClientCertificate != nil {
		open.ClientCertificate = &ClientCertificate{Certificate: c.ClientCertificate.Certificate}
	}
	if c.OAuth2 != nil {
		shown := *c.OAuth2
		shown.ClientSecret = ""
		open.OAuth2 = &shown
	}
	return open
}

// KeepConnectionSecrets replaces each secret that was left out by the stored one, so that what was read can be written
// back. A client secret is kept only with the same token URL and client: otherwise a user who does not know it could
// have it sent to an address of their choice. *ValidationError if nothing is stored.
func KeepConnectionSecrets(given Connection, stored *Connection) (Connection, error) {
	if c := given.ClientCertificate; c != nil && c.PrivateKey == "" {
		if stored == nil || stored.ClientCertificate == nil {
			return given, invalid("clientCertificate.privateKey", "is required: none is stored")
		}
		given.ClientCertificate = &ClientCertificate{
			Certificate: c.Certificate, PrivateKey: stored.ClientCertificate.PrivateKey,
		}
		// Another request may have replaced the stored key since this one was checked.
		if problem := given.ClientCertificate.problem(); problem != "" {
			return given, invalid("clientCertificate", problem)
		}
	}
	if o := given.OAuth2; o != nil && o.ClientSecret == "" {
		if stored == nil || stored.OAuth2 == nil || stored.OAuth2.TokenURL != o.TokenURL ||
			stored.OAuth2.ClientID != o.ClientID {
			return given, invalid("oauth2.clientSecret",
				"is required: none is stored for this tokenUrl and clientId")
		}
		kept := *o
		kept.ClientSecret = stored.OAuth2.ClientSecret
		given.OAuth2 = &kept
	}
	return given, nil
}

// Mistakes lists what is wrong with c, its secrets filled in, for this endpoint; package spec has the lengths
// and choices. allow are the opened address ranges. No message repeats a secret.
func (c *Connection) Mistakes(endpoint *url.URL, allow []netip.Prefix) (found []filter.ValidationError) {
	add := func(field, format string, args ...any) {
		found = append(found, filter.ValidationError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if v := c.MinimumTLSVersion; v == "1.0" || v == "1.1" {
		add("minimumTlsVersionAllowed", "must be %s or %s: TLS %s is withdrawn (RFC 8996)", TLS12, TLS13, v)
	}
	if endpoint != nil && endpoint.Scheme != "https" && !c.DefaultTLS() {
		add("endpointUrl", "must be https if minimumTlsVersionAllowed, certificateAuthorities or clientCertificate is set")
	}
	if c.CertificateAuthorities != "" {
		if problem := certificatesProblem(c.CertificateAuthorities); problem != "" {
			add("certificateAuthorities", "%s", problem)
		}
	}
	if c.ClientCertificate != nil {
		if problem := c.ClientCertificate.problem(); problem != "" {
			add("clientCertificate", "%s", problem)
		}
	}
	if c.OAuth2 != nil {
		if u, err := EndpointURL(c.OAuth2.TokenURL, allow); err != nil {
			add("oauth2.tokenUrl", "%s", strings.TrimPrefix(err.Error(), endpointField+": "))
		} else if u.RawQuery != "" || u.ForceQuery {
			add("oauth2.tokenUrl", "must have no query, which reads would show")
		}
		for _, text := range []struct {
			field, value string
			required     bool
		}{
			{"oauth2.clientId", c.OAuth2.ClientID, true},
			{"oauth2.clientSecret", c.OAuth2.ClientSecret, true},
			{"oauth2.scope", c.OAuth2.Scope, false},
		} {
			if text.required && text.value == "" {
				add(text.field, "is required")
			} else if strings.ContainsFunc(text.value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
				add(text.field, "must have no control characters")
			}
		}
	}
	return found
}

// certificatesProblem checks every block: x509's reader skips those that it cannot read, and a private key among them
// would be stored and shown like the certificates.
func certificatesProblem(text string) string {
	rest, count := bytes.TrimSpace([]byte(text)), 0
	for ; len(rest) > 0; count++ {
		block, after := pem.Decode(rest)
		if block == nil || !bytes.HasPrefix(rest, pemBegin) || bytes.Count(rest[:len(rest)-len(after)], pemBegin) != 1 {
			break
		}
		if block.Type != "CERTIFICATE" {
			return "must be certificates and nothing else"
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Sprintf("must be certificates: number %d cannot be read", count+1)
		}
		rest = bytes.TrimSpace(after)
	}
	if count == 0 || len(rest) > 0 {
		return "must be one or more certificates in PEM and nothing else"
	}
	return ""
}

var pemBegin = []byte("-----BEGIN ")

// problem does not repeat the error of crypto/tls, which may quote a key.
func (c *ClientCertificate) problem() string {
	if problem := certificatesProblem(c.Certificate); problem != "" {
		return "certificate " + problem
	}
	if _, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey)); err != nil {
		return "must have a certificate (PEM, with its chain) and its privateKey (PEM, not encrypted)"
	}
	return ""
}

// String leaves out secrets, for errors and logs.
func (c Connection) String() string {
	text, _ := json.Marshal(c.WithoutSecrets()) // cannot fail for strings
	return string(text)
}
