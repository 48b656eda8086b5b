package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/message"
	"postrider/internal/postgres"
	"postrider/policy"
	"postrider/server/api"
)

// checkSubscription checks all settings of an event subscription and returns them as they are stored. Its error has all
// mistakes.
func (m *Handlers) checkSubscription(
	ctx context.Context, t *catalog.Topic, name string, stated catalog.SubscriptionSpec,
) (catalog.SubscriptionSpec, error) {
	stored, err := m.storedSpec(ctx, t.Name, name)
	if err != nil {
		return stated, err
	}
	var found problems
	found.Check(policy.ValidName("subscription", name))
	if !stated.MessageFormat.IsMessage() {
		stated.MessageFormat = "" // the default
	}
	aliases := found.deliveryMode(t, &stated)
	pulled := stated.Pulled()
	if !pulled {
		m.destination(&found, &stated, &stored, t)
		m.endpoint(&found, &stated, &stored)
	}
	stated.Filter = readFilter(stated.Filter)
	found.Check(stated.Filter.ValidateWithin(m.FilterLimits))
	effective := stated.WithDefaults(t)
	p, _, err := m.policyVersion(ctx, effective.RetryPolicy.Policy)
	if err != nil {
		return stated, err
	}
	found.retryPolicy(p, t, &stated)
	if p == nil {
		if rejected, ok := errors.AsType[*api.RejectionError](m.unknownPolicy(effective.RetryPolicy.Policy)); ok {
			found.Problems = append(found.Problems, rejected.Details...)
		}
	}
	if !pulled {
		found.validation(m.HeaderLimits.Mistakes(stated.DeliveryAttributes, stored.DeliveryAttributes))
		m.connection(&found, &stated, &stored.Connection)
		found.validation(stated.MessageMistakes(t.Name, &stored))
	}
	if !pulled || t.InputSchema == event.CloudEvents {
		found.deliverySchema(&effective, t)
	}
	m.deadLetterDestination(&found, stated.DeadLetterDestination)
	for i, label := range stated.Labels {
		switch runes := utf8.RuneCountInString(label); {
		case runes < 1 || runes > maxLabelRunes:
			found.Value(fmt.Sprintf("labels[%d]", i), "must be 1 to %d characters long, not %d", maxLabelRunes, runes)
		case strings.ContainsFunc(label, unicode.IsControl):
			found.Value(fmt.Sprintf("labels[%d]", i), "must not contain control characters")
		}
	}
	if len(stated.Labels) == 0 {
		stated.Labels = nil
	}
	found.signingSecret(&stated.Signing)
	found.expiration(stated.ExpirationTimeUTC, m.Parts.Clock.Now())
	if stated.EndpointValidation == "" && !pulled && stated.Validated() {
		stated.EndpointValidation = m.defaultValidation(&stated)
	}
	if rate := stated.DeliveryRate; rate != nil && rate.Limit == 0 {
		found.Value("deliveryRate.limit", "must be %s; without deliveryRate there is no limit",
			spec.Find(spec.Subscription, "deliveryRate.limit").Limits())
	}
	found.table(spec.Subscription, stated)
	// Settings with a mistake are named as they were stated.
	for i := range found.Problems {
		d := &found.Problems[i]
		for name, alias := range aliases {
			if d.Target == name || strings.HasPrefix(d.Target, name+".") {
				d.Target, d.Message = strings.Replace(d.Target, name, alias, 1), strings.Replace(d.Message, name, alias, 1)
				break
			}
		}
	}
	return stated, found.Err()
}

// storedSpec are the stored settings with their secrets, which a client may omit. They are empty if the event
// subscription does not exist.
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

// table checks settings by their rows in the table, except those with a mistake already.
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

func (m *Handlers) endpoint(found *problems, s, stored *catalog.SubscriptionSpec) {
	if !s.Destination.IsWebHook() {
		return
	}
	if s.EndpointURL == "" && stored.MessageFormat.IsMessage() && !s.MessageFormat.IsMessage() {
		found.Value("endpointUrl", "is required if messageFormat becomes %s: the path of the stored one is a secret",
			message.None)
		return
	}
	if s.EndpointURL == "" {
		if c := s.DeliveryConfiguration; c == nil || c.DeliveryMode == "" {
			found.Value("endpointUrl", "is required")
		}
		return
	}
	u, err := endpointconf.EndpointURL(s.EndpointURL, m.Allow)
	if err != nil {
		found.Check(err)
		return
	}
	if !m.AllowHTTP {
		found.Check(endpointconf.PlainEndpoint(u, m.Allow))
	}
}

