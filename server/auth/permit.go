package auth

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/server/api"
)

// managing is where wrong credentials for the operations under /v1 are counted, beside the topics'. No topic has a
// slash in its name.
const managing = "/v1"

const noSuchAPIKey = "there is no such API key, or it was revoked or has expired"

// Permit lets a request through whose credential has a role that allows what is needed. 401: it has none that is right;
// 403: it may less.
func (a *Authenticator) Permit(needed access.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			who, err := a.who(c)
			if err != nil {
				return err
			}
			if !who.Role.Allows(needed) {
				return tooLittle(who, needed)
			}
			ActAs(c, who)
			return next(c)
		}
	}
}

// isAdmin reports whether the dashboard makes this request, in the name of a person who may do all.
func isAdmin(ctx context.Context) bool { return access.ActorOf(ctx).Role.Allows(access.RoleAdmin) }

// who asks. The dashboard makes requests in the name of a person, whom their context holds; nothing that comes over the
// network can set that.
func (a *Authenticator) who(c echo.Context) (access.Actor, error) {
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
		refusal := "the admin token is wrong"
		if access.IsAPIKey(token) {
			refusal = noSuchAPIKey
		}
		return who, a.Guessed(from, managing, "for this API", api.RejectUnauthorized(refusal))
	}
	if err == nil {
		a.Guesses.Opened(from, managing, shown)
	}
	return who, err
}

// bearerOf knows the admin token and the API keys; store.ErrWrongCredentials for any other.
func (a *Authenticator) bearerOf(c echo.Context, token string, shown *digest) (access.Actor, error) {
	if shown.equals(a.admin[:]) == 1 {
		return access.Actor{Name: adminName, Address: c.RealIP(), Role: access.RoleAdmin}, nil
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

// tooLittle says what is missing.
func tooLittle(who access.Actor, needed access.Role) error {
	if who.Role == "" {
		return api.RejectForbidden(who.Name, "this needs the role %s; %s has none: its scope is publish", needed, who.Name)
	}
	return api.RejectForbidden(who.Name, "this needs the role %s; %s has the role %s", needed, who.Name, who.Role)
}

// Guessed answers a wrong credential. place is where it was shown: a topic, or management.
func (a *Authenticator) Guessed(from netip.Prefix, place, whose string, refusal error) error {
	if wait := a.Guesses.Wrong(from, place, time.Now()); wait > 0 {
		return api.TooManyGuesses(wait, whose)
	}
	return refusal
}
