package management

import (
	"context"
	"net/http"

	"postrider/access"
	"postrider/server/api"
)

// ListAPIKeys answers GET /v1/apiKeys.
func (m *Handlers) ListAPIKeys(
	ctx context.Context, r api.ListAPIKeysRequestObject,
) (api.ListAPIKeysResponseObject, error) {
	page, err := api.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := m.Parts.Access.APIKeys(ctx, page.After, page.Limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := api.Cut(page, list, "/v1/apiKeys", func(k access.APIKey) string { return k.Name })
	answer := api.ListAPIKeys200JSONResponse{Value: []api.APIKey{}, NextLink: next}
	for i := range shown {
		answer.Value = append(answer.Value, DescribeAPIKey(&shown[i]))
	}
	return answer, nil
}

// CreateAPIKey answers POST /v1/apiKeys.
func (m *Handlers) CreateAPIKey(
	ctx context.Context, r api.CreateAPIKeyRequestObject,
) (api.CreateAPIKeyResponseObject, error) {
	spec := access.APIKeySpec{
		Name: r.Body.Name, Scope: access.Scope(r.Body.Scope), Topic: optional(r.Body.Topic, ""),
		ExpiresInDays: r.Body.ExpiresInDays,
	}
	if !api.Storable(spec.Topic) {
		return nil, api.TopicNotFound(spec.Topic)
	}
	key, made, err := m.Parts.Access.CreateAPIKey(ctx, spec)
	if err != nil {
		return nil, err
	}
	answer := DescribeAPIKey(made)
	answer.Key = &key
	return api.CreateAPIKey201JSONResponse(answer), nil
}

// GetAPIKey answers GET /v1/apiKeys/{apiKey}.
func (m *Handlers) GetAPIKey(ctx context.Context, r api.GetAPIKeyRequestObject) (api.GetAPIKeyResponseObject, error) {
	if !api.Storable(r.ApiKey) {
		return nil, apiKeyNotFound(r.ApiKey)
	}
	k, err := m.Parts.Access.APIKey(ctx, r.ApiKey)
	if err != nil {
		return nil, err
	}
	return api.GetAPIKey200JSONResponse(DescribeAPIKey(k)), nil
}

// RevokeAPIKey answers DELETE /v1/apiKeys/{apiKey}.
func (m *Handlers) RevokeAPIKey(
	ctx context.Context, r api.RevokeAPIKeyRequestObject,
) (api.RevokeAPIKeyResponseObject, error) {
	if !api.Storable(r.ApiKey) {
		return nil, apiKeyNotFound(r.ApiKey)
	}
	k, err := m.Parts.Access.RevokeAPIKey(ctx, r.ApiKey)
	if err != nil {
		return nil, err
	}
	return api.RevokeAPIKey200JSONResponse(DescribeAPIKey(k)), nil
}

// DescribeAPIKey is the key as the REST API and `apikey list -o json` write it.
func DescribeAPIKey(k *access.APIKey) api.APIKey {
	return api.APIKey{
		Name: k.Name, Scope: api.KeyScope(k.Scope), Topic: k.Topic, Hint: k.Hint, State: api.APIKeyState(k.State),
		CreatedAt: k.CreatedAt.UTC(), CreatedBy: k.CreatedBy,
		ExpiresAt: utcOrNull(k.ExpiresAt), LastUsedAt: utcOrNull(k.LastUsedAt), RevokedAt: utcOrNull(k.RevokedAt),
		Owner: k.Owner, Machine: k.Machine,
	}
}

func apiKeyNotFound(name string) error {
	return api.Refuse(http.StatusNotFound, api.CodeNotFound, "there is no API key %q", api.Shorten(name))
}
