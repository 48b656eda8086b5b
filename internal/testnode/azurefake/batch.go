package azurefake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// contentType is that of a batch, without parameters: with a charset, Azure takes the body as one message.
const contentType = "application/vnd.microsoft.servicebus.json"

// Limits of Service Bus, of the Service Bus quotas page.
const (
	maxIDLength      = 128      // UTF-16 characters of MessageId, SessionId and keys
	maxPropertyBytes = 32 << 10 // of a property with its name
	maxAllBytes      = 64 << 10 // of all properties of a message
)

var (
	partition  = regexp.MustCompile(`^/(partitions/[0-9]+|publishers/[^/]+)/messages$`)
	apiVersion = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}$`)
	seconds    = regexp.MustCompile(`^[1-9][0-9]*$`)
	timeSpan   = regexp.MustCompile(`^([0-9]+\.)?([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,7})?$`)
)

// parse returns the messages of a batch of Service Bus or Event Hubs.
func (e *entity) parse(r *http.Request, rest string, body []byte) ([]Message, *refusal) {
	messages, total, err := e.messagesOf(r, rest, body)
	if err != nil {
		text := "SubCode=40000. " + err.Error()
		return nil, &refusal{respondWith("", http.StatusBadRequest, "", text), err.Error()}
	}
	if total > e.MaxBytes {
		return nil, &refusal{Response: Named(e.service + "-403-size")}
	}
	for _, m := range messages {
		if e.RequiresSession && m.SessionID == "" {
			return nil, &refusal{Response: Named("sb-400-session")}
		}
	}
	return messages, nil
}

// messagesOf returns the messages of a batch and their size in bytes.
func (e *entity) messagesOf(r *http.Request, rest string, body []byte) ([]Message, int, error) {
	if err := e.checkRequest(r, rest); err != nil {
		return nil, 0, err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(body, &items); err != nil || !utf8.Valid(body) || len(items) == 0 {
		return nil, 0, fmt.Errorf("the body must be a JSON array in UTF-8 with at least one message: %w", err)
	}
	var messages []Message
	total := 0
	for i, item := range items {
		m, size, err := e.message(item)
		if err != nil {
			return nil, 0, fmt.Errorf("message %d: %w", i, err)
		}
		m.Header = r.Header
		messages, total = append(messages, m), total+size
		mixed := m.PartitionKey != messages[0].PartitionKey || m.PartitionKey != "" && rest != "/messages"
		if e.service == EventHubs && mixed {
			return nil, 0, fmt.Errorf("message %d: PartitionKey %q differs from %q or from the path's partition", i,
				m.PartitionKey, messages[0].PartitionKey)
		}
	}
	return messages, total, nil
}

// checkRequest checks all of a batch but its body.
func (e *entity) checkRequest(r *http.Request, rest string) error {
	if r.Method != http.MethodPost || rest != "/messages" && (e.service != EventHubs || !partition.MatchString(rest)) {
		return fmt.Errorf("the request must be POST /%s/messages", e.name)
	}
	for name, values := range r.URL.Query() {
		form := map[string]*regexp.Regexp{"timeout": seconds, "api-version": apiVersion}[name]
		if form == nil || len(values) != 1 || !form.MatchString(values[0]) {
			return fmt.Errorf("query parameter %s=%q: only timeout in seconds and api-version are known", name, values)
		}
	}
	if types := r.Header.Values("Content-Type"); len(types) != 1 || types[0] != contentType {
		return fmt.Errorf("Content-Type must be exactly %s, not %q", contentType, types)
	}
	for name := range r.Header {
		if name == "Brokerproperties" || name == "Content-Encoding" || strings.HasPrefix(name, "Aeg-") {
			return fmt.Errorf("header %s has no effect on the messages of a batch", name)
		}
	}
	return nil
}

// message parses an item of a batch. The size is in bytes, with the properties.
func (e *entity) message(raw json.RawMessage) (Message, int, error) {
	members, err := object(raw)
	body, isText := members["Body"].(string)
	if err != nil || !isText {
		return Message{}, 0, errors.Join(err, errors.New("a message is an object whose Body is a string"))
	}
	m := Message{Body: []byte(body), Broker: map[string]any{}, User: map[string]any{}}
	delete(members, "Body")
	for name, value := range members {
		properties, err := object(value)
		switch {
		case name != "BrokerProperties" && name != "UserProperties":
			return m, 0, fmt.Errorf("member %s is unknown: only Body, BrokerProperties and UserProperties are known", name)
		case err != nil:
			return m, 0, fmt.Errorf("member %s: %w", name, err)
		case name == "BrokerProperties":
			m.Broker = properties
		default:
			m.User = properties
		}
	}
	all := 0
	for kind, properties := range map[bool]map[string]any{true: m.Broker, false: m.User} {
		for name, value := range properties {
			problem := checkType(value)
			if kind && problem == "" {
				problem = e.checkBroker(name, value)
			}
			size := len(name) + len(fmt.Sprint(value))
			all += size
			if problem != "" || name == "" || size > maxPropertyBytes || all > maxAllBytes {
				return m, 0, fmt.Errorf("property %q %s (%d bytes of %d, all %d of %d)", name, problem, size, maxPropertyBytes,
					all, maxAllBytes)
			}
		}
	}
	m.MessageID, _ = m.Broker["MessageId"].(string)
	m.SessionID, _ = m.Broker["SessionId"].(string)
	m.PartitionKey, _ = m.Broker["PartitionKey"].(string)
	if m.SessionID != "" && m.PartitionKey != "" && m.SessionID != m.PartitionKey {
		return m, 0, fmt.Errorf("PartitionKey %q must equal SessionId %q", m.PartitionKey, m.SessionID)
	}
	return m, len(m.Body) + all, nil
}

func checkType(value any) string {
	switch value.(type) {
	case string, float64, bool:
		return ""
	}
	return "must be a string, a number, true or false"
}

// checkBroker checks a member of BrokerProperties; "" = it is correct.
func (e *entity) checkBroker(name string, value any) string {
	if e.service == EventHubs && name != "PartitionKey" {
		return "is unknown: Event Hubs has only PartitionKey"
	}
	text, isText := value.(string)
	isBool := value == true || value == false
	_, dateErr := http.ParseTime(text)
	length := len(utf16.Encode([]rune(text)))
	switch name {
	case "MessageId", "SessionId", "PartitionKey", "ReplyToSessionId", "ViaPartitionKey":
		return unless(length > 0 && length <= maxIDLength, "must be a string of 1 to 128 characters")
	case "CorrelationId", "ContentType", "Label", "ReplyTo", "To":
		return unless(isText, "must be a string")
	case "ForcePersistence":
		return unless(isBool, "must be true or false")
	case "TimeToLiveTimeSpan":
		return unless(timeSpan.MatchString(text), "must be a time span such as 0.00:00:40")
	case "ScheduledEnqueueTimeUtc":
		return unless(dateErr == nil, "must be an HTTP date")
	}
	return "is unknown in a batch"
}

func unless(correct bool, problem string) string {
	if correct {
		return ""
	}
	return problem
}

// object returns the members of a JSON object; those that are objects as json.RawMessage.
func object(value any) (map[string]any, error) {
	raw, _ := value.(json.RawMessage)
	d := json.NewDecoder(bytes.NewReader(raw))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("must be a JSON object")
	}
	members := map[string]any{}
	for d.More() {
		token, err := d.Token()
		var member json.RawMessage
		var scalar any
		if err = errors.Join(err, d.Decode(&member), json.Unmarshal(member, &scalar)); err != nil {
			return nil, err
		}
		name, _ := token.(string)
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("member %s is there twice", name)
		}
		if members[name] = scalar; member[0] == '{' {
			members[name] = member
		}
	}
	return members, nil
}
