package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"postrider/event"
	"postrider/policy"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// CallbackLifetime is how long validationUrl may be opened. Source: Microsoft, Endpoint validation with Event Grid event
	// schema, 2024-09-25 (5 minutes until 2020).
	CallbackLifetime = 10 * time.Minute
)

// Handshakes makes the handshakes with endpoints and records their requests.
type Handshakes struct {
	records
	cache *Cache
	node  string // recorded with each step
}

// EndpointValidation says whether an endpoint must answer a handshake before anything is delivered to it.
type EndpointValidation string

// The zero value is ValidationSkip, for callers that vouch for the endpoint and say nothing.
const (
	ValidationRequired EndpointValidation = "required"
	ValidationSkip     EndpointValidation = "skip"
)

// ProvisioningState is Event Grid's word for how far an event subscription is.
type ProvisioningState string

// The states that an event subscription has here. Deleting and Canceled are Event Grid's, too: a deletion is over at once.
const (
	ProvisioningCreating  ProvisioningState = "Creating"
	ProvisioningUpdating  ProvisioningState = "Updating"
	ProvisioningSucceeded ProvisioningState = "Succeeded"
	ProvisioningFailed    ProvisioningState = "Failed"
	ProvisioningAwaiting  ProvisioningState = "AwaitingManualAction"
)

// HandshakeState is how a handshake stands.
type HandshakeState string

// Pending: its next request has a job. Awaiting: somebody has to open validationUrl.
const (
	HandshakePending   HandshakeState = "pending"
	HandshakeSucceeded HandshakeState = "succeeded"
	HandshakeAwaiting  HandshakeState = "awaiting"
	HandshakeFailed    HandshakeState = "failed"
)

// What a handshake is for.
const (
	PurposeValidation = "validation"
	PurposeDeletion   = "deletion"
)

// ErrNoAnswerYet says that an endpoint has not answered its handshake in time to take the place of one that works.
var ErrNoAnswerYet = errors.New("the endpoint has not answered yet")

// ErrCallbackOver says that validationUrl was opened too late, or for a handshake that had failed.
var ErrCallbackOver = errors.New("the validation is over")

// ValidationFailedError says that a handshake failed, and with it what it was made for: nothing was changed.
type ValidationFailedError struct{ Handshake *Handshake }

// Error says what was answered last.
func (e *ValidationFailedError) Error() string {
	return fmt.Sprintf("the validation of %s failed: %s", e.Handshake.EndpointBaseURL, e.Handshake.Message)
}

// Handshake is one exchange with an endpoint, of up to three requests.
type Handshake struct {
	ID      int64
	Purpose string
	// Topic and Subscription are names: there need be no event subscription yet, or any more.
	Topic, Subscription          string
	EndpointURL, EndpointBaseURL string
	Connection                   policy.Connection
	// Headers are the Static ones of its event subscription.
	Headers []policy.DeliveryAttribute
	// Schema is what it speaks: event.EventGrid or event.CloudEvents.
	Schema event.Schema
	// Code is what the endpoint, or a person, shows; "" of a deletion.
	Code string
	// Callback: validationUrl may be opened instead.
	Callback          bool
	PublicURL         string
	State             HandshakeState
	Tries             int // that came to an end
	Message           string
	CallbackExpiresAt *time.Time
	CreatedAt         time.Time
	ConcludedAt       *time.Time
	// ReadAt is the database's time when this was read.
	ReadAt time.Time
	Steps  []HandshakeStep
}

// HandshakeStep is one thing that happened in a handshake.
type HandshakeStep struct {
	At       time.Time
	Sent     string // in words
	Status   int    // 0 = no answer
	Error    string // why there was none
	Answer   []byte // the beginning of its body
	Verdict  string // what it was taken for, in words
	Duration time.Duration
}

// ValidationURL is what completes the handshake when somebody opens it. It holds the code.
func (h *Handshake) ValidationURL() string {
	return h.PublicURL + "/topics/" + url.PathEscape(h.Topic) + "/eventsubscriptions/" + url.PathEscape(h.Subscription) + "/validate?id=" + url.QueryEscape(h.Code)
}

// handshakeSchema is what the handshake of event subscriptions with this delivery schema speaks.
func handshakeSchema(delivery event.Schema) event.Schema {
	if delivery == event.CloudEvents {
		return event.CloudEvents
	}
	return event.EventGrid
}

const (
	handshakeEndpointColumn   = "handshakes.endpoint_sealed"
	handshakeCodeColumn       = "handshakes.code_sealed"
	handshakeConnectionColumn = "handshakes.connection_sealed"
)

func (r records) endpointHash(endpoint string) []byte { return r.sealer.Mac("endpoint " + endpoint) }
func (s *Handshakes) codeHash(code string) []byte     { return s.sealer.Mac("handshake " + code) }

