package auth

import (
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/server/api"
)

const (
	// managing is the key for wrong credentials under /v1 among those of topics, whose names have no slash.
	managing = "/v1"
	// adminName is the audit's name of the admin token.
	adminName = "admin"
	// accessKeyName is the name of a client with an access key of the topic, or a signature of one.
	accessKeyName = "accessKey"
	// ValidatorName is the audit's name of a client that opens validationUrl.
	ValidatorName = "validationUrl"

	keyRejected = "the API key does not exist, was revoked or has expired"
)

// ActAs sets the actor of a request for the audit.
func ActAs(c echo.Context, who access.Actor) {
	r := c.Request()
	c.SetRequest(r.WithContext(access.WithActor(r.Context(), who)))
}

// Permit allows requests whose actor has at least a role. It responds 401 to a missing or wrong credential, 403 to a
// lower role.
func (a *Authenticator) Permit(needed access.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			who, err := a.authenticate(c)
			switch {
			case err != nil:
				return err
			case who.Role == "":
				return api.RejectForbidden(who.Name, "this needs the role %s; %s has none: it only publishes or receives events",
					needed, who.Name)
			case !who.Role.Allows(needed):
				return api.RejectForbidden(who.Name, "this needs the role %s; %s has the role %s", needed, who.Name, who.Role)
			}
			ActAs(c, who)
			return next(c)
		}
	}
}

// PermitQuery allows requests whose actor may run SQL queries. It follows Permit.
func PermitQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if who := access.ActorOf(c.Request().Context()); !who.Query {
			return api.RejectForbidden(who.Name, "%s may not run queries: an administrator can allow it (query)", who.Name)
		}
		return next(c)
	}
}

// authenticate finds the actor. The dashboard puts its user into the context of its requests, which no client can do.
func (a *Authenticator) authenticate(c echo.Context) (access.Actor, error) {
	r := c.Request()
	if who := access.ActorOf(r.Context()); who.Role != "" {
		return who, nil
	}
	scheme, token := authorization(r)
	if !strings.EqualFold(scheme, bearer) || token == "" {
		return access.Actor{}, api.RejectUnauthorized("send an API key, or the admin token, as Authorization: Bearer")
	}
	from, shown := Sender(r.RemoteAddr), DigestOf(token)
	if wait := a.Guesses.Wait(from, managing, shown, time.Now()); wait > 0 {
		return access.Actor{}, api.TooManyGuesses(wait, "from your address")
	}
	who, err := a.bearerOf(c, token, &shown)
	if errors.Is(err, access.ErrWrongCredentials) {
		message := "the admin token is wrong"
		if access.IsAPIKey(token) {
			message = keyRejected
		}
		return who, a.WrongCredential(from, managing, "for this API", api.RejectUnauthorized(message))
	}
	if err == nil {
		a.Guesses.Opened(from, managing, shown)
	}
	return who, err
}

// bearerOf finds the actor of the admin token or an API key; ErrWrongCredentials for other tokens.
func (a *Authenticator) bearerOf(c echo.Context, token string, shown *digest) (access.Actor, error) {
	if shown.equals(a.admin[:]) == 1 {
		return access.Actor{Name: adminName, Address: c.RealIP(), Role: access.RoleAdmin, Query: true}, nil
	}
	if !access.IsAPIKey(token) {
		return access.Actor{}, access.ErrWrongCredentials
	}
	key, err := a.access.APIKeyOf(c.Request().Context(), token)
	if err != nil {
		return access.Actor{}, err
	}
	return key.Actor(c.RealIP()), nil
}

// WrongCredential notes a wrong credential and returns rejection, or 429 after too many. target is a topic or managing.
func (a *Authenticator) WrongCredential(from netip.Prefix, target, scope string, rejection error) error {
	if wait := a.Guesses.Wrong(from, target, time.Now()); wait > 0 {
		return api.TooManyGuesses(wait, scope)
	}
	return rejection
}
