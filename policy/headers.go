package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"postrider/policy/filter"
)

// DeliveryAttributeType says where a custom header's value comes from.
type DeliveryAttributeType string

// The types, in Event Grid's words.
const (
	AttributeStatic  DeliveryAttributeType = "Static"
	AttributeDynamic DeliveryAttributeType = "Dynamic"
)

// DeliveryAttribute is a header that the deliveries of an event subscription carry beside postrider's own: an entry of
// deliveryAttributeMappings.
//
// Source: Microsoft, Custom delivery properties, 2023-02-21.
type DeliveryAttribute struct {
	Name                string                `json:"name"`
	Type                DeliveryAttributeType `json:"type"`
	AttributeProperties `json:"properties"`
}

// AttributeProperties say what the value of a custom header is.
type AttributeProperties struct {
	// Value is a Static one's. Nil in a secret stands for the value that is stored already, see KeepSecrets.
	Value *string `json:"value,omitempty"`
	// IsSecret of a Static one: its value is shown by no read, and is taken out of what an endpoint answers.
	IsSecret bool `json:"isSecret,omitempty"`
	// SourceField is where a Dynamic one's value is in the event: a key as an advanced filter has it.
	SourceField string `json:"sourceField,omitempty"`
}

// HeaderLimits bounds the custom headers of one event subscription. A field that is zero or less takes its value from
// DefaultHeaderLimits.
type HeaderLimits struct {
	// MaxHeaders is the most headers.
	MaxHeaders int
	// MaxValueBytes is the most bytes of one value. A Dynamic value that is longer is not sent.
	MaxValueBytes int
}

// DefaultHeaderLimits are Event Grid's 10 headers and 4,096 bytes (Microsoft, Custom delivery properties, 2023-02-21).
func DefaultHeaderLimits() HeaderLimits { return HeaderLimits{MaxHeaders: 10, MaxValueBytes: 4096} }

func (l HeaderLimits) withDefaults() HeaderLimits {
	d := DefaultHeaderLimits()
	if l.MaxHeaders <= 0 {
		l.MaxHeaders = d.MaxHeaders
	}
	if l.MaxValueBytes <= 0 {
		l.MaxValueBytes = d.MaxValueBytes
	}
	return l
}

const (
	attributesField = "deliveryAttributeMappings"
	maxHeaderName   = 256 // ours: Event Grid's pages name no limit
)

// ownPrefixes begin the headers that are not for custom values: Event Grid's own; those that describe the body; those
// of proxies; and those of webhook standards, both the handshake's (CloudEvents, HTTP 1.1 Web Hooks for Event Delivery
// 1.0.1) and the signature's (Standard Webhooks).
var ownPrefixes = []string{"aeg-", "content-", "proxy-", "webhook-"}

// ownHeaders are the others: what HTTP needs for itself (RFC 9110, 7.6.1; RFC 9112), what says how the answer may be
// coded, the trace that an event came with (W3C, Trace Context), and what the CloudEvents handshake agrees on.
var ownHeaders = []string{
	"accept-encoding", "connection", "date", "expect", "host", "http2-settings", "keep-alive", "origin", "te", "trailer",
	"traceparent", "tracestate", "transfer-encoding", "upgrade",
}

// Mistakes lists everything that keeps custom headers from replacing those that are stored, nil if nothing does. No
// message repeats a value.
func (l HeaderLimits) Mistakes(list, stored []DeliveryAttribute) []ValidationError {
	l = l.withDefaults()
	if n := len(list); n > l.MaxHeaders {
		return []ValidationError{
			*invalid(attributesField, fmt.Sprintf("must have at most %d entries, has %d", l.MaxHeaders, n)),
		}
	}
	var found []ValidationError
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
		} else if list[i].Withheld() && storedValue(stored, name) == nil {
			found = append(found, nothingToKeep(i))
		}
	}
	return found
}

func attributeField(i int) string { return fmt.Sprintf("%s[%d]", attributesField, i) }

// headerNameProblem says what is wrong with a lower-case name, "" if nothing.
func headerNameProblem(name string) string {
	switch {
	case name == "":
		return "is required"
	case len(name) > maxHeaderName:
		return fmt.Sprintf("must be 1 to %d characters long, is %d", maxHeaderName, len(name))
	case strings.ContainsFunc(name, notInToken):
		return "must be a header's name: letters, digits and !#$%&'*+-.^_`|~"
	case slices.ContainsFunc(ownPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }):
		return "must not begin with " + strings.Join(ownPrefixes, ", ") + ": those headers are postrider's and HTTP's own"
	case slices.Contains(ownHeaders, name):
		return "must not be one of " + strings.Join(ownHeaders, ", ") + ": those headers are postrider's and HTTP's own"
	}
	return ""
}

// notInToken: RFC 9110, 5.6.2.
func notInToken(r rune) bool {
	return !alphanumeric(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// problem says what is wrong with the type and what belongs to it, "" if nothing.
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

// KeepSecrets gives each secret without a value the one that is stored under its name, so that what was read can be put
// back though reading shows no secrets. Its error, a *ValidationError, is the first that has none stored. It changes
// neither list.
func KeepSecrets(given, stored []DeliveryAttribute) ([]DeliveryAttribute, error) {
	kept := slices.Clone(given)
	for i := range kept {
		if !kept[i].Withheld() {
			continue
		}
		if kept[i].Value = storedValue(stored, kept[i].Name); kept[i].Value == nil {
			mistake := nothingToKeep(i)
			return nil, &mistake
		}
	}
	return kept, nil
}

// Withheld reports whether it is a secret that was given without its value.
func (a *DeliveryAttribute) Withheld() bool {
	return a.Type == AttributeStatic && a.IsSecret && a.Value == nil
}

func nothingToKeep(i int) ValidationError {
	return *invalid(attributeField(i)+".properties.value",
		"is required: no value is stored for this header that could be kept")
}

// storedValue is nil where a list has no Static header of the name.
func storedValue(stored []DeliveryAttribute, name string) *string {
	for _, s := range stored {
		if s.Value != nil && strings.EqualFold(s.Name, name) {
			return s.Value
		}
	}
	return nil
}
