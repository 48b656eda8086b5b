package filter_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"postrider/internal/filter"
	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// rejections are invalid advanced filters with the property and the message.
var rejections = []struct{ name, clause, field, message string }{
	{"unknown", clauseOf("NumberEquals", ""), "operatorType", "must be one of NumberIn, NumberNotIn, NumberLessThan, "},
	{"exact case", clauseOf("numberIn", `"values":[1]`), "operatorType", "IsNullOrUndefined, IsNotNull"},
	{"no operator", `{"key":"a"}`, "operatorType", "must be one of"},
	{"no key", `{"operatorType":"IsNotNull"}`, "key", "is required"},
	{"a key that ends with a dot", `{"operatorType":"IsNotNull","key":"data."}`, "key", "none of them empty"},
	{"a key with two dots", `{"operatorType":"IsNotNull","key":"data..x"}`, "key", "none of them empty"},
	{"a null character in the key", `{"operatorType":"IsNotNull","key":"a\u0000"}`, "key", "without a null character"},
	{"a long key", `{"operatorType":"IsNotNull","key":"` + strings.Repeat("é", 513) + `"}`, "key", "1 to 512 characters"},
	{"a value too many", clauseOf("IsNotNull", `"value":true`), "", "must have neither value nor values"},
	{"values too many", clauseOf("IsNullOrUndefined", `"values":[1]`), "", "must have neither value nor values"},
	{"value for values", clauseOf("StringIn", `"value":"a"`), "value", "must be absent: StringIn compares with values"},
	{"value and values", clauseOf("StringIn", `"value":"a","values":["a"]`), "value", "must be absent"},
	{"no values", clauseOf("StringIn", ""), "values", "must have 1 entry or more"},
	{"empty values", clauseOf("NumberInRange", `"values":[]`), "values", "must have 1 entry or more"},
	{"values", clauseOf("NumberLessThan", `"values":[1]`), "values", "must be absent: NumberLessThan compares with value"},
	{"no value", clauseOf("BoolEquals", `"value":null`), "value", "is required by BoolEquals"},
	{"not a boolean", clauseOf("BoolEquals", `"value":"true"`), "value", "must be true or false"},
	{"not a boolean but a number", clauseOf("BoolEquals", `"value":1`), "value", "must be true or false"},
	{"not a number", clauseOf("NumberGreaterThan", `"value":"1"`), "value", "must be a number"},
	{"not a number among numbers", clauseOf("NumberIn", `"values":[1,null]`), "values[1]", "must be a number"},
	{"not a string", clauseOf("StringContains", `"values":["a",1]`), "values[1]", "must be a string"},
	{
		"a long string", clauseOf("StringIn", `"values":["`+strings.Repeat("é", 513)+`"]`), "values[0]",
		"at most 512 characters long, is 513",
	},
	{"a null character", clauseOf("StringIn", `"values":["\u0000"]`), "values[0]", "without a null character"},
	{"half a character", clauseOf("StringIn", `"values":["\ud800"]`), "values[0]", "must be valid UTF-8"},
	{"not a pair", clauseOf("NumberInRange", `"values":[[1,2],3]`), "values[1]", "must be a pair of numbers: [from, to]"},
	{"one end", clauseOf("NumberInRange", `"values":[[1]]`), "values[0]", "must be a pair"},
	{"three ends", clauseOf("NumberNotInRange", `"values":[[1,2,3]]`), "values[0]", "must be a pair"},
	{"no number", clauseOf("NumberInRange", `"values":[[1,"2"]]`), "values[0]", "each of which must be a number"},
	{
		"ends the wrong way round", clauseOf("NumberInRange", `"values":[[1,2],[0.2,1e-1]]`), "values[1]",
		"from not greater than to, not [0.2, 1e-1]",
	},
	{"a number too large to keep", clauseOf("NumberIn", `"values":[1e1001]`), "values[0]", "between 1e-1000 and 1e1000"},
	{"too small a number", clauseOf("NumberLessThan", `"value":-0.1e-1000`), "value", "between 1e-1000 and 1e1000"},
	{"101 digits", clauseOf("NumberIn", `"values":[`+strings.Repeat("1", 101)+`]`), "values[0]", "at most 100 digits"},
}

func TestInvalidAdvancedFilters(t *testing.T) {
	t.Parallel()
	for _, tt := range rejections {
		field := "filter.advancedFilters[1]"
		if tt.field != "" {
			field += "." + tt.field
		}
		invalid := requireField(t, filterOf(t, false, clauseOf("IsNotNull", ""), tt.clause).Validate(), field)
		require.Contains(t, invalid.Message, tt.message, tt.name)
	}
}

