package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"postrider/event"
	"postrider/policy"
	"postrider/policy/filter"

	"github.com/jackc/pgx/v5"
)

// DeadLetterDestination says where events go that are given up.
type DeadLetterDestination string

// The destinations. The zero value leaves it to the behavior: rows under safe, what the policy says under documented.
const (
	DeadLetterUnset DeadLetterDestination = ""
	DeadLetterRows  DeadLetterDestination = "Rows"
	DeadLetterNone  DeadLetterDestination = "None"
	// DeadLetterBlob and DeadLetterStorageBlob are rows that are written to a location outside as well. The second is Event Grid's own.
	DeadLetterBlob        DeadLetterDestination = "Blob"
	DeadLetterStorageBlob DeadLetterDestination = "StorageBlob"
)

// Outside reports whether dead letters are written to a location outside.
func (d DeadLetterDestination) Outside() bool {
	return d == DeadLetterBlob || d == DeadLetterStorageBlob
}

// SubscriptionSpec is what a person may say of an event subscription.
type SubscriptionSpec struct {
	EndpointURL         string
	EndpointBaseURL     string // EndpointURL without its query string: what is shown
	EndpointKind        policy.EndpointKind
	EventDeliverySchema event.Schema
	RetryPolicy         string
	// MaxDeliveryAttempts and EventTimeToLiveInMinutes are nil for the policy's default.
	MaxDeliveryAttempts      *int
	EventTimeToLiveInMinutes *int
	Filter                   filter.Filter
	DeadLetter               DeadLetterDestination
	// DeadLetterProperties name the location outside; nil where DeadLetter is none.
	DeadLetterProperties *policy.DeadLetterProperties
	// MaxEventsPerBatch and PreferredBatchSizeInKilobytes switch batches on; see policy.ResolveBatch.
	MaxEventsPerBatch             *int
	PreferredBatchSizeInKilobytes *int
	// MaxConcurrentDeliveries bounds the requests in flight, of all nodes together; nil = as many as the endpoint keeps up with.
	MaxConcurrentDeliveries *int
	// DeliveryAttributes are the custom headers of its deliveries.
	DeliveryAttributes []policy.DeliveryAttribute
	// Behavior is "" for safe; see policy.Wishes for it and for the three that follow, of which nil is what Behavior says.
	Behavior             policy.Behavior
	HonorRetryAfter      *bool
	ProbationAction      *policy.ProbationAction
	RetryTransportErrors *bool
	Labels               []string
	// ExpirationTimeUTC is when it gets no more events and is deleted; nil = never.
	ExpirationTimeUTC *time.Time
	// Signed: deliveries are signed, with secrets of the event subscription's own; see policy.Signing.
	Signed bool
	// Connection is how the endpoint is connected to.
	Connection policy.Connection
	// EndpointValidation says whether the endpoint must be validated before anything is delivered.
	EndpointValidation EndpointValidation
}

// Batching reports whether events are delivered in batches.
func (s *SubscriptionSpec) Batching() bool {
	_, on := policy.ResolveBatch(s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes)
	return on
}

// Batch is how batches are cut: of one event each where batches are off.
func (s *SubscriptionSpec) Batch() policy.BatchSettings {
	settings, _ := policy.ResolveBatch(s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes)
	return settings
}

// Subscription is an event subscription: a filter and an endpoint on one topic.
type Subscription struct {
	ID      int64
	TopicID int64
	Topic   string
	Name    string
	SubscriptionSpec
	// EventRetentionInDays is its topic's.
	EventRetentionInDays int
	// Signing is what its deliveries are signed with; nil where they are not.
	Signing           *policy.Signing
	ProvisioningState ProvisioningState
	// HandshakeID is the handshake it goes by; 0 = none.
	HandshakeID int64
	// EndpointHash is a keyed hash of EndpointURL: event subscriptions with the same one share an endpoint.
	EndpointHash []byte
	// Headers are DeliveryAttributes made ready; nil = there are none.
	Headers *policy.HeaderSet
	// Secrets must not be kept where its endpoint's answers repeat them; nil = there are none.
	Secrets              *policy.Secrets
	Hold                 HoldStatus
	Version              int64
	CreatedAt, UpdatedAt time.Time
	DeletedAt            *time.Time
}

