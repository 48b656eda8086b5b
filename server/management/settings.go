package management

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"postrider/catalog"
	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/server/api"
)

// namespacePolicy is the default of event subscriptions on namespace topics: the only documented behaviour they have.
// Its deliveries are CloudEvents (Microsoft, Event Grid namespace push delivery and retry, 2023-11).
const namespacePolicy = "namespace-2023"

// subscriptionSpec fills in the defaults and judges every setting, so that one answer names all mistakes.
func (m *Handlers) subscriptionSpec(
	ctx context.Context, t *catalog.Topic, name string, b *api.SubscriptionSettings,
) (catalog.SubscriptionSpec, error) {
	var found problems
	if b == nil {
		b = &api.SubscriptionSettings{}
	}
	found.Check(policy.ValidName("subscription", name))
	spec := catalog.SubscriptionSpec{
		EndpointURL:         b.EndpointUrl,
		EndpointKind:        policy.EndpointKind(optional(b.EndpointKind, api.EndpointKindWebhook)),
		EventDeliverySchema: event.Schema(optional(b.EventDeliverySchema, asPublished(t.InputSchema))),
		Filter:              filterOf(b.Filter),
		MaxEventsPerBatch:   b.MaxEventsPerBatch, PreferredBatchSizeInKilobytes: b.PreferredBatchSizeInKilobytes,
		MaxConcurrentDeliveries: b.MaxConcurrentDeliveries,
		Behavior:                policy.Behavior(optional(b.Behavior, api.BehaviorSafe)), HonorRetryAfter: b.HonorRetryAfter,
		ProbationAction: (*policy.ProbationAction)(b.ProbationAction), RetryTransportErrors: b.RetryTransportErrors,
		Labels: optional(b.Labels, nil),
		Signed: signed(b.Signing),
	}
	spec.EndpointBaseURL = m.endpoint(&found, spec)
	found.Check(spec.Filter.ValidateWithin(m.FilterLimits))
	if err := m.retryPolicy(ctx, &found, &spec, t, b.RetryPolicy); err != nil {
		return spec, err
	}
	found.deliverySchema(spec, t)
	found.concurrency(spec.MaxConcurrentDeliveries)
	var err error
	if spec.DeliveryAttributes, err = m.deliveryAttributes(ctx, &found, t.Name, name,
		b.DeliveryAttributeMappings); err != nil {
		return spec, err
	}
	if spec.Connection, err = m.connection(ctx, &found, t.Name, name, b); err != nil {
		return spec, err
	}
	spec.DeadLetter, spec.DeadLetterProperties = m.deadLetterDestination(&found, b.DeadLetterDestination)
	found.behavior(b)
	found.labels(spec.Labels)
	spec.ExpirationTimeUTC = found.expiration(b.ExpirationTimeUtc, m.Parts.Clock.Now())
	spec.EndpointValidation = m.endpointValidation(&found, b.EndpointValidation, spec.EndpointBaseURL)
	return spec, found.Err()
}

// endpoint judges the endpoint and returns what of it may be shown.
func (m *Handlers) endpoint(found *problems, spec catalog.SubscriptionSpec) (base string) {
	if !api.EndpointKind(spec.EndpointKind).Valid() {
		found.Value("endpointKind", "must be %s or %s", policy.KindWebhook, policy.KindAzureResource)
	}
	if spec.EndpointURL == "" {
		found.Value("endpointUrl", "is required")
		return ""
	}
	u, err := policy.EndpointURL(spec.EndpointURL, m.Allow)
	if err != nil {
		found.Check(err)
		return ""
	}
	if !m.AllowHTTP {
		found.Check(policy.PlainEndpoint(u, m.Allow))
	}
	return policy.BaseURL(u)
}

func filterOf(b *api.FilterSettings) filter.Filter {
	if b == nil {
		return filter.Filter{}
	}
	return filter.Filter{
		IncludedEventTypes: optional(b.IncludedEventTypes, nil), SubjectBeginsWith: optional(b.SubjectBeginsWith, ""),
		SubjectEndsWith: optional(b.SubjectEndsWith, ""), IsSubjectCaseSensitive: optional(b.IsSubjectCaseSensitive, false),
		AdvancedFilters:                 advancedFiltersOf(optional(b.AdvancedFilters, nil)),
		EnableAdvancedFilteringOnArrays: optional(b.EnableAdvancedFilteringOnArrays, false),
	}
}

// advancedFiltersOf leaves out a value of null, which some clients send beside values.
func advancedFiltersOf(given []api.AdvancedFilter) []filter.AdvancedFilter {
	filters := make([]filter.AdvancedFilter, len(given))
	for i, a := range given {
		filters[i] = filter.AdvancedFilter{OperatorType: a.OperatorType, Key: a.Key, Value: a.Value, Values: a.Values}
		if string(a.Value) == "null" {
			filters[i].Value = nil
		}
	}
	return filters
}

