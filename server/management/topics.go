package management

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/server/api"
)

// Handlers answer the routes under /v1. The generated handlers read parameters and write answers around it.
type Handlers struct {
	Parts        Parts
	Allow        []netip.Prefix
	AllowHTTP    bool
	FilterLimits filter.Limits
	HeaderLimits policy.HeaderLimits
	Locations    policy.ExportLocations
	// The rest is as in Options of package server.
	DefaultValidation func(host string) catalog.EndpointValidation
	ValidationWait    time.Duration
	NoSignIn          bool
	Log               *slog.Logger
}

var _ api.StrictServerInterface = (*Handlers)(nil)

// ListTopics answers GET /v1/topics.
func (m *Handlers) ListTopics(
	ctx context.Context, r api.ListTopicsRequestObject,
) (api.ListTopicsResponseObject, error) {
	page, err := api.ReadPage(r.Params.Limit, r.Params.Cursor)
	if err != nil {
		return nil, err
	}
	list, err := m.Parts.Topics.List(ctx, page.After, page.Limit+1)
	if err != nil {
		return nil, err
	}
	answer := api.ListTopics200JSONResponse{Value: []api.Topic{}}
	shown, next := api.Cut(page, list, "/v1/topics", func(t *catalog.Topic) string { return t.Name })
	for _, t := range shown {
		answer.Value = append(answer.Value, topicJSON(t, nil))
	}
	answer.NextLink = next
	return answer, nil
}

// PutTopic answers PUT /v1/topics/{topic}.
func (m *Handlers) PutTopic(ctx context.Context, r api.PutTopicRequestObject) (api.PutTopicResponseObject, error) {
	when, err := api.Conditions(r.Params.IfMatch, r.Params.IfNoneMatch)
	if err != nil {
		return nil, err
	}
	spec, err := topicSpec(r.Topic, r.Body)
	if err != nil {
		return nil, err
	}
	topic, keys, err := m.Parts.Topics.Put(ctx, r.Topic, spec, when...)
	switch {
	case errors.Is(err, postgres.ErrPrecondition):
		return nil, api.RefusePrecondition("topic", r.Topic, r.Params.IfMatch)
	case err != nil:
		return nil, err
	case keys != nil:
		return api.PutTopic201JSONResponse{
			Body: topicJSON(topic, keys), Headers: api.PutTopic201ResponseHeaders{ETag: api.ETagOf(topic.Version)},
		}, nil
	}
	return api.PutTopic200JSONResponse{
		Body: topicJSON(topic, nil), Headers: api.PutTopic200ResponseHeaders{ETag: api.ETagOf(topic.Version)},
	}, nil
}

// topicSpec fills in the defaults. A namespace topic takes CloudEvents only (Microsoft, Event Grid namespace topics,
// 2023-11).
func topicSpec(name string, b *api.TopicSettings) (catalog.TopicSpec, error) {
	if b == nil {
		b = &api.TopicSettings{}
	}
	var found problems
	found.Check(policy.ValidName("topic", name))
	kind := optional(b.Kind, api.TopicKindBasic)
	schema := api.InputSchemaEventGridSchema
	if kind == api.TopicKindNamespace {
		schema = api.InputSchemaCloudEventSchemaV10
	}
	schema = optional(b.InputSchema, schema)
	if !kind.Valid() {
		found.Value("kind", "must be basic or namespace")
	}
	switch {
	case !schema.Valid():
		found.Value("inputSchema", "must be %s, %s or %s", event.EventGrid, event.CloudEvents, event.Custom)
	case kind == api.TopicKindNamespace && schema != api.InputSchemaCloudEventSchemaV10:
		found.Value("inputSchema", "must be %s: a namespace topic takes CloudEvents only", event.CloudEvents)
	}
	mapping := found.mapping(schema, b.InputSchemaMapping)
	retention := found.retention(kind, b.EventRetentionInDays)
	window := found.duplicateWindow(mapping, b.DuplicateDetectionWindowInMinutes)
	return catalog.TopicSpec{
		Kind: catalog.TopicKind(kind), InputSchema: event.Schema(schema), InputSchemaMapping: mapping,
		EventRetentionInDays: retention, DuplicateWindow: window,
	}, found.Err()
}

