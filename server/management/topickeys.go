package management

import (
	"context"
	"errors"

	"postrider/catalog"
	"postrider/postgres"
	"postrider/server/api"
)

// ListTopicKeys answers POST /v1/topics/{topic}/listKeys.
func (m *Handlers) ListTopicKeys(
	ctx context.Context, r api.ListTopicKeysRequestObject,
) (api.ListTopicKeysResponseObject, error) {
	keys, err := accessKeys(r.Topic, func() (*catalog.AccessKeys, error) { return m.Parts.Topics.Keys(ctx, r.Topic) })
	if err != nil {
		return nil, err
	}
	return api.ListTopicKeys200JSONResponse(keys), nil
}

// RegenerateTopicKey answers POST /v1/topics/{topic}/regenerateKey.
func (m *Handlers) RegenerateTopicKey(
	ctx context.Context, r api.RegenerateTopicKeyRequestObject,
) (api.RegenerateTopicKeyResponseObject, error) {
	if r.Body == nil || !r.Body.KeyName.Valid() {
		return nil, api.Invalid("keyName", "must be %s or %s", catalog.Key1, catalog.Key2)
	}
	name := catalog.KeyName(r.Body.KeyName)
	keys, err := accessKeys(r.Topic,
		func() (*catalog.AccessKeys, error) { return m.Parts.Topics.RegenerateKey(ctx, r.Topic, name) })
	if err != nil {
		return nil, err
	}
	return api.RegenerateTopicKey200JSONResponse(keys), nil
}

func accessKeys(topic string, ask func() (*catalog.AccessKeys, error)) (api.AccessKeys, error) {
	if !api.Storable(topic) {
		return api.AccessKeys{}, api.TopicNotFound(topic)
	}
	keys, err := ask()
	if errors.Is(err, postgres.ErrNotFound) {
		return api.AccessKeys{}, api.TopicNotFound(topic)
	}
	if err != nil {
		return api.AccessKeys{}, err
	}
	return api.AccessKeys{Key1: keys.Key1, Key2: keys.Key2}, nil
}
