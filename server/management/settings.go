package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"postrider/catalog"
	"postrider/catalog/spec"
	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"
	"postrider/postgres"
	"postrider/server/api"
)

// checkSubscription checks every setting of an event subscription, so that one response names all mistakes. It returns
// the settings as they are to be stored, without names that a setting has only on some topics.
func (m *Handlers) checkSubscription(
	ctx context.Context, t *catalog.Topic, name string, stated catalog.SubscriptionSpec,
) (catalog.SubscriptionSpec, error) {
	stored, err := m.storedSpec(ctx, t.Name, name)
	if err != nil {
		return stated, err
	}
	var found problems
	found.Check(policy.ValidName("subscription", name))
	m.endpoint(&found, &stated)
	stated.Filter = readFilter(stated.Filter)
	found.Check(stated.Filter.ValidateWithin(m.FilterLimits))
	effective := stated.WithDefaults(t)
	p, _, err := m.policyVersion(ctx, effective.RetryPolicy.Policy)
	if err != nil {
		return stated, err
	}
	found.retryPolicy(p, t, &stated)
	if p == nil {
		found.unknownPolicy(m.policyNames())
	}
	found.deliverySchema(&effective, t)
	m.deliveryAttributes(&found, stated.DeliveryAttributes, stored.DeliveryAttributes)
	m.connection(&found, &stated, &stored.Connection)
	m.deadLetterDestination(&found, stated.DeadLetterDestination)
	found.labels(stated.Labels)
	if len(stated.Labels) == 0 {
		stated.Labels = nil
	}
	found.expiration(stated.ExpirationTimeUTC, m.Parts.Clock.Now())
	if stated.EndpointValidation == "" {
		stated.EndpointValidation = m.defaultValidation(stated.EndpointURL)
	}
	found.table(spec.Subscription, stated)
	return stated, found.Err()
}

// storedSpec are the stored settings with their secrets, which are kept if the client leaves them out. They are empty
// if there is no such event subscription.
func (m *Handlers) storedSpec(ctx context.Context, topic, name string) (stored catalog.SubscriptionSpec, err error) {
	if !api.Storable(name) {
		return stored, nil
	}
	sub, err := m.Parts.Subscriptions.Get(ctx, topic, name)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return stored, nil
	case err != nil:
		return stored, err
	}
	return sub.Stated, nil
}

// table checks settings by their rows in the table, unless a more specific check has found a mistake in one.
func (p *problems) table(table []spec.Setting, settings any) {
	text, err := json.Marshal(settings)
	if err != nil {
		p.Check(err)
		return
	}
	for _, mistake := range spec.Check(table, text) {
		if !slices.ContainsFunc(p.Problems, func(d api.ErrorDetail) bool { return d.Target == mistake.Field }) {
			p.Check(&mistake)
		}
	}
}

func (m *Handlers) endpoint(found *problems, s *catalog.SubscriptionSpec) {
	if s.EndpointURL == "" {
		found.Value("endpointUrl", "is required")
		return
	}
	u, err := policy.EndpointURL(s.EndpointURL, m.Allow)
	if err != nil {
		found.Check(err)
		return
	}
	if !m.AllowHTTP {
		found.Check(policy.PlainEndpoint(u, m.Allow))
	}
}

// deliveryAttributes checks custom headers; a value that is left out must be stored.
func (m *Handlers) deliveryAttributes(found *problems, stated, stored []policy.DeliveryAttribute) {
	for _, mistake := range m.HeaderLimits.Mistakes(stated, stored) {
		found.Check(&mistake)
	}
}

// connection checks how the endpoint is connected to, with the secrets that are kept.
func (m *Handlers) connection(found *problems, s *catalog.SubscriptionSpec, stored *policy.Connection) {
	if s.MinimumTLSVersion == policy.TLS12 {
		s.MinimumTLSVersion = "" // the default
	}
	c, err := policy.KeepConnectionSecrets(s.Connection, stored)
	if err != nil {
		found.Check(err)
		return
	}
	u, _ := url.Parse(s.EndpointURL) // endpoint has reported what is wrong with it
	mistakes := c.Mistakes(u, m.Allow)
	for i := range mistakes {
		found.Check(&mistakes[i])
	}
	if c.OAuth2 == nil || len(mistakes) > 0 || m.AllowHTTP {
		return
	}
	if tokens, err := url.Parse(c.OAuth2.TokenURL); err == nil && policy.PlainEndpoint(tokens, m.Allow) != nil {
		found.Value("oauth2.tokenUrl", "must be https: the client secret is sent there")
	}
}

