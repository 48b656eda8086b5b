package catalog

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"postrider/internal/access"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/postgres"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// CallbackLifetime is how long validationUrl may be opened. Source: Microsoft, Endpoint validation with Event Grid
// event schema, 2024-09-25 (5 minutes until 2020).
const CallbackLifetime = 10 * time.Minute

// Handshakes begins the handshakes with endpoints and records their requests.
type Handshakes struct {
	records
	cache *Cache
	node  string // recorded with each step
}

// EndpointValidation is whether an endpoint must respond to a handshake before the first delivery.
type EndpointValidation string

// The zero value means ValidationSkip.
const (
	ValidationRequired EndpointValidation = "required"
	ValidationSkip     EndpointValidation = "skip"
)

// ProvisioningState is Event Grid's provisioning state of an event subscription.
type ProvisioningState string

// The states of an event subscription. Event Grid also has Deleting and Canceled; here a deletion is immediate.
const (
	ProvisioningCreating  ProvisioningState = "Creating"
	ProvisioningUpdating  ProvisioningState = "Updating"
	ProvisioningSucceeded ProvisioningState = "Succeeded"
	ProvisioningFailed    ProvisioningState = "Failed"
	ProvisioningAwaiting  ProvisioningState = "AwaitingManualAction"
)

// HandshakeState is the state of a handshake.
type HandshakeState string

// Pending: its next request has a job. Awaiting: validationUrl must be opened.
const (
	HandshakePending   HandshakeState = "pending"
	HandshakeSucceeded HandshakeState = "succeeded"
	HandshakeAwaiting  HandshakeState = "awaiting"
	HandshakeFailed    HandshakeState = "failed"
)

// The purposes of handshakes.
const (
	PurposeValidation = "validation"
	PurposeDeletion   = "deletion"
	PurposeCallback   = "callback" // of a relay feed
)

var (
	// ErrValidationPending means: the endpoint has not responded yet, and must not replace a validated one before.
	ErrValidationPending = errors.New("the endpoint has not responded yet")
	// ErrValidationExpired means: validationUrl was opened too late, or for a handshake that had failed.
	ErrValidationExpired = errors.New("the validation is over")
)

// ValidationFailedError means: a handshake failed, so the change that needs it was not made.
type ValidationFailedError struct{ Handshake *Handshake }

// Error names the endpoint and its last response.
func (e *ValidationFailedError) Error() string {
	return fmt.Sprintf("the validation of %s failed: %s", e.Handshake.EndpointBaseURL, e.Handshake.Message)
}

// Handshake is one exchange with an endpoint, of up to three requests.
type Handshake struct {
	ID      int64
	Purpose string
	// Topic and Subscription are names: the event subscription need not exist.
	Topic, Subscription          string
	EndpointURL, EndpointBaseURL string
	EndpointHash                 []byte // see Subscription.EndpointHash
	Connection                   endpointconf.Connection
	// Headers are the static ones of its event subscription.
	Headers []endpointconf.DeliveryAttribute
	// Schema is that of its requests: event.EventGrid or event.CloudEvents.
	Schema event.Schema
	// Code is the validation code, which the endpoint returns or validationUrl has; "" for a deletion.
	Code string
	// Callback: opening validationUrl is enough.
	Callback          bool
	PublicURL         string
	State             HandshakeState
	Tries             int // requests that have ended
	Message           string
	CallbackExpiresAt *time.Time
	CreatedAt         time.Time
	ConcludedAt       *time.Time
	// ReadAt is the database's time of reading.
	ReadAt time.Time
	// Steps are only read by Get, and for a ValidationFailedError.
	Steps []HandshakeStep
}

// HandshakeStep is one request of a handshake, or another change of its state.
type HandshakeStep struct {
	At       time.Time
	Sent     string // in words
	Status   int    // 0 = no response
	Error    string // why there was none
	Response []byte // the beginning of the response body
	Verdict  string // what the response means, in words
	Duration time.Duration
}

