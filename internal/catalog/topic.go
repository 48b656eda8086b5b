package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/access"
	"postrider/internal/event"
	"postrider/internal/postgres"
)

// TopicKind is basic (Event Grid's custom topic) or namespace (its namespace topic).
type TopicKind string

// The kinds of topic.
const (
	TopicBasic     TopicKind = "basic"
	TopicNamespace TopicKind = "namespace"
)

// Relay is whose event subscriptions deliver into a topic.
type Relay string

// The relays of a topic. A relay topic accepts the handshakes of the other service, and events of other topics.
const (
	RelayNone  Relay = "none"
	RelayAzure Relay = "azure" // Azure Event Grid
)

// Topic is where publishers post events.
type Topic struct {
	ID          int64
	Name        string
	Kind        TopicKind
	InputSchema event.Schema
	// InputSchemaMapping is of topics of schema event.Custom; nil for the others.
	InputSchemaMapping *event.Mapping
	// EventRetentionInDays, of namespace topics, bounds the time to live of their events; 0 for the others.
	EventRetentionInDays int
	// DuplicateWindow is how long an event of the same source and id is not stored again, in whole minutes; 0 = never.
	DuplicateWindow time.Duration
	// Relay is whose event subscriptions deliver into the topic. Only topics of kind basic can be relays.
	Relay Relay
	// Key1Hash and Key2Hash are SHA-256 of the access keys: keys are 256 random bits, so no slow hash is needed.
	Key1Hash, Key2Hash   []byte
	Version              postgres.Version
	CreatedAt, UpdatedAt time.Time
	DeletedAt            *time.Time
	signing              *signing // a pointer: printed, it shows no key
}

// Relays reports whether the topic is a relay.
func (t *Topic) Relays() bool { return t.Relay == RelayAzure }

// version is 0 for nil.
func (t *Topic) version() postgres.Version {
	if t == nil {
		return 0
	}
	return t.Version
}

// DefaultRetentionInDays is the retention of a namespace topic that sets none, and the longest: 1 to 7 days may be set.
// The default is postrider's own; the time to live of namespace-2023 is as long. Source: Microsoft, Event retention for
// Azure Event Grid namespace topics and event subscriptions.
const DefaultRetentionInDays = 7

// TopicSpec are the settings of a topic. Only the retention, the window, the relay and the keys can be changed later.
type TopicSpec struct {
	Kind        TopicKind
	InputSchema event.Schema
	// InputSchemaMapping belongs to schema event.Custom, which must have one that passed Validate, and to no other.
	InputSchemaMapping *event.Mapping
	// EventRetentionInDays is of namespace topics, 1 to 7; 0 for their default, and for the others.
	EventRetentionInDays int
	// DuplicateWindow is 1 minute to 7 days in whole minutes; 0 stores an event each time that it is published.
	DuplicateWindow time.Duration
	// Relay is RelayNone if "".
	Relay Relay
	// Keys are generated if nil; dev sets its well-known key.
	Keys *AccessKeys
}

// Topics reads and changes topics and their access keys.
type Topics struct {
	records
	cache *Cache
}

type topicRow struct {
	Topic
	Key1Sealed, Key2Sealed []byte
}

func (r records) queryTopics(ctx context.Context, db postgres.Querier, where string, args ...any) ([]*Topic, error) {
	rows, _ := db.Query(ctx, sql("topic")+where, args...) // CollectRows returns its error
	list, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[topicRow])
	if err != nil {
		return nil, postgres.ReadError("topics", err)
	}
	topics := make([]*Topic, len(list))
	for i, row := range list {
		topics[i] = &row.Topic
		row.signing = &signing{topic: row.Name, key1: row.Key1Sealed, key2: row.Key2Sealed, sealer: r.sealer, log: r.log}
	}
	return topics, nil
}

// Get reads one topic by name; ErrNotFound.
func (t *Topics) Get(ctx context.Context, name string) (*Topic, error) {
	return t.topic(ctx, t.db, name)
}

func (r records) topic(ctx context.Context, db postgres.Querier, name string) (*Topic, error) {
	topics, err := r.queryTopics(ctx, db, "WHERE t.name = $1 AND t.deleted_at IS NULL", name)
	if err != nil {
		return nil, err
	}
	if len(topics) == 0 {
		return nil, fmt.Errorf("topic %q: %w", name, postgres.ErrNotFound)
	}
	return topics[0], nil
}

