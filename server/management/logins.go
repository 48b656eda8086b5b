package management

import (
	"context"
	"net/url"
	"time"

	"postrider/access"
	"postrider/server/api"
)

const (
	loginLife     = 10 * time.Minute // as the store has it
	pollInterval  = 2 * time.Second
	loginPagePath = "/ui/login"
)

// BeginLogin answers POST /v1/logins.
func (m *Handlers) BeginLogin(
	ctx context.Context, r api.BeginLoginRequestObject,
) (api.BeginLoginResponseObject, error) {
	if m.NoSignIn {
		return nil, api.RefuseConflict(api.ConflictCodeNoSignIn, "no user signs in to this server, so none can approve "+
			"a login; postrider dev on this machine needs no personal key")
	}
	spec := access.PersonalKeySpec{Machine: r.Body.Machine, Role: access.Role(optional(r.Body.Role, ""))}
	secret, l, err := m.Parts.Access.BeginLogin(ctx, spec)
	if err != nil {
		return nil, err
	}
	page := baseOf(ctx) + loginPagePath
	return api.BeginLogin201JSONResponse{
		DeviceCode: secret, UserCode: l.UserCode, VerificationUri: page,
		VerificationUriComplete: page + "?code=" + url.QueryEscape(l.UserCode),
		ExpiresInSeconds:        int(loginLife.Seconds()), IntervalInSeconds: int(pollInterval.Seconds()),
	}, nil
}

// PollLogin answers POST /v1/logins/poll.
func (m *Handlers) PollLogin(ctx context.Context, r api.PollLoginRequestObject) (api.PollLoginResponseObject, error) {
	if !access.IsAPIKey(r.Body.DeviceCode) {
		return nil, api.Invalid("deviceCode", "is required: what POST /v1/logins answered")
	}
	l, key, err := m.Parts.Access.LoginOf(ctx, r.Body.DeviceCode)
	if err != nil {
		return nil, err
	}
	status := api.LoginStatus{State: api.LoginStatusState(l.State)}
	if key != nil {
		described := DescribeAPIKey(key)
		described.Key = &r.Body.DeviceCode // an approved login's secret is the key
		status.ApiKey = &described
	}
	return api.PollLogin200JSONResponse(status), nil
}

// WhoAmI answers GET /v1/me.
func (m *Handlers) WhoAmI(ctx context.Context, _ api.WhoAmIRequestObject) (api.WhoAmIResponseObject, error) {
	who := access.ActorOf(ctx)
	me := api.Me{Name: who.Name, Role: api.UserRole(who.Role)}
	if name := who.APIKey(); name != "" {
		k, err := m.Parts.Access.APIKey(ctx, name)
		if err != nil {
			return nil, err
		}
		me.ApiKey, me.ExpiresAt = &name, utcOrNull(k.ExpiresAt)
	}
	return api.WhoAmI200JSONResponse(me), nil
}

// RevokeMyKey answers DELETE /v1/me/key.
func (m *Handlers) RevokeMyKey(
	ctx context.Context, _ api.RevokeMyKeyRequestObject,
) (api.RevokeMyKeyResponseObject, error) {
	who := access.ActorOf(ctx)
	if who.PersonalKey == "" {
		return nil, api.RefuseConflict(api.ConflictCodeNotPersonalKey, "%s did not send a personal key: "+
			"an administrator revokes other API keys by DELETE /v1/apiKeys/{apiKey}", who.Name)
	}
	if _, err := m.Parts.Access.RevokeAPIKey(ctx, who.PersonalKey); err != nil {
		return nil, err
	}
	return api.RevokeMyKey204Response{}, nil
}
