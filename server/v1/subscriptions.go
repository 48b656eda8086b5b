package v1

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/filter"
	"postrider/internal/postgres"
	"postrider/policy"
	"postrider/server/api"
)

type listSubscriptionsRequest struct {
	TopicPath
	api.PageParams
}

// ListSubscriptions lists the event subscriptions of a topic by name.
//
// Lists event subscriptions with their effective settings, defaults included. `validation` and `hold.heldDeliveries`
// are null in a list.
func (m *Handlers) ListSubscriptions(
	ctx context.Context, r *listSubscriptionsRequest,
) (*api.List[Subscription], error) {
	read := func(ctx context.Context, after string, limit int) ([]Subscription, error) {
		list, err := m.Parts.Subscriptions.List(ctx, r.Topic, after, limit)
		subs := make([]Subscription, len(list))
		for i, sub := range list {
			subs[i] = *m.subscriptionView(sub)
		}
		return subs, err
	}
	return api.ListAfter(ctx, r, read,
		func(s Subscription) string { return s.Name })
}

type putSubscriptionRequest struct {
	SubscriptionPath
	api.PutHeaders
	// true validates the settings and returns the result; nothing is stored, and no endpoint is called.
	DryRun bool `query:"dryRun"`
	Body   catalog.SubscriptionSpec
}

// PutSubscription creates or replaces an event subscription.
//
// Creates or replaces an event subscription. Absent settings take their defaults. Pending deliveries use the new
// settings from their next attempt.
//
// A new endpoint must pass the validation handshake, unless `endpointValidation` is skip. So must an endpoint that
// changes between CloudEvents and other schemas. The response waits up to 15 s for the handshake.
//
// - After three failures the response is 400 `EndpointValidationFailed`, and nothing is changed.
// - If the endpoint responds 200 without the code, the state is `AwaitingManualAction`.
// - If the handshake takes longer, the state is `Creating` or `Updating`.
//
// In both states the deliveries are held (`not_validated`). A validated endpoint is not replaced by one whose handshake
// takes longer. A handshake in progress continues if the endpoint does not change. See docs/guides/receive.md.
func (m *Handlers) PutSubscription(ctx context.Context, r *putSubscriptionRequest) (*api.Put[Subscription], error) {
	topic, err := m.Parts.Topic(ctx, r.Topic)
	if err != nil {
		return nil, err
	}
	spec, err := m.checkSubscription(ctx, topic, r.Subscription, r.Body)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		shown, err := m.dryRun(ctx, topic, r.Subscription, spec)
		return &api.Put[Subscription]{Body: shown}, err
	}
	sub, created, err := m.put(ctx, topic, r.Subscription, spec, r.Conditions()...)
	if err != nil {
		return nil, r.Rejected(m.putError(r.Topic, &spec, err), "event subscription", r.Subscription)
	}
	shown, err := m.withHeld(ctx, sub)
	return &api.Put[Subscription]{Body: shown, Created: created}, err
}

// putError is the response to an error of the catalog.
func (m *Handlers) putError(topic string, put *catalog.SubscriptionSpec, err error) error {
	var mistake *policy.ValidationError
	switch {
	case errors.As(err, &mistake): // another request has removed a secret that this one keeps
		return api.Invalid(mistake.Field, "%s", mistake.Message)
	case errors.Is(err, catalog.ErrNoPolicy): // another request has deleted it
		return m.unknownPolicy(put.RetryPolicy.Policy)
	case errors.Is(err, postgres.ErrNotFound):
		return api.TopicNotFound(topic)
	}
	return err
}

// GetSubscription reads an event subscription.
//
// Returns the effective settings, defaults included, without secrets. getFullUrl, getDeliveryAttributes and
// getSigningSecrets show secrets.
func (m *Handlers) GetSubscription(ctx context.Context, r *SubscriptionPath) (*Subscription, error) {
	sub, err := m.Parts.Subscriptions.Get(ctx, r.Topic, r.Subscription)
	if err != nil {
		return nil, err
	}
	rate, err := m.Parts.Reader.ReadDeliveryRate(ctx, sub.ID)
	if err != nil {
		return nil, err
	}
	shown, err := m.withHeld(ctx, sub)
	if err == nil && rate != nil && rate.Waiting > 0 {
		shown.Throttling = &Throttling{
			Waiting: rate.Waiting, ClosedUntil: rate.ClosedUntil, DrainsAt: rate.DrainsAt, TooLate: rate.TooLate,
		}
	}
	return shown, err
}

type deleteSubscriptionRequest struct {
	SubscriptionPath
	api.IfMatchHeader
}