const beginHandshakeStatement = `SELECT postrider_internal.begin_handshake(@purpose, @topic, @subscription,
	@subscription_id, @endpoint, @base_url, @hash, @schema, @code, @code_hash, @callback, @public_url, @connection,
	@connection_sealed, @headers)`

// BeginValidation begins the handshake with the endpoint of an event subscription that is there or is to be: it is answered
// once the first request has its job. publicURL is what validationUrl begins with. See WaitHandshake, and then PutValidated or
// ConcludeValidation. *policy.ValidationError when a secret header is to be kept that is not there; ErrUnavailable.
func (s *Handshakes) BeginValidation(ctx context.Context, topic *Topic, name string, spec *SubscriptionSpec, publicURL string) (id int64, err error) {
	args, err := s.validationArgsOf(ctx, topic, name, spec, publicURL)
	if err != nil {
		return 0, err
	}
	if err := s.db.QueryRow(ctx, beginHandshakeStatement, args).Scan(&id); err != nil {
		return 0, outage("begin a handshake", err)
	}
	return id, nil
}

// RepeatValidation begins a handshake with the endpoint that an event subscription has, because somebody asks for one. That is
// audited. Once it succeeds the event subscription is validated, also where nobody waits for it. ErrUnavailable.
func (s *Handshakes) RepeatValidation(ctx context.Context, topic *Topic, sub *Subscription, publicURL string) (id int64, err error) {
	args := s.validationArgs(topic, sub.Name, &sub.SubscriptionSpec, publicURL)
	args["subscription_id"] = sub.ID
	e := auditEntry{action: auditValidationAsked, topic: topic.Name, subscription: sub.Name}
	start := func(tx pgx.Tx) error { return tx.QueryRow(ctx, beginHandshakeStatement, args).Scan(&id) }
	err = audited(ctx, s.db, e, start)
	if err != nil {
		return 0, outage("begin a handshake", err)
	}
	return id, nil
}

