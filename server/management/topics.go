package management

import (
	"context"
	"errors"
	"net/url"
	"time"

	"postrider/catalog"
	"postrider/catalog/spec"
	"postrider/event"
	"postrider/policy"
	"postrider/postgres"
	"postrider/server/api"
)

// TopicSpec are the settings of a topic. Package spec describes each.
type TopicSpec struct {
	Kind                              *catalog.TopicKind `json:"kind" minLength:"1"`
	InputSchema                       *event.Schema      `json:"inputSchema" minLength:"1"`
	InputSchemaMapping                *event.Mapping     `json:"inputSchemaMapping,omitempty" schema:"InputSchemaMapping"`
	EventRetentionInDays              *int               `json:"eventRetentionInDays,omitempty"`
	DuplicateDetectionWindowInMinutes *int               `json:"duplicateDetectionWindowInMinutes,omitempty"`
}

// Topic is a topic as it is shown.
type Topic struct {
	Name string `json:"name"`
	TopicSpec
	Version postgres.Version `json:"etag"`
	// Endpoint is the path to publish to.
	Endpoint string `json:"endpoint"`
	// Key1 and Key2 are shown once, to the client that creates the topic.
	Key1      *string   `json:"key1,omitempty"`
	Key2      *string   `json:"key2,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// ListTopics responds to GET /v1/topics.
func (m *Handlers) ListTopics(ctx context.Context, r *api.PageParams) (*api.List[Topic], error) {
	read := func(ctx context.Context, after string, limit int) ([]Topic, error) {
		list, err := m.Parts.Topics.List(ctx, after, limit)
		topics := make([]Topic, len(list))
		for i, t := range list {
			topics[i] = topicView(t, nil)
		}
		return topics, err
	}
	return api.ListByName(ctx, r, "/v1/topics", read, func(t Topic) string { return t.Name })
}

// PutTopicRequest is the request PUT /v1/topics/{topic}.
type PutTopicRequest struct {
	TopicPath
	api.PutHeaders
	Body TopicSpec
}

// PutTopic responds to PUT /v1/topics/{topic}.
func (m *Handlers) PutTopic(ctx context.Context, r *PutTopicRequest) (*api.Put[Topic], error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	spec, err := r.Body.check(r.Topic)
	if err != nil {
		return nil, err
	}
	topic, keys, err := m.Parts.Topics.Put(ctx, r.Topic, spec, when...)
	if err != nil {
		return nil, r.Rejected(err, "topic", r.Topic)
	}
	return &api.Put[Topic]{Tagged: taggedTopic(topic, keys), Created: keys != nil}, nil
}

// GetTopic responds to GET /v1/topics/{topic}.
func (m *Handlers) GetTopic(ctx context.Context, r *TopicPath) (*api.Tagged[Topic], error) {
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	return new(taggedTopic(topic, nil)), nil
}

// DeleteTopicRequest is the request DELETE /v1/topics/{topic}.
type DeleteTopicRequest struct {
	TopicPath
	api.IfMatchHeader
}

// DeleteTopic responds to DELETE /v1/topics/{topic}.
func (m *Handlers) DeleteTopic(ctx context.Context, r *DeleteTopicRequest) (*api.NoContent, error) {
	when, err := r.Conditions()
	if err != nil {
		return nil, err
	}
	if !api.Storable(r.Topic) {
		return nil, api.TopicNotFound(r.Topic)
	}
	err = m.Parts.Topics.Delete(ctx, r.Topic, when...)
	switch {
	case errors.Is(err, postgres.ErrPrecondition):
		return nil, r.Rejected(err, "topic", r.Topic)
	case errors.Is(err, postgres.ErrNotFound):
		return nil, api.TopicNotFound(r.Topic)
	case errors.Is(err, catalog.ErrSystemTopic):
		return nil, err
	case errors.Is(err, postgres.ErrConflict):
		return nil, api.RejectConflict(api.ConflictCodeTopicHasSubscriptions,
			"topic %q has event subscriptions: delete them first", r.Topic)
	}
	return &api.NoContent{}, err
}

// AccessKeys are the access keys of a topic.
type AccessKeys struct {
	Key1 string `json:"key1"`
	Key2 string `json:"key2"`
}

// ListTopicKeys responds to POST /v1/topics/{topic}/listKeys.
func (m *Handlers) ListTopicKeys(ctx context.Context, r *TopicPath) (*AccessKeys, error) {
	return m.accessKeys(ctx, r.Topic, "access keys of a topic were shown", nil,
		func() (*catalog.AccessKeys, error) { return m.Parts.Topics.Keys(ctx, r.Topic) })
}

// RegenerateKeyRequest is the request POST /v1/topics/{topic}/regenerateKey.
type RegenerateKeyRequest struct {
	TopicPath
	Body RegenerateKeySpec
}

// RegenerateKeySpec names the access key to replace.
type RegenerateKeySpec struct {
	KeyName catalog.KeyName `json:"keyName" enum:"key1,key2"`
}

// RegenerateTopicKey responds to POST /v1/topics/{topic}/regenerateKey.
func (m *Handlers) RegenerateTopicKey(ctx context.Context, r *RegenerateKeyRequest) (*AccessKeys, error) {
	name := r.Body.KeyName
	if name != catalog.Key1 && name != catalog.Key2 {
		return nil, api.Invalid("keyName", "must be %s or %s", catalog.Key1, catalog.Key2)
	}
	return m.accessKeys(ctx, r.Topic, "an access key of a topic was replaced", []any{"key", name},
		func() (*catalog.AccessKeys, error) { return m.Parts.Topics.RegenerateKey(ctx, r.Topic, name) })
}

func (m *Handlers) accessKeys(
	ctx context.Context, topic, what string, about []any, read func() (*catalog.AccessKeys, error),
) (*AccessKeys, error) {
	if !api.Storable(topic) {
		return nil, api.TopicNotFound(topic)
	}
	keys, err := read()
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.TopicNotFound(topic)
	}
	if err != nil {
		return nil, err
	}
	m.logSecret(ctx, what, append([]any{"topic", topic}, about...)...)
	return new(AccessKeys(*keys)), nil
}

// check fills in the defaults. A namespace topic takes CloudEvents only (Microsoft, Event Grid namespace topics,
// 2023-11).
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
		found.Value("inputSchema", "must be %s: a namespace topic takes CloudEvents only", event.CloudEvents)
	}
	found.mapping(s.InputSchema, b.InputSchemaMapping)
	s.InputSchemaMapping = b.InputSchemaMapping
	if b.EventRetentionInDays != nil && s.Kind != catalog.TopicNamespace {
		found.Value("eventRetentionInDays", "must be absent: it belongs to namespace topics")
	}
	s.EventRetentionInDays = optional(b.EventRetentionInDays, 0)
	if m := s.InputSchemaMapping; b.DuplicateDetectionWindowInMinutes != nil && m != nil && m.Properties.ID == nil {
		found.Value("duplicateDetectionWindowInMinutes",
			"must be absent: inputSchemaMapping takes no id from an event, so that each one gets another")
	}
	s.DuplicateWindow = minutesOf(optional(b.DuplicateDetectionWindowInMinutes, 0))
	return s, found.Err()
}

// mapping checks inputSchemaMapping, which belongs to CustomEventSchema.
func (p *problems) mapping(schema event.Schema, mapping *event.Mapping) {
	custom := schema == event.Custom
	switch {
	case custom && mapping == nil:
		p.Value("inputSchemaMapping", "is required: it names the fields of %s that are an event's type and subject", schema)
	case !custom && mapping != nil:
		p.Value("inputSchemaMapping", "must be absent: it belongs to inputSchema %s", event.Custom)
	case custom:
		var wrong *event.MappingError
		if errors.As(mapping.Validate(), &wrong) {
			p.Value(wrong.Field, "%s", wrong.Message)
		}
	}
}

func (m *Handlers) topic(ctx context.Context, name string) (*catalog.Topic, error) {
	if !api.Storable(name) {
		return nil, api.TopicNotFound(name)
	}
	topic, err := m.Parts.Topics.Get(ctx, name)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, api.TopicNotFound(name)
	}
	return topic, err
}

func taggedTopic(t *catalog.Topic, keys *catalog.AccessKeys) api.Tagged[Topic] {
	return api.Tagged[Topic]{ETag: api.ETagOf(t.Version), Body: new(topicView(t, keys))}
}

func topicView(t *catalog.Topic, keys *catalog.AccessKeys) Topic {
	shown := Topic{
		Name: t.Name, Version: t.Version, Endpoint: EndpointOf(t), CreatedAt: t.CreatedAt,
		UpdatedAt: t.UpdatedAt,
		TopicSpec: TopicSpec{
			Kind: &t.Kind, InputSchema: &t.InputSchema, InputSchemaMapping: t.InputSchemaMapping,
			EventRetentionInDays:              limitOf(t.EventRetentionInDays),
			DuplicateDetectionWindowInMinutes: limitOf(minutes(t.DuplicateWindow)),
		},
	}
	if keys != nil {
		shown.Key1, shown.Key2 = &keys.Key1, &keys.Key2
	}
	return shown
}

func topicPath(name string) string { return "/topics/" + url.PathEscape(name) }
