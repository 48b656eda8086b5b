package spec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/catalog/spec"
)

// Forms, flags and the reference are built from these tables: a row without its texts would leave a gap in all of them.
func TestEverySettingIsDescribed(t *testing.T) {
	t.Parallel()
	for name, table := range map[string][]spec.Setting{
		"topic": spec.Topic, "subscription": spec.Subscription, "policy": spec.Policy,
	} {
		seen, sections, flags := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for i, s := range table {
			if i == 0 || table[i-1].Section != s.Section {
				require.False(t, s.Section != "" && sections[s.Section], "%s: settings of %s are in two places", name, s.Section)
				sections[s.Section] = true
			}
			require.False(t, seen[s.Name], "%s: %s appears twice", name, s.Name)
			seen[s.Name] = true
			require.NotEmpty(t, s.Help, s.Name)
			require.True(t, strings.HasSuffix(s.Help, "."), "%s: help is a sentence", s.Name)
			require.LessOrEqual(t, len(strings.Fields(strings.Split(s.Label, " (")[0])), 3, "%s: label %q", s.Name, s.Label)
			require.Equal(t, s.Kind == spec.Choice, len(s.Choices) > 0, s.Name)
			for _, flag := range append(s.Aliases, s.FlagName()) {
				require.False(t, name == "subscription" && flag != "" && flags[flag], "%s: flag --%s appears twice", s.Name, flag)
				flags[flag] = true
			}
		}
	}
}
