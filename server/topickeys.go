package server

import (
	"context"
	"errors"

	"github.com/labstack/echo/v4"

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

// audit writes a line at level info for each answer that holds access keys or signing secrets which existed, or replaces one. They are
// not in it.
func (s *Server) audit(next StrictHandlerFunc, _ string) StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		answer, err := next(c, request)
		if err != nil {
			return answer, err
		}
		switch r := request.(type) {
		case ListTopicKeysRequestObject:
			s.log.Info("access keys of a topic were shown", "topic", r.Topic, "client", c.RealIP())
		case RegenerateTopicKeyRequestObject:
			s.log.Info("an access key of a topic was replaced", "topic", r.Topic, "key", r.Body.KeyName, "client", c.RealIP())
		case GetSigningSecretsRequestObject:
			s.log.Info("signing secrets of an event subscription were shown", "topic", r.Topic, "subscription", r.Subscription, "client", c.RealIP())
		case RotateSigningSecretRequestObject:
			s.log.Info("the signing secret of an event subscription was replaced", "topic", r.Topic, "subscription", r.Subscription, "client", c.RealIP())
		}
		return answer, nil
	}
}