// List lists topics by name, after the given name, at most limit.
func (t *Topics) List(ctx context.Context, after string, limit int) ([]*Topic, error) {
	return t.queryTopics(ctx, t.db, "WHERE t.deleted_at IS NULL AND t.name > $1 ORDER BY t.name LIMIT $2", after, limit)
}

// Put creates a topic, or changes the retention, window and relay of an existing one. It returns the keys only of a new
// topic. *FunctionError, which is ErrConflict: the topic has another kind, schema or mapping, or a name exists that
// differs only in letter case. ErrPrecondition.
func (t *Topics) Put(
	ctx context.Context, name string, spec TopicSpec, when ...postgres.Condition,
) (*Topic, *AccessKeys, error) {
	if spec.Kind == TopicNamespace && spec.EventRetentionInDays == 0 {
		spec.EventRetentionInDays = DefaultRetentionInDays
	}
	spec.Relay = cmp.Or(spec.Relay, RelayNone)
	keys := spec.Keys
	if keys == nil {
		keys = &AccessKeys{Key1: postgres.NewAccessKey(), Key2: postgres.NewAccessKey()}
	}
	var topic *Topic
	created := false
	err := t.cache.change(ctx, func(tx pgx.Tx) error {
		existing, err := t.topic(ctx, tx, name)
		if created = errors.Is(err, postgres.ErrNotFound); err != nil && !created {
			return err
		}
		if err := postgres.CheckConditions(when, existing.version()); err != nil {
			return fmt.Errorf("topic %q: %w", name, err)
		}
		if created {
			if err := postgres.NameFree(ctx, tx, "topic", likeTopicStatement, name); err != nil {
				return err
			}
			err = t.insertTopic(ctx, tx, name, spec, keys)
		} else {
			err = existing.replace(ctx, tx, spec)
		}
		if err != nil {
			return err
		}
		topic, err = t.topic(ctx, tx, name)
		return err
	})
	if err != nil || !created {
		return topic, nil, err
	}
	return topic, keys, nil
}

// replace changes the settings that can be changed.
func (t *Topic) replace(ctx context.Context, tx pgx.Tx, spec TopicSpec) error {
	if err := t.agreesWith(spec); err != nil {
		return err
	}
	var different []string
	if t.EventRetentionInDays != spec.EventRetentionInDays {
		different = append(different, "eventRetentionInDays")
	}
	if t.DuplicateWindow != spec.DuplicateWindow {
		different = append(different, "duplicateDetectionWindowInMinutes")
	}
	if t.Relay != spec.Relay {
		different = append(different, "relay")
	}
	if len(different) == 0 {
		return nil
	}
	before, err := readSettings(ctx, tx, topicSettings, t.Name)
	if err != nil {
		return err
	}
	const update = `UPDATE postrider_internal.topics SET event_retention_in_days = nullif($2::integer, 0),
		duplicate_detection_window_in_minutes = nullif($3::integer, 0), relay = $4 WHERE id = $1`
	args := []any{t.ID, spec.EventRetentionInDays, WholeMinutes(spec.DuplicateWindow), spec.Relay}
	if err := postgres.Exec(ctx, tx, fmt.Sprintf("change topic %q", t.Name), update, args...); err != nil {
		return err
	}
	return auditTopic(ctx, tx, access.AuditTopicReplaced, t.Name, before, map[string]any{"settings": different})
}

// auditTopic records that a topic was created, changed or deleted, with the differences from before.
func auditTopic(
	ctx context.Context, tx pgx.Tx, action access.AuditAction, name string, before access.Settings, details map[string]any,
) error {
	after, err := readSettings(ctx, tx, topicSettings, name)
	if err != nil {
		return err
	}
	return access.Audit(ctx, tx,
		access.AuditEntry{Action: action, Topic: name, Details: details, Changes: access.Changes(before, after)})
}

// PublishPath is the path of the REST API that publishes to the topic.
func (t *Topic) PublishPath() string {
	path := "/topics/" + url.PathEscape(t.Name)
	if t.Kind == TopicNamespace {
		return path + ":publish"
	}
	return path + "/api/events"
}

// WholeMinutes returns a duration in whole minutes.
func WholeMinutes(d time.Duration) int { return int(d / time.Minute) }

// ErrTopicExists means: the topic exists with settings that cannot be changed.
var ErrTopicExists = fmt.Errorf("the topic exists: %w", postgres.ErrConflict)

