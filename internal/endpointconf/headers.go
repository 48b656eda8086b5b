package endpointconf

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"postrider/internal/filter"
)

// DeliveryAttributeType is the source of a custom header's value.
type DeliveryAttributeType string

// The types, in Event Grid's words.
const (
	AttributeStatic  DeliveryAttributeType = "Static"
	AttributeDynamic DeliveryAttributeType = "Dynamic"
)

// DeliveryAttribute is a custom header of deliveries, see docs/guides/receive.md.
//
// It is an entry of deliveryAttributeMappings. Source: Microsoft, Custom delivery properties, 2023-02-21.
type DeliveryAttribute struct {
	// Name of the header, at most 256 characters. Headers that HTTP or postrider sets are rejected.
	Name string `json:"name"`
	// Static or Dynamic.
	Type DeliveryAttributeType `json:"type"`
	// Value of the header.
	AttributeProperties `json:"properties"`
}

// AttributeProperties is the value of a custom header. A Static header has value and isSecret, a Dynamic one
// sourceField.
type AttributeProperties struct {
	// Value. Null with isSecret true keeps the stored value.
	Value *string `json:"value,omitempty"`
	// true if only getDeliveryAttributes shows the value.
	IsSecret bool `json:"isSecret,omitempty"`
	// Path of the value in the event, as the key of a filter: subject, data.order.system.
	SourceField string `json:"sourceField,omitempty"`
}

// HeaderLimits bounds the custom headers of one event subscription. A field that is zero or less is Event Grid's: 10
// headers of 4,096 bytes (Microsoft, Custom delivery properties, 2023-02-21).
type HeaderLimits struct {
	MaxHeaders    int
	MaxValueBytes int // of one value; a longer Dynamic value is not sent
}

func (l HeaderLimits) withDefaults() HeaderLimits {
	if l.MaxHeaders <= 0 {
		l.MaxHeaders = 10
	}
	if l.MaxValueBytes <= 0 {
		l.MaxValueBytes = 4096
	}
	return l
}

// OriginHeader marks a request with the database that it comes from. A relay topic of the same database does not accept
// it: the events would go in circles.
const OriginHeader = "Postrider-Origin"

const (
	attributesField = "deliveryAttributeMappings"
	maxHeaderName   = 256 // ours: Event Grid's pages name no limit
)

// ownPrefixes begin the names of reserved headers: Event Grid's, those that describe the body, those of proxies, and
// those of the handshake (CloudEvents, HTTP 1.1 Web Hooks for Event Delivery 1.0.1) and of Standard Webhooks.
var ownPrefixes = []string{"aeg-", "content-", "proxy-", "webhook-"}

// ownHeaders are the other reserved headers: those of HTTP (RFC 9110, 7.6.1; RFC 9112), of the response's encoding, of
// the event's trace (W3C, Trace Context), of the CloudEvents handshake, and OriginHeader.
var ownHeaders = []string{
	"accept-encoding", "connection", "date", "expect", "host", "http2-settings", "keep-alive", "origin",
	"postrider-origin", "te", "trailer", "traceparent", "tracestate", "transfer-encoding", "upgrade",
}

// Mistakes lists what is wrong with custom headers that are to replace the stored ones. No message repeats a value.
func (l HeaderLimits) Mistakes(list, stored []DeliveryAttribute) []filter.ValidationError {
	l = l.withDefaults()
	if n := len(list); n > l.MaxHeaders {
		return []filter.ValidationError{
			*invalid(attributesField, fmt.Sprintf("must have at most %d entries, has %d", l.MaxHeaders, n)),
		}
	}
	var found []filter.ValidationError
	first := map[string]int{} // entry by name
	for i := range list {
		field := attributeField(i)
		name := strings.ToLower(list[i].Name)
		if message := headerNameProblem(name); message != "" {
			found = append(found, *invalid(field+".name", message))
		} else if before, taken := first[name]; taken {
			found = append(found, *invalid(field+".name",
				fmt.Sprintf("repeats %s.name; names are compared without regard to case", attributeField(before))))
		} else {
			first[name] = i
		}
		if member, message := list[i].problem(l); message != "" {
			found = append(found, *invalid(field+"."+member, message))
		} else if list[i].withheld() && storedValue(stored, name) == nil {
			found = append(found, notStored(i))
		}
	}
	return found
}

func attributeField(i int) string { return fmt.Sprintf("%s[%d]", attributesField, i) }

// headerNameProblem describes what is wrong with a lower-case name; "" if nothing.
func headerNameProblem(name string) string {
	const reserved = ": those headers are reserved for postrider and HTTP"
	switch {
	case name == "":
		return "is required"
	case len(name) > maxHeaderName:
		return fmt.Sprintf("must be 1 to %d characters long, is %d", maxHeaderName, len(name))
	case strings.ContainsFunc(name, notToken):
		return "must be a header's name: letters, digits and !#$%&'*+-.^_`|~"
	case slices.ContainsFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		return "must not begin with " + strings.Join(ownPrefixes, ", ") + reserved
	case slices.Contains(ownHeaders, name):
		return "must not be one of " + strings.Join(ownHeaders, ", ") + reserved
	}
	return ""
}

