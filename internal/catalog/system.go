package catalog

import (
	"context"
	"errors"
	"fmt"

	"postrider/internal/event"
)

// SystemTopic is the topic of postrider's own events: dead letters, drops, probations and others, as CloudEvents. Only
// postrider publishes to it.
const SystemTopic = "postrider.system"

// ErrSystemTopic means: SystemTopic cannot be deleted, and has no access keys.
var ErrSystemTopic = errors.New("it is postrider's own topic")

func rejectOwn(topic string) error {
	if topic == SystemTopic {
		return fmt.Errorf("topic %q: %w", topic, ErrSystemTopic)
	}
	return nil
}

// EnsureSystem creates SystemTopic if it does not exist. Nodes that start at the same time wait for each other.
// Its access keys are never shown.
func (t *Topics) EnsureSystem(ctx context.Context) error {
	if _, exists := t.cache.Snapshot().Topic(SystemTopic); exists {
		return nil
	}
	if _, _, err := t.Put(ctx, SystemTopic, TopicSpec{Kind: TopicBasic, InputSchema: event.CloudEvents}); err != nil {
		return fmt.Errorf("create topic %s: %w", SystemTopic, err)
	}
	return nil
}

// HasSystemSubscribers reports whether SystemTopic has event subscriptions. Without one, no notice is stored.
func (c *Snapshot) HasSystemSubscribers() bool {
	topic, exists := c.topics[SystemTopic]
	return exists && len(c.subsByTopic[topic.ID]) > 0
}

// NotifiesOf reports whether SystemTopic gets events about an event subscription's deliveries. There are none about its
// own event subscriptions: an endpoint that fails would get an event about each failure, forever.
func (c *Snapshot) NotifiesOf(subscription int64) bool {
	sub, known := c.subs[subscription]
	return c.HasSystemSubscribers() && (!known || sub.Topic != SystemTopic)
}
