package store

import (
	"context"
	"errors"
	"fmt"

	"postrider/event"
	"postrider/policy"

	"github.com/google/uuid"
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
func (s *Store) EnsureSystemTopic(ctx context.Context) error {
	if _, made := s.Catalogue().Topic(SystemTopic); made {
		return nil
	}
	if _, _, err := s.PutTopic(ctx, SystemTopic, TopicSpec{Kind: TopicBasic, InputSchema: event.CloudEvents}); err != nil {
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

// queueNotices notes, in the transaction that records a group, whom of it T3 has dead-lettered or dropped. It is a statement of its own
// after T3's, which is long enough for those who tell nobody.
func (r *recorder[T]) queueNotices(batch *pgx.Batch, group []T) {
	const note = `SELECT postrider_internal.note_ends($1::bigint[] || ARRAY (SELECT delivery_id FROM postrider_internal.batch_members WHERE batch_id = ANY ($2::bigint[])))`
	catalogue := r.store.Catalogue()
	if !catalogue.someoneIsTold() {
		return
	}
	deliveries, batches := []int64{}, []int64{}
	for _, req := range group {
		if catalogue.tellsOf(req.single().SubscriptionID) {
			deliveries, batches = req.failures(deliveries, batches)
		}
	}
	if len(deliveries)+len(batches) > 0 {
		batch.Queue(note, deliveries, batches)
	}
}

func fails(v policy.VerdictAction) bool { return v == policy.DeadLetter || v == policy.Drop }

func (q *recordRequest) failures(deliveries, batches []int64) (more, moreBatches []int64) {
	if fails(q.Verdict.Action) {
		deliveries = append(deliveries, q.DeliveryID)
	}
	return deliveries, batches
}

func (q *batchRequest) failures(deliveries, batches []int64) (more, moreBatches []int64) {
	if fails(q.Verdict.Action) {
		return deliveries, append(batches, q.BatchID) // with those that have a fate of their own
	}
	for _, fate := range q.fates {
		if fails(fate.Verdict.Action) {
			deliveries = append(deliveries, fate.DeliveryID)
		}
	}
	return deliveries, batches
}

// TellNotices makes events of what was noted, publishes them to SystemTopic as publishers by SQL do, and answers how many there were.
// Every node calls it each second; one of them does it.
func (s *Store) TellNotices(ctx context.Context) (told int, err error) {
	if !s.Catalogue().someoneIsTold() {
		return 0, nil
	}
	if err := s.db.QueryRow(ctx, "SELECT postrider_internal.tell()").Scan(&told); err != nil {
		return 0, fmt.Errorf("tell what was noted: %w", err)
	}
	return told, nil
}

// CleanNotices removes what was noted and nobody is left to be told of.
func (s *Store) CleanNotices(ctx context.Context) error {
	if _, err := s.db.Exec(ctx, "DELETE FROM postrider_internal.notices WHERE postrider_internal.told_since() IS NULL"); err != nil {
		return fmt.Errorf("remove notices for nobody: %w", err)
	}
	return nil
}

// noteExpired notes, in the transaction that has deleted it, that an event subscription's time had come.
func noteExpired(ctx context.Context, tx pgx.Tx, sub *Subscription) error {
	if _, err := tx.Exec(ctx, "SELECT postrider_internal.note_expired($1)", sub.ID); err != nil {
		return fmt.Errorf("note that event subscription %q of topic %q has expired: %w", sub.Name, sub.Topic, err)
	}
	return nil
}

// noteExportsGivenUp notes, in the transaction that marks them so, that these dead letters will not be written outside any more.
func noteExportsGivenUp(ctx context.Context, tx pgx.Tx, letters []uuid.UUID, r *ExportResult) error {
	reason := r.Error
	if reason == "" { // the file was written, without these
		reason = r.Unfit[letters[0]]
	}
	if _, err := tx.Exec(ctx, "SELECT postrider_internal.note_exports_given_up($1::uuid[], $2)", letters, nullText(reason).String); err != nil {
		return fmt.Errorf("note that an export was given up: %w", err)
	}
	return nil
}
