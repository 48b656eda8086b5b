package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/store"
)

// digest is the SHA-256 of a secret. Secrets are compared by it, because a comparison of unequal lengths answers early.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

func (d *digest) equals(other []byte) int { return subtle.ConstantTimeCompare(d[:], other) }

// keyHeader carries an access key, as Event Grid's SDKs send it.
const keyHeader = "Aeg-Sas-Key"

// credential is what a publisher shows. The admin token is taken as a bearer token only, the header is for access keys.
type credential struct {
	digest digest
	admin  bool
}

// credential reads the request's credential. The access key's header wins over Authorization.
func (s *Server) credential(r *http.Request) (credential, error) {
	secret, bearer := r.Header.Get(keyHeader), false
	if secret == "" {
		secret, bearer = bearerToken(r)
	}
	if secret == "" {
		return credential{}, unauthorized("send an access key of the topic in the header aeg-sas-key, or as Authorization: Bearer")
	}
	c := credential{digest: digestOf(secret)}
	if s.refusesDevKey(c.digest) {
		return credential{}, unauthorized("this is the well-known access key of postrider dev, which works on loopback under postrider dev only")
	}
	c.admin = bearer && c.digest.equals(s.admin[:]) == 1
	return c, nil
}

func (s *Server) refusesDevKey(d digest) bool {
	return s.options.DevKey != "" && !s.options.AllowDevKey && d.equals(s.dev[:]) == 1
}

// opens compares with both keys in any case: the time tells neither which key it was nor how much of it was right.
func (c *credential) opens(t *store.Topic) bool {
	keys := c.digest.equals(t.Key1Hash) | c.digest.equals(t.Key2Hash)
	return c.admin || keys == 1
}

// requireAdmin lets a request with the admin token through.
func (s *Server) requireAdmin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		token, ok := bearerToken(c.Request())
		if !ok {
			return unauthorized("send the admin token as Authorization: Bearer")
		}
		if d := digestOf(token); d.equals(s.admin[:]) != 1 {
			return unauthorized("the admin token is wrong")
		}
		return next(c)
	}
}

// bearerToken reads Authorization. The scheme's case does not matter (RFC 9110, section 11.1).
func bearerToken(r *http.Request) (string, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != ""
}
