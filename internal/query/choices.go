package query

import (
	"reflect"
	"strings"
)

// choices are the values of members of filters, by their tags choices and suggest.
var choices = map[string][]string{
	"states":           {"pending", "delivered", "dead_lettered", "dropped", "canceled"},
	"deadLetterStates": DeadLetterStates,
	"problemStates":    ProblemStates,
	"holds":            HoldReasons,
	"outcomes": {
		"Delivered", "BadRequest", "Unauthorized", "Forbidden", "NotFound", "TimedOut", "PayloadTooLarge", "Busy",
		"SocketError", "ResolutionError", "Canceled", "GenericError", "Probation", "Aborted", "Acknowledged", "Released",
		"Expired", "Rejected", "Disabled", "Full", "SessionQueueNotSupported",
	},
	"actions": AuditActions,
}

// DeadLetterStates are the states of a dead letter.
var DeadLetterStates = []string{"open", "redelivered", "resolved"}

// ProblemStates are the states of a problem, after the choice that is all of them but resolved.
var ProblemStates = []string{"unresolved", "failing", "acknowledged", "recovered", "resolved"}

// ShownOf returns the value of a member that people see if they give none, by its tag shown; "" for all. "all" selects
// all of them in pages and verbs.
func ShownOf(tag reflect.StructTag) string { return tag.Get("shown") }

// ChoicesOf returns the only values of a field with this tag: the words of its tag enum, or the list that its tag
// choices names; nil if any value is valid.
func ChoicesOf(tag reflect.StructTag) []string {
	if words := tag.Get("enum"); words != "" {
		return strings.Split(words, ",")
	}
	return ChoicesByName(tag.Get("choices"))
}

// ChoicesByName returns the list that a tag choices names; nil for none.
func ChoicesByName(name string) []string { return choices[name] }

// SuggestionsOf returns frequent values of a field with the tag suggest. Others are valid too.
func SuggestionsOf(tag reflect.StructTag) []string { return choices[tag.Get("suggest")] }
