package filter_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/filter"
)

// FuzzValidateFilter: storing an accepted filter does not change it.
func FuzzValidateFilter(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"includedEventTypes":["a"],"subjectBeginsWith":"b"}`,
		`{"advancedFilters":[{"operatorType":"NumberInRange","key":"data.a","values":[[1,2]]}]}`,
		`{"advancedFilters":[{"operatorType":"StringContains","key":"data.a.b","values":["x"]}],` +
			`"enableAdvancedFilteringOnArrays":true}`,
		`{"advancedFilters":[{"operatorType":"NumberGreaterThan","key":"data.n","value":1e400}]}`,
		`{"advancedFilters":[{"operatorType":"IsNotNull","key":"\u0000"}]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var first filter.Filter
		if json.Unmarshal([]byte(text), &first) != nil {
			return
		}
		if err := first.Validate(); err != nil {
			return
		}
		stored, err := json.Marshal(first)
		require.NoError(t, err)
		var again filter.Filter
		require.NoError(t, json.Unmarshal(stored, &again))
		require.NoError(t, again.Validate(), string(stored))
		printed, err := json.Marshal(again)
		require.NoError(t, err)
		require.Equal(t, string(stored), string(printed))
	})
}
