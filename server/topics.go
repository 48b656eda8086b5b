package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/store"
)

// management answers the routes under /v1. The generated handlers read parameters and write answers around it.
type management struct {
	store        *store.Store
	allow        []netip.Prefix
	allowHTTP    bool
	filterLimits filter.Limits
	headerLimits policy.HeaderLimits
	locations    policy.ExportLocations
	// See Options.
	defaultValidation func(host string) store.EndpointValidation
	validationWait    time.Duration
	noSignIn          bool
}

var _ StrictServerInterface = (*management)(nil)

// storable reports whether PostgreSQL can be asked for s. Nothing has a name that cannot be stored.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// ListTopics answers GET /v1/topics.
func (m *management) ListTopics(ctx context.Context, r ListTopicsRequestObject) (ListTopicsResponseObject, error) {
	page, err := readPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := m.store.ListTopics(ctx, page.after, page.limit+1)
	if err != nil {
		return nil, err
	}
	answer := ListTopics200JSONResponse{Value: []Topic{}}
	shown, next := cut(page, list, "/v1/topics", func(t *store.Topic) string { return t.Name })
	for _, t := range shown {
		answer.Value = append(answer.Value, topicJSON(t, nil))
	}
	answer.NextLink = next
	return answer, nil
}

// PutTopic answers PUT /v1/topics/{topic}.
func (m *management) PutTopic(ctx context.Context, r PutTopicRequestObject) (PutTopicResponseObject, error) {
	when, err := conditions(r.Params.IfMatch, r.Params.IfNoneMatch)
	if err != nil {
		return nil, err
	}
	spec, err := topicSpec(r.Topic, r.Body)
	if err != nil {
		return nil, err
	}
	topic, keys, err := m.store.PutTopic(ctx, r.Topic, spec, when...)
	switch {
	case errors.Is(err, store.ErrPrecondition):
		return nil, preconditionFailed("topic", r.Topic, r.Params.IfMatch)
	case err != nil:
		return nil, err
	case keys != nil:
		return PutTopic201JSONResponse{Body: topicJSON(topic, keys), Headers: PutTopic201ResponseHeaders{ETag: etagOf(topic.Version)}}, nil
	}
	return PutTopic200JSONResponse{Body: topicJSON(topic, nil), Headers: PutTopic200ResponseHeaders{ETag: etagOf(topic.Version)}}, nil
}

// topicSpec fills in the defaults. A namespace topic takes CloudEvents only (Microsoft, Event Grid namespace topics,
// 2023-11).
func topicSpec(name string, b *TopicSettings) (store.TopicSpec, error) {
	if b == nil {
		b = &TopicSettings{}
	}
	var found problems
	found.check(policy.ValidName("topic", name))
	kind := optional(b.Kind, TopicKindBasic)
	schema := InputSchemaEventGridSchema
	if kind == TopicKindNamespace {
		schema = InputSchemaCloudEventSchemaV10
	}
	schema = optional(b.InputSchema, schema)
	if !kind.Valid() {
		found.value("kind", "must be basic or namespace")
	}
	switch {
	case !schema.Valid():
		found.value("inputSchema", "must be %s, %s or %s", event.EventGrid, event.CloudEvents, event.Custom)
	case kind == TopicKindNamespace && schema != InputSchemaCloudEventSchemaV10:
		found.value("inputSchema", "must be %s: a namespace topic takes CloudEvents only", event.CloudEvents)
	}
	mapping := found.mapping(schema, b.InputSchemaMapping)
	retention := found.retention(kind, b.EventRetentionInDays)
	window := found.duplicateWindow(mapping, b.DuplicateDetectionWindowInMinutes)
	return store.TopicSpec{
		Kind: store.TopicKind(kind), InputSchema: event.Schema(schema), InputSchemaMapping: mapping, EventRetentionInDays: retention, DuplicateWindow: window,
	}, found.err()
}

// duplicateWindow reads duplicateDetectionWindowInMinutes; 0 for none.
func (p *problems) duplicateWindow(mapping *event.Mapping, given *int) time.Duration {
	const member, most = "duplicateDetectionWindowInMinutes", int(store.MaxDuplicateWindow / time.Minute)
	switch {
	case given == nil:
		return 0
	case *given < 1 || *given > most:
		p.value(member, "must be between 1 and %d (7 days), not %d", most, *given)
		return 0
	case mapping != nil && mapping.Properties.ID == nil:
		p.value(member, "must be absent: inputSchemaMapping takes no id from an event, so that each one gets another")
	}
	return time.Duration(*given) * time.Minute
}

