package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"postrider/internal/access"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/postgres"
	"postrider/policy"

	"github.com/jackc/pgx/v5"
)

// Subscription is an event subscription: a filter on one topic, and an endpoint unless its events are pulled.
type Subscription struct {
	ID      int64
	TopicID int64
	Topic   string
	Name    string
	// SubscriptionSpec has defaults for the settings without which it cannot be delivered; Stated is as stored.
	SubscriptionSpec
	Stated SubscriptionSpec
	// EndpointBaseURL is the endpoint's URL without its query, which may contain a secret; "" without an endpoint.
	EndpointBaseURL string
	// EventRetentionInDays is its topic's.
	EventRetentionInDays int
	// SigningKeys signs the deliveries; nil = they are not signed.
	SigningKeys       *endpointconf.Signing
	ProvisioningState ProvisioningState
	// HandshakeID is the handshake that validates it; 0 = none.
	HandshakeID int64
	// EndpointHash is a keyed hash of EndpointURL: event subscriptions with the same one share an endpoint.
	// nil = it has none, as its events are pulled.
	EndpointHash []byte
	// Headers are the prepared DeliveryAttributes; nil = none.
	Headers *endpointconf.HeaderSet
	// BatchHeaders are those whose values all events of a batch share; nil = none.
	BatchHeaders *endpointconf.HeaderSet
	// Form is that of a destination that is a service; nil = of others, or FormProblem: its settings cannot be used.
	Form        destination.Form
	FormProblem error
	// MessageKey has the value of a broker's message key; nil = messages have none.
	MessageKey *endpointconf.HeaderSet
	// Secrets are removed from stored responses; nil = none.
	Secrets              *endpointconf.Secrets
	Hold                 HoldStatus
	Version              postgres.Version
	CreatedAt, UpdatedAt time.Time
	DeletedAt            *time.Time
}

// HoldStatus is the hold that an event subscription had when it was read.
type HoldStatus struct {
	// Reason is one of the holds; "" = none.
	Reason string
	// Since is its beginning; nil without one.
	Since *time.Time
	// Of a probation: Cause is the outcome of its last failure, Until the time of the next probe, Probing that a probe is
	// in progress.
	Cause   string
	Until   *time.Time
	Probing bool
	// TimeToLiveStopped: the pause does not count toward the time to live. Resuming: it ends when that is stored.
	TimeToLiveStopped, Resuming bool
}

// version is 0 for nil.
func (s *Subscription) version() postgres.Version {
	if s == nil {
		return 0
	}
	return s.Version
}

// Overrides are the settings that change the retry policy's values; see policy.Policy.Resolve.
func (s *Subscription) Overrides() policy.Overrides {
	w := policy.Overrides{
		Behavior: s.Behavior, HonorRetryAfter: s.HonorRetryAfter, ProbationAction: s.ProbationAction,
		RetryTransportErrors: s.RetryTransportErrors, MaxAttempts: s.RetryPolicy.MaxDeliveryAttempts,
		ResponseTimeoutSeconds: s.ResponseTimeoutInSeconds,
		TTLMinutes:             s.RetryPolicy.EventTimeToLiveInMinutes,
		MaxTTL:                 time.Duration(s.EventRetentionInDays) * 24 * time.Hour,
	}
	if d := s.DeadLetterDestination; d != nil {
		kept := d.EndpointType != DeadLetterNone
		w.DeadLetter = &kept
	}
	return w
}

// NotValidated reports whether deliveries wait until the endpoint is validated.
func (s *Subscription) NotValidated() bool { return s.ProvisioningState != ProvisioningSucceeded }

// Subscriptions reads and changes event subscriptions and their secrets.
type Subscriptions struct {
	records
	cache      *Cache
	handshakes *Handshakes
	fail       postgres.Failpoint
}

// subscriptionRow is a row of subscription.sql. Settings and secrets become the spec.
type subscriptionRow struct {
	Subscription
	HoldStatus
	TopicKind                              TopicKind
	InputSchema                            event.Schema
	Policy                                 string
	Validation                             EndpointValidation
	Settings, SecretsSealed, SigningSealed []byte
}

// querySubscriptions reads the event subscriptions that meet a condition on s (event_subscriptions) and t (topics).
func (r records) querySubscriptions(
	ctx context.Context, db postgres.Querier, where string, args ...any,
) ([]*Subscription, error) {
	rows, _ := db.Query(ctx, sql("subscription")+where, args...) // CollectRows returns its error
	list, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByNameLax[subscriptionRow])
	if err != nil {
		return nil, postgres.ReadError("event subscriptions", err)
	}
	subs := make([]*Subscription, len(list))
	for i, row := range list {
		sub := row.Subscription // a copy: the row's settings are not kept
		if err := r.open(&sub, row); err != nil {
			return nil, fmt.Errorf("event subscription %q of topic %q: %w", row.Name, row.Topic, err)
		}
		subs[i] = &sub
	}
	return subs, nil
}

