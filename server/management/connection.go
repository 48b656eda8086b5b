package management

import (
	"context"
	"errors"
	"net/url"

	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// connection reads and judges how the endpoint is to be connected to. Secrets that were left out are those that are
// stored: a handshake needs them at once. Its error is the database's.
func (m *Handlers) connection(
	ctx context.Context, found *problems, topic, name string, b *api.SubscriptionSettings,
) (policy.Connection, error) {
	given := connectionOf(b)
	if given.ClientCertificate == nil && given.OAuth2 == nil {
		m.judgeConnection(found, &given, b.EndpointUrl)
		return given, nil
	}
	var stored *policy.Connection
	if api.Storable(name) {
		switch sub, err := m.Parts.Subscriptions.Get(ctx, topic, name); {
		case err == nil:
			stored = &sub.Connection
		case !errors.Is(err, postgres.ErrNotFound):
			return given, err
		}
	}
	kept, err := policy.KeepConnectionSecrets(given, stored)
	if err != nil {
		found.Check(err)
		return given, nil
	}
	m.judgeConnection(found, &kept, b.EndpointUrl)
	return kept, nil
}

func (m *Handlers) judgeConnection(found *problems, c *policy.Connection, endpoint string) {
	u, _ := url.Parse(endpoint) // what is wrong with it was told
	mistakes := c.Mistakes(u, m.Allow)
	for i := range mistakes {
		found.Check(&mistakes[i])
	}
	if c.OAuth2 == nil || len(mistakes) > 0 || m.AllowHTTP {
		return
	}
	if tokens, err := url.Parse(c.OAuth2.TokenURL); err == nil && policy.PlainEndpoint(tokens, m.Allow) != nil {
		found.Value("oauth2.tokenUrl", "must be https: the client secret is sent there")
	}
}

func connectionOf(b *api.SubscriptionSettings) policy.Connection {
	c := policy.Connection{
		MinimumTLSVersion:      policy.TLSVersion(optional(b.MinimumTlsVersionAllowed, "")),
		CertificateAuthorities: optional(b.CertificateAuthorities, ""),
	}
	if c.MinimumTLSVersion == policy.TLS12 {
		c.MinimumTLSVersion = "" // it is what every connection has
	}
	if own := b.ClientCertificate; own != nil {
		c.ClientCertificate = &policy.ClientCertificate{
			Certificate: own.Certificate, PrivateKey: optional(own.PrivateKey, ""),
		}
	}
	if o := b.Oauth2; o != nil {
		c.OAuth2 = &policy.OAuth2{
			TokenURL: o.TokenUrl, ClientID: o.ClientId, ClientSecret: optional(o.ClientSecret, ""), Scope: optional(o.Scope, ""),
		}
	}
	return c
}

// stateConnection writes it as it was put, secrets included.
func stateConnection(stated *api.SubscriptionSettings, c *policy.Connection) {
	stated.MinimumTlsVersionAllowed, stated.CertificateAuthorities = textOrNull(string(c.MinimumTLSVersion)),
		textOrNull(c.CertificateAuthorities)
	if own := c.ClientCertificate; own != nil {
		stated.ClientCertificate = &api.ClientCertificateSettings{Certificate: own.Certificate, PrivateKey: &own.PrivateKey}
	}
	if o := c.OAuth2; o != nil {
		stated.Oauth2 = &api.OAuth2Settings{
			TokenUrl: o.TokenURL, ClientId: o.ClientID, ClientSecret: &o.ClientSecret, Scope: textOrNull(o.Scope),
		}
	}
}

// withholdSecrets takes out of stated settings what a patch must not keep by naming something else beside it: a client
// secret belongs to its token URL and its client, and a private key to its certificate.
func withholdSecrets(stated *api.SubscriptionSettings, tokenURL, clientID, certificate *string) {
	if o := stated.Oauth2; o != nil &&
		(tokenURL != nil && *tokenURL != o.TokenUrl || clientID != nil && *clientID != o.ClientId) {
		o.ClientSecret = nil
	}
	if own := stated.ClientCertificate; own != nil && certificate != nil {
		own.PrivateKey = nil // the stored one is kept where it fits
	}
}

// showConnection fills in what an answer has of it: no secret.
func showConnection(shown *api.Subscription, c *policy.Connection) {
	shown.MinimumTlsVersionAllowed = string(c.MinimumTLSVersion)
	if c.MinimumTLSVersion == "" {
		shown.MinimumTlsVersionAllowed = string(policy.TLS12)
	}
	shown.CertificateAuthorities = textOrNull(c.CertificateAuthorities)
	if own := c.ClientCertificate; own != nil {
		shown.ClientCertificate = &api.ClientCertificate{Certificate: own.Certificate}
	}
	if o := c.OAuth2; o != nil {
		shown.Oauth2 = &api.OAuth2{TokenUrl: o.TokenURL, ClientId: o.ClientID, Scope: textOrNull(o.Scope)}
	}
}
