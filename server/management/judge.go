package management

import (
	"bytes"
	"context"
	"errors"

	"postrider/catalog"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/server/api"
)

// ReadTopic is what GET /v1/topics/{topic} would show of these settings of a topic, without times, version and keys.
// Its error names every mistake, one a line.
func ReadTopic(name string, body []byte) (Topic, error) {
	var settings TopicSpec
	if err := api.DecodeStrictly(body, &settings); err != nil {
		return Topic{}, inLines(err)
	}
	s, err := settings.check(name)
	if err != nil {
		return Topic{}, inLines(err)
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

// CheckSubscription checks the settings of an event subscription as far as no server is needed: names, types, unknown
// members and the filter. Its error names every mistake, one a line.
func CheckSubscription(name string, body []byte) error {
	var settings catalog.SubscriptionSpec
	if len(bytes.TrimSpace(body)) == 0 {
		return errNoObject
	}
	if err := api.DecodeStrictly(body, &settings); err != nil {
		return inLines(err)
	}
	var found problems
	found.Check(policy.ValidName("subscription", name))
	if settings.EndpointURL == "" {
		found.Value("endpointUrl", "is required")
	}
	events := readFilter(settings.Filter)
	found.Check(events.ValidateWithin(filter.Limits{MaxFilters: 1000, MaxValues: 10_000, MaxStringLength: 10_000}))
	return inLines(found.Err())
}

// whatIf shows an event subscription as it would be after a PUT. Nothing is stored, and no endpoint is called.
func (m *Handlers) whatIf(
	ctx context.Context, topic *catalog.Topic, name string, spec catalog.SubscriptionSpec,
) (*Subscription, error) {
	sub := catalog.Subscription{Topic: topic.Name, Name: name, EventRetentionInDays: topic.EventRetentionInDays}
	before, err := m.Parts.Subscriptions.Get(ctx, topic.Name, name)
	switch {
	case err == nil:
		sub = *before
	case !errors.Is(err, postgres.ErrNotFound):
		return nil, err
	default:
		if err := m.Parts.Subscriptions.CheckNameFree(ctx, topic, name); err != nil {
			return nil, err
		}
		sub.ProvisioningState = catalog.ProvisioningSucceeded
		sub.CreatedAt, sub.UpdatedAt = m.Parts.Clock.Now(), m.Parts.Clock.Now()
	}
	sub.SubscriptionSpec, sub.EndpointBaseURL = spec.WithDefaults(topic), spec.EndpointBaseURL()
	return new(m.subscriptionView(&sub)), nil
}