// validationArgsOf is validationArgs with the values of secret headers that spec leaves as they are stored.
func (s *Handshakes) validationArgsOf(
	ctx context.Context, topic *Topic, name string, spec *SubscriptionSpec, publicURL string,
) (pgx.NamedArgs, error) {
	with := *spec
	if slices.ContainsFunc(spec.DeliveryAttributes, func(a policy.DeliveryAttribute) bool { return a.Withheld() }) {
		existing, err := s.subscriptionOf(ctx, s.db, topic.Name, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if with.DeliveryAttributes, err = keepSecrets(spec.DeliveryAttributes, existing); err != nil {
			return nil, err
		}
	}
	return s.validationArgs(topic, name, &with, publicURL), nil
}

func (s *Handshakes) validationArgs(topic *Topic, name string, spec *SubscriptionSpec, publicURL string) pgx.NamedArgs {
	code := uuid.NewString()
	args := s.handshakeArgs(PurposeValidation, topic.Name, name, spec)
	args["code"], args["code_hash"] = s.sealer.Seal(handshakeCodeColumn, code), s.codeHash(code)
	args["callback"], args["public_url"] = topic.Kind == TopicBasic, publicURL
	return args
}

func (s *Handshakes) handshakeArgs(purpose, topic, name string, spec *SubscriptionSpec) pgx.NamedArgs {
	open, sealed := s.sealConnection(handshakeConnectionColumn, &spec.Connection)
	static := slices.DeleteFunc(slices.Clone(spec.DeliveryAttributes), func(a policy.DeliveryAttribute) bool {
		return a.Type != policy.AttributeStatic
	})
	return pgx.NamedArgs{
		"connection": open, "connection_sealed": sealed, "headers": s.sealAttributes(handshakeHeadersColumn, static),
		"purpose": purpose, "topic": topic, "subscription": name, "endpoint": s.sealer.Seal(handshakeEndpointColumn, spec.EndpointURL),
		"base_url": spec.EndpointBaseURL, "hash": s.endpointHash(spec.EndpointURL), "schema": handshakeSchema(spec.EventDeliverySchema),
		"subscription_id": nil, "code": nil, "code_hash": nil, "callback": false, "public_url": "",
	}
}

// insertGoodbye tells the endpoint of an event subscription that it is gone.
func (s *Handshakes) insertGoodbye(ctx context.Context, tx pgx.Tx, sub *Subscription) error {
	var id int64
	if err := tx.QueryRow(ctx, beginHandshakeStatement, s.handshakeArgs(PurposeDeletion, sub.Topic, sub.Name, &sub.SubscriptionSpec)).Scan(&id); err != nil {
		return fmt.Errorf("tell the endpoint of the deletion: %w", err)
	}
	return nil
}

// How often WaitHandshake looks: an endpoint may answer within milliseconds, and of a hundred that do not, waiting must not cost the
// database more than 400 looks a second.
const (
	handshakePoll    = 10 * time.Millisecond
	handshakePollMax = 250 * time.Millisecond
)

// WaitHandshake returns when the handshake is no longer pending, or after the time given at most, or with an error when ctx
// ends.
func (s *Handshakes) WaitHandshake(ctx context.Context, id int64, most time.Duration) error {
	giveUp := time.NewTimer(most)
	defer giveUp.Stop()
	for pause := handshakePoll; ; pause = min(2*pause, handshakePollMax) {
		var pending bool
		if err := s.db.QueryRow(ctx, "SELECT state = 'pending' FROM postrider_internal.handshakes WHERE id = $1", id).Scan(&pending); err != nil {
			return outage("wait for a handshake", err)
		}
		if !pending {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-giveUp.C:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for a handshake: %w", ctx.Err())
		}
	}
}

type handshakeRow struct {
	ID                  int64
	Purpose             string
	Topic, Subscription string
	EndpointSealed      []byte
	EndpointBaseURL     string `db:"endpoint_base_url"`
	Schema              string
	CodeSealed          []byte
	Callback            bool
	PublicURL           string `db:"public_url"`
	State               string
	Tries               int
	Message             string
	CallbackExpiresAt   *time.Time
	CreatedAt           time.Time
	ConcludedAt         *time.Time
	ReadAt              time.Time
	EndpointHash        []byte
	JobID               *int64
	Connection          *policy.Connection
	ConnectionSealed    []byte
	HeadersSealed       []byte
}

const handshakeColumns = `SELECT id, purpose, topic, subscription, endpoint_sealed, endpoint_base_url, schema, code_sealed, callback, public_url, state, tries,
	message, callback_expires_at, created_at, concluded_at, now() AS read_at, endpoint_hash, job_id, connection, connection_sealed,
	headers_sealed FROM postrider_internal.handshakes `

func (s *Handshakes) handshakeWhere(ctx context.Context, db querier, where string, args ...any) (*Handshake, *handshakeRow, error) {
	rows, err := db.Query(ctx, handshakeColumns+where, args...)
	if err != nil {
		return nil, nil, readError("a handshake", err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByName[handshakeRow])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, fmt.Errorf("handshake: %w", ErrNotFound)
	}
	if err != nil {
		return nil, nil, readError("a handshake", err)
	}
	h := &Handshake{
		ID: r.ID, Purpose: r.Purpose, Topic: r.Topic, Subscription: r.Subscription, EndpointBaseURL: r.EndpointBaseURL, Schema: event.Schema(r.Schema),
		Callback: r.Callback, PublicURL: r.PublicURL, State: HandshakeState(r.State), Tries: r.Tries, Message: r.Message,
		CallbackExpiresAt: r.CallbackExpiresAt, CreatedAt: r.CreatedAt, ConcludedAt: r.ConcludedAt, ReadAt: r.ReadAt,
	}
	if h.EndpointURL, err = s.sealer.Open(handshakeEndpointColumn, r.EndpointSealed); err != nil {
		return nil, nil, err
	}
	if h.Connection, err = s.openConnection(handshakeConnectionColumn, r.Connection, r.ConnectionSealed); err != nil {
		return nil, nil, err
	}
	if h.Headers, err = s.openAttributes(handshakeHeadersColumn, r.HeadersSealed); err != nil {
		return nil, nil, err
	}
	if r.CodeSealed != nil {
		h.Code, err = s.sealer.Open(handshakeCodeColumn, r.CodeSealed)
	}
	return h, r, err
}

// HandshakeOf reads a handshake with its steps, the oldest first; ErrNotFound.
func (s *Handshakes) HandshakeOf(ctx context.Context, id int64) (*Handshake, error) {
	h, _, err := s.handshakeWhere(ctx, s.db, "WHERE id = $1", id)
	if err != nil {
		return nil, err
	}
	return h, s.readSteps(ctx, s.db, h)
}

func (s *Handshakes) readSteps(ctx context.Context, db querier, h *Handshake) error {
	const query = `SELECT at, sent, coalesce(status, 0), coalesce(error, ''), answer, verdict, duration_us FROM postrider_internal.handshake_steps WHERE handshake_id = $1 ORDER BY id`
	rows, err := db.Query(ctx, query, h.ID)
	if err != nil {
		return readError("the steps of a handshake", err)
	}
	h.Steps, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (step HandshakeStep, err error) {
		var microseconds int64
		err = row.Scan(&step.At, &step.Sent, &step.Status, &step.Error, &step.Answer, &step.Verdict, &microseconds)
		step.Duration = time.Duration(microseconds) * time.Microsecond
		return step, err
	})
	if err != nil {
		return readError("the steps of a handshake", err)
	}
	return nil
}

// LoadHandshake reads the handshake that a job is to make a request of. ErrNotFound: the job is nobody's any more, or there is
// nothing left to ask for.
func (s *Handshakes) LoadHandshake(ctx context.Context, id, job int64) (*Handshake, error) {
	h, _, err := s.handshakeWhere(ctx, s.db, "WHERE id = $1 AND job_id = $2 AND state = 'pending'", id, job)
	return h, err
}
