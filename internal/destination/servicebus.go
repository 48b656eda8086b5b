package destination

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"postrider/internal/jsonscan"
)

// busForm sends messages to Service Bus and Event Hubs. It always uses the batch form: its properties are JSON, so the
// letter case of names, characters outside ASCII and quotes survive, which they do not in headers. The service accepts
// all messages or none.
//
// Source: Microsoft, Service Bus REST API, Send Message Batch; Event Hubs REST API, Send batch events.
type busForm struct {
	*translator
	kind  Type
	url   string
	max   int
	token token
}

// busContentType must have no charset: with one, the service takes the body for a single message.
const busContentType = "application/vnd.microsoft.servicebus.json"

// brokerProperties are the custom attributes that become properties of Service Bus itself. Event Hubs knows the
// partition key only. Source: Microsoft, Event Grid custom delivery properties, 2023-02-21.
var brokerProperties = []string{
	"MessageId", "SessionId", partitionKey, "CorrelationId", "Label", "ReplyTo", "ReplyToSessionId", "To",
	"ViaPartitionKey",
}

const partitionKey = "PartitionKey"

// SharedByBatch reports whether all messages of a batch must have the same value of a custom attribute: a batch goes to
// one partition or session.
func SharedByBatch(attribute string) bool {
	return attribute == partitionKey || attribute == "SessionId" || attribute == "ViaPartitionKey"
}

// busMessage is one message of a batch.
type busMessage struct {
	Body             string
	BrokerProperties map[string]string `json:",omitempty"`
	UserProperties   map[string]string `json:",omitempty"`
}

func (f *busForm) Write(messages []Message) (body []byte, contentType string) {
	batch := make([]busMessage, len(messages))
	for i := range messages {
		batch[i] = f.message(&messages[i])
	}
	return jsonscan.MustEncode(batch), busContentType
}

func (f *busForm) message(m *Message) busMessage {
	made := busMessage{Body: string(m.Body), BrokerProperties: map[string]string{}, UserProperties: map[string]string{}}
	broker := brokerProperties
	if f.kind == EventHub {
		broker = []string{partitionKey}
	} else {
		made.BrokerProperties["MessageId"] = m.ID
		made.BrokerProperties["ContentType"] = m.ContentType
	}
	for _, a := range m.Attributes {
		if slices.Contains(broker, a.Name) {
			made.BrokerProperties[a.Name] = a.Value
		} else {
			made.UserProperties[a.Name] = a.Value
		}
	}
	return made
}

// defaultMaxBytes are the limits of the Standard tiers. Source: Microsoft, Service Bus quotas; Event Hubs quotas.
func defaultMaxBytes(t Type) int {
	switch t {
	case EventHub:
		return 1 << 20
	case ServiceBusQueue, ServiceBusTopic:
		return 256 << 10
	default:
		return 0
	}
}

func (f *busForm) MaxBytes() int { return f.max }

func (f *busForm) Authorize(h http.Header, _ []byte, now time.Time, second bool) (url string, ok bool) {
	text, ok := f.token.at(now, second)
	if !ok {
		return "", false
	}
	f.signed.Store(now.Unix())
	if text != "" {
		h.Set("Authorization", text)
	}
	h.Set("Content-Type", busContentType)
	h.Set("X-Ms-Retrypolicy", "NoRetry") // one attempt is one try of the service
	return f.url, true
}

// Check returns none: a key that may send must not read the entity.
func (*busForm) Check(time.Time, bool) (url string, h http.Header, ok bool) { return "", nil, false }

// busEntity is whether a name can be a queue, topic, hub or hybrid connection.
func busEntity(name string) bool {
	other := func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune("._-/~", r)
	}
	if len(name) > maxBusEntity || strings.ContainsFunc(name, other) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return strings.Trim(part, ".") == "" // empty, or a step to another path
	})
}

const maxBusEntity = 260
