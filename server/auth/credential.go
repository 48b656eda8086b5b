package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/postgres"
	"postrider/jobs/publish"
	"postrider/server/api"
)

// digest is the SHA-256 of a secret. Comparing digests takes the same time for all lengths.
type digest [sha256.Size]byte

// DigestOf is the digest of a secret.
func DigestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

func (d *digest) equals(other []byte) int { return subtle.ConstantTimeCompare(d[:], other) }

// Event Grid's names for credentials. Headers are spelled as net/http stores them.
const (
	keyHeader   = "Aeg-Sas-Key"
	tokenHeader = "Aeg-Sas-Token" //nolint:gosec // the name of a header
	keyInQuery  = "aeg-sas-key"
	keyScheme   = "SharedAccessKey"
	tokenScheme = "SharedAccessSignature"
	bearer      = "Bearer"
)

const howToAuthenticate = "send an access key of the topic, or an API key, in the header aeg-sas-key, as " +
	"Authorization: SharedAccessKey or as Authorization: Bearer, or a shared access " +
	"signature in the header aeg-sas-token or as Authorization: SharedAccessSignature"

// shown is the credential of a request.
type shown struct {
	text          string
	token, bearer bool
	header        string // of a token
}

// shownBy reads the credential from the key's header, the token's header, Authorization or the query, in this order.
//
// Source: Microsoft, Authenticate Azure Event Grid clients using access keys or shared access signatures, 2024-05-08.
// Bearer with an access key is an addition.
func shownBy(r *http.Request) shown {
	if key := r.Header.Get(keyHeader); key != "" {
		return shown{text: key}
	}
	if token := r.Header.Get(tokenHeader); token != "" {
		return shown{text: token, header: "aeg-sas-token", token: true}
	}
	if scheme, text := authorization(r); text != "" {
		switch {
		case strings.EqualFold(scheme, bearer):
			return shown{text: text, bearer: true}
		case strings.EqualFold(scheme, keyScheme):
			return shown{text: text}
		case strings.EqualFold(scheme, tokenScheme):
			return shown{text: text, header: echo.HeaderAuthorization, token: true}
		}
	}
	return shown{text: queryKey(r)}
}

// queryKey restores plus signs, which are spaces in a query: Event Grid's sample does not encode the key.
func queryKey(r *http.Request) string {
	if !strings.Contains(r.URL.RawQuery, keyInQuery) {
		return ""
	}
	return strings.ReplaceAll(r.URL.Query().Get(keyInQuery), " ", "+")
}

// Credential is the credential of a request by a publisher or a consumer. The admin token is accepted as a bearer token
// only.
type Credential struct {
	Digest digest
	token  *sasToken // nil for a key
	apiKey string    // "" for other credentials; LookUp checks it
	admin  bool
	any    bool   // a bearer token under AnyBearer
	Name   string // of its owner, as in the audit
	Person bool   // a user publishes in the dashboard, so no credential was sent
}

// Authenticator checks the credentials of requests.
type Authenticator struct {
	access  *access.Access
	clock   *postgres.Clock
	admin   digest // of the admin token
	devKey  string // an access key that is always rejected; "" = none
	dev     digest // of devKey
	Guesses *guesses
	// AnyBearer accepts every bearer token of publishers and consumers that is no API key: for postrider dev.
	AnyBearer bool
}

// NewAuthenticator rejects devKey, the well-known access key of postrider dev, unless it is "".
func NewAuthenticator(accounts *access.Access, clock *postgres.Clock, adminToken, devKey string) *Authenticator {
	return &Authenticator{
		access: accounts, clock: clock, admin: DigestOf(adminToken), devKey: devKey, dev: DigestOf(devKey),
		Guesses: newGuesses(),
	}
}

// Credential reads the request's credential, and checks it as far as possible without the topic.
func (a *Authenticator) Credential(r *http.Request) (Credential, error) {
	if access.ActorOf(r.Context()).Role.Allows(access.RoleAdmin) {
		return Credential{admin: true, Person: true, Name: access.ActorOf(r.Context()).Name}, nil
	}
	shown := shownBy(r)
	if shown.text == "" {
		return Credential{}, api.RejectUnauthorized(howToAuthenticate)
	}
	c := Credential{Digest: DigestOf(shown.text), Name: accessKeyName}
	if shown.token {
		token, err := readToken(shown, r.URL.Path, a.clock.Now())
		if err != nil {
			return Credential{}, err
		}
		c.token = token
	}
	if a.rejectsDevKey(&c) {
		return Credential{}, api.RejectUnauthorized("this is the well-known access key of postrider dev, which works on " +
			"loopback under postrider dev only")
	}
	if c.admin = shown.bearer && c.Digest.equals(a.admin[:]) == 1; c.admin {
		c.Name = adminName
	}
	if c.token == nil && !c.admin && access.IsAPIKey(shown.text) {
		c.apiKey = shown.text
	}
	c.any = a.AnyBearer && shown.bearer // LookUp checks API keys all the same
	return c, nil
}