func TestAdvancedFiltersAtTheLimits(t *testing.T) {
	t.Parallel()
	for _, clause := range []string{
		`{"operatorType":"IsNotNull","key":"` + strings.Repeat("é", 512) + `"}`,
		`{"operatorType":"IsNotNull","key":"` + strings.Repeat("a.", 255) + `a"}`,
		clauseOf("StringIn", `"values":["`+strings.Repeat("é", 512)+`"]`),
		clauseOf("NumberIn", `"values":[1e1000,-1e-1000,0e99999,`+strings.Repeat("1", 100)+`]`),
		clauseOf("NumberInRange", `"values":[[1,1.0]]`),
	} {
		require.NoError(t, filterOf(t, false, clause).Validate(), clause)
	}
}

func TestFilterLimits(t *testing.T) {
	t.Parallel()
	manyFilters := func(n int) *filter.Filter {
		return filterOf(t, false, slices.Repeat([]string{clauseOf("IsNotNull", "")}, n)...)
	}
	manyValues := func(n int) *filter.Filter {
		return filterOf(t, false, clauseOf("NumberLessThan", `"value":1`),
			clauseOf("NumberInRange", `"values":[[1,2],[3,4]]`),
			clauseOf("NumberIn", `"values":[`+strings.Repeat("7,", n-4)+"7"+`]`))
	}
	require.NoError(t, manyFilters(25).Validate())
	require.NoError(t, manyValues(25).Validate())
	invalid := requireField(t, manyFilters(26).Validate(), "filter.advancedFilters")
	require.Equal(t, "must have at most 25 entries, has 26", invalid.Message)
	invalid = requireField(t, manyValues(26).Validate(), "filter.advancedFilters")
	require.Equal(t, "must have at most 25 values in all filters together, has 26", invalid.Message)

	own := filter.Limits{MaxFilters: 30, MaxValues: 31, MaxStringLength: 3, MaxKeyLength: 8, MaxKeyLevels: 3}
	require.NoError(t, manyFilters(30).ValidateWithin(own))
	require.NoError(t, manyValues(31).ValidateWithin(own))
	require.Contains(t, requireField(t, manyFilters(31).ValidateWithin(own), "filter.advancedFilters").Message,
		"at most 30")
	require.Contains(t, requireField(t, manyValues(32).ValidateWithin(own), "filter.advancedFilters").Message,
		"at most 31")
	for _, tt := range []struct{ key, value, field, message string }{
		{"data.abc", "abc", "", ""},
		{"data.abcd", "abc", "filter.advancedFilters[0].key", "1 to 8 characters"},
		{"a.b.c.d", "abc", "filter.advancedFilters[0].key", "1 to 3 names, has 4"},
		{"a.b.c", "abcd", "filter.advancedFilters[0].values[0]", "at most 3 characters"},
	} {
		err := filterOf(t, false, fmt.Sprintf(`{"operatorType":"StringIn","key":%q,"values":[%q]}`, tt.key, tt.value)).
			ValidateWithin(own)
		if tt.field == "" {
			require.NoError(t, err)
			continue
		}
		require.Contains(t, requireField(t, err, tt.field).Message, tt.message)
	}
}

// Stored filters keep Event Grid's names and the digits of numbers.
func TestAdvancedFilterAsJSON(t *testing.T) {
	t.Parallel()
	const text = `{"isSubjectCaseSensitive":true,"advancedFilters":[` +
		`{"key":"data.x","operatorType":"NumberIn","values":[1e400,123456789012345678901234567890,0.10]},` +
		`{"key":"data.x","operatorType":"NumberInRange","values":[[3.14159,999.95],[3000,4000]]},` +
		`{"key":"data.y","operatorType":"BoolEquals","value":false},{"key":"data.z","operatorType":"IsNotNull"}],` +
		`"enableAdvancedFilteringOnArrays":true}`
	f := parseFilter(t, text)
	require.NoError(t, f.Validate())
	again, err := json.Marshal(f)
	require.NoError(t, err)
	require.Equal(t, text, string(again))
}

// requireField requires a *ValidationError on that field and returns it.
func requireField(t *testing.T, err error, field string) policy.ValidationError {
	t.Helper()
	var invalid *policy.ValidationError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, field, invalid.Field)
	require.NotEmpty(t, invalid.Message)
	return *invalid
}
