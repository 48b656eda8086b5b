package policy

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
)

// TLSVersion is the least version of TLS that an endpoint may speak, spelled as Event Grid's minimumTlsVersionAllowed
// is.
type TLSVersion string

// The versions. Event Grid knows 1.0 and 1.1 as well; both are withdrawn (RFC 8996) and refused here.
const (
	TLS12 TLSVersion = "1.2"
	TLS13 TLSVersion = "1.3"
)

// Number is the version as crypto/tls counts; TLS 1.2 for "".
func (v TLSVersion) Number() uint16 {
	if v == TLS13 {
		return tls.VersionTLS13
	}
	return tls.VersionTLS12
}

// Connection is how an endpoint is connected to beyond its URL: whom it must be certified by, and how postrider shows
// who it is.
type Connection struct {
	// MinimumTLSVersion is "" for TLS 1.2.
	MinimumTLSVersion TLSVersion `json:"minimumTlsVersionAllowed,omitempty" minLength:"1"`
	// CertificateAuthorities are PEM certificates. The endpoint's must come from one of them; "" = from one that the
	// system trusts.
	CertificateAuthorities string `json:"certificateAuthorities,omitempty"`
	// ClientCertificate is shown to endpoints that ask for one; nil = none.
	ClientCertificate *ClientCertificate `json:"clientCertificate,omitempty"`
	// OAuth2 gets a token for each request; nil = none is sent.
	OAuth2 *OAuth2 `json:"oauth2,omitempty"`
}

// ClientCertificate is postrider's own certificate at an endpoint.
type ClientCertificate struct {
	// Certificate is PEM, its chain below it.
	Certificate string `json:"certificate"`
	// PrivateKey is PEM and a secret. "" stands for the one that is stored already, see KeepConnectionSecrets.
	PrivateKey string `json:"privateKey,omitempty"`
}

// OAuth2 are client credentials (RFC 6749, 4.4).
type OAuth2 struct {
	TokenURL string `json:"tokenUrl"`
	ClientID string `json:"clientId"`
	// ClientSecret is a secret. "" stands for the one that is stored already, see KeepConnectionSecrets.
	ClientSecret string `json:"clientSecret,omitempty"`
	Scope        string `json:"scope,omitempty"`
}

// DefaultTLS says whether it asks for nothing that every connection is not.
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

// KeepConnectionSecrets gives each secret that was left out the one that is stored, so that what was read can be put
// back. A client secret stays with its token URL and its client: it must not be sent to an address that somebody names
// who does not know it. *ValidationError where there is nothing to keep.
func KeepConnectionSecrets(given Connection, stored *Connection) (Connection, error) {
	if c := given.ClientCertificate; c != nil && c.PrivateKey == "" {
		if stored == nil || stored.ClientCertificate == nil {
			return given, invalid("clientCertificate.privateKey", "is required: none is stored that could be kept")
		}
		given.ClientCertificate = &ClientCertificate{
			Certificate: c.Certificate, PrivateKey: stored.ClientCertificate.PrivateKey,
		}
		// The stored key may be another one than when the request was checked.
		if problem := given.ClientCertificate.problem(); problem != "" {
			return given, invalid("clientCertificate", problem)
		}
	}
	if o := given.OAuth2; o != nil && o.ClientSecret == "" {
		if stored == nil || stored.OAuth2 == nil || stored.OAuth2.TokenURL != o.TokenURL ||
			stored.OAuth2.ClientID != o.ClientID {
			return given, invalid("oauth2.clientSecret",
				"is required: none is stored for this tokenUrl and clientId that could be kept")
		}
		kept := *o
		kept.ClientSecret = stored.OAuth2.ClientSecret
		given.OAuth2 = &kept
	}
	return given, nil
}

// Limits of the settings, in bytes: what real ones need several times over.
const (
	maxCertificateBytes = 64 << 10
	maxOAuthText        = 4096
)

