package v1

import (
	"context"
	"errors"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/policy"
	"postrider/server/api"
)

// TopicSpec are the settings of a topic.
type TopicSpec struct {
	Kind                              *catalog.TopicKind `json:"kind" minLength:"1" column:"Kind"`
	InputSchema                       *event.Schema      `json:"inputSchema" minLength:"1" column:"Input schema"`
	InputSchemaMapping                *event.Mapping     `json:"inputSchemaMapping,omitempty" schema:"InputSchemaMapping"`
	EventRetentionInDays              *int               `json:"eventRetentionInDays,omitempty"`
	DuplicateDetectionWindowInMinutes *int               `json:"duplicateDetectionWindowInMinutes,omitempty"`
	Relay                             *catalog.Relay     `json:"relay" minLength:"1"`
}

// Topic is the address to which publishers send events.
type Topic struct {
	// Name, 3 to 64 characters.
	Name string `json:"name" column:"Topic" list:"/v1/topics"`
	TopicSpec
	// Version of its settings and keys, for If-Match.
	Version postgres.Version `json:"etag"`
	// Path for publishing.
	Endpoint string `json:"endpoint" column:"Publish to"`
	// Access key, only in the response that creates the topic.
	Key1 *string `json:"key1,omitempty"`
	// Access key, only in the response that creates the topic.
	Key2 *string `json:"key2,omitempty"`
	// When it was created.
	CreatedAt time.Time `json:"createdAt" column:"Created at"`
	// When its settings or keys were last changed.
	UpdatedAt time.Time `json:"updatedAt"`
}

// ListTopics lists topics by name.
//
// Lists the topics without their access keys. A topic without a mapping, retention or duplicate window omits the
// member.
func (m *Handlers) ListTopics(ctx context.Context, r *api.PageParams) (*api.List[Topic], error) {
	read := func(ctx context.Context, after string, limit int) ([]Topic, error) {
		list, err := m.Parts.Topics.List(ctx, after, limit)
		topics := make([]Topic, len(list))
		for i, t := range list {
			topics[i] = *topicView(t, nil)
		}
		return topics, err
	}
	return api.ListAfter(ctx, r, read, func(t Topic) string { return t.Name })
}

type putTopicRequest struct {
	TopicPath
	api.PutHeaders
	Body TopicSpec
}

// PutTopic creates or changes a topic.
//
// Creates a topic, or changes its `eventRetentionInDays`, `duplicateDetectionWindowInMinutes` and `relay`. Absent
// settings take their defaults. Kind, input schema and mapping cannot be changed.
//
// The response that creates the topic has its access keys. Later, listKeys shows them.
func (m *Handlers) PutTopic(ctx context.Context, r *putTopicRequest) (*api.Put[Topic], error) {
	return m.putTopic(ctx, r, nil)
}

// putTopic creates or changes a topic. chosen are the access keys of a new one; nil = generated ones.
func (m *Handlers) putTopic(
	ctx context.Context, r *putTopicRequest, chosen *catalog.AccessKeys,
) (*api.Put[Topic], error) {
	spec, err := r.Body.check(r.Topic)
	if err != nil {
		return nil, err
	}
	spec.Keys = chosen
	topic, keys, err := m.Parts.Topics.Put(ctx, r.Topic, spec, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(err, "topic", r.Topic)
	}
	return &api.Put[Topic]{Body: topicView(topic, keys), Created: keys != nil}, nil
}

// GetTopic reads a topic.
//
// Returns the settings of a topic. Only listKeys shows its access keys.
func (m *Handlers) GetTopic(ctx context.Context, r *TopicPath) (*Topic, error) {
	topic, err := m.Parts.Topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	return topicView(topic, nil), nil
}

type deleteTopicRequest struct {
	TopicPath
	api.IfMatchHeader
}

// DeleteTopic deletes a topic without event subscriptions.
//
// Deletes a topic. The response is 409 while it has event subscriptions. Afterwards publishers get 401, as with a wrong
// key.
//
// Its events are kept until the end of the retention.
func (m *Handlers) DeleteTopic(ctx context.Context, r *deleteTopicRequest) (*api.NoContent, error) {
	err := m.Parts.Topics.Delete(ctx, r.Topic, r.Conditions()...)
	if errors.Is(err, postgres.ErrConflict) && !errors.Is(err, catalog.ErrSystemTopic) {
		return nil, api.RejectConflict(api.ConflictCodeTopicHasSubscriptions,
			"topic %q has event subscriptions: delete them first", r.Topic)
	}
	return &api.NoContent{}, r.Rejected(err, "topic", r.Topic)
}

// AccessKeys are the two access keys of a topic. Both publish.
type AccessKeys struct {
	// First key: base64 of 32 random bytes.
	Key1 string `json:"key1"`
	// Second key: base64 of 32 random bytes.
	Key2 string `json:"key2"`
}