// HoldStatus is why an event subscription's deliveries waited when it was read.
type HoldStatus struct {
	// Reason is one of the holds; "" = they did not wait.
	Reason string
	// Since when; nil where they did not wait.
	Since *time.Time
	// Of a probation: Cause is the outcome of its last failure, Until when the next probe is let through, Probing that one is
	// under way.
	Cause   string
	Until   *time.Time
	Probing bool
	// TimeToLiveStopped: the pause does not count for the time to live. Resuming: it ends as soon as that is written down.
	TimeToLiveStopped, Resuming bool
}

// version is 0 for nil.
func (s *Subscription) version() int64 {
	if s == nil {
		return 0
	}
	return s.Version
}

// Wishes are what it says of the course of its deliveries; see policy.Policy.Resolve.
func (s *Subscription) Wishes() policy.Wishes {
	w := policy.Wishes{
		Behavior: s.Behavior, HonorRetryAfter: s.HonorRetryAfter, ProbationAction: s.ProbationAction, RetryTransportErrors: s.RetryTransportErrors,
		MaxAttempts: s.MaxDeliveryAttempts, TTLMinutes: s.EventTimeToLiveInMinutes, MostTTL: time.Duration(s.EventRetentionInDays) * 24 * time.Hour,
	}
	if s.DeadLetter != DeadLetterUnset {
		kept := s.DeadLetter != DeadLetterNone
		w.DeadLetter = &kept
	}
	return w
}

// NotValidated reports whether nothing may be delivered, because the endpoint has not shown that it wants events.
func (s *Subscription) NotValidated() bool { return s.ProvisioningState != ProvisioningSucceeded }

// Subscriptions reads and changes event subscriptions and their secrets.
type Subscriptions struct {
	records
	cache      *Cache
	handshakes *Handshakes
	fail       Failpoint
}

type subscriptionRow struct {
	ID, TopicID                       int64
	Topic, Name                       string
	EndpointSealed                    []byte
	EndpointBaseURL                   string `db:"endpoint_base_url"`
	EndpointHash                      []byte
	EndpointKind, EventDeliverySchema string
	RetryPolicy                       string
	MaxDeliveryAttempts               *int
	EventTimeToLiveInMinutes          *int
	Filter                            []byte
	DeadLetter, ProvisioningState     string
	DeadLetterProperties              *policy.DeadLetterProperties
	MaxEventsPerBatch                 *int
	PreferredBatchSizeInKilobytes     *int
	MaxConcurrentDeliveries           *int
	DeliveryHeadersSealed             []byte
	Behavior                          string
	HonorRetryAfter                   *bool
	ProbationAction                   *policy.ProbationAction
	RetryTransportErrors              *bool
	Labels                            []string
	ExpirationTimeUTC                 *time.Time
	EventRetentionInDays              int
	SigningSealed                     []byte
	Hold, HoldCause                   string
	HoldSince, HoldUntil              *time.Time
	Probing, TTLStopped, Resuming     bool
	Version                           int64
	CreatedAt, UpdatedAt              time.Time
	DeletedAt                         *time.Time
	EndpointValidation                string
	HandshakeID                       int64
	Connection                        *policy.Connection
	ConnectionSealed                  []byte
}

const subscriptionColumns = `SELECT s.id, s.topic_id, t.name AS topic, s.name, s.endpoint_sealed, s.endpoint_base_url, s.endpoint_hash, s.endpoint_kind,
       s.event_delivery_schema, s.retry_policy, s.max_delivery_attempts, s.event_time_to_live_in_minutes, s.filter,
       coalesce(s.dead_letter_destination ->> 'endpointType', '') AS dead_letter, s.dead_letter_destination -> 'properties' AS dead_letter_properties, s.provisioning_state,
       s.max_events_per_batch, s.preferred_batch_size_in_kilobytes, s.max_concurrent_deliveries,
       s.delivery_headers_sealed,
       s.behavior, s.honor_retry_after, s.probation_action, s.retry_transport_errors, s.labels, s.expiration_time_utc,
       coalesce(t.event_retention_in_days, 0) AS event_retention_in_days,
       s.signing_sealed,
       s.endpoint_validation, coalesce(s.handshake_id, 0) AS handshake_id, s.connection, s.connection_sealed,
       coalesce(h.hold, '') AS hold, h.since AS hold_since, coalesce(h.cause, '') AS hold_cause, h.until AS hold_until,
       h.probing, h.time_to_live_stopped AS ttl_stopped, h.resuming,
       s.version, s.created_at, s.updated_at, s.deleted_at
  FROM postrider_internal.event_subscriptions s
  JOIN postrider_internal.topics t ON t.id = s.topic_id
  JOIN postrider_internal.subscription_holds h ON h.subscription_id = s.id `