// open opens the settings and secrets of an event subscription.
func (r records) open(sub *Subscription, row *subscriptionRow) error {
	var err error
	if sub.Stated, err = r.openSpec(secretsColumn, row.Settings, row.SecretsSealed); err != nil {
		return err
	}
	sub.Hold, sub.SubscriptionSpec = row.HoldStatus, sub.Stated.withDefaults(row.TopicKind, row.InputSchema)
	sub.RetryPolicy.Policy = row.Policy
	if sub.EndpointValidation = ""; sub.Validated() {
		sub.EndpointValidation = row.Validation
	}
	sub.SigningKeys, err = r.openSigning(row.SigningSealed)
	sub.Headers = endpointconf.NewHeaderSet(sub.DeliveryAttributes)
	sub.BatchHeaders = sub.Headers
	sub.Secrets = sub.SubscriptionSpec.secrets()
	sub.prepareDestination()
	return err
}

// prepareDestination prepares what every delivery to a service or broker needs.
func (s *Subscription) prepareDestination() {
	if s.Destination.IsWebHook() || s.Destination.Properties == nil {
		return
	}
	if s.Destination.Type() != destination.HybridConnection { // messages have their own properties, also in a batch
		s.BatchHeaders = endpointconf.NewHeaderSet(slices.DeleteFunc(slices.Clone(s.DeliveryAttributes),
			func(a endpointconf.DeliveryAttribute) bool { return !destination.SharedByBatch(a.Name) }))
	}
	if !s.Destination.Type().IsBroker() {
		s.Form, s.FormProblem = s.Destination.Form()
	}
	if key := s.Destination.Properties.MessageKey; key != "" && key != destination.KeyNone {
		s.MessageKey = endpointconf.NewHeaderSet([]endpointconf.DeliveryAttribute{{
			Name: "key", Type: endpointconf.AttributeDynamic,
			AttributeProperties: endpointconf.AttributeProperties{SourceField: key},
		}})
	}
}

// Get reads one event subscription; ErrNotFound.
func (s *Subscriptions) Get(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.subscriptionOf(ctx, s.db, topic, name)
}

func (r records) subscriptionOf(ctx context.Context, db postgres.Querier, topic, name string) (*Subscription, error) {
	const where = "WHERE t.name = $1 AND t.deleted_at IS NULL AND s.name = $2 AND s.deleted_at IS NULL"
	subs, err := r.querySubscriptions(ctx, db, where, topic, name)
	if err != nil {
		return nil, err
	}
	if len(subs) == 0 {
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, postgres.ErrNotFound)
	}
	return subs[0], nil
}

// List lists a topic's event subscriptions by name, after the given name, at most limit. ErrNotFound: there is no such
// topic.
func (s *Subscriptions) List(ctx context.Context, topic, after string, limit int) ([]*Subscription, error) {
	if _, err := s.topic(ctx, s.db, topic); err != nil {
		return nil, err
	}
	const where = `WHERE t.name = $1 AND t.deleted_at IS NULL AND s.deleted_at IS NULL AND s.name > $2
		ORDER BY s.name LIMIT $3`
	return s.querySubscriptions(ctx, s.db, where, topic, after, limit)
}

// Lock reads an event subscription in the caller's transaction, and locks it: a deletion waits for the commit, and then
// cancels the deliveries that the transaction has inserted. ErrNotFound if it was deleted.
func (s *Subscriptions) Lock(ctx context.Context, tx pgx.Tx, id int64) (*Subscription, error) {
	const lock = "SELECT FROM postrider_internal.event_subscriptions WHERE id = $1 AND deleted_at IS NULL FOR SHARE"
	tag, err := tx.Exec(ctx, lock, id)
	if err != nil {
		return nil, fmt.Errorf("lock an event subscription: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil, fmt.Errorf("event subscription %d: %w", id, postgres.ErrNotFound)
	}
	subs, err := s.querySubscriptions(ctx, tx, "WHERE s.id = $1", id)
	if err != nil {
		return nil, err
	}
	return subs[0], nil
}

// RevealEndpoint reads an event subscription to show its endpoint's whole URL, which the audit records first.
// ErrNotFound.
func (s *Subscriptions) RevealEndpoint(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.reveal(ctx, topic, name, access.AuditEndpointShown)
}

// RevealDeliveryAttributes is RevealEndpoint for the values of secret headers.
func (s *Subscriptions) RevealDeliveryAttributes(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.reveal(ctx, topic, name, access.AuditAttributesShown)
}

// RevealSigningSecrets is RevealEndpoint for the secrets that sign deliveries.
func (s *Subscriptions) RevealSigningSecrets(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.reveal(ctx, topic, name, access.AuditSigningShown)
}

func (s *Subscriptions) reveal(
	ctx context.Context, topic, name string, action access.AuditAction,
) (sub *Subscription, err error) {
	entry := access.AuditEntry{Action: action, Topic: topic, Subscription: name}
	err = access.Audited(ctx, s.db, entry, func(tx pgx.Tx) error {
		sub, err = s.subscriptionOf(ctx, tx, topic, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sub, nil
}
