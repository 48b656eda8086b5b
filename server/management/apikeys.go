package management

import (
	"context"

	"postrider/access"
	"postrider/server/api"
)

// ListAPIKeys responds to GET /v1/apiKeys.
func (m *Handlers) ListAPIKeys(ctx context.Context, r *api.PageParams) (*api.List[access.APIKey], error) {
	return api.ListByName(ctx, r, "/v1/apiKeys", m.Parts.Access.APIKeys, func(k access.APIKey) string { return k.Name })
}

// CreateAPIKeyRequest is the request POST /v1/apiKeys.
type CreateAPIKeyRequest struct{ Body access.APIKeySpec }

// CreateAPIKey responds to POST /v1/apiKeys.
func (m *Handlers) CreateAPIKey(ctx context.Context, r *CreateAPIKeyRequest) (*api.Created[access.APIKey], error) {
	if !api.Storable(r.Body.Topic) {
		return nil, api.TopicNotFound(r.Body.Topic)
	}
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

// GetAPIKey responds to GET /v1/apiKeys/{apiKey}.
func (m *Handlers) GetAPIKey(ctx context.Context, r *APIKeyPath) (*access.APIKey, error) {
	return m.Parts.Access.APIKey(ctx, r.Name)
}

// RevokeAPIKey responds to DELETE /v1/apiKeys/{apiKey}.
func (m *Handlers) RevokeAPIKey(ctx context.Context, r *APIKeyPath) (*access.APIKey, error) {
	return m.Parts.Access.RevokeAPIKey(ctx, r.Name)
}

// logSecret logs a response with a secret, without the secret.
func (m *Handlers) logSecret(ctx context.Context, what string, about ...any) {
	actor := access.ActorOf(ctx)
	m.Log.Info(what, append(about, "client", actor.Address, "actor", actor.Name)...)
}
