package store

import (
	"context"
	"errors"
	"fmt"

	"postrider/event"

	"github.com/jackc/pgx/v5"
)

// SystemTopic is where postrider tells operators what they want to know: dead letters, drops, probations and the like, as
// CloudEvents, to whoever subscribes. Nobody else publishes to it.
const SystemTopic = "postrider.system"

// ErrOwnTopic: SystemTopic cannot be deleted, and has no access keys.
var ErrOwnTopic = errors.New("it is postrider's own topic")

func refuseOwn(topic string) error {
	if topic == SystemTopic {
		return fmt.Errorf("topic %q: %w", topic, ErrOwnTopic)
	}
	return nil
}

// EnsureSystemTopic makes SystemTopic where it is not there yet. Nodes that start at the same moment wait for one another. Nobody
// is ever shown its access keys.
func (t *Topics) EnsureSystemTopic(ctx context.Context) error {
	if _, made := t.cache.Catalogue().Topic(SystemTopic); made {
		return nil
	}
	if _, _, err := t.PutTopic(ctx, SystemTopic, TopicSpec{Kind: TopicBasic, InputSchema: event.CloudEvents}); err != nil {
		return fmt.Errorf("make topic %s: %w", SystemTopic, err)
	}
	return nil
}

// someoneIsTold reports whether SystemTopic has event subscriptions. As long as it has none, nothing is written down for it.
func (c *Catalogue) someoneIsTold() bool {
	topic, made := c.topics[SystemTopic]
	return made && len(c.subsByTopic[topic.ID]) > 0
}

// tellsOf reports whether somebody is to be told what becomes of an event subscription's deliveries. Of those of SystemTopic itself
// nobody is: an endpoint that fails at being told would be told of that, for ever.
func (c *Catalogue) tellsOf(subscription int64) bool {
	sub, known := c.subs[subscription]
	return c.someoneIsTold() && (!known || sub.Topic != SystemTopic)
}

// noteExpired notes, in the transaction that has deleted it, that an event subscription's time had come.
func noteExpired(ctx context.Context, tx pgx.Tx, sub *Subscription) error {
	if _, err := tx.Exec(ctx, "SELECT postrider_internal.note_expired($1)", sub.ID); err != nil {
		return fmt.Errorf("note that event subscription %q of topic %q has expired: %w", sub.Name, sub.Topic, err)
	}
	return nil
}
