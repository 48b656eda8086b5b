package management

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"postrider/catalog"
	"postrider/event"
	"postrider/postgres"
	"postrider/server/api"
)

// TopicPath names a topic.
type TopicPath struct {
	Topic string `path:"topic" example:"orders"`
}

// SubscriptionPath names an event subscription.
type SubscriptionPath struct {
	TopicPath
	Subscription string `path:"subscription" example:"billing"`
}

// check rejects names that no event subscription can have.
func (p SubscriptionPath) check() error {
	if !api.Storable(p.Topic) || !api.Storable(p.Subscription) {
		return api.SubscriptionNotFound(p.Topic, p.Subscription)
	}
	return nil
}

// rejected is err, or the response 404 if err says that the event subscription does not exist.
func (p SubscriptionPath) rejected(err error) error {
	if errors.Is(err, postgres.ErrNotFound) {
		return api.SubscriptionNotFound(p.Topic, p.Subscription)
	}
	return err
}

// EndpointOf is the path to publish to.
func EndpointOf(t *catalog.Topic) string {
	if t.Kind == catalog.TopicNamespace {
		return topicPath(t.Name) + ":publish"
	}
	return topicPath(t.Name) + "/api/events"
}

// InputOf is what the topic says of its input, and what an event gets that may leave out its id and time.
func InputOf(t *catalog.Topic) event.Input {
	return event.Input{
		Schema: t.InputSchema, Topic: t.Name, Mapping: t.InputSchemaMapping, NewID: uuid.NewString, Now: time.Now(),
		Limits: event.DefaultLimits(),
	}
}