// duplicateWindow reads duplicateDetectionWindowInMinutes; 0 for none.
func (p *problems) duplicateWindow(mapping *event.Mapping, given *int) time.Duration {
	const member, most = "duplicateDetectionWindowInMinutes", int(catalog.MaxDuplicateWindow / time.Minute)
	switch {
	case given == nil:
		return 0
	case *given < 1 || *given > most:
		p.Value(member, "must be between 1 and %d (7 days), not %d", most, *given)
		return 0
	case mapping != nil && mapping.Properties.ID == nil:
		p.Value(member, "must be absent: inputSchemaMapping takes no id from an event, so that each one gets another")
	}
	return time.Duration(*given) * time.Minute
}

// retention reads eventRetentionInDays, which goes with namespace topics and with nothing else; 0 for the default.
func (p *problems) retention(kind api.TopicKind, given *int) int {
	switch {
	case given == nil:
		return 0
	case kind != api.TopicKindNamespace:
		p.Value("eventRetentionInDays", "must be absent: it belongs to namespace topics")
	case *given < 1 || *given > catalog.DefaultRetentionInDays:
		p.Value("eventRetentionInDays", "must be between 1 and %d, not %d", catalog.DefaultRetentionInDays, *given)
	}
	return *given
}

// mapping reads inputSchemaMapping, which goes with CustomEventSchema and with nothing else; nil for none.
func (p *problems) mapping(schema api.InputSchema, given json.RawMessage) *event.Mapping {
	custom, stated := schema == api.InputSchemaCustomEventSchema, len(given) > 0 && string(given) != "null"
	switch {
	case custom && !stated:
		p.Value("inputSchemaMapping", "is required: %s says nothing of where an event's type and subject are", event.Custom)
		return nil
	case !custom && stated:
		p.Value("inputSchemaMapping", "must be absent: it belongs to inputSchema %s", event.Custom)
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
		p.Value(wrong.Field, "%s", wrong.Message)
	} else {
		p.Check(err)
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
func (m *Handlers) GetTopic(ctx context.Context, r api.GetTopicRequestObject) (api.GetTopicResponseObject, error) {
	topic, err := m.topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	return api.GetTopic200JSONResponse{
		Body: topicJSON(topic, nil), Headers: api.GetTopic200ResponseHeaders{ETag: api.ETagOf(topic.Version)},
	}, nil
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

// DeleteTopic answers DELETE /v1/topics/{topic}.
func (m *Handlers) DeleteTopic(
	ctx context.Context, r api.DeleteTopicRequestObject,
) (api.DeleteTopicResponseObject, error) {
	when, err := api.Conditions(r.Params.IfMatch, nil)
	if err != nil {
		return nil, err
	}
	if !api.Storable(r.Topic) {
		return nil, api.TopicNotFound(r.Topic)
	}
	err = m.Parts.Topics.Delete(ctx, r.Topic, when...)
	switch {
	case errors.Is(err, postgres.ErrPrecondition):
		return nil, api.RefusePrecondition("topic", r.Topic, r.Params.IfMatch)
	case errors.Is(err, postgres.ErrNotFound):
		return nil, api.TopicNotFound(r.Topic)
	case errors.Is(err, postgres.ErrConflict):
		return nil, api.RefuseConflict(api.ConflictCodeTopicHasSubscriptions,
			"topic %q has event subscriptions: delete them first", r.Topic)
	case err != nil:
		return nil, err
	}
	return api.DeleteTopic204Response{}, nil
}

func topicJSON(t *catalog.Topic, keys *catalog.AccessKeys) api.Topic {
	shown := api.Topic{
		Name: t.Name, Kind: api.TopicKind(t.Kind), InputSchema: api.InputSchema(t.InputSchema),
		InputSchemaMapping:                mappingJSON(t.InputSchemaMapping),
		EventRetentionInDays:              limitOf(t.EventRetentionInDays),
		DuplicateDetectionWindowInMinutes: limitOf(int(t.DuplicateWindow / time.Minute)), Etag: api.ETagOf(t.Version),
		Endpoint: EndpointOf(t), CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC(),
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

func topicPath(name string) string { return "/topics/" + url.PathEscape(name) }