// notToken: RFC 9110, 5.6.2.
func notToken(r rune) bool {
	return !alphanumeric(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// problem describes what is wrong with the type or a property; "" if nothing.
func (a *DeliveryAttribute) problem(l HeaderLimits) (member, message string) {
	switch {
	case a.Type != AttributeStatic && a.Type != AttributeDynamic:
		return "type", fmt.Sprintf("must be %s or %s", AttributeStatic, AttributeDynamic)
	case a.Type == AttributeDynamic && a.Value != nil:
		return "properties.value", "must be absent: a Dynamic header has its value from sourceField"
	case a.Type == AttributeDynamic && a.IsSecret:
		return "properties.isSecret", "must be absent or false: only a Static header can be a secret"
	case a.Type == AttributeDynamic:
		return "properties.sourceField", filter.DefaultLimits().KeyProblem(a.SourceField)
	case a.SourceField != "":
		return "properties.sourceField", "must be absent: a Static header has its value in value"
	case a.Value == nil && !a.IsSecret:
		return "properties.value", "is required by a Static header"
	case a.Value == nil:
		return "", ""
	}
	return "properties.value", headerValueProblem(*a.Value, l.MaxValueBytes)
}

func headerValueProblem(value string, most int) string {
	switch {
	case value == "" || len(value) > most:
		return fmt.Sprintf("must be 1 to %d bytes long, is %d", most, len(value))
	case !sendable(value):
		return "must be UTF-8 without control characters, which no header can carry"
	case strings.Trim(value, blanks) != value:
		return "must not begin or end with a space or tab, which no header can carry"
	}
	return ""
}

const blanks = " \t"

// sendable reports whether a header can carry the value: no control characters but the tab (RFC 9110, 5.5).
func sendable(value string) bool {
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
	return utf8.ValidString(value) && !strings.ContainsFunc(value, control)
}

// KeepSecrets gives each secret without a value the one stored under its name: reads show no secrets, and what was read
// can be written back. It returns a *ValidationError for the first that has none stored. It changes neither list.
func KeepSecrets(given, stored []DeliveryAttribute) ([]DeliveryAttribute, error) {
	kept := slices.Clone(given)
	for i := range kept {
		if !kept[i].withheld() {
			continue
		}
		if kept[i].Value = storedValue(stored, kept[i].Name); kept[i].Value == nil {
			mistake := notStored(i)
			return nil, &mistake
		}
	}
	return kept, nil
}

// withheld reports whether a is a secret without its value.
func (a *DeliveryAttribute) withheld() bool {
	return a.Type == AttributeStatic && a.IsSecret && a.Value == nil
}

func notStored(i int) filter.ValidationError {
	return *invalid(attributeField(i)+".properties.value",
		"is required: no value is stored for this header")
}

// storedValue is nil if a list has no Static header of the name.
func storedValue(stored []DeliveryAttribute, name string) *string {
	for _, s := range stored {
		if s.Value != nil && strings.EqualFold(s.Name, name) {
			return s.Value
		}
	}
	return nil
}

// HeaderSet is the custom headers of an event subscription, prepared so that an event's body is read once for all
// Dynamic headers. It is immutable and safe for concurrent use.
type HeaderSet struct {
	static  []DeliveryAttribute
	dynamic []string // names, in the order of fields
	fields  *filter.Keys
}

// NewHeaderSet prepares custom headers that HeaderLimits.Mistakes and KeepSecrets have accepted; nil if there are none.
// A header without a value is left out.
func NewHeaderSet(list []DeliveryAttribute) *HeaderSet {
	if len(list) == 0 {
		return nil
	}
	s := &HeaderSet{}
	var fields []string
	for _, a := range list {
		if a.Type == AttributeDynamic {
			s.dynamic, fields = append(s.dynamic, a.Name), append(fields, a.SourceField)
		} else if a.Value != nil {
			s.static = append(s.static, a)
		}
	}
	s.fields = filter.NewKeys(fields)
	return s
}

// Each calls set for every header of a delivery of the event. A Dynamic header is left out if the event has no string,
// number or boolean at its sourceField, or a text that is longer than maxValueBytes (Event Grid's 4,096 for zero or
// less) or has control characters. Numbers keep their digits; spaces and tabs around a text are removed.
func (s *HeaderSet) Each(view *filter.EventView, maxValueBytes int, set func(name, value string)) {
	if s == nil {
		return
	}
	for _, h := range s.static {
		set(h.Name, *h.Value)
	}
	s.eachDynamic(view, maxValueBytes, set)
}

func (s *HeaderSet) eachDynamic(view *filter.EventView, maxValueBytes int, set func(name, value string)) {
	if !s.HasDynamic() {
		return
	}
	most := HeaderLimits{MaxValueBytes: maxValueBytes}.withDefaults().MaxValueBytes
	s.fields.Each(view, func(i int, text string) {
		if text = strings.Trim(text, blanks); len(text) <= most && sendable(text) {
			set(s.dynamic[i], text)
		}
	})
}

// HasDynamic reports whether a header's value depends on the event.
func (s *HeaderSet) HasDynamic() bool { return s != nil && len(s.dynamic) > 0 }

// DynamicValues returns the same text for two events if and only if Each sets the same Dynamic headers for both.
func (s *HeaderSet) DynamicValues(view *filter.EventView, maxValueBytes int) string {
	var values strings.Builder
	s.eachDynamic(view, maxValueBytes, func(name, value string) {
		values.WriteString(name + "\n" + value + "\n") // neither has a line break
	})
	return values.String()
}
