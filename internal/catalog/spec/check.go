package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"postrider/internal/filter"
	"postrider/policy"
)

// Check finds the settings in a JSON object that are outside the limits and choices of their row in the table. Settings
// that are absent, null or of another type are not checked. Of a list it names the first entry that is out of range.
func Check(table []Setting, object []byte) (found []policy.ValidationError) {
	for i := range table {
		s := &table[i]
		if value := At(object, s.Name); value != nil {
			if index, message := s.problem(value); message != "" {
				found = append(found, policy.ValidationError{Field: s.Name + index, Message: message})
			}
		}
	}
	return found
}

// At is the value at a path such as retryPolicy.policy; nil if it is absent or null.
func At(object []byte, path string) json.RawMessage {
	for name := range strings.SplitSeq(path, ".") {
		var members map[string]json.RawMessage
		if json.Unmarshal(object, &members) != nil {
			return nil
		}
		object = members[name]
	}
	if bytes.Equal(object, []byte("null")) {
		return nil
	}
	return object
}

// problem describes what is wrong with a value, "" if nothing; index is the wrong entry of a list, such as "[3]".
func (s *Setting) problem(value json.RawMessage) (index, message string) {
	switch s.Kind {
	case Choice:
		var text string
		if json.Unmarshal(value, &text) == nil && !slices.Contains(s.Choices, text) {
			return "", "must be " + OneOf(s.Choices)
		}
	case Whole, Number:
		return "", s.outOfRange(value)
	case List:
		var list []json.RawMessage
		_ = json.Unmarshal(value, &list) // of another type: no entries
		for i, entry := range list {
			if message := s.outOfRange(entry); message != "" {
				return fmt.Sprintf("[%d]", i), message
			}
		}
	case Lines:
		var list []json.RawMessage
		if json.Unmarshal(value, &list) == nil && s.Max > 0 && len(list) > int(s.Max) {
			return "", fmt.Sprintf("must be at most %s, not %d", plain(s.Max), len(list))
		}
	case Text, URL, PEM:
		var text string
		switch err := json.Unmarshal(value, &text); {
		case err != nil: // of another type
		case !filter.Storable(text):
			return "", "must be UTF-8 without the character U+0000"
		case s.Max > 0 && len(text) > int(s.Max):
			return "", fmt.Sprintf("must be %s bytes or less", plain(s.Max))
		}
	case Time, Switch, JSON: // have checks of their own
	}
	return "", ""
}

func (s *Setting) outOfRange(value json.RawMessage) string {
	n, err := strconv.ParseFloat(string(value), 64)
	if err == nil && s.Max > 0 && (n < s.Min || n > s.Max) {
		return fmt.Sprintf("must be between %s and %s, not %s", plain(s.Min), plain(s.Max), value)
	}
	return ""
}

func plain(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// OneOf lists choices: "A", "A or B", "A, B or C".
func OneOf[T ~string](choices []T) string {
	var b strings.Builder
	for i, choice := range choices {
		switch {
		case i == 0:
		case i == len(choices)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(choice))
	}
	return b.String()
}