// connection checks the settings of the connection to the endpoint, stored secrets included.
func (m *Handlers) connection(found *problems, s *catalog.SubscriptionSpec, stored *endpointconf.Connection) {
	if s.MinimumTLSVersion == endpointconf.TLS12 {
		s.MinimumTLSVersion = "" // the default
	}
	c, err := endpointconf.KeepConnectionSecrets(s.Connection, stored)
	if err != nil {
		found.Check(err)
		return
	}
	u, _ := url.Parse(s.EndpointURL) // endpoint reports its mistakes
	if !s.Destination.IsWebHook() {
		u = nil
		if field := s.Destination.PlainBy(); field != "" && !c.DefaultTLS() {
			found.Value(field, "must use TLS if minimumTlsVersionAllowed, certificateAuthorities or clientCertificate is set")
		}
	}
	mistakes := c.Mistakes(u, m.Allow)
	found.validation(mistakes)
	if c.OAuth2 == nil || len(mistakes) > 0 || m.AllowHTTP {
		return
	}
	if tokens, err := url.Parse(c.OAuth2.TokenURL); err == nil && endpointconf.PlainEndpoint(tokens, m.Allow) != nil {
		found.Value("oauth2.tokenUrl", "must be https: the client secret is sent there")
	}
}

// deadLetterDestination checks where dead letters are exported to. The stored location has no query: an operator
// configures access to it.
func (m *Handlers) deadLetterDestination(found *problems, d *catalog.DeadLetterDestination) {
	const target = "deadLetterDestination.properties"
	if d == nil {
		return
	}
	switch kind, p := d.EndpointType, d.Properties; {
	case !kind.Outside():
		if p != nil {
			found.Value(target, "must be absent with endpointType %s", kind)
		}
	case p == nil:
		found.Value(target, "is required for %s", kind)
	case kind == catalog.DeadLetterBlob && (p.ResourceID != "" || p.BlobContainerName != "" || p.URL == ""):
		found.Value(target, "must have url, and may have prefix, with endpointType %s", kind)
	case kind == catalog.DeadLetterStorageBlob && (p.URL != "" || p.Prefix != "" || p.ResourceID == ""):
		found.Value(target, "must have resourceId and blobContainerName with endpointType %s", kind)
	default:
		if _, err := m.Locations.Resolve(*p); err != nil {
			found.Check(err)
		} else if location, err := endpointconf.ParseLocation(p.URL); err == nil {
			p.URL = location.String()
		}
	}
}

// signingSecret checks the secret of a request.
func (p *problems) signingSecret(s *catalog.SigningSpec) {
	if s.Secret == "" {
		return
	}
	_, err := endpointconf.ParseSigningSecret(s.Secret)
	if invalid, is := errors.AsType[*policy.ValidationError](err); is {
		p.Value("signing.secret", "%s", invalid.Message)
	}
	if !s.Enabled {
		p.Value("signing.secret", "requires signing.enabled true")
	}
}

