// Package destination describes where the events of an event subscription go: to a webhook, to a service that is
// reached by HTTP (a Form writes its requests), or to a broker that has its own protocol (a Sender). It has the
// settings, their checks, and what a response means for the retry policy. It opens no connection.
package destination

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"time"

	"postrider/policy"
)

// Type is the type of a destination. Those of Azure have Event Grid's names.
//
// Source: Microsoft, Azure Resource Manager, Microsoft.EventGrid/eventSubscriptions 2025-02-15, destination.
type Type string

// The types.
const (
	WebHook          Type = "WebHook"
	StorageQueue     Type = "StorageQueue"
	ServiceBusQueue  Type = "ServiceBusQueue"
	ServiceBusTopic  Type = "ServiceBusTopic"
	EventHub         Type = "EventHub"
	HybridConnection Type = "HybridConnection"
	Kafka            Type = "Kafka"
	NatsJetStream    Type = "NatsJetStream"
)

var words = map[Type]string{
	WebHook: "Webhook", StorageQueue: "Storage queue", ServiceBusQueue: "Service Bus queue",
	ServiceBusTopic: "Service Bus topic", EventHub: "Event hub", HybridConnection: "Hybrid connection",
	Kafka: "Kafka topic", NatsJetStream: "NATS JetStream",
}

// Words is the type as forms and pages show it.
func (t Type) Words() string { return words[t] }