// retryPolicy sets the policy's name and the two limits. Its error is the database's.
func (m *Handlers) retryPolicy(
	ctx context.Context, found *problems, spec *catalog.SubscriptionSpec, t *catalog.Topic, b *api.RetryPolicySettings,
) error {
	if b == nil {
		b = &api.RetryPolicySettings{}
	}
	name := policy.DefaultName
	if t.Kind == catalog.TopicNamespace {
		name = namespacePolicy
	}
	spec.RetryPolicy = optional(b.Policy, name)
	p, err := m.policy(ctx, spec.RetryPolicy)
	if err != nil {
		return err
	}
	found.limits(p, t, b, spec)
	if p == nil {
		found.unknownPolicy(m.policyNames())
		return nil
	}
	found.batch(p, spec.MaxEventsPerBatch, spec.PreferredBatchSizeInKilobytes)
	return nil
}

func (p *problems) unknownPolicy(known []string) {
	p.Value("retryPolicy.policy", "must be one of %s", strings.Join(known, ", "))
}

// unknownPolicy refuses an event subscription whose retry policy does not exist.
func (m *Handlers) unknownPolicy() error {
	var found problems
	found.unknownPolicy(m.policyNames())
	return found.Err()
}

// batch judges the two settings one at a time, too. A size alone asks for batches; beside a maximum of one it is judged
// by nothing but its range.
func (p *problems) batch(under *policy.Policy, maxEvents, kilobytes *int) {
	_, _, err := under.Batch(maxEvents, nil)
	p.Check(err)
	beside := maxEvents
	if beside != nil {
		one := 1
		beside = &one
	}
	_, _, err = under.Batch(beside, kilobytes)
	p.Check(err)
}

// concurrency judges maxConcurrentDeliveries. Its end is that of PostgreSQL's integer.
func (p *problems) concurrency(most *int) {
	if most != nil && (*most < 1 || *most > math.MaxInt32) {
		p.Value("maxConcurrentDeliveries", "must be between 1 and %d, not %d", math.MaxInt32, *most)
	}
}

// asPublished is the delivery schema of who asks for none.
// Source: Microsoft, Azure CLI reference, az eventgrid event-subscription create, --event-delivery-schema.
func asPublished(input event.Schema) api.DeliverySchema {
	if input == event.Custom {
		return api.DeliverySchemaCustomInputSchema
	}
	return api.DeliverySchema(input)
}

// oneOf lists schemas: "A", "A or B", "A, B or C".
func oneOf(schemas []event.Schema) string {
	var list strings.Builder
	for i, schema := range schemas {
		switch {
		case i == 0:
		case i == len(schemas)-1:
			list.WriteString(" or ")
		default:
			list.WriteString(", ")
		}
		list.WriteString(string(schema))
	}
	return list.String()
}

func (p *problems) deliverySchema(spec catalog.SubscriptionSpec, t *catalog.Topic) {
	switch schema := spec.EventDeliverySchema; {
	case !api.DeliverySchema(schema).Valid():
		p.Value("eventDeliverySchema", "must be %s", oneOf(event.Deliveries(t.InputSchema)))
	case !event.CanDeliver(t.InputSchema, schema):
		p.Value("eventDeliverySchema", "must be %s: the topic's input schema is %s, which cannot become %s",
			oneOf(event.Deliveries(t.InputSchema)), t.InputSchema, schema)
	case spec.RetryPolicy == namespacePolicy && schema != event.CloudEvents:
		p.Value("eventDeliverySchema", "must be %s under retry policy %s", event.CloudEvents, namespacePolicy)
	}
}

func (p *problems) behavior(b *api.SubscriptionSettings) {
	if b.Behavior != nil && !b.Behavior.Valid() {
		p.Value("behavior", "must be %s or %s", policy.BehaviorSafe, policy.BehaviorDocumented)
	}
	if b.ProbationAction != nil && !b.ProbationAction.Valid() {
		p.Value("probationAction", "must be %s or %s", policy.ProbationHold, policy.ProbationDocumented)
	}
}

// Event Grid's pages name no limits of labels. These are ours: what a page can show.
const (
	maxLabels     = 100
	maxLabelRunes = 256
)

func (p *problems) labels(labels []string) {
	if len(labels) > maxLabels {
		p.Value("labels", "must be at most %d, not %d", maxLabels, len(labels))
	}
	for i, label := range labels {
		switch runes := utf8.RuneCountInString(label); {
		case runes < 1 || runes > maxLabelRunes:
			p.Value(fmt.Sprintf("labels[%d]", i), "must be 1 to %d characters long, not %d", maxLabelRunes, runes)
		case strings.ContainsFunc(label, unicode.IsControl):
			p.Value(fmt.Sprintf("labels[%d]", i), "must have no control characters")
		}
	}
}

// expiration reads expirationTimeUtc, to the microsecond that PostgreSQL keeps; nil for never. now is the database's.
func (p *problems) expiration(given *string, now time.Time) *time.Time {
	if given == nil {
		return nil
	}
	at, err := time.Parse(time.RFC3339, *given)
	switch at = at.UTC().Truncate(time.Microsecond); {
	case err != nil:
		p.Value("expirationTimeUtc",
			"is an invalid expiration time: it must be a date-time as of RFC 3339, such as 2030-01-31T12:00:00Z, not %q",
			api.Shorten(*given))
	case !at.After(now):
		p.Value("expirationTimeUtc",
			"is an invalid expiration time: it must be in the future; by the database's clock it is %s",
			now.UTC().Format(time.RFC3339))
	}
	return &at
}