// deadLetterDestination checks where dead letters are exported to. The stored location has no query: an operator
// configures how it is reached.
func (m *Handlers) deadLetterDestination(found *problems, d *catalog.DeadLetterDestination) {
	const target = "deadLetterDestination.properties"
	if d == nil {
		return
	}
	switch kind, p := d.EndpointType, d.Properties; {
	case !kind.Outside():
		if p != nil {
			found.Value(target, "must be absent: %s has none", kind)
		}
	case p == nil:
		found.Value(target, "is required for %s", kind)
	case kind == catalog.DeadLetterBlob && (p.ResourceID != "" || p.BlobContainerName != "" || p.URL == ""):
		found.Value(target, "must be url, and perhaps prefix, of %s", kind)
	case kind == catalog.DeadLetterStorageBlob && (p.URL != "" || p.Prefix != "" || p.ResourceID == ""):
		found.Value(target, "must be resourceId and blobContainerName of %s", kind)
	default:
		if _, err := m.Locations.Resolve(*p); err != nil {
			found.Check(err)
		} else if location, err := policy.ParseLocation(p.URL); err == nil {
			p.URL = location.String()
		}
	}
}

func (p *problems) unknownPolicy(known []string) {
	p.Value("retryPolicy.policy", "must be one of %s", strings.Join(known, ", "))
}

// unknownPolicy rejects an event subscription whose retry policy does not exist.
func (m *Handlers) unknownPolicy() error {
	var found problems
	found.unknownPolicy(m.policyNames())
	return found.Err()
}

func (p *problems) deliverySchema(s *catalog.SubscriptionSpec, t *catalog.Topic) {
	possible := event.Deliveries(t.InputSchema)
	switch schema := s.EventDeliverySchema; {
	case !slices.Contains(spec.Find(spec.Subscription, "eventDeliverySchema").Choices, string(schema)):
		p.Value("eventDeliverySchema", "must be %s", spec.OneOf(possible))
	case !event.CanDeliver(t.InputSchema, schema):
		p.Value("eventDeliverySchema", "must be %s: the topic's input schema is %s, which cannot become %s",
			spec.OneOf(possible), t.InputSchema, schema)
	case s.RetryPolicy.Policy == catalog.NamespacePolicy && schema != event.CloudEvents:
		p.Value("eventDeliverySchema", "must be %s under retry policy %s", event.CloudEvents, catalog.NamespacePolicy)
	}
}

// maxLabelRunes is ours: Event Grid's pages name no limits of labels.
const maxLabelRunes = 256

func (p *problems) labels(labels []string) {
	for i, label := range labels {
		switch runes := utf8.RuneCountInString(label); {
		case runes < 1 || runes > maxLabelRunes:
			p.Value(fmt.Sprintf("labels[%d]", i), "must be 1 to %d characters long, not %d", maxLabelRunes, runes)
		case strings.ContainsFunc(label, unicode.IsControl):
			p.Value(fmt.Sprintf("labels[%d]", i), "must have no control characters")
		}
	}
}

// expiration rounds the time to the microsecond that PostgreSQL keeps. now is the database's.
func (p *problems) expiration(at *time.Time, now time.Time) {
	if at == nil {
		return
	}
	*at = at.UTC().Truncate(time.Microsecond)
	if !at.After(now) {
		p.Value("expirationTimeUtc",
			"is an invalid expiration time: it must be in the future; by the database's clock it is %s",
			now.UTC().Format(time.RFC3339))
	}
}

// readFilter leaves out a value of null, which some clients send beside values.
func readFilter(f filter.Filter) filter.Filter {
	for i := range f.AdvancedFilters {
		if string(f.AdvancedFilters[i].Value) == "null" {
			f.AdvancedFilters[i].Value = nil
		}
	}
	return f
}