// ValidationURL completes the handshake when it is opened. It contains the code.
func (h *Handshake) ValidationURL() string {
	return h.PublicURL + "/topics/" + url.PathEscape(h.Topic) + "/eventsubscriptions/" +
		url.PathEscape(h.Subscription) + "/validate?id=" + url.QueryEscape(h.Code)
}

// handshakeSchema is the schema of the handshake for deliveries of this schema.
func handshakeSchema(delivery event.Schema) event.Schema {
	if delivery == event.CloudEvents {
		return event.CloudEvents
	}
	return event.EventGrid
}

const handshakeCodeColumn = "handshakes.code_sealed"

func (r records) endpointHash(endpoint string) []byte { return r.sealer.Mac("endpoint " + endpoint) }
func (s *Handshakes) codeHash(code string) []byte     { return s.sealer.Mac("handshake " + code) }

const beginHandshakeStatement = `SELECT postrider_internal.begin_handshake(@purpose, @topic, @subscription,
	@subscription_id, @settings, @secrets, @base_url, @hash, @schema, @code, @code_hash, @callback, @public_url)`

// BeginValidation begins the handshake with the endpoint of an event subscription, which need not exist. It returns
// when the first request has its job. publicURL is the beginning of validationUrl. Call Wait next, and then
// PutValidated or ConcludeValidation. *policy.ValidationError: a secret to keep does not exist. ErrUnavailable.
func (s *Handshakes) BeginValidation(
	ctx context.Context, topic *Topic, name string, spec *SubscriptionSpec, publicURL string,
) (id int64, err error) {
	existing, err := s.subscriptionOf(ctx, s.db, topic.Name, name)
	if err != nil && !errors.Is(err, postgres.ErrNotFound) {
		return 0, err
	}
	with := spec.WithDefaults(topic)
	if err := with.keepSecrets(existing); err != nil {
		return 0, err
	}
	args, err := s.validationArgs(topic, name, with, publicURL)
	if err != nil {
		return 0, err
	}
	if err := s.db.QueryRow(ctx, beginHandshakeStatement, args).Scan(&id); err != nil {
		return 0, postgres.Outage("begin a handshake", err)
	}
	return id, nil
}

// RepeatValidation begins a handshake with the endpoint of an event subscription because a user requested it, which the
// audit records. Its success validates the event subscription. ErrUnavailable.
func (s *Handshakes) RepeatValidation(
	ctx context.Context, topic *Topic, sub *Subscription, publicURL string,
) (id int64, err error) {
	args, err := s.validationArgs(topic, sub.Name, sub.SubscriptionSpec, publicURL)
	if err != nil {
		return 0, err
	}
	args["subscription_id"] = sub.ID
	e := access.AuditEntry{Action: access.AuditValidationRequested, Topic: topic.Name, Subscription: sub.Name}
	begin := func(tx pgx.Tx) error { return tx.QueryRow(ctx, beginHandshakeStatement, args).Scan(&id) }
	if err := access.Audited(ctx, s.db, e, begin); err != nil {
		return 0, postgres.Outage("begin a handshake", err)
	}
	return id, nil
}

func (s *Handshakes) validationArgs(
	topic *Topic, name string, spec SubscriptionSpec, publicURL string,
) (pgx.NamedArgs, error) {
	args, err := s.handshakeArgs(PurposeValidation, topic.Name, name, spec)
	if err != nil {
		return nil, err
	}
	code := uuid.NewString()
	args["code"], args["code_hash"] = s.sealer.Seal(handshakeCodeColumn, code), s.codeHash(code)
	args["callback"], args["public_url"] = topic.Kind == TopicBasic, publicURL
	return args, nil
}

