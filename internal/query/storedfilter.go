package query

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"postrider/internal/catalog"
)

// A filter of dead letters or deliveries is stored, and passed to the functions of schema postrider, with the names of
// columns: its JSON, in which the members are in snake_case.

// storedFilter is a filter as it is stored.
func storedFilter(filter any) (string, error) {
	text, err := renamed(filter, ColumnOf)
	if err != nil {
		return "", fmt.Errorf("write a filter: %w", err)
	}
	return string(text), nil
}

// ColumnOf returns the name of a member in SQL: eventId is event_id.
func ColumnOf(member string) string {
	var column strings.Builder
	for _, c := range member {
		if unicode.IsUpper(c) {
			column.WriteByte('_')
		}
		column.WriteRune(unicode.ToLower(c))
	}
	return column.String()
}

// scanFilter reads a stored filter.
func scanFilter(stored, filter any) error {
	text, err := renamed(json.RawMessage(fmt.Appendf(nil, "%s", stored)), catalog.MemberOf)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, filter)
}

// renamed is an object as JSON with other names of its members.
func renamed(object any, rename func(string) string) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	others := make(map[string]json.RawMessage, len(members))
	for name, value := range members {
		others[rename(name)] = value
	}
	return json.Marshal(others)
}