// LookUp checks that an API key publishes to the topic; Opens checks other credentials. ErrUnauthorized: the key does
// not exist.
func (a *Authenticator) LookUp(ctx context.Context, c *Credential, topic string) error {
	key, err := a.apiKey(ctx, c)
	if err != nil || key == nil || key.Publishes(topic) {
		return err
	}
	if key.Scope != access.ScopePublish {
		return api.RejectForbidden(key.Actor("").Name, "API key %s has scope %s: publishing needs scope publish, or admin",
			key.Name, key.Scope)
	}
	return api.RejectForbidden(key.Actor("").Name, "API key %s publishes only to topic %q", key.Name, *key.Topic)
}

// LookUpConsumer checks that an API key receives from the event subscription; Opens checks other credentials.
// ErrUnauthorized: the key does not exist.
func (a *Authenticator) LookUpConsumer(ctx context.Context, c *Credential, topic, subscription string) error {
	key, err := a.apiKey(ctx, c)
	switch {
	case err != nil || key == nil || key.Receives(topic, subscription):
		return err
	case key.Scope != access.ScopeReceive:
		return api.RejectForbidden(c.Name, "API key %s has scope %s: receiving needs scope receive, or admin", key.Name,
			key.Scope)
	case key.Subscription != nil:
		return api.RejectForbidden(c.Name, "API key %s receives only from event subscription %q of topic %q", key.Name,
			*key.Subscription, *key.Topic)
	default:
		return api.RejectForbidden(c.Name, "API key %s receives only from topic %q", key.Name, *key.Topic)
	}
}

// apiKey finds the API key of a credential; nil for other credentials.
func (a *Authenticator) apiKey(ctx context.Context, c *Credential) (*access.APIKey, error) {
	if c.apiKey == "" {
		return nil, nil
	}
	key, err := a.access.APIKeyOf(ctx, c.apiKey)
	if errors.Is(err, access.ErrWrongCredentials) {
		return nil, publish.ErrUnauthorized
	}
	if err != nil {
		return nil, err
	}
	c.Name = key.Actor("").Name
	return key, nil
}

// readToken reads a token, and rejects one that has expired or is for another resource.
func readToken(shown shown, path string, now time.Time) (*sasToken, error) {
	token, err := parseSAS(shown.text)
	switch {
	case err != nil:
		return nil, api.RejectUnauthorized(shown.header + ": " + err.Error())
	case !token.covers(path):
		return nil, api.RejectUnauthorized(shown.header + ": r must be " + api.Shorten(path) + " or a prefix of it")
	case !now.Before(token.expires):
		return nil, api.RejectUnauthorized(shown.header + ": the shared access signature expired at " +
			token.expires.UTC().Format(time.RFC3339) +
			"; it is " + now.UTC().Format(time.RFC3339) + " now")
	}
	return &token, nil
}

// rejectsDevKey reports whether the credential is devKey, or signed with it.
func (a *Authenticator) rejectsDevKey(c *Credential) bool {
	if a.devKey == "" {
		return false
	}
	if c.token != nil {
		return catalog.SignedWith(catalog.SigningKey(a.devKey), c.token.signed, c.token.signature) == 1
	}
	return c.Digest.equals(a.dev[:]) == 1
}

// Opens reports whether the credential publishes to the topic. It always compares both keys, so its duration does not
// depend on them.
func (c *Credential) Opens(t *catalog.Topic) bool {
	if c.token != nil {
		return t.Signed(c.token.signed, c.token.signature)
	}
	keys := c.Digest.equals(t.Key1Hash) | c.Digest.equals(t.Key2Hash)
	return c.admin || c.any || c.apiKey != "" || keys == 1
}

// Rejection is the response if the credential is not accepted.
func (c *Credential) Rejection() error {
	if c.token != nil {
		return api.RejectUnauthorized("the shared access signature does not match an access key of this topic, or the " +
			"topic does not exist: s must be the HMAC-SHA256 of the text before &s= as it is sent, with the base64-decoded key")
	}
	if c.apiKey != "" {
		return api.RejectUnauthorized(keyRejected)
	}
	return api.RejectUnauthorized("the access key is not one of this topic's, or the topic does not exist")
}

// authorization reads Authorization. The scheme's case does not matter (RFC 9110, section 11.1).
func authorization(r *http.Request) (scheme, text string) {
	scheme, text, _ = strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	return scheme, strings.TrimSpace(text)
}