// DeleteSubscription deletes an event subscription.
//
// Deletes an event subscription and cancels its pending deliveries with the reason EventSubscriptionDeleted. History
// and dead letters are kept.
func (m *Handlers) DeleteSubscription(ctx context.Context, r *deleteSubscriptionRequest) (*api.NoContent, error) {
	err := m.Parts.Subscriptions.Delete(ctx, r.Topic, r.Subscription, r.Conditions()...)
	return &api.NoContent{}, r.Rejected(err, "event subscription", r.Subscription)
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// dryRun shows an event subscription as a PUT would leave it.
func (m *Handlers) dryRun(
	ctx context.Context, topic *catalog.Topic, name string, spec catalog.SubscriptionSpec,
) (*Subscription, error) {
	sub := catalog.Subscription{Topic: topic.Name, Name: name}
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
	sub.EventRetentionInDays = topic.EventRetentionInDays
	return m.subscriptionView(&sub), nil
}

// Subscription is an event subscription with its effective settings.
//
// It has no secrets. A field replaces the setting of the same name.
type Subscription struct {
	Topic string `json:"topic"`
	// Name, unique within the topic.
	Name            string `json:"name"`
	EndpointBaseURL string `json:"endpointBaseUrl"`
	catalog.SubscriptionSpec
	// EndpointURL is never set: getFullUrl shows the URL.
	EndpointURL *string `json:"endpointUrl,omitempty" hidden:"true"`
	// PagerDutyRoutingKey is never set.
	PagerDutyRoutingKey *string `json:"pagerDutyRoutingKey,omitempty" hidden:"true"`
	// Delivery mode, and the effective settings of pull delivery.
	DeliveryConfiguration     catalog.DeliveryConfiguration `json:"deliveryConfiguration"`
	Filter                    FilterView                    `json:"filter"`
	DeadLetterDestination     catalog.DeadLetterDestination `json:"deadLetterDestination"`
	DeliveryAttributeMappings []DeliveryAttributeView       `json:"deliveryAttributeMappings"`
	Signing                   Signing                       `json:"signing"`
	MinimumTLSVersionAllowed  endpointconf.TLSVersion       `json:"minimumTlsVersionAllowed"`
	CertificateAuthorities    *string                       `json:"certificateAuthorities"`
	// Client certificate for the endpoint; null without one.
	ClientCertificate *endpointconf.ClientCertificate `json:"clientCertificate"`
	// OAuth credentials; null without them.
	OAuth2 *OAuth2View `json:"oauth2"`
	// Version of its settings, for If-Match.
	Version postgres.Version `json:"etag"`
	// Succeeded: deliveries are sent. Creating, Updating: the validation handshake is in progress. AwaitingManualAction:
	// open validationUrl. Failed: the endpoint was not validated. Deleting and Canceled are Event Grid's and not used.
	ProvisioningState catalog.ProvisioningState `json:"provisioningState"`
	// Limit that applies instead of deliveryRate, such as "30 requests/min": the lowest of the event subscriptions whose
	// endpoints have the same host and port. null if it is not lower.
	HostRateLimit *string `json:"hostRateLimit"`
	// Last handshake with the endpoint; null without one, and in lists.
	Validation *Validation `json:"validation"`
	// Hold of the deliveries; null without one.
	Hold *Hold `json:"hold"`
	// Deliveries that wait for deliveryRate or a closed endpoint; null if none wait, in lists and in responses to changes.
	Throttling *Throttling `json:"throttling"`
	CreatedAt  time.Time   `json:"createdAt"`
	// When its settings were last changed.
	UpdatedAt time.Time `json:"updatedAt"`
}

// FilterView is the filter of an event subscription.
type FilterView struct {
	IncludedEventTypes              []string                `json:"includedEventTypes"`
	SubjectBeginsWith               string                  `json:"subjectBeginsWith"`
	SubjectEndsWith                 string                  `json:"subjectEndsWith"`
	IsSubjectCaseSensitive          bool                    `json:"isSubjectCaseSensitive"`
	AdvancedFilters                 []filter.AdvancedFilter `json:"advancedFilters"`
	EnableAdvancedFilteringOnArrays bool                    `json:"enableAdvancedFilteringOnArrays"`
}

// OAuth2View are OAuth client credentials without the secret.
type OAuth2View struct {
	TokenURL string  `json:"tokenUrl"`
	ClientID string  `json:"clientId"`
	Scope    *string `json:"scope"`
}

// DeliveryAttributeView is a custom header. Properties is a StaticAttribute or a DynamicAttribute.
type DeliveryAttributeView struct {
	Name       string                             `json:"name"`
	Type       endpointconf.DeliveryAttributeType `json:"type"`
	Properties any                                `json:"properties"`
}

// StaticAttribute is a fixed value. Value is nil if it is secret.
type StaticAttribute struct {
	Value    *string `json:"value"`
	IsSecret bool    `json:"isSecret"`
}

// DynamicAttribute is the path of a value in the event.
type DynamicAttribute struct {
	SourceField string `json:"sourceField"`
}

// subscriptionView shows an event subscription with its effective settings and without its secrets.
func (m *Handlers) subscriptionView(s *catalog.Subscription) *Subscription {
	// The policy's ranges, or the topic's retention, may have changed since the limits were set.
	p, known := m.Parts.Cache.Snapshot().Policy(s.RetryPolicy.Policy)
	if !known && m.declaredPolicies[s.RetryPolicy.Policy] != nil {
		p = m.declaredPolicies[s.RetryPolicy.Policy]
	} else if !known { // created on another node within the last second
		p = &policy.Policy{RetryTransportErrors: true}
		p.MaxAttempts.Most, p.TTL.Most = math.MaxInt, math.MaxInt64
	}
	rules, batch, open := p.Resolve(s.Overrides()), s.Batch(), s.Connection.WithoutSecrets()
	shown := &Subscription{
		Topic: s.Topic, Name: s.Name, EndpointBaseURL: s.EndpointBaseURL, SubscriptionSpec: s.SubscriptionSpec,
		DeliveryConfiguration: catalog.DeliveryConfiguration{DeliveryMode: catalog.ModePush},
		Filter:                filterView(s.Filter), DeadLetterDestination: destinationView(s, rules.DeadLetter),
		DeliveryAttributeMappings: attributesView(s.DeliveryAttributes, false), Signing: m.signingView(s),
		MinimumTLSVersionAllowed: cmp.Or(s.MinimumTLSVersion, endpointconf.TLS12),
		CertificateAuthorities:   textOrNull(s.CertificateAuthorities), ClientCertificate: open.ClientCertificate,
		Version: s.Version, ProvisioningState: s.ProvisioningState, Hold: holdView(s.Hold),
		HostRateLimit: textOrNull(m.Parts.Cache.Snapshot().LowerLimit(s)),
		CreatedAt:     s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	if o := open.OAuth2; o != nil {
		shown.OAuth2 = &OAuth2View{TokenURL: o.TokenURL, ClientID: o.ClientID, Scope: textOrNull(o.Scope)}
	}
	effective := &shown.SubscriptionSpec
	effective.EndpointURL, effective.PagerDutyRoutingKey = "", ""
	effective.Destination = s.Destination.WithoutSecrets()
	effective.RetryPolicy.MaxDeliveryAttempts = limitOf(rules.Limits.MaxAttempts)
	effective.RetryPolicy.EventTimeToLiveInMinutes = new(catalog.WholeMinutes(rules.Limits.TTL))
	if s.EventRetentionInDays > 0 { // of a namespace topic
		effective.RetryPolicy.MaxDeliveryCount = effective.RetryPolicy.MaxDeliveryAttempts
		effective.RetryPolicy.EventTimeToLive = new(span(rules.Limits.TTL))
	}
	if s.Pulled() {
		shown.DeliveryConfiguration = catalog.DeliveryConfiguration{
			DeliveryMode: catalog.ModeQueue, Queue: &catalog.QueueSettings{
				ReceiveLockDurationInSeconds: new(int(s.LockDuration().Seconds())),
				MaxDeliveryCount:             effective.RetryPolicy.MaxDeliveryAttempts,
				EventTimeToLive:              new(span(rules.Limits.TTL)), DeadLetterDestination: &shown.DeadLetterDestination,
			},
		}
	}
	if s.Destination.Type().Batches() {
		effective.MaxEventsPerBatch, effective.PreferredBatchSizeInKilobytes = &batch.MaxEvents, &batch.PreferredKilobytes
	}
	effective.ResponseTimeoutInSeconds = new(int(time.Duration(rules.Policy.AckTimeout).Seconds()))
	effective.HonorRetryAfter = &rules.Policy.HonorRetryAfter
	effective.ProbationAction = &rules.Policy.Probation.Action
	effective.RetryTransportErrors = &rules.Policy.RetryTransportErrors
	effective.Labels = append([]string{}, s.Labels...)
	return shown
}

// destinationView is the effective dead-letter destination.
func destinationView(s *catalog.Subscription, kept bool) catalog.DeadLetterDestination {
	switch d := s.DeadLetterDestination; {
	case !kept:
		return catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
	case d != nil && d.EndpointType.Outside():
		return *d
	}
	return catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterRows}
}

func filterView(f filter.Filter) FilterView {
	shown := FilterView(f)
	if len(f.IncludedEventTypes) == 0 {
		shown.IncludedEventTypes = []string{"All"}
	}
	if f.AdvancedFilters == nil {
		shown.AdvancedFilters = []filter.AdvancedFilter{}
	}
	return shown
}

// attributesView shows custom headers. reveal includes secret values.
func attributesView(list []endpointconf.DeliveryAttribute, reveal bool) []DeliveryAttributeView {
	shown := make([]DeliveryAttributeView, len(list))
	for i, a := range list {
		shown[i] = DeliveryAttributeView{Name: a.Name, Type: a.Type, Properties: DynamicAttribute{a.SourceField}}
		if a.Type == endpointconf.AttributeStatic {
			static := StaticAttribute{IsSecret: a.IsSecret}
			if reveal || !a.IsSecret {
				static.Value = a.Value
			}
			shown[i].Properties = static
		}
	}
	return shown
}
