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

	"postrider/access"
	"postrider/catalog"
	"postrider/jobs/publish"
	"postrider/postgres"
	"postrider/server/api"
)

// digest is the SHA-256 of a secret. Secrets are compared by it, because a comparison of unequal lengths answers early.
type digest [sha256.Size]byte

// DigestOf is the digest of a secret.
func DigestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

func (d *digest) equals(other []byte) int { return subtle.ConstantTimeCompare(d[:], other) }

// How publishers show what they have, in the words of Event Grid's pages. Headers as net/http keeps them, which saves
// making them so for each request.
const (
	keyHeader   = "Aeg-Sas-Key"
	tokenHeader = "Aeg-Sas-Token" //nolint:gosec // the name of a header
	keyInQuery  = "aeg-sas-key"
	keyScheme   = "SharedAccessKey"
	tokenScheme = "SharedAccessSignature"
	bearer      = "Bearer"
)

const howToShow = "send an access key of the topic, or an API key, in the header aeg-sas-key, as Authorization: " +
	"SharedAccessKey or as Authorization: Bearer, " +
	"or a shared access signature in the header aeg-sas-token or as Authorization: SharedAccessSignature"

// shown is the one credential of a request that counts.
type shown struct {
	text          string
	token, bearer bool
	where         string // of a token: the header's name
}

// shownBy finds it: the key's header comes before the token's, then Authorization, then the query.
//
// Source: Microsoft, Authenticate Azure Event Grid clients using access keys or shared access signatures, 2024-05-08.
// Bearer with an access key is ours.
func shownBy(r *http.Request) shown {
	if key := r.Header.Get(keyHeader); key != "" {
		return shown{text: key}
	}
	if token := r.Header.Get(tokenHeader); token != "" {
		return shown{text: token, where: "aeg-sas-token", token: true}
	}
	if scheme, text := authorization(r); text != "" {
		switch {
		case strings.EqualFold(scheme, bearer):
			return shown{text: text, bearer: true}
		case strings.EqualFold(scheme, keyScheme):
			return shown{text: text}
		case strings.EqualFold(scheme, tokenScheme):
			return shown{text: text, where: echo.HeaderAuthorization, token: true}
		}
	}
	return shown{text: queryKey(r)}
}

// queryKey puts the plus signs back that reading a query takes for spaces: Event Grid's sample has the key in it as it
// is.
func queryKey(r *http.Request) string {
	if !strings.Contains(r.URL.RawQuery, keyInQuery) {
		return ""
	}
	return strings.ReplaceAll(r.URL.Query().Get(keyInQuery), " ", "+")
}

// Credential is what a publisher shows. The admin token is taken as a bearer token only, the other ways are for access
// keys and API keys.
type Credential struct {
	Digest digest
	token  *sasToken // nil: digest is a key's
	apiKey string    // "" for none; once the store has found it, it opens the topic, see LookUp
	admin  bool
	Person bool // the dashboard publishes in the name of somebody who has signed in: nothing was guessed
}

// Authenticator checks the credentials of requests.
type Authenticator struct {
	access  *access.Access
	clock   *postgres.Clock
	admin   digest // of the admin token
	devKey  string // an access key that is rejected although a topic has it; "" for none
	dev     digest // of devKey
	Guesses *guesses
}

// NewAuthenticator rejects devKey, the well-known access key of postrider dev, unless it is "".
func NewAuthenticator(accounts *access.Access, clock *postgres.Clock, adminToken, devKey string) *Authenticator {
	return &Authenticator{
		access: accounts, clock: clock, admin: DigestOf(adminToken), devKey: devKey, dev: DigestOf(devKey),
		Guesses: newGuesses(),
	}
}