func (t *Topic) agreesWith(spec TopicSpec) error {
	var other string
	switch {
	case t.Kind != spec.Kind:
		other = "kind " + string(t.Kind)
	case t.InputSchema != spec.InputSchema:
		other = "inputSchema " + string(t.InputSchema)
	case !reflect.DeepEqual(t.InputSchemaMapping, spec.InputSchemaMapping):
		other = "another inputSchemaMapping"
	default:
		return nil
	}
	return postgres.NewFunctionError(ErrTopicExists, "", "topic %q has %s, which cannot be changed", t.Name, other)
}

func (t *Topics) insertTopic(ctx context.Context, tx pgx.Tx, name string, spec TopicSpec, keys *AccessKeys) error {
	const insert = `INSERT INTO postrider_internal.topics (name, kind, input_schema, input_schema_mapping, key1_sealed,
		key2_sealed, key1_hash, key2_hash, event_retention_in_days, duplicate_detection_window_in_minutes, relay)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, nullif($9::integer, 0), nullif($10::integer, 0), $11)`
	var mapping any // SQL's NULL and not JSON's
	if spec.InputSchemaMapping != nil {
		mapping = spec.InputSchemaMapping
	}
	err := postgres.Exec(ctx, tx, fmt.Sprintf("insert topic %q", name), insert, name, spec.Kind, spec.InputSchema,
		mapping, t.sealer.Seal(key1Column, keys.Key1), t.sealer.Seal(key2Column, keys.Key2),
		postgres.HashKey(keys.Key1), postgres.HashKey(keys.Key2), spec.EventRetentionInDays,
		WholeMinutes(spec.DuplicateWindow), spec.Relay)
	if err != nil {
		return err
	}
	return auditTopic(ctx, tx, access.AuditTopicCreated, name, nil, nil)
}

// Delete deletes a topic. ErrNotFound; ErrPrecondition; ErrSystemTopic. ErrConflict: it has event subscriptions,
// whose deletion cancels deliveries and must be requested for each.
func (t *Topics) Delete(ctx context.Context, name string, when ...postgres.Condition) error {
	if err := rejectOwn(name); err != nil {
		return err
	}
	return t.cache.change(ctx, func(tx pgx.Tx) error {
		topic, err := t.topic(ctx, tx, name)
		if err != nil {
			return err
		}
		if err := postgres.CheckConditions(when, topic.version()); err != nil {
			return fmt.Errorf("topic %q: %w", name, err)
		}
		var subs int
		const count = "SELECT count(*) FROM postrider_internal.event_subscriptions WHERE topic_id = $1 AND deleted_at IS NULL"
		if err := tx.QueryRow(ctx, count, topic.ID).Scan(&subs); err != nil {
			return fmt.Errorf("count event subscriptions: %w", err)
		}
		if subs > 0 {
			return fmt.Errorf("topic %q has %d event subscriptions, delete them first: %w", name, subs, postgres.ErrConflict)
		}
		before, err := readSettings(ctx, tx, topicSettings, name)
		if err != nil {
			return err
		}
		const deleted = "UPDATE postrider_internal.topics SET deleted_at = now() WHERE id = $1"
		if err := postgres.Exec(ctx, tx, fmt.Sprintf("delete topic %q", name), deleted, topic.ID); err != nil {
			return err
		}
		return auditTopic(ctx, tx, access.AuditTopicDeleted, name, before, nil)
	})
}

const (
	likeTopicStatement = `
SELECT name FROM postrider_internal.topics WHERE lower(name COLLATE "C") = lower($1 COLLATE "C") AND deleted_at IS NULL`
	likeSubscriptionStatement = `
SELECT name FROM postrider_internal.event_subscriptions
 WHERE topic_id = $2 AND lower(name COLLATE "C") = lower($1 COLLATE "C") AND deleted_at IS NULL`
)

// CheckNameFree reports whether an event subscription can be created with this name. *FunctionError, which is
// ErrConflict: an existing name differs only in letter case.
func (s *Subscriptions) CheckNameFree(ctx context.Context, topic *Topic, name string) error {
	return subscriptionNameFree(ctx, s.db, topic.ID, name)
}

func subscriptionNameFree(ctx context.Context, db postgres.Querier, topicID int64, name string) error {
	return postgres.NameFree(ctx, db, "event subscription", likeSubscriptionStatement, name, topicID)
}