// Types are all types. The first is the default.
func Types() []string {
	types := []Type{
		WebHook, StorageQueue, ServiceBusQueue, ServiceBusTopic, EventHub, HybridConnection, Kafka, NatsJetStream,
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return names
}

// AzureTypes are the types that Event Grid has, too.
func AzureTypes() []string { return Types()[:6] }

// Destination is where events are delivered to.
//
// Without one, or with WebHook, it is the URL of endpointUrl.
type Destination struct {
	EndpointType Type `json:"endpointType"`
	// Settings of the type; absent for WebHook.
	Properties *Properties `json:"properties,omitempty"`
}

// Properties are the settings of a destination. Which of them there are depends on the type.
type Properties struct {
	// Of Azure's types.
	ResourceID                      string `json:"resourceId,omitempty" minLength:"1"`
	Endpoint                        string `json:"endpoint,omitempty" minLength:"1"`
	EntityName                      string `json:"entityName,omitempty" minLength:"1"`
	QueueName                       string `json:"queueName,omitempty" minLength:"1"`
	QueueMessageTimeToLiveInSeconds *int   `json:"queueMessageTimeToLiveInSeconds,omitempty"`
	SharedAccessKeyName             string `json:"sharedAccessKeyName,omitempty" minLength:"1"`
	PrimaryKey                      string `json:"primaryKey,omitempty" minLength:"1"`
	SecondaryKey                    string `json:"secondaryKey,omitempty" minLength:"1"`
	SharedAccessSignature           string `json:"sharedAccessSignature,omitempty" minLength:"1"`
	ConnectionString                string `json:"connectionString,omitempty" minLength:"1"` // see Normalize
	// Of brokers.
	Servers       []string      `json:"servers,omitempty"`
	TLS           *bool         `json:"tls,omitempty"` // nil = true
	Topic         string        `json:"topic,omitempty" minLength:"1"`
	ContentMode   ContentMode   `json:"contentMode,omitempty" minLength:"1"`
	MessageKey    string        `json:"messageKey,omitempty" minLength:"1"`
	SASLMechanism SASLMechanism `json:"saslMechanism,omitempty" minLength:"1"`
	Subject       string        `json:"subject,omitempty" minLength:"1"`
	Stream        string        `json:"stream,omitempty" minLength:"1"`
	Username      string        `json:"username,omitempty" minLength:"1"`
	Password      string        `json:"password,omitempty" minLength:"1"`
	Credentials   string        `json:"credentials,omitempty" minLength:"1"` // text of a NATS .creds file
	// MaxMessageSizeInKilobytes is nil for the type's default.
	MaxMessageSizeInKilobytes *int `json:"maxMessageSizeInKilobytes,omitempty"`
}

// HintFor says where settings belong that Event Grid has among the properties; "" for other members.
func (*Properties) HintFor(member string, _ []byte) string {
	switch member {
	case "endpointUrl", "maxEventsPerBatch", "preferredBatchSizeInKilobytes", "minimumTlsVersionAllowed",
		"deliveryAttributeMappings":
		return "is not a member of properties: set it beside destination"
	}
	return ""
}

// ContentMode is how a CloudEvent becomes a Kafka record.
//
// Source: CloudEvents, Kafka protocol binding 1.0.2, section 3.
type ContentMode string

// The content modes. The zero value is Structured.
const (
	Structured ContentMode = "structured" // the whole event as JSON
	Binary     ContentMode = "binary"     // attributes as headers, data as value
)

// SASLMechanism is how a Kafka client authenticates. The zero value is SASLNone.
type SASLMechanism string

// The mechanisms. OAUTHBEARER takes its token from the setting oauth2.
const (
	SASLNone        SASLMechanism = "none"
	SASLPlain       SASLMechanism = "PLAIN"
	SASLScram256    SASLMechanism = "SCRAM-SHA-256"
	SASLScram512    SASLMechanism = "SCRAM-SHA-512"
	SASLOAuthBearer SASLMechanism = "OAUTHBEARER"
)

// What messageKey may be, besides the path of a value in the event, such as data.customer.
const (
	KeyNone         = "none"
	KeyID           = "id"           // the event's id
	KeySubject      = "subject"      // the event's subject
	KeyPartitionKey = "partitionkey" // CloudEvents' extension attribute of that name
)

// IsWebHook reports whether events go to the URL of endpointUrl. It is true for nil.
func (d *Destination) IsWebHook() bool {
	return d == nil || d.EndpointType == WebHook || d.EndpointType == ""
}

// Type is the type; WebHook for nil.
func (d *Destination) Type() Type {
	if d.IsWebHook() {
		return WebHook
	}
	return d.EndpointType
}

// IsBroker reports whether a Sender delivers the events.
func (t Type) IsBroker() bool { return t == Kafka || t == NatsJetStream }

// Batches reports whether one request may have several events.
func (t Type) Batches() bool {
	return t == WebHook || t == HybridConnection || t == ServiceBusQueue || t == ServiceBusTopic || t == EventHub
}

// UseTLS reports whether connections to servers use TLS.
func (p *Properties) UseTLS() bool { return p.TLS == nil || *p.TLS }

// Attribute is a property of a message: one of Event Grid's, or a custom one. The letter case of names is kept.
type Attribute struct{ Name, Value string }

// Message is one event as a destination receives it.
type Message struct {
	// ID is the same at each attempt of a delivery, and another for a redelivery. Brokers drop repeated ids silently.
	ID string
	// Body is the event in the delivery schema: one JSON value, never an array.
	Body []byte
	// ContentType of the body: application/json or application/cloudevents+json, with charset.
	ContentType string
	// Attributes are first Event Grid's (aeg-…), then the custom ones.
	Attributes []Attribute
	// Key is the value that messageKey names; nil = none.
	Key []byte
}

// Result is what the retry policy sees of a response, and what people see of it.
type Result struct {
	policy.Result
	// Text is the service's own status, code and words, without secrets; "" for a success.
	Text string
	// Cause is the original error, for the log; nil = there was a response.
	Cause error
	// RetryAfter is the wait that the service requests; 0 = none.
	RetryAfter time.Duration
	// Passed means that the service has accepted the key, and the response is that of a listener behind it.
	Passed bool
}

// Form writes the requests to a service that is reached by HTTP.
type Form interface {
	// Write returns the body and content type of one request with the messages. nil: the webhook's body is sent.
	Write(messages []Message) (body []byte, contentType string)
	// MaxBytes is the most that a body may have. 0 = no limit is known.
	MaxBytes() int
	// Authorize signs a request, adds its headers to h, and returns its URL. now is the database's time. second selects
	// the second key; ok is false if there is none.
	Authorize(h http.Header, body []byte, now time.Time, second bool) (url string, ok bool)
	// Translate returns what a response means. text is the first 4 KiB of its body.
	Translate(status int, h http.Header, text []byte) Result
	// Check returns a GET request that shows whether the entity exists and the key is right. ok is false if the service
	// has none, or no second key is set.
	Check(now time.Time, second bool) (url string, h http.Header, ok bool)
}

// Sender delivers messages to a broker. It is safe for concurrent use.
type Sender interface {
	// Send sends one message and returns when the broker has confirmed it, or when ctx has ended: policy.ErrorTimeout. It
	// tries once.
	Send(ctx context.Context, m *Message) Result
	// Check checks that the target exists and the credentials are right, without sending a message.
	Check(ctx context.Context) Result
	// Close closes the connections. Messages in flight fail.
	Close()
}

// ClientOptions are what a Sender gets besides the properties.
type ClientOptions struct {
	// Dial opens every connection, also to hosts that the broker names. It rejects addresses that must not be called.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// TLS is nil for connections without it. The server name is not set.
	TLS *tls.Config
	// Token returns an access token of the setting oauth2; nil = it is not set.
	Token func(ctx context.Context) (string, error)
	// Name of the client, as the broker shows it.
	Name string
	// AckTimeout is the time that the broker has for a confirmation.
	AckTimeout time.Duration
	Log        *slog.Logger
}

// AddressRejection is in the chain of an error of ClientOptions.Dial if the address must not be called. A Sender finds
// it by errors.As, returns policy.ErrorArgument, and keeps the error as Cause.
type AddressRejection interface {
	// Rejected reports whether the address must not be called.
	Rejected() bool
}

// Open returns a Sender for the properties. It opens no connection; an error is a setting that cannot be used.
type Open func(p *Properties, o ClientOptions) (Sender, error)
