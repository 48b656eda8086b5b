package server

import (
	"context"
	"errors"

	"postrider/store"
)

// ListTopicKeys answers POST /v1/topics/{topic}/listKeys.
func (m *management) ListTopicKeys(ctx context.Context, r ListTopicKeysRequestObject) (ListTopicKeysResponseObject, error) {
	keys, err := accessKeys(r.Topic, func() (*store.AccessKeys, error) { return m.store.TopicKeys(ctx, r.Topic) })
	if err != nil {
		return nil, err
	}
	return ListTopicKeys200JSONResponse(keys), nil
}

// RegenerateTopicKey answers POST /v1/topics/{topic}/regenerateKey.
func (m *management) RegenerateTopicKey(ctx context.Context, r RegenerateTopicKeyRequestObject) (RegenerateTopicKeyResponseObject, error) {
	if r.Body == nil || !r.Body.KeyName.Valid() {
		return nil, invalid("keyName", "must be %s or %s", store.Key1, store.Key2)
	}
	name := store.KeyName(r.Body.KeyName)
	keys, err := accessKeys(r.Topic, func() (*store.AccessKeys, error) { return m.store.RegenerateTopicKey(ctx, r.Topic, name) })
	if err != nil {
		return nil, err
	}
	return RegenerateTopicKey200JSONResponse(keys), nil
}

func accessKeys(topic string, ask func() (*store.AccessKeys, error)) (AccessKeys, error) {
	if !storable(topic) {
		return AccessKeys{}, topicNotFound(topic)
	}
	keys, err := ask()
	if errors.Is(err, store.ErrNotFound) {
		return AccessKeys{}, topicNotFound(topic)
	}
	if err != nil {
		return AccessKeys{}, err
	}
	return AccessKeys{Key1: keys.Key1, Key2: keys.Key2}, nil
}
