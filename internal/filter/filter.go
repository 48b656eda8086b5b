// Package filter decides which events an event subscription matches. It is pure: it reads no clock, file or network.
//
// Filter is the configuration (Event Grid's subject, type and advanced filters), Set matches one event against many
// filters at once, and Filter.Explain shows which condition did not match.
package filter

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// allEventTypes, if it is the only entry of IncludedEventTypes, means every event type, as in Event Grid.
const allEventTypes = "All"

// Filter is the filter of an event subscription.
//
// The zero Filter matches all.
type Filter struct {
	// IncludedEventTypes are compared exactly; none, or ["All"], means every type.
	IncludedEventTypes []string `json:"includedEventTypes,omitempty" nullable:"true"`
	// SubjectBeginsWith and SubjectEndsWith contain no wildcards.
	SubjectBeginsWith      string `json:"subjectBeginsWith,omitempty"`
	SubjectEndsWith        string `json:"subjectEndsWith,omitempty"`
	IsSubjectCaseSensitive bool   `json:"isSubjectCaseSensitive,omitempty" default:"false"`

	// AdvancedFilters must all match. They compare without regard to case, even if IsSubjectCaseSensitive.
	AdvancedFilters []AdvancedFilter `json:"advancedFilters,omitempty" nullable:"true"`
	// EnableAdvancedFilteringOnArrays applies advanced filters to the elements of arrays: an operator matches if one
	// element does, a negated one fails if one element matches it. Otherwise an array matches no operator that compares.
	EnableAdvancedFilteringOnArrays bool `json:"enableAdvancedFilteringOnArrays,omitempty" default:"false"`
}

// Matches reports whether the filter matches an event. Event types are compared exactly, subjects without regard to
// case unless IsSubjectCaseSensitive. For many advanced filters or events, Set is faster.
func (f *Filter) Matches(view *EventView) bool {
	if !f.matchType(view.Type) || !f.matchSubject(view.Subject) {
		return false
	}
	return !f.Advanced() || len(NewSet([]*Filter{f}).Matching(nil, view)) == 1
}

// Advanced reports whether the filter reads more than an event's type and subject.
func (f *Filter) Advanced() bool { return len(f.AdvancedFilters) > 0 }

func (f *Filter) matchType(eventType string) bool {
	return f.everyType() || slices.Contains(f.IncludedEventTypes, eventType)
}

func (f *Filter) everyType() bool {
	return len(f.IncludedEventTypes) == 0 || len(f.IncludedEventTypes) == 1 && f.IncludedEventTypes[0] == allEventTypes
}

func (f *Filter) matchSubject(subject string) bool {
	if f.IsSubjectCaseSensitive {
		return strings.HasPrefix(subject, f.SubjectBeginsWith) && strings.HasSuffix(subject, f.SubjectEndsWith)
	}
	return hasPrefixFold(subject, f.SubjectBeginsWith) && hasSuffixFold(subject, f.SubjectEndsWith)
}

// hasPrefixFold compares as many characters of s as prefix has, not bytes: the cases of a character may differ in
// length ("K" and the Kelvin sign). Lower-casing both would allocate.
func hasPrefixFold(s, prefix string) bool {
	end := 0
	for range prefix {
		if end == len(s) {
			return false
		}
		_, width := utf8.DecodeRuneInString(s[end:])
		end += width
	}
	return strings.EqualFold(s[:end], prefix)
}

func hasSuffixFold(s, suffix string) bool {
	start := len(s)
	for range suffix {
		if start == 0 {
			return false
		}
		_, width := utf8.DecodeLastRuneInString(s[:start])
		start -= width
	}
	return strings.EqualFold(s[start:], suffix)
}

// ValidationError is a mistake in a value. Field is the JSON path of the property. Message continues it as a sentence.
// Both may be shown to the client.
type ValidationError struct {
	Field   string
	Message string
}

// Error returns "field: message".
func (e *ValidationError) Error() string { return e.Field + ": " + e.Message }
