package access

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Settings are a configuration's settings by name, with values that can be written as JSON.
type Settings map[string]any

// maxAuditedValue is up to how many bytes of JSON the audit stores a value.
const maxAuditedValue = 4096

// Changed replaces the values of a secret, and values that are too long, in the audit.
var Changed = map[string]any{"changed": true}

// Changes are the settings that differ, each with its old and its new value. before is nil for a created object, after
// for a deleted one.
func Changes(before, after Settings) map[string]any {
	found := map[string]any{}
	for _, side := range []Settings{before, after} {
		for name := range side {
			if sameValue(before[name], after[name]) {
				continue
			}
			old, fresh := auditedValue(before[name]), auditedValue(after[name])
			if bytes.Equal(old, fresh) || len(old) > maxAuditedValue || len(fresh) > maxAuditedValue {
				found[name] = Changed
				continue
			}
			found[name] = map[string]json.RawMessage{"old": old, "new": fresh}
		}
	}
	return found
}

// auditedValue is a value as JSON without the secrets in it.
func auditedValue(value any) json.RawMessage {
	var decoded any
	text, err := json.Marshal(value)
	if err != nil || json.Unmarshal(text, &decoded) != nil {
		return json.RawMessage("null")
	}
	text, _ = json.Marshal(withoutSecrets(decoded)) // it was JSON before
	return text
}

// secretMembers are the members of settings that are never shown: of connections, and of destinations.
var secretMembers = []string{
	"privateKey", "clientSecret", "primaryKey", "secondaryKey", "sharedAccessSignature", "connectionString", "password",
	"credentials",
}

// withoutSecrets removes the members that have secrets, and the queries of URLs, which often have one.
func withoutSecrets(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			v[name] = withoutSecrets(member)
		}
		for _, secret := range secretMembers {
			delete(v, secret)
		}
		if v["isSecret"] == true {
			delete(v, "value")
		}
	case []any:
		for i := range v {
			v[i] = withoutSecrets(v[i])
		}
	case string:
		if base, _, found := strings.Cut(v, "?"); found && strings.Contains(base, "://") {
			return base
		}
	}
	return value
}

// sameValue compares values as JSON, the form in which settings are sent and stored. Null and an empty list are equal.
func sameValue(old, fresh any) bool {
	before, err := json.Marshal(old)
	after, err2 := json.Marshal(fresh)
	if err != nil || err2 != nil {
		return false
	}
	unset := func(text []byte) bool { return string(text) == "null" || string(text) == "[]" }
	return bytes.Equal(before, after) || unset(before) && unset(after)
}
