package form

import (
	"encoding/json"
	"strings"

	"postrider/internal/catalog/spec"
)

// SettingsIn are the settings in an object of the REST API, by name, without null values and secrets.
func SettingsIn(table []spec.Setting, object json.RawMessage) map[string]json.RawMessage {
	found := map[string]json.RawMessage{}
	for i := range table {
		s := &table[i]
		if value := spec.At(object, s.Name); value != nil && (!s.Secret || s.Kind == spec.JSON) {
			found[s.Name] = value
		}
	}
	return found
}

// Put sets a member of an object by its path.
func Put(object map[string]any, path string, value any) {
	group, rest, nested := strings.Cut(path, ".")
	if !nested {
		object[path] = value
		return
	}
	members, ok := object[group].(map[string]any)
	if !ok {
		members = map[string]any{}
		object[group] = members
	}
	Put(members, rest, value)
}

// OrNull replaces objects whose members are all null with null.
func OrNull(value any) any {
	members, ok := value.(map[string]any)
	if !ok {
		return value
	}
	empty := true
	for name, member := range members {
		members[name] = OrNull(member)
		empty = empty && members[name] == nil
	}
	if empty {
		return nil
	}
	return members
}