// unknownPolicy is the response to a retry policy that does not exist.
func (m *Handlers) unknownPolicy(name string) error {
	var names []string
	for _, p := range m.Parts.Cache.Snapshot().Policies() {
		names = append(names, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(m.declaredPolicies)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return api.Invalid("retryPolicy.policy", "must be one of %s, not %q", strings.Join(names, ", "), api.Shorten(name))
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

// maxLabelRunes is the limit of a label's characters. Event Grid's pages have none.
const maxLabelRunes = 256

// expiration truncates the time to microseconds, as PostgreSQL does. now is the database's time.
func (p *problems) expiration(at *time.Time, now time.Time) {
	if at == nil {
		return
	}
	*at = at.UTC().Truncate(time.Microsecond)
	if !at.After(now) {
		p.Value("expirationTimeUtc",
			"is an invalid expiration time: it must be in the future; the database's time is %s",
			now.UTC().Format(time.RFC3339))
	}
}

// readFilter removes null values, which some clients send beside values.
func readFilter(f filter.Filter) filter.Filter {
	for i := range f.AdvancedFilters {
		if string(f.AdvancedFilters[i].Value) == "null" {
			f.AdvancedFilters[i].Value = nil
		}
	}
	return f
}

// retryPolicy checks the limits of attempts, time to live and batches, and stores limits under one name. Without a
// policy (nil) it checks only the names: namespace topics and pull delivery have other ones.
func (p *problems) retryPolicy(under *policy.Policy, t *catalog.Topic, s *catalog.SubscriptionSpec) {
	stated := s.RetryPolicy
	if t.Kind != catalog.TopicNamespace && !s.Pulled() {
		if stated.MaxDeliveryCount != nil {
			p.Value("retryPolicy.maxDeliveryCount", "must be absent: it is for namespace topics; set maxDeliveryAttempts")
		}
		if stated.EventTimeToLive != nil {
			p.Value("retryPolicy.eventTimeToLive",
				"must be absent: it is for namespace topics; set eventTimeToLiveInMinutes")
		}
	} else if !p.namespaceNames(&stated, &s.RetryPolicy) {
		return
	}
	s.RetryPolicy.MaxDeliveryCount, s.RetryPolicy.EventTimeToLive = nil, nil
	if under == nil {
		return
	}
	p.attempts(under, &stated, s.RetryPolicy.MaxDeliveryAttempts)
	p.timeToLive(under, t, &stated, s.RetryPolicy.EventTimeToLiveInMinutes)
	if s.Pulled() {
		return
	}
	if s.Destination.Type() != destination.EventHub { // Event Grid sends batches to event hubs under every policy
		p.Check(under.CheckBatch(s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes))
	}
}

// namespaceNames moves the limits to the names that are stored. It returns false after a mistake.
func (p *problems) namespaceNames(b, into *catalog.RetryPolicySpec) (readable bool) {
	before := len(p.Problems)
	switch {
	case b.MaxDeliveryCount == nil:
	case b.MaxDeliveryAttempts != nil:
		p.Value("retryPolicy.maxDeliveryCount", "must be absent with maxDeliveryAttempts: both are names of one limit")
	default:
		into.MaxDeliveryAttempts = b.MaxDeliveryCount
	}
	switch {
	case b.EventTimeToLive == nil:
	case b.EventTimeToLiveInMinutes != nil:
		p.Value("retryPolicy.eventTimeToLive",
			"must be absent with eventTimeToLiveInMinutes: both are names of one limit")
	default:
		minutes, err := parseMinutes(*b.EventTimeToLive)
		if err != nil {
			p.Value("retryPolicy.eventTimeToLive", "%v, not %q", err, api.Shorten(*b.EventTimeToLive))
		}
		into.EventTimeToLiveInMinutes = &minutes
	}
	return len(p.Problems) == before
}

func (p *problems) attempts(under *policy.Policy, b *catalog.RetryPolicySpec, attempts *int) {
	err := under.CheckLimits(attempts, nil)
	if err != nil && b.MaxDeliveryCount != nil {
		p.Value("retryPolicy.maxDeliveryCount", "must be between %d and %d under retry policy %s, not %d",
			under.MaxAttempts.Least, under.MaxAttempts.Most, under.Name, *attempts)
		return
	}
	p.Check(err)
}

// timeToLive checks the time to live against the policy's range and a namespace topic's retention.
func (p *problems) timeToLive(under *policy.Policy, t *catalog.Topic, b *catalog.RetryPolicySpec, ttl *int) {
	if ttl == nil {
		return
	}
	member := "retryPolicy.eventTimeToLiveInMinutes"
	if b.EventTimeToLive != nil {
		member = "retryPolicy.eventTimeToLive"
	}
	err := under.CheckLimits(nil, ttl)
	switch retention := t.EventRetentionInDays; {
	case err != nil && b.EventTimeToLive != nil:
		p.Value(member, "must be between %s and %s under retry policy %s, not %s",
			formatMinutes(under.TTL.Least.Whole()), formatMinutes(under.TTL.Most.Whole()), under.Name,
			api.Shorten(*b.EventTimeToLive))
	case err != nil:
		p.Check(err)
	case t.Kind == catalog.TopicNamespace && *ttl > retention*24*60:
		p.Value(member, "must be no longer than the topic's eventRetentionInDays, which is %d (%d minutes, P%dD)", retention,
			retention*24*60, retention)
	}
}

func span(d time.Duration) string { return formatMinutes(catalog.WholeMinutes(d)) }

// optional is the value of a member, or a default if it is absent or null.
func optional[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

// limitOf is nil for 0, which means no limit.
func limitOf(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}