// retention reads eventRetentionInDays, which goes with namespace topics and with nothing else; 0 for the default.
func (p *problems) retention(kind TopicKind, given *int) int {
	switch {
	case given == nil:
		return 0
	case kind != TopicKindNamespace:
		p.value("eventRetentionInDays", "must be absent: it belongs to namespace topics")
	case *given < 1 || *given > store.DefaultRetentionInDays:
		p.value("eventRetentionInDays", "must be between 1 and %d, not %d", store.DefaultRetentionInDays, *given)
	}
	return *given
}

// mapping reads inputSchemaMapping, which goes with CustomEventSchema and with nothing else; nil for none.
func (p *problems) mapping(schema InputSchema, given json.RawMessage) *event.Mapping {
	custom, stated := schema == InputSchemaCustomEventSchema, len(given) > 0 && string(given) != "null"
	switch {
	case custom && !stated:
		p.value("inputSchemaMapping", "is required: %s says nothing of where an event's type and subject are", event.Custom)
		return nil
	case !custom && stated:
		p.value("inputSchemaMapping", "must be absent: it belongs to inputSchema %s", event.Custom)
		return nil
	case !custom:
		return nil
	}
	mapping := new(event.Mapping)
	err := mapping.UnmarshalJSON(given)
	if err == nil {
		err = mapping.Validate()
	}
	var wrong *event.MappingError
	if errors.As(err, &wrong) {
		p.value(wrong.Field, "%s", wrong.Message)
	} else {
		p.check(err)
	}
	return mapping
}

// optional is the value a member has, or the one it takes when it is left out or null.
func optional[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

// GetTopic answers GET /v1/topics/{topic}.
func (m *management) GetTopic(ctx context.Context, r GetTopicRequestObject) (GetTopicResponseObject, error) {
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	return GetTopic200JSONResponse{Body: topicJSON(topic, nil), Headers: GetTopic200ResponseHeaders{ETag: etagOf(topic.Version)}}, nil
}

func (m *management) topic(ctx context.Context, name string) (*store.Topic, error) {
	if !storable(name) {
		return nil, topicNotFound(name)
	}
	topic, err := m.store.Topic(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, topicNotFound(name)
	}
	return topic, err
}

// DeleteTopic answers DELETE /v1/topics/{topic}.
func (m *management) DeleteTopic(ctx context.Context, r DeleteTopicRequestObject) (DeleteTopicResponseObject, error) {
	when, err := conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	if !storable(r.Topic) {
		return nil, topicNotFound(r.Topic)
	}
	err = m.store.DeleteTopic(ctx, r.Topic, when...)
	switch {
	case errors.Is(err, store.ErrPrecondition):
		return nil, preconditionFailed("topic", r.Topic, r.Params.IfMatch)
	case errors.Is(err, store.ErrNotFound):
		return nil, topicNotFound(r.Topic)
	case errors.Is(err, store.ErrConflict):
		return nil, conflict(ConflictCodeTopicHasSubscriptions, "topic %q has event subscriptions: delete them first", r.Topic)
	case err != nil:
		return nil, err
	}
	return DeleteTopic204Response{}, nil
}

func topicJSON(t *store.Topic, keys *store.AccessKeys) Topic {
	shown := Topic{
		Name: t.Name, Kind: TopicKind(t.Kind), InputSchema: InputSchema(t.InputSchema), InputSchemaMapping: mappingJSON(t.InputSchemaMapping),
		EventRetentionInDays: limitOf(t.EventRetentionInDays), DuplicateDetectionWindowInMinutes: limitOf(int(t.DuplicateWindow / time.Minute)), Etag: etagOf(t.Version),
		Endpoint: endpointOf(t), CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(),
	}
	if keys != nil {
		shown.Key1, shown.Key2 = &keys.Key1, &keys.Key2
	}
	return shown
}

// mappingJSON is nil for none. A mapping is strings alone and can always be written.
func mappingJSON(m *event.Mapping) json.RawMessage {
	if m == nil {
		return nil
	}
	text, _ := json.Marshal(m)
	return text
}

// endpointOf is the path to publish to.
func endpointOf(t *store.Topic) string {
	if t.Kind == store.TopicNamespace {
		return topicPath(t.Name) + ":publish"
	}
	return topicPath(t.Name) + "/api/events"
}

func topicPath(name string) string { return "/topics/" + url.PathEscape(name) }
