package spec_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog/spec"
	"postrider/policy"
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
				require.False(t, s.Section != "" && sections[s.Section], "%s: settings of %s are not together", name, s.Section)
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

func TestCompare(t *testing.T) {
	t.Parallel()
	policies := policy.Builtins()
	policies[0].Tail = policy.Seconds(8200 * time.Millisecond) // 8.2 times a second is less than 8,200 ms
	policies[2].Probation.ByOutcome = policy.Holds{policy.OutcomeGenericError: policy.Seconds(time.Second)}
	compared := make([]*policy.Policy, len(policies))
	for i := range policies {
		compared[i] = &policies[i]
	}
	cells := map[string][]string{}
	for _, group := range spec.Compare(compared, time.Duration.String) {
		for _, row := range group.Rows {
			cells[row.Name] = row.Cells
		}
	}
	require.Equal(t, "8.2s", cells["Last step"][0])
	require.Equal(t, []string{"–", "–", "no hold", "as for each failure", "10s", "10s"}, cells["Hold after Busy"],
		"policies without probation have no holds")
	require.Equal(t, []string{"no hold", "only of the endpoint"}, cells["Hold after GenericError"][4:],
		"only an outcome that the policy lists holds its event subscription")
}

func TestCheckRanges(t *testing.T) {
	t.Parallel()
	for _, table := range [][]spec.Setting{spec.Topic, spec.Subscription, spec.Policy} {
		for _, s := range table {
			number := s.Kind == spec.Whole || s.Kind == spec.Number || s.Kind == spec.List
			if !number || s.Max == 0 {
				continue
			}
			for n, valid := range map[float64]bool{s.Min: true, s.Max: true, s.Min - 1: false, s.Max + 1: false} {
				value, field := strconv.FormatFloat(n, 'f', -1, 64), s.Name
				if s.Kind == spec.List {
					field += "[1]"
				}
				found := spec.Check(table, object(s, value))
				if valid {
					require.Empty(t, found, "%s: %s", s.Name, value)
					continue
				}
				require.Len(t, found, 1, "%s: %s", s.Name, value)
				require.Equal(t, field, found[0].Field)
				require.Contains(t, found[0].Message, ", not "+value)
			}
		}
	}
}

// object is the JSON object in which a setting has a value, or a list that ends with it.
func object(s spec.Setting, value string) []byte {
	if s.Kind == spec.List {
		value = fmt.Sprintf("[%v,%s]", s.Min, value)
	}
	names := strings.Split(s.Name, ".")
	for i := len(names) - 1; i >= 0; i-- {
		value = fmt.Sprintf("{%q:%s}", names[i], value)
	}
	return []byte(value)
}
