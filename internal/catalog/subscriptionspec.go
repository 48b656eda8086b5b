package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"postrider/internal/catalog/spec"
	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/filter"
	"postrider/internal/message"
	"postrider/policy"
)

// SubscriptionSpec are the settings of an event subscription.
//
// What is absent has its default. It is the JSON of the REST API and of the database. Package spec describes each
// setting. A member with minLength has no empty value: an empty string would be taken for an absent member.
type SubscriptionSpec struct {
	// Delivery mode, and the settings of pull delivery; by default Push.
	DeliveryConfiguration *DeliveryConfiguration `json:"deliveryConfiguration"`
	// Destination beyond webhooks; by default the endpoint of endpointUrl.
	Destination         *destination.Destination `json:"destination"`
	EndpointURL         string                   `json:"endpointUrl,omitempty"`
	EndpointKind        policy.EndpointKind      `json:"endpointKind,omitempty" minLength:"1"`
	EventDeliverySchema event.Schema             `json:"eventDeliverySchema,omitempty" minLength:"1"`
	EndpointValidation  EndpointValidation       `json:"endpointValidation,omitempty" minLength:"1"`
	// Filter of the events; by default all match.
	Filter filter.Filter `json:"filter"`
	// Retry policy and its limits; by default those of the default policy.
	RetryPolicy RetryPolicySpec `json:"retryPolicy"`
	// Destination of dead letters; by default that of `behavior`, which is Rows for safe.
	DeadLetterDestination *DeadLetterDestination           `json:"deadLetterDestination"`
	DeliveryAttributes    []endpointconf.DeliveryAttribute `json:"deliveryAttributeMappings"`
	// Signing of deliveries; by default none, which deletes existing secrets.
	Signing SigningSpec `json:"signing"`
	// MessageFormat is "" for message.None.
	MessageFormat       message.Format `json:"messageFormat,omitempty" minLength:"1"`
	PagerDutyRoutingKey string         `json:"pagerDutyRoutingKey,omitempty" minLength:"1"`
	// The first two switch batches on, see policy.ResolveBatch.
	MaxEventsPerBatch             *int `json:"maxEventsPerBatch"`
	PreferredBatchSizeInKilobytes *int `json:"preferredBatchSizeInKilobytes"`
	MaxConcurrentDeliveries       *int `json:"maxConcurrentDeliveries"`
	// Limit of requests or events per period; null means none.
	DeliveryRate             *endpointconf.DeliveryRate `json:"deliveryRate"`
	ResponseTimeoutInSeconds *int                       `json:"responseTimeoutInSeconds"`
	Behavior                 policy.Behavior            `json:"behavior,omitempty" minLength:"1"`
	HonorRetryAfter          *bool                      `json:"honorRetryAfter"`
	ProbationAction          *policy.ProbationAction    `json:"probationAction" minLength:"1"`
	RetryTransportErrors     *bool                      `json:"retryTransportErrors"`
	Description              *string                    `json:"description"`
	Labels                   []string                   `json:"labels"`
	ExpirationTimeUTC        *time.Time                 `json:"expirationTimeUtc"`
	endpointconf.Connection
}

