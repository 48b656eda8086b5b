package management

import (
	"time"

	"github.com/google/uuid"

	"postrider/catalog"
	"postrider/event"
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

// EndpointOf is the path for publishing to a topic.
func EndpointOf(t *catalog.Topic) string {
	if t.Kind == catalog.TopicNamespace {
		return topicPath(t.Name) + ":publish"
	}
	return topicPath(t.Name) + "/api/events"
}

// InputOf is how a topic's events are read.
func InputOf(t *catalog.Topic) event.Input {
	return event.Input{
		Schema: t.InputSchema, Topic: t.Name, Mapping: t.InputSchemaMapping, NewID: uuid.NewString, Now: time.Now(),
		Limits: event.DefaultLimits(),
	}
}
