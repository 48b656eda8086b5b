package server

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/policy"
	"postrider/store"
)

// What an address may request without a credential. Colleagues behind one proxy share an address.
var (
	loginsBegun  = policy.Bucket{Burst: 10, Every: 30 * time.Second}
	loginsPolled = policy.Bucket{Burst: 60, Every: 100 * time.Millisecond}
)

const (
	loginLife     = 10 * time.Minute // as the store has it
	pollInterval  = 2 * time.Second
	loginPagePath = "/ui/login"
)

// limitLogins bounds the requests of an address, and notes the address for the user who approves the login.
func (s *Server) limitLogins(limit *rate, next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if wait := limit.take(caller{from: sender(c.Request().RemoteAddr)}, time.Now()); wait > 0 {
			return tooManyLogins(wait, "too many logins from your address")
		}
		actsAs(c, store.Actor{Address: c.RealIP()})
		return next(c)
	}
}

func tooManyLogins(wait time.Duration, what string) error {
	r := refuse(http.StatusTooManyRequests, codeTooManyRequests, "%s; wait for as long as Retry-After says", what)
	r.retryAfter = wait
	return r
}

// BeginLogin answers POST /v1/logins.
func (m *management) BeginLogin(ctx context.Context, r BeginLoginRequestObject) (BeginLoginResponseObject, error) {
	if m.noSignIn {
		return nil, conflict(ConflictCodeNoSignIn, "no user signs in to this server, so none can approve "+
			"a login; postrider dev on this machine needs no personal key")
	}
	spec := store.PersonalKeySpec{Machine: r.Body.Machine, Role: store.Role(optional(r.Body.Role, ""))}
	secret, l, err := m.store.Access().BeginLogin(ctx, spec)
	if err != nil {
		return nil, err
	}
	page := baseOf(ctx) + loginPagePath
	return BeginLogin201JSONResponse{
		DeviceCode: secret, UserCode: l.UserCode, VerificationUri: page,
		VerificationUriComplete: page + "?code=" + url.QueryEscape(l.UserCode),
		ExpiresInSeconds:        int(loginLife.Seconds()), IntervalInSeconds: int(pollInterval.Seconds()),
	}, nil
}

// PollLogin answers POST /v1/logins/poll.
func (m *management) PollLogin(ctx context.Context, r PollLoginRequestObject) (PollLoginResponseObject, error) {
	if !store.IsAPIKey(r.Body.DeviceCode) {
		return nil, invalid("deviceCode", "is required: what POST /v1/logins answered")
	}
	l, key, err := m.store.Access().LoginOf(ctx, r.Body.DeviceCode)
	if err != nil {
		return nil, err
	}
	status := LoginStatus{State: LoginStatusState(l.State)}
	if key != nil {
		described := DescribeAPIKey(key)
		described.Key = &r.Body.DeviceCode // an approved login's secret is the key
		status.ApiKey = &described
	}
	return PollLogin200JSONResponse(status), nil
}

// WhoAmI answers GET /v1/me.
func (m *management) WhoAmI(ctx context.Context, _ WhoAmIRequestObject) (WhoAmIResponseObject, error) {
	who := store.ActorOf(ctx)
	me := Me{Name: who.Name, Role: UserRole(who.Role)}
	if name := who.APIKey(); name != "" {
		k, err := m.store.Access().APIKey(ctx, name)
		if err != nil {
			return nil, err
		}
		me.ApiKey, me.ExpiresAt = &name, utcOrNull(k.ExpiresAt)
	}
	return WhoAmI200JSONResponse(me), nil
}

// RevokeMyKey answers DELETE /v1/me/key.
func (m *management) RevokeMyKey(ctx context.Context, _ RevokeMyKeyRequestObject) (RevokeMyKeyResponseObject, error) {
	who := store.ActorOf(ctx)
	if who.PersonalKey == "" {
		return nil, conflict(ConflictCodeNotPersonalKey, "%s did not send a personal key: "+
			"an administrator revokes other API keys by DELETE /v1/apiKeys/{apiKey}", who.Name)
	}
	if _, err := m.store.Access().RevokeAPIKey(ctx, who.PersonalKey); err != nil {
		return nil, err
	}
	return RevokeMyKey204Response{}, nil
}