// Credential reads the request's credential, and judges what can be judged without the topic.
func (a *Authenticator) Credential(r *http.Request) (Credential, error) {
	if isAdmin(r.Context()) {
		return Credential{admin: true, Person: true}, nil
	}
	shown := shownBy(r)
	if shown.text == "" {
		return Credential{}, api.RejectUnauthorized(howToShow)
	}
	c := Credential{Digest: DigestOf(shown.text)}
	if shown.token {
		token, err := readToken(shown, r.URL.Path, a.clock.Now())
		if err != nil {
			return Credential{}, err
		}
		c.token = token
	}
	if a.refusesDevKey(&c) {
		return Credential{}, api.RejectUnauthorized("this is the well-known access key of postrider dev, which works on " +
			"loopback under postrider dev only")
	}
	c.admin = shown.bearer && c.Digest.equals(a.admin[:]) == 1
	if c.token == nil && !c.admin && access.IsAPIKey(shown.text) {
		c.apiKey = shown.text
	}
	return c, nil
}

// LookUp finds the API key that was shown, and refuses one that does not publish to the topic. Any other credential is
// left to opens. store.ErrUnauthorized: there is no such key.
func (a *Authenticator) LookUp(ctx context.Context, c *Credential, topic string) error {
	if c.apiKey == "" {
		return nil
	}
	key, err := a.access.APIKeyOf(ctx, c.apiKey)
	switch {
	case errors.Is(err, access.ErrWrongCredentials):
		return publish.ErrUnauthorized
	case err != nil:
		return err
	case key.Publishes(topic):
		return nil
	case key.Scope != access.ScopePublish:
		return api.RejectForbidden(key.Actor("").Name, "API key %s has scope %s: publishing needs scope publish, or admin",
			key.Name, key.Scope)
	default:
		return api.RejectForbidden(key.Actor("").Name, "API key %s publishes to topic %q alone", key.Name, *key.Topic)
	}
}

// readToken refuses what is not a token, one for something else and one that has expired. None of that tries a key.
func readToken(shown shown, path string, now time.Time) (*sasToken, error) {
	token, err := parseSAS(shown.text)
	switch {
	case err != nil:
		return nil, api.RejectUnauthorized(shown.where + ": " + err.Error())
	case !token.covers(path):
		return nil, api.RejectUnauthorized(shown.where + ": r is another resource than " + api.Shorten(path) +
			", which it must be, or begin")
	case !now.Before(token.expires):
		return nil, api.RejectUnauthorized(shown.where + ": the shared access signature expired at " +
			token.expires.UTC().Format(time.RFC3339) +
			"; it is " + now.UTC().Format(time.RFC3339) + " now")
	}
	return &token, nil
}

// refusesDevKey: the key, or what was signed with it.
func (a *Authenticator) refusesDevKey(c *Credential) bool {
	if a.devKey == "" {
		return false
	}
	if c.token != nil {
		return catalog.SignedWith(catalog.SigningKey(a.devKey), c.token.signed, c.token.signature) == 1
	}
	return c.Digest.equals(a.dev[:]) == 1
}

// Opens compares with both keys in any case: the time tells neither which key it was nor how much of it was right.
func (c *Credential) Opens(t *catalog.Topic) bool {
	if c.token != nil {
		return t.Signed(c.token.signed, c.token.signature)
	}
	keys := c.Digest.equals(t.Key1Hash) | c.Digest.equals(t.Key2Hash)
	return c.admin || c.apiKey != "" || keys == 1
}

// Rejection is the response if the credential is not accepted.
func (c *Credential) Rejection() error {
	if c.token != nil {
		return api.RejectUnauthorized("the shared access signature is not by an access key of this topic: s must be the " +
			"HMAC-SHA256 of all that comes before &s=, " +
			"as it is sent, with the bytes that the key is base64 of; or the topic does not exist")
	}
	if c.apiKey != "" {
		return api.RejectUnauthorized(noSuchAPIKey)
	}
	return api.RejectUnauthorized("the access key is not one of this topic's, or the topic does not exist")
}

// authorization reads Authorization. The scheme's case does not matter (RFC 9110, section 11.1).
func authorization(r *http.Request) (scheme, text string) {
	scheme, text, _ = strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	return scheme, strings.TrimSpace(text)
}
