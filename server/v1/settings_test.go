package v1

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/catalog/spec"
	"postrider/internal/event"
	"postrider/policy"
)

// The tables of settings and the structs of topics and retry policies name the same settings.
func TestSettingsAreDeclaredOnce(t *testing.T) {
	t.Parallel()
	p, _ := policy.Builtin("namespace-2023")
	p.MaxAttempts.Default, p.RetryWindow = 1, 1
	for name, row := range map[string]struct {
		shown   any
		table   []spec.Setting
		ignored []string // shown, and no settings
	}{
		"retry policy": {DescribePolicy(&p, 1), spec.Policy, []string{"name", "builtIn", "isDefault", "etag"}},
		"topic": {TopicSpec{
			Kind: new(catalog.TopicBasic), InputSchema: new(event.Custom), InputSchemaMapping: new(event.Mapping),
			EventRetentionInDays: new(1), DuplicateDetectionWindowInMinutes: new(1),
			Relay: new(catalog.RelayAzure),
		}, spec.Topic, nil},
	} {
		text, err := json.Marshal(row.shown)
		require.NoError(t, err, name)
		for _, s := range row.table {
			require.NotNil(t, spec.At(text, s.Name), "%s: %s is in the table and not in the struct", name, s.Name)
		}
		var walk func(path string, object []byte)
		walk = func(path string, object []byte) {
			var members map[string]json.RawMessage
			if spec.Find(row.table, path) != nil {
				return
			}
			require.NoError(t, json.Unmarshal(object, &members), "%s: %s is in the struct and not in the table", name, path)
			for member, value := range members {
				if path != "" {
					member = path + "." + member
				}
				walk(member, value)
			}
		}
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &members))
		for _, member := range row.ignored {
			delete(members, member)
		}
		for member, value := range members {
			walk(member, value)
		}
	}
}