// ListTopicKeys shows the access keys of a topic.
//
// Returns both access keys. The log and `postrider.audit` record the request without the keys.
func (m *Handlers) ListTopicKeys(ctx context.Context, r *TopicPath) (*AccessKeys, error) {
	keys, err := m.Parts.Topics.Keys(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	m.logSecret(ctx, "access keys of a topic were shown", "topic", r.Topic)
	return new(AccessKeys(*keys)), nil
}

type regenerateKeyRequest struct {
	TopicPath
	Body RegenerateKeySpec
}

// RegenerateKeySpec names the access key to replace.
type RegenerateKeySpec struct {
	// Name of the key.
	KeyName catalog.KeyName `json:"keyName" enum:"key1,key2"`
}

// RegenerateTopicKey replaces an access key of a topic.
//
// Replaces one access key. Every node rejects the old key, and signatures made with it, after the response. Move the
// publishers to the other key first.
func (m *Handlers) RegenerateTopicKey(ctx context.Context, r *regenerateKeyRequest) (*AccessKeys, error) {
	name := r.Body.KeyName
	if name != catalog.Key1 && name != catalog.Key2 {
		return nil, api.Invalid("keyName", "must be %s or %s", catalog.Key1, catalog.Key2)
	}
	keys, err := m.Parts.Topics.RegenerateKey(ctx, r.Topic, name)
	if err != nil {
		return nil, err
	}
	m.logSecret(ctx, "an access key of a topic was replaced", "topic", r.Topic, "key", name)
	return new(AccessKeys(*keys)), nil
}

// check checks the settings and adds the defaults. A namespace topic accepts CloudEvents only (Microsoft, Event Grid
// namespace topics, 2023-11).
func (b *TopicSpec) check(name string) (catalog.TopicSpec, error) {
	var found problems
	found.Check(policy.ValidName("topic", name))
	s := catalog.TopicSpec{Kind: optional(b.Kind, catalog.TopicBasic), InputSchema: event.EventGrid}
	if s.Kind == catalog.TopicNamespace {
		s.InputSchema = event.CloudEvents
	}
	s.InputSchema = optional(b.InputSchema, s.InputSchema)
	found.table(spec.Topic, b)
	if s.Kind == catalog.TopicNamespace && s.InputSchema != event.CloudEvents {
		found.Value("inputSchema", "must be %s: a namespace topic accepts CloudEvents only", event.CloudEvents)
	}
	custom := s.InputSchema == event.Custom
	switch {
	case custom && b.InputSchemaMapping == nil:
		found.Value("inputSchemaMapping", "is required: it names the fields of %s that are an event's type and subject",
			s.InputSchema)
	case !custom && b.InputSchemaMapping != nil:
		found.Value("inputSchemaMapping", "must be absent: it belongs to inputSchema %s", event.Custom)
	case custom:
		if wrong, ok := errors.AsType[*event.MappingError](b.InputSchemaMapping.Validate()); ok {
			found.Value(wrong.Field, "%s", wrong.Message)
		}
	}
	s.InputSchemaMapping = b.InputSchemaMapping
	if b.EventRetentionInDays != nil && s.Kind != catalog.TopicNamespace {
		found.Value("eventRetentionInDays", "must be absent: it belongs to namespace topics")
	}
	s.EventRetentionInDays = optional(b.EventRetentionInDays, 0)
	if m := s.InputSchemaMapping; b.DuplicateDetectionWindowInMinutes != nil && m != nil && m.Properties.ID == nil {
		found.Value("duplicateDetectionWindowInMinutes",
			"must be absent: inputSchemaMapping maps no id, so each event gets a new one")
	}
	s.Relay = optional(b.Relay, catalog.RelayNone)
	if s.Relay != catalog.RelayNone && s.Kind != catalog.TopicBasic {
		found.Value("relay", "must be %s: a topic of kind %s cannot be a relay", catalog.RelayNone, s.Kind)
	}
	window := 0
	if m := s.InputSchemaMapping; s.Relay != catalog.RelayNone && (m == nil || m.Properties.ID != nil) {
		window = relayWindow
	}
	s.DuplicateWindow = minutesOf(optional(b.DuplicateDetectionWindowInMinutes, window))
	return s, found.Err()
}

// relayWindow is the duplicate window of a relay topic that sets none, in minutes: Azure repeats an event for a day at
// most, and with the same id.
const relayWindow = 24 * 60

// Topic returns a topic, or the response 404.
func (p *Parts) Topic(ctx context.Context, name string) (*catalog.Topic, error) {
	if !api.Storable(name) {
		return nil, api.TopicNotFound(name)
	}
	topic, err := p.Topics.Get(ctx, name)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.TopicNotFound(name)
	}
	return topic, err
}

// topicView shows a topic, with its access keys if they are given.
func topicView(t *catalog.Topic, keys *catalog.AccessKeys) *Topic {
	shown := &Topic{
		Name: t.Name, Version: t.Version, Endpoint: t.PublishPath(), CreatedAt: t.CreatedAt,
		UpdatedAt: t.UpdatedAt,
		TopicSpec: TopicSpec{
			Kind: &t.Kind, InputSchema: &t.InputSchema, InputSchemaMapping: t.InputSchemaMapping,
			EventRetentionInDays:              limitOf(t.EventRetentionInDays),
			DuplicateDetectionWindowInMinutes: limitOf(catalog.WholeMinutes(t.DuplicateWindow)),
			Relay:                             &t.Relay,
		},
	}
	if keys != nil {
		shown.Key1, shown.Key2 = &keys.Key1, &keys.Key2
	}
	return shown
}
