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

// ReadTopic is what GET /v1/topics/{topic} would show of the settings of a topic of this name, as PUT takes them:
// without times, version and keys. Its error names every mistake, one a line.
func ReadTopic(name string, body []byte) (api.Topic, error) {
	var settings api.TopicSettings
	err := api.DecodeStrictly(body, &settings)
	if err != nil {
		return api.Topic{}, inLines(err)
	}
	spec, err := topicSpec(name, &settings)
	if err != nil {
		return api.Topic{}, inLines(err)
	}
	retention := spec.EventRetentionInDays
	if spec.Kind == catalog.TopicNamespace && retention == 0 {
		retention = catalog.DefaultRetentionInDays
	}
	return topicJSON(&catalog.Topic{
		Name: name, Kind: spec.Kind, InputSchema: spec.InputSchema, InputSchemaMapping: spec.InputSchemaMapping,
		EventRetentionInDays: retention, DuplicateWindow: spec.DuplicateWindow,
	}, nil), nil
}

// CheckSubscription finds what is wrong with the settings of an event subscription wherever it is put: names, kinds,
// members that there are not, and the filter, whose limits are the server's to judge. Its error names every mistake,
// one a line.
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

// whatIf shows an event subscription as it would be after a put. Nothing is stored, and no endpoint is asked.
func (m *Handlers) whatIf(
	ctx context.Context, topic *catalog.Topic, name string, spec catalog.SubscriptionSpec,
) (api.Subscription, error) {
	sub := catalog.Subscription{Topic: topic.Name, Name: name, EventRetentionInDays: topic.EventRetentionInDays}
	before, err := m.Parts.Subscriptions.Get(ctx, topic.Name, name)
	switch {
	case err == nil:
		sub = *before
	case !errors.Is(err, postgres.ErrNotFound):
		return api.Subscription{}, err
	default:
		if err := m.Parts.Subscriptions.CheckNameFree(ctx, topic, name); err != nil {
			return api.Subscription{}, err
		}
		sub.ProvisioningState = catalog.ProvisioningSucceeded
		sub.CreatedAt, sub.UpdatedAt = m.Parts.Clock.Now(), m.Parts.Clock.Now()
	}
	sub.SubscriptionSpec, sub.EndpointBaseURL = spec.WithDefaults(topic), spec.EndpointBaseURL()
	return m.subscriptionJSON(&sub), nil
}
