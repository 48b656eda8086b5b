package management

import (
	"context"
	"net/url"
	"time"

	"postrider/access"
	"postrider/server/api"
)

const (
	loginLife     = 10 * time.Minute // as package access has it
	pollInterval  = 2 * time.Second
	loginPagePath = "/ui/login"
)

// LoginBegun is a login that waits for approval.
type LoginBegun struct {
	DeviceCode              string `json:"deviceCode"`
	UserCode                string `json:"userCode"`
	VerificationURI         string `json:"verificationUri"`
	VerificationURIComplete string `json:"verificationUriComplete"`
	ExpiresInSeconds        int    `json:"expiresInSeconds"`
	IntervalInSeconds       int    `json:"intervalInSeconds"`
}

// BeginLogin responds to POST /v1/logins.
func (m *Handlers) BeginLogin(
	ctx context.Context, r *api.Body[access.PersonalKeySpec],
) (*api.Created[LoginBegun], error) {
	if m.NoSignIn {
		return nil, api.RejectConflict(api.ConflictCodeNoSignIn, "no user can sign in to this server, so logins cannot be "+
			"approved; postrider dev on this machine needs no personal key")
	}
	secret, l, err := m.Parts.Access.BeginLogin(ctx, r.Body)
	if err != nil {
		return nil, err
	}
	page := baseOf(ctx) + loginPagePath
	return &api.Created[LoginBegun]{Body: &LoginBegun{
		DeviceCode: secret, UserCode: l.UserCode, VerificationURI: page,
		VerificationURIComplete: page + "?code=" + url.QueryEscape(l.UserCode),
		ExpiresInSeconds:        int(loginLife.Seconds()), IntervalInSeconds: int(pollInterval.Seconds()),
	}}, nil
}

// LoginPoll names a login.
type LoginPoll struct {
	DeviceCode string `json:"deviceCode"`
}

// LoginStatus is the state of a login, and the personal key once the login is approved.
type LoginStatus struct {
	State  access.LoginState `json:"state" enum:"pending,approved,denied"`
	APIKey *access.APIKey    `json:"apiKey,omitempty"`
}

// PollLogin responds to POST /v1/logins/poll.
func (m *Handlers) PollLogin(ctx context.Context, r *api.Body[LoginPoll]) (*LoginStatus, error) {
	if !access.IsAPIKey(r.Body.DeviceCode) {
		return nil, api.Invalid("deviceCode", "must be the deviceCode of a response to POST /v1/logins")
	}
	l, key, err := m.Parts.Access.LoginOf(ctx, r.Body.DeviceCode)
	if err != nil {
		return nil, err
	}
	if key != nil {
		key.Key = r.Body.DeviceCode // becomes the key when the login is approved
	}
	return &LoginStatus{State: l.State, APIKey: key}, nil
}

// Me is the actor that a credential belongs to.
type Me struct {
	Name      string      `json:"name"`
	Role      access.Role `json:"role" enum:"viewer,operator,admin"`
	Query     bool        `json:"query"`
	APIKey    *string     `json:"apiKey"`
	ExpiresAt *time.Time  `json:"expiresAt"`
}

// WhoAmI responds to GET /v1/me.
func (m *Handlers) WhoAmI(ctx context.Context, _ *struct{}) (*Me, error) {
	who := access.ActorOf(ctx)
	me := Me{Name: who.Name, Role: who.Role, Query: who.Query}
	if name := who.APIKey(); name != "" {
		k, err := m.Parts.Access.APIKey(ctx, name)
		if err != nil {
			return nil, err
		}
		me.APIKey, me.ExpiresAt = &name, k.ExpiresAt
	}
	return &me, nil
}

// RevokeMyKey responds to DELETE /v1/me/key.
func (m *Handlers) RevokeMyKey(ctx context.Context, _ *struct{}) (*api.NoContent, error) {
	who := access.ActorOf(ctx)
	if who.PersonalKey == "" {
		return nil, api.RejectConflict(api.ConflictCodeNotPersonalKey, "%s did not send a personal key: "+
			"an administrator can revoke other API keys with DELETE /v1/apiKeys/{apiKey}", who.Name)
	}
	_, err := m.Parts.Access.RevokeAPIKey(ctx, who.PersonalKey)
	return &api.NoContent{}, err
}