// Listed returns the texts of the settings that lists show.
func (s *SubscriptionSpec) Listed() (texts []string) {
	settings, err := json.Marshal(s)
	if err != nil {
		return nil
	}
	for _, setting := range spec.Subscription {
		var text string
		if setting.Listed && json.Unmarshal(spec.At(settings, setting.Name), &text) == nil && text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// RetryPolicySpec is the retry policy of an event subscription and its limits.
//
// The last two limits are names that the first two have on a namespace topic; they are not stored.
type RetryPolicySpec struct {
	Policy                   string  `json:"policy,omitempty" minLength:"1"`
	MaxDeliveryAttempts      *int    `json:"maxDeliveryAttempts"`
	EventTimeToLiveInMinutes *int    `json:"eventTimeToLiveInMinutes"`
	MaxDeliveryCount         *int    `json:"maxDeliveryCount,omitempty"`
	EventTimeToLive          *string `json:"eventTimeToLive,omitempty"`
}

// DeliveryConfiguration has the delivery mode. Push: postrider sends events to the endpoint. Queue: consumers receive
// them. Under Queue the topic's input schema must be CloudEventSchemaV1_0, and endpointUrl and the other settings of
// requests must be absent.
type DeliveryConfiguration struct {
	DeliveryMode DeliveryMode `json:"deliveryMode,omitempty" minLength:"1"`
	// Settings of pull delivery; only under Queue.
	Queue *QueueSettings `json:"queue,omitempty"`
}

// DeliveryMode is Event Grid's name of who begins a delivery.
type DeliveryMode string

// The delivery modes. The zero value is ModePush.
const (
	ModePush  DeliveryMode = "Push"
	ModeQueue DeliveryMode = "Queue"
)

// QueueSettings are the settings of pull delivery. maxDeliveryCount, eventTimeToLive and the destination are Event
// Grid's names of settings in retryPolicy and deadLetterDestination: set each under one name.
//
// Only the first is stored.
type QueueSettings struct {
	ReceiveLockDurationInSeconds *int                   `json:"receiveLockDurationInSeconds,omitempty"`
	MaxDeliveryCount             *int                   `json:"maxDeliveryCount,omitempty"`
	EventTimeToLive              *string                `json:"eventTimeToLive,omitempty"`
	DeadLetterDestination        *DeadLetterDestination `json:"deadLetterDestination,omitempty"`
	// DeadLetterWithIdentity is the destination with the Azure identity that writes to it, which postrider has no use for.
	DeadLetterWithIdentity *IdentityDestination `json:"deadLetterDestinationWithResourceIdentity,omitempty"`
}

// IdentityDestination is a dead-letter destination as Event Grid writes it, beside an identity.
type IdentityDestination struct {
	// Destination of dead letters.
	DeadLetterDestination *DeadLetterDestination `json:"deadLetterDestination,omitempty"`
	// Azure identity. It is not used, as an operator configures access.
	Identity json.RawMessage `json:"identity,omitempty" type:"object"`
}

// defaultLockDuration is how long a consumer has for an event without receiveLockDurationInSeconds.
const defaultLockDuration = time.Minute

// Pulled reports whether consumers receive the events. Otherwise postrider sends them to the endpoint.
func (s *SubscriptionSpec) Pulled() bool {
	return s.DeliveryConfiguration != nil && s.DeliveryConfiguration.DeliveryMode == ModeQueue
}

// Validated reports whether the setting endpointValidation belongs to the type of destination: whether a new target can
// be checked before it is stored.
func (s *SubscriptionSpec) Validated() bool {
	return slices.Contains(spec.Find(spec.Subscription, "endpointValidation").Of, s.Destination.Type())
}

// LockDuration is how long a consumer has for an event that it received.
func (s *SubscriptionSpec) LockDuration() time.Duration {
	if c := s.DeliveryConfiguration; c != nil && c.Queue != nil && c.Queue.ReceiveLockDurationInSeconds != nil {
		return time.Duration(*c.Queue.ReceiveLockDurationInSeconds) * time.Second
	}
	return defaultLockDuration
}

// SigningSpec is the signing of deliveries by Standard Webhooks.
//
// The secrets are the event subscription's own, see endpointconf.Signing.
type SigningSpec struct {
	Enabled bool   `json:"enabled"`
	Secret  string `json:"secret,omitempty"` // only of a request: it is stored sealed, with the later ones
}

// takeSigningKey removes the secret from the settings, and returns its key; nil for none. existing can be nil.
func (s *SubscriptionSpec) takeSigningKey(existing *Subscription) ([]byte, error) {
	secret := s.Signing.Secret
	s.Signing.Secret = ""
	if secret == "" {
		return nil, nil
	}
	key, err := endpointconf.ParseSigningSecret(secret)
	if err != nil {
		return nil, err
	}
	if existing != nil && existing.SigningKeys != nil && !bytes.Equal(existing.SigningKeys.Secrets[0].Key, key) {
		return nil, &filter.ValidationError{
			Field: "signing.secret", Message: "is not the newest secret: replace that one with rotateSigningSecret",
		}
	}
	return key, nil
}

// DeadLetterDestination is the destination of dead letters. Rows keeps them as rows, None drops the events. Blob also
// writes them to a location that an operator allows (serve --dead-letter-location). StorageBlob is Event Grid's name
// for such a location, which an operator maps (serve --dead-letter-container).
type DeadLetterDestination struct {
	EndpointType DeadLetterType `json:"endpointType"`
	// Location of Blob and StorageBlob; absent for Rows and None.
	Properties *endpointconf.DeadLetterProperties `json:"properties,omitempty"`
}

// DeadLetterType is the type of a dead-letter destination.
type DeadLetterType string

// The types of destinations. Without a destination, events go to rows under behavior safe, and to the retry policy's
// default under documented.
const (
	DeadLetterRows DeadLetterType = "Rows"
	DeadLetterNone DeadLetterType = "None"
	// DeadLetterBlob and DeadLetterStorageBlob are rows that are also exported. The second is Event Grid's name.
	DeadLetterBlob        DeadLetterType = "Blob"
	DeadLetterStorageBlob DeadLetterType = "StorageBlob"
)

// Outside reports whether dead letters are also exported.
func (d DeadLetterType) Outside() bool { return d == DeadLetterBlob || d == DeadLetterStorageBlob }

// NamespacePolicy is the default retry policy on namespace topics and of pull delivery: the only behavior documented
// for them.
// Source: Microsoft, Event Grid namespace push delivery and retry, 2023-11.
const NamespacePolicy = "namespace-2023"

// withDefaults fills in what a delivery needs. A custom topic's events are delivered as they were published.
// Source: Microsoft, Azure CLI reference, az eventgrid event-subscription create, --event-delivery-schema.
func (s SubscriptionSpec) withDefaults(kind TopicKind, input event.Schema) SubscriptionSpec {
	if s.Destination.IsWebHook() {
		s.EndpointKind = cmp.Or(s.EndpointKind, policy.KindWebhook)
	} else {
		s.EndpointKind = cmp.Or(s.EndpointKind, policy.KindAzureResource)
	}
	if input == event.Custom {
		input = event.CustomInput
	}
	s.EventDeliverySchema = cmp.Or(s.EventDeliverySchema, input)
	s.Behavior = cmp.Or(s.Behavior, policy.BehaviorSafe)
	if s.Pulled() {
		s.EndpointValidation = ValidationSkip
	}
	if kind == TopicNamespace || s.Pulled() {
		s.RetryPolicy.Policy = cmp.Or(s.RetryPolicy.Policy, NamespacePolicy)
	}
	s.RetryPolicy.Policy = cmp.Or(s.RetryPolicy.Policy, policy.DefaultName)
	return s
}

// WithDefaults are the settings on a topic with defaults for those without which an event cannot be delivered.
func (s SubscriptionSpec) WithDefaults(t *Topic) SubscriptionSpec {
	return s.withDefaults(t.Kind, t.InputSchema)
}

// EndpointBaseURL is the endpoint's URL without its query, which may contain a secret; "" without an endpoint. With a
// message format it has no path either: that of a chat service's webhook is a secret. Of other destinations it is the
// target, such as servicebus://shop.servicebus.windows.net/orders.
func (s *SubscriptionSpec) EndpointBaseURL() string {
	if !s.Destination.IsWebHook() {
		return s.Destination.Target()
	}
	if u, err := url.Parse(s.EndpointURL); err == nil {
		if s.MessageFormat.IsMessage() {
			u.Path, u.RawPath = "", ""
		}
		return endpointconf.BaseURL(u)
	}
	base, _, _ := strings.Cut(s.EndpointURL, "?")
	return base
}

// target identifies the endpoint: event subscriptions with the same one share its pace and its probations.
func (s *SubscriptionSpec) target() string {
	if !s.Destination.IsWebHook() {
		return s.Destination.Target()
	}
	return s.EndpointURL
}

// Batching reports whether events are delivered in batches.
func (s *SubscriptionSpec) Batching() bool {
	_, on := s.batch()
	return on
}

// Batch is how batches are cut: one event each if batches are off.
func (s *SubscriptionSpec) Batch() policy.BatchSettings {
	settings, _ := s.batch()
	return settings
}

// Default batches of an event hub. Event Grid always sends batches there and documents no size: 256 KB is the smallest
// limit of a hub's tiers, and a body in JSON is larger than its events.
const hubBatchEvents, hubBatchKilobytes = 100, 192

func (s *SubscriptionSpec) batch() (policy.BatchSettings, bool) {
	unset := s.MaxEventsPerBatch == nil && s.PreferredBatchSizeInKilobytes == nil
	if unset && s.Destination.Type() == destination.EventHub {
		return policy.BatchSettings{MaxEvents: hubBatchEvents, PreferredKilobytes: hubBatchKilobytes}, true
	}
	return policy.ResolveBatch(s.MaxEventsPerBatch, s.PreferredBatchSizeInKilobytes)
}

// specSecrets are the secret settings, at their places in the JSON of a SubscriptionSpec. All custom headers are
// secret: their names may be confidential, too.
type specSecrets struct {
	EndpointURL        string                           `json:"endpointUrl"`
	DeliveryAttributes []endpointconf.DeliveryAttribute `json:"deliveryAttributeMappings,omitempty"`
	ClientCertificate  *secretKey                       `json:"clientCertificate,omitempty"`
	OAuth2             *clientSecret                    `json:"oauth2,omitempty"`
	PagerDutyKey       string                           `json:"pagerDutyRoutingKey,omitempty"`
	Destination        *destination.Destination         `json:"destination,omitempty"`
}

type secretKey struct {
	PrivateKey string `json:"privateKey"`
}

type clientSecret struct {
	ClientSecret string `json:"clientSecret"`
}

const (
	secretsColumn          = "event_subscriptions.secrets_sealed"
	handshakeSecretsColumn = "handshakes.secrets_sealed"
)

// sealSpec returns the JSON of the settings without the secret ones, and the sealed JSON of those.
func (r records) sealSpec(column string, s SubscriptionSpec) (settings, sealed []byte, err error) {
	secrets := specSecrets{
		EndpointURL: s.EndpointURL, DeliveryAttributes: s.DeliveryAttributes, PagerDutyKey: s.PagerDutyRoutingKey,
		Destination: s.Destination.OnlySecrets(),
	}
	if s.ClientCertificate != nil {
		secrets.ClientCertificate = &secretKey{s.ClientCertificate.PrivateKey}
	}
	if s.OAuth2 != nil {
		secrets.OAuth2 = &clientSecret{s.OAuth2.ClientSecret}
	}
	s.EndpointURL, s.DeliveryAttributes, s.PagerDutyRoutingKey = "", nil, ""
	s.Signing.Secret = "" // has its own column
	s.Connection, s.Destination = s.Connection.WithoutSecrets(), s.Destination.WithoutSecrets()
	if settings, err = json.Marshal(s); err != nil {
		return nil, nil, fmt.Errorf("write the settings of an event subscription: %w", err)
	}
	text, err := json.Marshal(secrets)
	if err != nil {
		return nil, nil, fmt.Errorf("write the secrets of an event subscription: %w", err)
	}
	return settings, r.sealer.Seal(column, string(text)), nil
}

// openSpec is the reverse of sealSpec.
func (r records) openSpec(column string, settings, sealed []byte) (s SubscriptionSpec, err error) {
	if err := json.Unmarshal(settings, &s); err != nil {
		return s, fmt.Errorf("read its settings: %w", err)
	}
	if sealed == nil {
		return s, nil // of a deleted event subscription
	}
	secrets, err := r.sealer.Open(column, sealed)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal([]byte(secrets), &s); err != nil {
		return s, fmt.Errorf("read its secrets: %w", err)
	}
	return s, nil
}
