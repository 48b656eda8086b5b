package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// allEventTypes, alone in IncludedEventTypes, asks for every event type, as in Event Grid.
const allEventTypes = "All"

// Filter says which events of a topic an event subscription wants. The zero Filter wants all.
type Filter struct {
	IncludedEventTypes     []string `json:"includedEventTypes,omitempty"` // exact; none, or ["All"], means every type
	SubjectBeginsWith      string   `json:"subjectBeginsWith,omitempty"`  // no wildcards
	SubjectEndsWith        string   `json:"subjectEndsWith,omitempty"`    // no wildcards
	IsSubjectCaseSensitive bool     `json:"isSubjectCaseSensitive,omitempty"`
}

// Match reports whether the event subscription wants an event of this type and subject. Event types are compared
// exactly, subjects without regard to case unless IsSubjectCaseSensitive.
func (f *Filter) Match(eventType, subject string) bool {
	return f.matchType(eventType) && f.matchSubject(subject)
}

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

// hasPrefixFold cuts as many characters from s as prefix has and compares those. Bytes cannot be cut: the two cases of a
// character may differ in length ("K" and the Kelvin sign), and lower-casing both first would allocate for every event.
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

// Validate reports, as a *ValidationError, why the filter cannot be stored. It does not limit how many event types are
// listed: Event Grid does not either.
func (f *Filter) Validate() error {
	for i, t := range f.IncludedEventTypes {
		field := fmt.Sprintf("filter.includedEventTypes[%d]", i)
		switch {
		case t == "":
			return &ValidationError{field, "must not be empty"}
		case t == allEventTypes && len(f.IncludedEventTypes) > 1:
			return &ValidationError{field, `"All" must stand alone`}
		case !storable(t):
			return &ValidationError{field, notStorable}
		}
	}
	if !storable(f.SubjectBeginsWith) {
		return &ValidationError{"filter.subjectBeginsWith", notStorable}
	}
	if !storable(f.SubjectEndsWith) {
		return &ValidationError{"filter.subjectEndsWith", notStorable}
	}
	return nil
}

const notStorable = "must be valid UTF-8 without a null character"

// storable reports whether PostgreSQL can keep s as text.
func storable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}