// handshakeArgs are the parameters of beginHandshakeStatement. A handshake has its own copy of the settings: it can
// precede its event subscription and outlive it.
func (s *Handshakes) handshakeArgs(purpose, topic, name string, spec SubscriptionSpec) (pgx.NamedArgs, error) {
	settings, secrets, err := s.sealSpec(handshakeSecretsColumn, spec)
	if err != nil {
		return nil, err
	}
	return pgx.NamedArgs{
		"purpose": purpose, "topic": topic, "subscription": name, "subscription_id": nil, "settings": settings,
		"secrets": secrets, "base_url": spec.EndpointBaseURL(), "hash": s.endpointHash(spec.target()),
		"schema": handshakeSchema(spec.EventDeliverySchema), "code": nil, "code_hash": nil, "callback": false,
		"public_url": "",
	}, nil
}

// The pauses of Wait: an endpoint may respond within milliseconds, and a hundred slow ones must not cost the database
// more than 400 queries per second.
const (
	handshakePoll    = 10 * time.Millisecond
	handshakePollMax = 250 * time.Millisecond
)

// Wait returns when the handshake is no longer pending, or when the time has passed. It fails when ctx ends.
func (s *Handshakes) Wait(ctx context.Context, id int64, most time.Duration) error {
	const query = "SELECT state = 'pending' FROM postrider_internal.handshakes WHERE id = $1"
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	for pause := handshakePoll; ; pause = min(2*pause, handshakePollMax) {
		var pending bool
		if err := s.db.QueryRow(ctx, query, id).Scan(&pending); err != nil {
			return postgres.Outage("wait for a handshake", err)
		}
		if !pending {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-timeout.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for a handshake: %w", ctx.Err())
		}
	}
}

// handshakeWhere reads the handshake that meets a condition; ErrNotFound.
func (s *Handshakes) handshakeWhere(
	ctx context.Context, db postgres.Querier, where string, args ...any,
) (*Handshake, error) {
	type row struct {
		Handshake
		Settings, SecretsSealed, CodeSealed []byte
	}
	rows, _ := db.Query(ctx, sql("handshake")+where, args...) // CollectExactlyOneRow returns its error
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByNameLax[row])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("handshake: %w", postgres.ErrNotFound)
	}
	if err != nil {
		return nil, postgres.ReadError("a handshake", err)
	}
	h := &r.Handshake
	spec, err := s.openSpec(handshakeSecretsColumn, r.Settings, r.SecretsSealed)
	if err != nil {
		return nil, err
	}
	h.EndpointURL, h.Connection = spec.EndpointURL, spec.Connection
	h.Headers = slices.DeleteFunc(spec.DeliveryAttributes, func(a endpointconf.DeliveryAttribute) bool {
		return a.Type != endpointconf.AttributeStatic
	})
	if r.CodeSealed != nil {
		h.Code, err = s.sealer.Open(handshakeCodeColumn, r.CodeSealed)
	}
	return h, err
}

// Get reads a handshake with its steps, the oldest first; ErrNotFound.
func (s *Handshakes) Get(ctx context.Context, id int64) (*Handshake, error) {
	h, err := s.handshakeWhere(ctx, s.db, "WHERE id = $1", id)
	if err != nil {
		return nil, err
	}
	return h, s.readSteps(ctx, s.db, h)
}

func (s *Handshakes) readSteps(ctx context.Context, db postgres.Querier, h *Handshake) error {
	const query = `SELECT at, sent, coalesce(status, 0) AS status, coalesce(error, '') AS error, response, verdict,
		duration_us * interval '1 microsecond' AS duration
		FROM postrider_internal.handshake_steps WHERE handshake_id = $1 ORDER BY id`
	var err error
	if h.Steps, err = postgres.Rows[HandshakeStep](ctx, db, query, h.ID); err != nil {
		return postgres.ReadError("the steps of a handshake", err)
	}
	return nil
}

// Load reads the handshake whose next request has this job. ErrNotFound: the handshake has another job, or has ended.
func (s *Handshakes) Load(ctx context.Context, id, job int64) (*Handshake, error) {
	return s.handshakeWhere(ctx, s.db, "WHERE id = $1 AND job_id = $2 AND state = 'pending'", id, job)
}