// Mistakes names what is wrong with it for this endpoint, its secrets filled in. allow are the ranges that endpoints
// may be in. No message repeats a secret.
func (c *Connection) Mistakes(endpoint *url.URL, allow []netip.Prefix) (found []ValidationError) {
	say := func(field, format string, args ...any) {
		found = append(found, ValidationError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	switch c.MinimumTLSVersion {
	case "", TLS12, TLS13:
	case "1.0", "1.1":
		say("minimumTlsVersionAllowed", "must be %s or %s: TLS %s is withdrawn (RFC 8996)", TLS12, TLS13, c.MinimumTLSVersion)
	default:
		say("minimumTlsVersionAllowed", "must be %s or %s", TLS12, TLS13)
	}
	if endpoint != nil && endpoint.Scheme != "https" && !c.DefaultTLS() {
		say("endpointUrl", "must be https where minimumTlsVersionAllowed, certificateAuthorities or clientCertificate is set")
	}
	if c.CertificateAuthorities != "" {
		if problem := certificatesProblem(c.CertificateAuthorities); problem != "" {
			say("certificateAuthorities", "%s", problem)
		}
	}
	if c.ClientCertificate != nil {
		if problem := c.ClientCertificate.problem(); problem != "" {
			say("clientCertificate", "%s", problem)
		}
	}
	if c.OAuth2 != nil {
		c.OAuth2.mistakes(allow, say)
	}
	return found
}

// certificatesProblem checks every block: x509's own reader skips those that it cannot read, and a private key among
// them would be stored and shown like the certificates.
func certificatesProblem(text string) string {
	if len(text) > maxCertificateBytes {
		return fmt.Sprintf("must be %d bytes or less", maxCertificateBytes)
	}
	rest, count := bytes.TrimSpace([]byte(text)), 0
	for ; len(rest) > 0; count++ {
		block, after := pem.Decode(rest)
		if block == nil || !bytes.HasPrefix(rest, pemBegin) || bytes.Count(rest[:len(rest)-len(after)], pemBegin) != 1 {
			break
		}
		if block.Type != "CERTIFICATE" {
			return "must hold certificates and nothing else"
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Sprintf("must hold certificates: number %d cannot be read", count+1)
		}
		rest = bytes.TrimSpace(after)
	}
	if count == 0 || len(rest) > 0 {
		return "must be one or more certificates in PEM and nothing else"
	}
	return ""
}

var pemBegin = []byte("-----BEGIN ")

// problem never repeats what crypto/tls says of a key.
func (c *ClientCertificate) problem() string {
	if len(c.Certificate) > maxCertificateBytes || len(c.PrivateKey) > maxCertificateBytes {
		return fmt.Sprintf("must have a certificate and a privateKey of %d bytes or less each", maxCertificateBytes)
	}
	if problem := certificatesProblem(c.Certificate); problem != "" {
		return "certificate " + problem
	}
	if _, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey)); err != nil {
		return "must have a certificate (PEM, its chain below it) and the privateKey (PEM, not encrypted) that belongs to it"
	}
	return ""
}

func (o *OAuth2) mistakes(allow []netip.Prefix, say func(field, format string, args ...any)) {
	switch u, err := EndpointURL(o.TokenURL, allow); {
	case err != nil:
		say("oauth2.tokenUrl", "%s", strings.TrimPrefix(err.Error(), endpointField+": "))
	case u.RawQuery != "" || u.ForceQuery:
		say("oauth2.tokenUrl", "must have no query: it is shown")
	}
	for _, text := range []struct {
		field, value string
		required     bool
	}{
		{"oauth2.clientId", o.ClientID, true},
		{"oauth2.clientSecret", o.ClientSecret, true},
		{"oauth2.scope", o.Scope, false},
	} {
		switch {
		case text.required && text.value == "":
			say(text.field, "is required")
		case len(text.value) > maxOAuthText:
			say(text.field, "must be %d bytes or less", maxOAuthText)
		case strings.ContainsFunc(text.value, func(r rune) bool { return r < ' ' || r == 0x7f }):
			say(text.field, "must have no control characters")
		}
	}
}

// String tells no secret: a Connection may be met in an error or a log.
func (c Connection) String() string {
	text, _ := json.Marshal(c.WithoutSecrets()) // strings can always be written
	return string(text)
}
