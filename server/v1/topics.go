package v1

import (
	"context"
	"errors"
	"net/url"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/policy"
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
	Version  postgres.Version `json:"etag"`
	Endpoint string           `json:"endpoint"`
	// Key1 and Key2 are set in the response that creates the topic.
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
			topics[i] = *topicView(t, nil)
		}
		return topics, err
	}
	return api.ListAfter(ctx, "/v1/topics", r, read, func(t Topic) string { return t.Name })
}

type putTopicRequest struct {
	TopicPath
	api.PutHeaders
	Body TopicSpec
}

// PutTopic responds to PUT /v1/topics/{topic}.
func (m *Handlers) PutTopic(ctx context.Context, r *putTopicRequest) (*api.Put[Topic], error) {
	spec, err := r.Body.check(r.Topic)
	if err != nil {
		return nil, err
	}
	topic, keys, err := m.Parts.Topics.Put(ctx, r.Topic, spec, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(err, "topic", r.Topic)
	}
	return &api.Put[Topic]{Body: topicView(topic, keys), Created: keys != nil}, nil
}

// GetTopic responds to GET /v1/topics/{topic}.
func (m *Handlers) GetTopic(ctx context.Context, r *TopicPath) (*Topic, error) {
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	return topicView(topic, nil), nil
}

type deleteTopicRequest struct {
	TopicPath
	api.IfMatchHeader
}

// DeleteTopic responds to DELETE /v1/topics/{topic}.
func (m *Handlers) DeleteTopic(ctx context.Context, r *deleteTopicRequest) (*api.NoContent, error) {
	err := m.Parts.Topics.Delete(ctx, r.Topic, r.Conditions()...)
	if errors.Is(err, postgres.ErrConflict) && !errors.Is(err, catalog.ErrSystemTopic) {
		return nil, api.RejectConflict(api.ConflictCodeTopicHasSubscriptions,
			"topic %q has event subscriptions: delete them first", r.Topic)
	}
	return &api.NoContent{}, r.Rejected(err, "topic", r.Topic)
}

// AccessKeys are the access keys of a topic.
type AccessKeys struct {
	Key1 string `json:"key1"`
	Key2 string `json:"key2"`
}

// ListTopicKeys responds to POST /v1/topics/{topic}/listKeys.
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
	KeyName catalog.KeyName `json:"keyName" enum:"key1,key2"`
}

// RegenerateTopicKey responds to POST /v1/topics/{topic}/regenerateKey.
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
	s.DuplicateWindow = minutesOf(optional(b.DuplicateDetectionWindowInMinutes, 0))
	return s, found.Err()
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

// topicView shows a topic, with its access keys if they are given.
func topicView(t *catalog.Topic, keys *catalog.AccessKeys) *Topic {
	shown := &Topic{
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

// ReadTopic is the topic that GET would show after a PUT of this body, without times, version and keys. Its error has
// all mistakes, one a line.
func ReadTopic(name string, body []byte) (*Topic, error) {
	var settings TopicSpec
	if err := api.DecodeStrictly(body, &settings); err != nil {
		return nil, inLines(err)
	}
	s, err := settings.check(name)
	if err != nil {
		return nil, inLines(err)
	}
	t := &catalog.Topic{
		Name: name, Kind: s.Kind, InputSchema: s.InputSchema, InputSchemaMapping: s.InputSchemaMapping,
		EventRetentionInDays: s.EventRetentionInDays, DuplicateWindow: s.DuplicateWindow,
	}
	if s.Kind == catalog.TopicNamespace && s.EventRetentionInDays == 0 {
		t.EventRetentionInDays = catalog.DefaultRetentionInDays
	}
	return topicView(t, nil), nil
}
