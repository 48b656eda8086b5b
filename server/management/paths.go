package management

import (
	"time"

	"github.com/google/uuid"

	"postrider/catalog"
	"postrider/event"
)

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
