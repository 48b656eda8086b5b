package filter

import (
	"strings"
	"unicode/utf8"
)

// allEventTypes, alone in IncludedEventTypes, asks for every event type, as in Event Grid.
const allEventTypes = "All"

// Filter says which events of a topic an event subscription wants. The zero Filter wants all.
type Filter struct {
	// IncludedEventTypes are compared exactly; none, or ["All"], means every type.
	IncludedEventTypes []string `json:"includedEventTypes,omitempty" nullable:"true"`
	// SubjectBeginsWith and SubjectEndsWith contain no wildcards.
	SubjectBeginsWith      string `json:"subjectBeginsWith,omitempty"`
	SubjectEndsWith        string `json:"subjectEndsWith,omitempty"`
	IsSubjectCaseSensitive bool   `json:"isSubjectCaseSensitive,omitempty" default:"false"`

	// AdvancedFilters must all hold. They compare without regard to case, whatever IsSubjectCaseSensitive says.
	AdvancedFilters []AdvancedFilter `json:"advancedFilters,omitempty" nullable:"true"`
	// EnableAdvancedFilteringOnArrays lets advanced filters look into arrays: one element that meets it is enough, for a
	// negated operator to fail as well. Without it an array meets no operator that compares.
	EnableAdvancedFilteringOnArrays bool `json:"enableAdvancedFilteringOnArrays,omitempty" default:"false"`
}

// Matches reports whether the event subscription wants an event. Event types are compared exactly, subjects without
// regard to case unless IsSubjectCaseSensitive. Advanced filters are made ready for this one event: where many events
// or many filters are at hand, FilterSet is the faster way.
func (f *Filter) Matches(view *EventView) bool {
	return f.matchType(view.Type) && f.matchSubject(view.Subject) && (!f.Advanced() || f.matchAdvanced(view))
}

func (f *Filter) matchAdvanced(view *EventView) bool {
	return len(NewSet([]*Filter{f}).Matching(nil, view)) == 1
}

// Advanced reports whether the filter asks for more than an event's type and subject.
func (f *Filter) Advanced() bool { return len(f.AdvancedFilters) > 0 }

func (f *Filter) matchType(eventType string) bool {
	if f.everyType() {
		return true
	}
	for _, t := range f.IncludedEventTypes {
		if t == eventType {
			return true
		}
	}
	return false
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

// hasPrefixFold cuts as many characters from s as prefix has and compares those. Bytes cannot be cut: the two cases of
// a character may differ in length ("K" and the Kelvin sign), and lower-casing both first would allocate for every
// event.
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
