package v1

import (
	"context"
	"time"

	"postrider/internal/access"
	"postrider/server/api"
)

// ListAPIKeys lists API keys by name.
//
// Lists API keys, revoked and expired ones included, without the keys themselves.
func (m *Handlers) ListAPIKeys(ctx context.Context, r *api.PageParams) (*api.List[access.APIKey], error) {
	return api.ListAfter(ctx, r, m.Parts.Access.APIKeys, func(k access.APIKey) string { return k.Name })
}

// CreateAPIKey creates an API key.
//
// Creates an API key. Only this response has the key itself; postrider stores its SHA-256.
func (m *Handlers) CreateAPIKey(
	ctx context.Context, r *api.Body[access.APIKeySpec],
) (*api.Created[access.APIKey], error) {
	secret, key, err := m.Parts.Access.CreateAPIKey(ctx, r.Body)
	if err != nil {
		return nil, err
	}
	m.logSecret(ctx, "an API key was created", "key", r.Body.Name, "scope", r.Body.Scope)
	key.Key = secret
	return &api.Created[access.APIKey]{Body: key}, nil
}

// APIKeyPath names an API key.
type APIKeyPath struct {
	Name string `path:"apiKey" example:"ci"`
}

// GetAPIKey reads an API key.
//
// Returns the properties of an API key, without the key itself.
func (m *Handlers) GetAPIKey(ctx context.Context, r *APIKeyPath) (*access.APIKey, error) {
	return m.Parts.Access.APIKey(ctx, r.Name)
}

// RevokeAPIKey revokes an API key.
//
// Revokes an API key. Every node rejects it after one second. It stays in the list.
func (m *Handlers) RevokeAPIKey(ctx context.Context, r *APIKeyPath) (*access.APIKey, error) {
	return m.Parts.Access.RevokeAPIKey(ctx, r.Name)
}

// logSecret logs a response with a secret, without the secret.
func (m *Handlers) logSecret(ctx context.Context, what string, about ...any) {
	actor := access.ActorOf(ctx)
	m.Log.Info(what, append(about, "client", actor.Address, "actor", actor.Name)...)
}

// ListUsers lists users by name.
//
// Lists the users who sign in to the dashboard, without their passwords.
func (m *Handlers) ListUsers(ctx context.Context, r *api.PageParams) (*api.List[access.User], error) {
	return api.ListAfter(ctx, r, m.Parts.Access.Users, func(u access.User) string { return u.Name })
}

// UserPath names a user.
type UserPath struct {
	Name string `path:"user" example:"anna"`
}

type putUserRequest struct {
	UserPath
	api.PutHeaders
	Body access.UserSpec
}

// PutUser creates or changes a user.
//
// Creates a user, or changes the members in the request. `role` is always required, `password` for a new user.
//
// A new role, a new password or `disabled` ends the user's sessions. A new password or `disabled` also revokes the
// personal keys; a lower role lowers their scope.
//
// The last administrator who can sign in can be changed only with the admin token.
func (m *Handlers) PutUser(ctx context.Context, r *putUserRequest) (*api.Put[access.User], error) {
	if r.Body.Role == "" {
		return nil, api.Invalid("role", "is required: viewer, operator or admin")
	}
	created, err := m.Parts.Access.PutUser(ctx, r.Name, r.Body, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(err, "user", r.Name)
	}
	u, err := m.Parts.Access.User(ctx, r.Name)
	return &api.Put[access.User]{Body: u, Created: created}, err
}

// GetUser reads a user.
//
// Returns the role of a user, whether the user is disabled, and the number of open sessions.
func (m *Handlers) GetUser(ctx context.Context, r *UserPath) (*access.User, error) {
	return m.Parts.Access.User(ctx, r.Name)
}

type deleteUserRequest struct {
	UserPath
	api.IfMatchHeader
}

// DeleteUser deletes a user.
//
// Deletes a user with all sessions and personal keys. The audit keeps the name.
func (m *Handlers) DeleteUser(ctx context.Context, r *deleteUserRequest) (*api.NoContent, error) {
	err := m.Parts.Access.DeleteUser(ctx, r.Name, r.Conditions()...)
	return &api.NoContent{}, r.Rejected(err, "user", r.Name)
}

// Me is the actor of a credential.
type Me struct {
	// Name in the audit: user:NAME, key:NAME, or admin for the admin token.
	Name string      `json:"name"`
	Role access.Role `json:"role" enum:"viewer,operator,admin"`
	// Whether the actor may run SQL queries.
	Query bool `json:"query"`
	// Name of the API key; null for another credential.
	APIKey *string `json:"apiKey"`
	// When the API key expires; null means never.
	ExpiresAt *time.Time `json:"expiresAt"`
}

// WhoAmI reads the owner of the credential.
//
// Returns the actor's name in the audit, its role, and the expiry of the API key.
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
