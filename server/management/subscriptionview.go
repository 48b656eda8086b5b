package management

import (
	"cmp"
	"time"

	"postrider/catalog"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/postgres"
)

// Subscription shows an event subscription: its effective settings without secrets, and its state. A field replaces the
// setting of the same name.
type Subscription struct {
	Topic           string `json:"topic"`
	Name            string `json:"name"`
	EndpointBaseURL string `json:"endpointBaseUrl"`
	catalog.SubscriptionSpec
	// EndpointURL is never set: getFullUrl shows the URL.
	EndpointURL               *string                       `json:"endpointUrl,omitempty" hidden:"true"`
	Filter                    FilterView                    `json:"filter"`
	DeadLetterDestination     catalog.DeadLetterDestination `json:"deadLetterDestination"`
	DeliveryAttributeMappings []DeliveryAttributeView       `json:"deliveryAttributeMappings"`
	Signing                   Signing                       `json:"signing"`
	MinimumTLSVersionAllowed  policy.TLSVersion             `json:"minimumTlsVersionAllowed"`
	CertificateAuthorities    *string                       `json:"certificateAuthorities"`
	ClientCertificate         *policy.ClientCertificate     `json:"clientCertificate"`
	OAuth2                    *OAuth2View                   `json:"oauth2"`
	Version                   postgres.Version              `json:"etag"`
	ProvisioningState         catalog.ProvisioningState     `json:"provisioningState"`
	// Validation is the last handshake; nil in lists.
	Validation *Validation `json:"validation"`
	Hold       *Hold       `json:"hold"`
	CreatedAt  time.Time   `json:"createdAt"`
	UpdatedAt  time.Time   `json:"updatedAt"`
}

// FilterView is a filter with all members.
type FilterView struct {
	IncludedEventTypes              []string                `json:"includedEventTypes"`
	SubjectBeginsWith               string                  `json:"subjectBeginsWith"`
	SubjectEndsWith                 string                  `json:"subjectEndsWith"`
	IsSubjectCaseSensitive          bool                    `json:"isSubjectCaseSensitive"`
	AdvancedFilters                 []filter.AdvancedFilter `json:"advancedFilters"`
	EnableAdvancedFilteringOnArrays bool                    `json:"enableAdvancedFilteringOnArrays"`
}

// OAuth2View are the OAuth credentials of an event subscription without the secret.
type OAuth2View struct {
	TokenURL string  `json:"tokenUrl"`
	ClientID string  `json:"clientId"`
	Scope    *string `json:"scope"`
}

// DeliveryAttributeView is a custom header. Properties is a StaticAttribute or a DynamicAttribute.
type DeliveryAttributeView struct {
	Name       string                       `json:"name"`
	Type       policy.DeliveryAttributeType `json:"type"`
	Properties any                          `json:"properties"`
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
	rules, batch, open := m.rules(s), s.Batch(), s.Connection.WithoutSecrets()
	shown := &Subscription{
		Topic: s.Topic, Name: s.Name, EndpointBaseURL: s.EndpointBaseURL, SubscriptionSpec: s.SubscriptionSpec,
		Filter: filterView(s.Filter), DeadLetterDestination: destinationView(s, rules.DeadLetter),
		DeliveryAttributeMappings: attributesView(s.DeliveryAttributes, false), Signing: m.signingView(s),
		MinimumTLSVersionAllowed: cmp.Or(s.MinimumTLSVersion, policy.TLS12),
		CertificateAuthorities:   textOrNull(s.CertificateAuthorities), ClientCertificate: open.ClientCertificate,
		Version: s.Version, ProvisioningState: s.ProvisioningState, Hold: holdView(s.Hold),
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	if o := open.OAuth2; o != nil {
		shown.OAuth2 = &OAuth2View{TokenURL: o.TokenURL, ClientID: o.ClientID, Scope: textOrNull(o.Scope)}
	}
	effective := &shown.SubscriptionSpec
	effective.EndpointURL = ""
	effective.RetryPolicy.MaxDeliveryAttempts = limitOf(rules.Limits.MaxAttempts)
	effective.RetryPolicy.EventTimeToLiveInMinutes = new(minutes(rules.Limits.TTL))
	if s.EventRetentionInDays > 0 { // of a namespace topic
		effective.RetryPolicy.MaxDeliveryCount = effective.RetryPolicy.MaxDeliveryAttempts
		effective.RetryPolicy.EventTimeToLive = new(span(rules.Limits.TTL))
	}
	effective.MaxEventsPerBatch, effective.PreferredBatchSizeInKilobytes = &batch.MaxEvents, &batch.PreferredKilobytes
	effective.ResponseTimeoutInSeconds = new(int(rules.Policy.AckTimeout.Seconds()))
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
func attributesView(list []policy.DeliveryAttribute, reveal bool) []DeliveryAttributeView {
	shown := make([]DeliveryAttributeView, len(list))
	for i, a := range list {
		shown[i] = DeliveryAttributeView{Name: a.Name, Type: a.Type, Properties: DynamicAttribute{a.SourceField}}
		if a.Type == policy.AttributeStatic {
			static := StaticAttribute{IsSecret: a.IsSecret}
			if reveal || !a.IsSecret {
				static.Value = a.Value
			}
			shown[i].Properties = static
		}
	}
	return shown
}
