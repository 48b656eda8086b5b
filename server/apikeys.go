package server

import (
	"context"
	"net/http"

	"postrider/store"
)

// ListAPIKeys answers GET /v1/apiKeys.
func (m *management) ListAPIKeys(ctx context.Context, r ListAPIKeysRequestObject) (ListAPIKeysResponseObject, error) {
	page, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := m.store.Access().APIKeys(ctx, page.after, page.limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := cut(page, list, "/v1/apiKeys", func(k store.APIKey) string { return k.Name })
	answer := ListAPIKeys200JSONResponse{Value: []APIKey{}, NextLink: next}
	for i := range shown {
		answer.Value = append(answer.Value, DescribeAPIKey(&shown[i]))
	}
	return answer, nil
}

// CreateAPIKey answers POST /v1/apiKeys.
func (m *management) CreateAPIKey(ctx context.Context, r CreateAPIKeyRequestObject) (CreateAPIKeyResponseObject, error) {
	spec := store.APIKeySpec{Name: r.Body.Name, Scope: store.Scope(r.Body.Scope), Topic: optional(r.Body.Topic, ""), ExpiresInDays: r.Body.ExpiresInDays}
	if !storable(spec.Topic) {
		return nil, topicNotFound(spec.Topic)
	}
	key, made, err := m.store.Access().CreateAPIKey(ctx, spec)
	if err != nil {
		return nil, err
	}
	answer := DescribeAPIKey(made)
	answer.Key = &key
	return CreateAPIKey201JSONResponse(answer), nil
}

// GetAPIKey answers GET /v1/apiKeys/{apiKey}.
func (m *management) GetAPIKey(ctx context.Context, r GetAPIKeyRequestObject) (GetAPIKeyResponseObject, error) {
	if !storable(r.ApiKey) {
		return nil, apiKeyNotFound(r.ApiKey)
	}
	k, err := m.store.Access().APIKey(ctx, r.ApiKey)
	if err != nil {
		return nil, err
	}
	return GetAPIKey200JSONResponse(DescribeAPIKey(k)), nil
}

// RevokeAPIKey answers DELETE /v1/apiKeys/{apiKey}.
func (m *management) RevokeAPIKey(ctx context.Context, r RevokeAPIKeyRequestObject) (RevokeAPIKeyResponseObject, error) {
	if !storable(r.ApiKey) {
		return nil, apiKeyNotFound(r.ApiKey)
	}
	k, err := m.store.Access().RevokeAPIKey(ctx, r.ApiKey)
	if err != nil {
		return nil, err
	}
	return RevokeAPIKey200JSONResponse(DescribeAPIKey(k)), nil
}

// DescribeAPIKey is the key as the REST API and `apikey list -o json` write it.
func DescribeAPIKey(k *store.APIKey) APIKey {
	return APIKey{
		Name: k.Name, Scope: KeyScope(k.Scope), Topic: k.Topic, Hint: k.Hint, State: APIKeyState(k.State), CreatedAt: k.CreatedAt.UTC(), CreatedBy: k.CreatedBy,
		ExpiresAt: utcOrNull(k.ExpiresAt), LastUsedAt: utcOrNull(k.LastUsedAt), RevokedAt: utcOrNull(k.RevokedAt),
		Owner: k.Owner, Machine: k.Machine,
	}
}

func apiKeyNotFound(name string) error {
	return refuse(http.StatusNotFound, codeNotFound, "there is no API key %q", shorten(name))
}