func (r records) querySubscriptions(ctx context.Context, db querier, where string, args ...any) ([]*Subscription, error) {
	rows, err := db.Query(ctx, subscriptionColumns+where, args...)
	if err != nil {
		return nil, readError("event subscriptions", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[subscriptionRow])
	if err != nil {
		return nil, readError("event subscriptions", err)
	}
	subs := make([]*Subscription, 0, len(list))
	for i := range list {
		sub, err := r.subscription(&list[i])
		if err != nil {
			return nil, fmt.Errorf("event subscription %q of topic %q: %w", list[i].Name, list[i].Topic, err)
		}
		subs = append(subs, sub)
	}
	return subs, nil
}

const endpointColumn = "event_subscriptions.endpoint_sealed"

func (r records) subscription(row *subscriptionRow) (*Subscription, error) {
	endpoint, err := r.sealer.Open(endpointColumn, row.EndpointSealed)
	if err != nil {
		return nil, err
	}
	sub := &Subscription{
		ID: row.ID, TopicID: row.TopicID, Topic: row.Topic, Name: row.Name, ProvisioningState: ProvisioningState(row.ProvisioningState), HandshakeID: row.HandshakeID, EndpointHash: row.EndpointHash,
		Hold: HoldStatus{
			Reason: row.Hold, Since: row.HoldSince, Cause: row.HoldCause, Until: row.HoldUntil, Probing: row.Probing,
			TimeToLiveStopped: row.TTLStopped, Resuming: row.Resuming,
		},
		EventRetentionInDays: row.EventRetentionInDays,
		Version:              row.Version, CreatedAt: row.CreatedAt, UpdatedAt: row.UpdatedAt, DeletedAt: row.DeletedAt,
		SubscriptionSpec: SubscriptionSpec{
			EndpointURL: endpoint, EndpointBaseURL: row.EndpointBaseURL, EndpointKind: policy.EndpointKind(row.EndpointKind),
			EventDeliverySchema: event.Schema(row.EventDeliverySchema), RetryPolicy: row.RetryPolicy,
			MaxDeliveryAttempts: row.MaxDeliveryAttempts, EventTimeToLiveInMinutes: row.EventTimeToLiveInMinutes,
			DeadLetter: DeadLetterDestination(row.DeadLetter), DeadLetterProperties: row.DeadLetterProperties, MaxEventsPerBatch: row.MaxEventsPerBatch,
			PreferredBatchSizeInKilobytes: row.PreferredBatchSizeInKilobytes, MaxConcurrentDeliveries: row.MaxConcurrentDeliveries,
			Behavior: policy.Behavior(row.Behavior), HonorRetryAfter: row.HonorRetryAfter, ProbationAction: row.ProbationAction,
			RetryTransportErrors: row.RetryTransportErrors, Labels: row.Labels, ExpirationTimeUTC: row.ExpirationTimeUTC,
			EndpointValidation: EndpointValidation(row.EndpointValidation),
		},
	}
	if sub.Signing, err = r.openSigning(row.SigningSealed); err != nil {
		return nil, err
	}
	sub.Signed = sub.Signing != nil
	if err := json.Unmarshal(row.Filter, &sub.Filter); err != nil {
		return nil, fmt.Errorf("read its filter: %w", err)
	}
	if sub.DeliveryAttributes, err = r.openAttributes(headersColumn, row.DeliveryHeadersSealed); err != nil {
		return nil, err
	}
	if sub.Connection, err = r.openConnection(connectionColumn, row.Connection, row.ConnectionSealed); err != nil {
		return nil, err
	}
	sub.Headers, sub.Secrets = policy.NewHeaderSet(sub.DeliveryAttributes), policy.NewSecrets(sub.DeliveryAttributes, sub.EndpointURL)
	return sub, nil
}

// SubscriptionOf reads one event subscription; ErrNotFound.
func (s *Subscriptions) SubscriptionOf(ctx context.Context, topic, name string) (*Subscription, error) {
	return s.subscriptionOf(ctx, s.db, topic, name)
}

func (r records) subscriptionOf(ctx context.Context, db querier, topic, name string) (*Subscription, error) {
	const where = "WHERE t.name = $1 AND t.deleted_at IS NULL AND s.name = $2 AND s.deleted_at IS NULL"
	subs, err := r.querySubscriptions(ctx, db, where, topic, name)
	if err != nil {
		return nil, err
	}
	if len(subs) == 0 {
		return nil, fmt.Errorf("event subscription %q of topic %q: %w", name, topic, ErrNotFound)
	}
	return subs[0], nil
}

// ListSubscriptions lists a topic's event subscriptions by name, after the name given, at most limit of them; ErrNotFound
// when the topic does not exist.
func (s *Subscriptions) ListSubscriptions(ctx context.Context, topic, after string, limit int) ([]*Subscription, error) {
	if _, err := s.topic(ctx, s.db, topic); err != nil {
		return nil, err
	}
	const where = "WHERE t.name = $1 AND t.deleted_at IS NULL AND s.deleted_at IS NULL AND s.name > $2 ORDER BY s.name LIMIT $3"
	return s.querySubscriptions(ctx, s.db, where, topic, after, limit)
}

// LockSubscription reads an event subscription in the caller's transaction, and locks it: a deletion waits for the
// commit, and then cancels the deliveries that the transaction has inserted. ErrNotFound if it was deleted.
func (s *Subscriptions) LockSubscription(ctx context.Context, tx pgx.Tx, id int64) (*Subscription, error) {
	const lock = "SELECT FROM postrider_internal.event_subscriptions WHERE id = $1 AND deleted_at IS NULL FOR SHARE"
	tag, err := tx.Exec(ctx, lock, id)
	if err != nil {
		return nil, fmt.Errorf("lock an event subscription: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil, fmt.Errorf("event subscription %d: %w", id, ErrNotFound)
	}
	subs, err := s.querySubscriptions(ctx, tx, "WHERE s.id = $1", id)
	if err != nil {
		return nil, err
	}
	return subs[0], nil
}

// PutSubscription makes or replaces an event subscription; made says which. Deliveries that are already owed go by the
// new settings from their next attempt on. ErrNotFound when the topic does not exist; *FunctionError, which is ErrConflict,
// when an event subscription whose name differs only in letter case exists; ErrNoPolicy when the retry policy does not;
// *policy.ValidationError when a secret header is to be kept that is not there; ErrPrecondition.
// ErrNotValidated when the endpoint has to be validated first: see BeginValidation.
func (s *Subscriptions) PutSubscription(ctx context.Context, topic, name string, spec SubscriptionSpec, when ...Condition) (sub *Subscription, made bool, err error) {
	return s.putSubscription(ctx, topic, name, spec, change{}, when)
}

// PatchSubscription is PutSubscription for who changes some settings and leaves the others: an endpoint that has failed its handshake
// is not asked again unless it is another one, or is to get another kind of events.
func (s *Subscriptions) PatchSubscription(ctx context.Context, topic, name string, spec SubscriptionSpec, when ...Condition) (*Subscription, error) {
	sub, _, err := s.putSubscription(ctx, topic, name, spec, change{patch: true}, when)
	return sub, err
}

// PutValidated is PutSubscription with the handshake that BeginValidation has begun with this endpoint. Once it has succeeded,
// all is as ever. While it is pending or awaits somebody, the event subscription is stored and its deliveries are held until the
// handshake ends. *ValidationFailedError: it failed; ErrNoAnswerYet: it is pending, and the event subscription's deliveries
// go to another endpoint. Then nothing was changed.
func (s *Subscriptions) PutValidated(ctx context.Context, topic, name string, spec SubscriptionSpec, handshake int64, when ...Condition) (sub *Subscription, made bool, err error) {
	return s.putSubscription(ctx, topic, name, spec, change{handshake: handshake}, when)
}

func (s *Subscriptions) putSubscription(ctx context.Context, topic, name string, spec SubscriptionSpec, c change, when []Condition) (sub *Subscription, made bool, err error) {
	var by validation
	err = s.cache.change(ctx, func(tx pgx.Tx) error {
		parent, err := s.topic(ctx, tx, topic)
		if err != nil {
			return err
		}
		existing, err := s.subscriptionOf(ctx, tx, topic, name)
		if made = errors.Is(err, ErrNotFound); made {
			err = subscriptionNameFree(ctx, tx, parent.ID, name)
		}
		if err != nil {
			return err
		}
		if err := Allow(when, existing.version()); err != nil {
			return fmt.Errorf("event subscription %q of topic %q: %w", name, topic, err)
		}
		// Policies that are deleted keep their row, so that no foreign key would notice.
		switch own, err := ownPolicy(ctx, tx, spec.RetryPolicy); {
		case err != nil && !errors.Is(err, ErrBuiltIn):
			return err
		case err == nil && own == nil:
			return fmt.Errorf("retry policy %q: %w", spec.RetryPolicy, ErrNoPolicy)
		}
		if spec.DeliveryAttributes, err = keepSecrets(spec.DeliveryAttributes, existing); err != nil {
			return err
		}
		if spec.Connection, err = keepConnection(spec.Connection, existing); err != nil {
			return err
		}
		if by, err = s.validationOf(ctx, tx, &spec, existing, c); err != nil {
			return err
		}
		if err := s.writeSubscription(ctx, tx, parent.ID, name, spec, existing, by); err != nil {
			return err
		}
		if err := auditPut(ctx, tx, topic, name, &spec, existing); err != nil {
			return err
		}
		if sub, err = s.subscriptionOf(ctx, tx, topic, name); err != nil || !by.touches(existing) {
			return err
		}
		if err := by.hold(ctx, tx, sub.ID); err != nil {
			return err
		}
		sub, err = s.subscriptionOf(ctx, tx, topic, name)
		return err
	})
	if err == nil {
		s.stored(ctx, &spec, sub, made)
	}
	return sub, made, err
}

func (s *Subscriptions) writeSubscription(ctx context.Context, tx pgx.Tx, topicID int64, name string, spec SubscriptionSpec, existing *Subscription, by validation) error {
	const insert = `INSERT INTO postrider_internal.event_subscriptions (topic_id, name, endpoint_sealed, endpoint_base_url, endpoint_hash, endpoint_kind,
		event_delivery_schema, retry_policy, max_delivery_attempts, event_time_to_live_in_minutes, filter, dead_letter_destination,
		max_events_per_batch, preferred_batch_size_in_kilobytes, max_concurrent_deliveries,
		delivery_headers_sealed,
		behavior, honor_retry_after, probation_action, retry_transport_errors, labels, expiration_time_utc, signing_sealed,
		endpoint_validation, provisioning_state, handshake_id, connection, connection_sealed)
		VALUES (@topic_id, @name, @endpoint_sealed, @endpoint_base_url, @endpoint_hash, @endpoint_kind, @schema, @policy, @attempts, @ttl, @filter,
			CASE WHEN @dead_letter::text = '' THEN NULL ELSE jsonb_strip_nulls(jsonb_build_object('endpointType', @dead_letter::text, 'properties', @dead_letter_properties::jsonb)) END,
			@batch_events, @batch_kilobytes, @concurrent,
			@headers,
			coalesce(nullif(@behavior, ''), 'safe'), @honor_retry_after, @probation_action, @retry_transport_errors, @labels, @expiration, @signing,
			@validation, @provisioning, @handshake, @connection, @connection_sealed)`
	const update = `UPDATE postrider_internal.event_subscriptions SET endpoint_sealed = @endpoint_sealed, endpoint_base_url = @endpoint_base_url,
		endpoint_hash = @endpoint_hash, endpoint_kind = @endpoint_kind, event_delivery_schema = @schema, retry_policy = @policy, max_delivery_attempts = @attempts,
		event_time_to_live_in_minutes = @ttl, filter = @filter,
		dead_letter_destination = CASE WHEN @dead_letter::text = '' THEN NULL ELSE jsonb_strip_nulls(jsonb_build_object('endpointType', @dead_letter::text, 'properties', @dead_letter_properties::jsonb)) END,
		max_events_per_batch = @batch_events, preferred_batch_size_in_kilobytes = @batch_kilobytes, max_concurrent_deliveries = @concurrent,
		delivery_headers_sealed = @headers,
		behavior = coalesce(nullif(@behavior, ''), 'safe'), honor_retry_after = @honor_retry_after, probation_action = @probation_action,
		retry_transport_errors = @retry_transport_errors, labels = @labels, expiration_time_utc = @expiration,
		signing_sealed = CASE WHEN @signing::bytea IS NOT NULL THEN coalesce(signing_sealed, @signing::bytea) END,
		endpoint_validation = @validation, provisioning_state = @provisioning, handshake_id = @handshake,
		connection = @connection, connection_sealed = @connection_sealed
		WHERE id = @id`
	filter, err := json.Marshal(spec.Filter)
	if err != nil {
		return fmt.Errorf("write the filter: %w", err)
	}
	args := pgx.NamedArgs{
		"topic_id": topicID, "name": name, "endpoint_sealed": s.sealer.Seal(endpointColumn, spec.EndpointURL),
		"endpoint_base_url": spec.EndpointBaseURL, "endpoint_kind": spec.EndpointKind, "schema": spec.EventDeliverySchema, "policy": spec.RetryPolicy,
		"attempts": spec.MaxDeliveryAttempts, "ttl": spec.EventTimeToLiveInMinutes, "filter": filter, "dead_letter": string(spec.DeadLetter), "endpoint_hash": s.endpointHash(spec.EndpointURL),
		"batch_events": spec.MaxEventsPerBatch, "batch_kilobytes": spec.PreferredBatchSizeInKilobytes, "concurrent": spec.MaxConcurrentDeliveries,
		"headers":  s.sealAttributes(headersColumn, spec.DeliveryAttributes),
		"behavior": string(spec.Behavior), "honor_retry_after": spec.HonorRetryAfter, "probation_action": (*string)(spec.ProbationAction),
		"retry_transport_errors": spec.RetryTransportErrors, "labels": append([]string{}, spec.Labels...), "expiration": spec.ExpirationTimeUTC,
		"signing": nil, "dead_letter_properties": spec.DeadLetterProperties,
		"validation": string(by.setting), "provisioning": string(by.state), "handshake": nullInt(by.handshake),
	}
	args["connection"], args["connection_sealed"] = s.sealConnection(connectionColumn, &spec.Connection)
	if spec.Signed {
		args["signing"] = s.sealSigning(policy.NewSigning(newSigningKey(), s.cache.secretTime()))
	}
	statement := insert
	if existing != nil {
		statement, args["id"] = update, existing.ID
	}
	if _, err := tx.Exec(ctx, statement, args); err != nil {
		return fmt.Errorf("store event subscription %q: %w", name, err)
	}
	return nil
}

// DeleteSubscription removes an event subscription and cancels what it is still owed. History and dead letters stay.
// The name is free at once. An endpoint that was ready for deliveries is told. What takes longer than drainPatience, or is cut by a crash, is left to Drain. ErrNotFound,
// ErrPrecondition.
func (s *Subscriptions) DeleteSubscription(ctx context.Context, topic, name string, when ...Condition) error {
	var id int64
	err := s.cache.change(ctx, func(tx pgx.Tx) error {
		sub, err := s.subscriptionOf(ctx, tx, topic, name)
		if err != nil {
			return err
		}
		if err := Allow(when, sub.version()); err != nil {
			return fmt.Errorf("event subscription %q of topic %q: %w", name, topic, err)
		}
		id = sub.ID
		return s.remove(ctx, tx, sub, auditSubscriptionDeleted)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	if err := s.drainSubscription(ctx, id); err != nil {
		s.log.Warn("deliveries of a deleted event subscription are canceled in the background", "topic", topic, "subscription", name, "error", err)
	}
	return nil
}

// remove marks an event subscription as deleted, and tells its endpoint.
func (s *Subscriptions) remove(ctx context.Context, tx pgx.Tx, sub *Subscription, why auditAction) error {
	if err := audit(ctx, tx, auditEntry{
		action: why, topic: sub.Topic, subscription: sub.Name, changes: new(SubscriptionSpec).changesFrom(&sub.SubscriptionSpec),
	}); err != nil {
		return err
	}
	if !sub.NotValidated() {
		if err := s.handshakes.insertGoodbye(ctx, tx, sub); err != nil {
			return err
		}
	}
	const deleted = "UPDATE postrider_internal.event_subscriptions SET deleted_at = now(), signing_sealed = NULL, connection_sealed = NULL WHERE id = $1"
	if _, err := tx.Exec(ctx, deleted, sub.ID); err != nil {
		return fmt.Errorf("delete event subscription %q of topic %q: %w", sub.Name, sub.Topic, err)
	}
	return nil
}
