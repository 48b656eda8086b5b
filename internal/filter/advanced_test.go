package filter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

// clauseOf is an advanced filter on data.x: an operator, and the members after the key.
func clauseOf(operator, operand string) string {
	if operand != "" {
		operand = "," + operand
	}
	return fmt.Sprintf(`{"operatorType":%q,"key":"data.x"%s}`, operator, operand)
}

func filterOf(tb testing.TB, arrays bool, clauses ...string) *filter.Filter {
	tb.Helper()
	return parseFilter(tb,
		fmt.Sprintf(`{"enableAdvancedFilteringOnArrays":%t,"advancedFilters":[%s]}`, arrays, strings.Join(clauses, ",")))
}

// eventWith is an event whose data.x is a JSON text; "" for none.
func eventWith(x string) *filter.EventView {
	if x != "" {
		x = `"x":` + x
	}
	return &filter.EventView{
		Type: "t", Body: []byte(`{"id":"1","data":{"w":1,` + strings.TrimSuffix(`"v":[{"x":0}],`+x, ",") + `}}`),
	}
}

// operatorRow is an operator with its operands, values of data.x that match and values that do not, which are swapped
// for the negated operator, and values of other kinds. Those are as if missing; negated says what that gives.
type operatorRow struct {
	operator, negation, operand string
	yes, no, kinds              string // JSON texts, separated by white space
	negated                     bool   // the negated operator matches what is missing
}

var operatorRows = []operatorRow{
	{"NumberIn", "NumberNotIn", `"values":[5,-1.5]`, `5 5.0 50e-1 -1.5 -15E-1`, `4 5.1 -5 15`, `"5" true {"x":5}`, true},
	{"NumberLessThan", "", `"value":100`, `99 99.999 -1e9 0`, `100 100.0 1e2 100.001 101`, `"5" false`, false},
	{"NumberLessThanOrEquals", "", `"value":100`, `99 100 1e2 -1e9`, `100.001 101`, `"5" false`, false},
	{"NumberGreaterThan", "", `"value":-20`, `-19 -19.9 0 1e400`, `-20 -2e1 -20.01 -1e400`, `"5" false`, false},
	{"NumberGreaterThanOrEquals", "", `"value":-20`, `-20 -2e1 -19 0 1e400`, `-20.01 -21`, `"5" false`, false},
	{
		"NumberInRange", "NumberNotInRange", `"values":[[3.14159,999.95],[3000,4000]]`, `3.14159 4 999.95 3000 3999.9 4e3`,
		`3.14158 999.951 2999 4000.1 -4`, `"4" true`, true,
	},
	{"BoolEquals", "", `"value":true`, `true`, `false`, `1 "true" {}`, false},
	{"BoolEquals", "", `"value":false`, `false`, `true`, `0 "false" {}`, false},
	{
		"StringContains", "StringNotContains", `"values":["microsoft","AZURE"]`,
		`"azure" "the.Microsoft.one" "\u0061zure!"`, `"" "azur" "micro" "soft"`, `5 true {"x":"azure"}`, false,
	},
	{
		"StringBeginsWith", "StringNotBeginsWith", `"values":["event","Message"]`, `"event" "EVENTS" "message-1"`,
		`"" "even" "an-event"`, `5 true`, false,
	},
	{
		"StringEndsWith", "StringNotEndsWith", `"values":["jpg","PNG"]`, `"jpg" "a.JPG" "b.png"`, `"" "pg" "a.jpg1"`,
		`5 true`, false,
	},
	{
		"StringIn", "StringNotIn", `"values":["contoso","Fabrikam",""]`, `"contoso" "FABRIKAM" "" "\u0063ontoso"`,
		`"contos" "contoso1" "[]"`, `5 true`, true,
	},
}

// TestOperators checks Event Grid's table: each value alone, and as an element among ignored ones.
func TestOperators(t *testing.T) {
	t.Parallel()
	for _, row := range operatorRows {
		testOperator(t, row.operator, row.operand, row.yes, row.no, row.kinds, false)
		if row.negation != "" {
			testOperator(t, row.negation, row.operand, row.no, row.yes, row.kinds, row.negated)
		}
	}
}

func testOperator(t *testing.T, operator, operand, yes, no, kinds string, missing bool) {
	t.Helper()
	plain, arrays := filterOf(t, false, clauseOf(operator, operand)), filterOf(t, true, clauseOf(operator, operand))
	require.NoError(t, plain.Validate())
	negated := strings.Contains(operator, "Not")
	check := func(want bool, x string, f *filter.Filter) {
		require.Equal(t, want, f.Matches(eventWith(x)), "%s: data.x = %s", operator, x)
	}
	for _, matches := range []bool{true, false} {
		for _, x := range strings.Fields(map[bool]string{true: yes, false: no}[matches]) {
			check(matches, x, plain)
			check(matches, x, arrays)
			check(false, "["+x+"]", plain) // even for negated operators
			check(matches, "["+x+"]", arrays)
			check(matches, `[null, `+x+`,{"x":`+x+`},[`+x+`]]`, arrays)
		}
	}
	check(missing, "", plain)
	check(missing, "null", plain)
	for _, x := range strings.Fields(kinds) {
		check(missing, x, plain)
		check(missing, x, arrays)
		check(negated, "["+x+"]", arrays)
	}
	check(negated, "[]", arrays)
	check(false, "[]", plain)
	check(!negated, "["+strings.Fields(no)[0]+","+strings.Fields(yes)[0]+"]", arrays) // one of two meets the positive one
}

func TestNullOperators(t *testing.T) {
	t.Parallel()
	null, not := clauseOf("IsNullOrUndefined", ""), clauseOf("IsNotNull", `"value":null,"values":[]`)
	for x, missing := range map[string]bool{
		"": true, "null": true, "0": false, `""`: false, "false": false, "[]": false, "[null]": false, "{}": false,
	} {
		for _, arrays := range []bool{true, false} {
			require.Equal(t, missing, filterOf(t, arrays, null).Matches(eventWith(x)), x)
			require.Equal(t, !missing, filterOf(t, arrays, not).Matches(eventWith(x)), x)
		}
	}
	require.NoError(t, filterOf(t, false, null, not).Validate())
}

func TestEveryOperatorIsInTheTables(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{"IsNullOrUndefined": true, "IsNotNull": true}
	for _, row := range operatorRows {
		tested[row.operator], tested[row.negation] = true, true
	}
	require.Len(t, filter.Operators(), 19)
	for _, name := range filter.Operators() {
		require.True(t, tested[name], name)
	}
}

func TestAdvancedFiltersMustAllHold(t *testing.T) {
	t.Parallel()
	more, less := clauseOf("NumberGreaterThan", `"value":1`), clauseOf("NumberLessThan", `"value":10`)
	f := filterOf(t, false, more, less)
	require.True(t, f.Matches(eventWith("5")))
	require.False(t, f.Matches(eventWith("0")))
	require.False(t, f.Matches(eventWith("10")))
	f.IncludedEventTypes = []string{"other"}
	require.False(t, f.Matches(eventWith("5")), "with the other clauses too")
}

func TestNumbersAreNotRounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		operator, operand, x string
		want                 bool
	}{
		{"NumberIn", `"values":[0.1]`, "1e-1", true},
		{"NumberIn", `"values":[0.3]`, "0.30000000000000004", false},
		{"NumberIn", `"values":[123456789012345678901234567890]`, "123456789012345678901234567890", true},
		{"NumberIn", `"values":[123456789012345678901234567890]`, "123456789012345678901234567891", false},
		{"NumberIn", `"values":[9007199254740992]`, "9007199254740993", false},
		{"NumberIn", `"values":[1e400]`, "1" + strings.Repeat("0", 400), true},
		{"NumberIn", `"values":[1e400]`, "1e401", false},
		{"NumberLessThan", `"value":1e400`, "1e399", true},
		{"NumberGreaterThan", `"value":1e400`, "1e999999999999", true},
		{"NumberGreaterThan", `"value":0`, "1e-999999999999", true},
		{"NumberIn", `"values":[0]`, "-0.0e5", true},
		{"NumberInRange", `"values":[[-1e400,1e-400]]`, "1e-401", true},
		{"NumberInRange", `"values":[[-1e400,1e-400]]`, "1.1e-400", false},
	} {
		f := filterOf(t, false, clauseOf(tt.operator, tt.operand))
		require.NoError(t, f.Validate())
		require.Equal(t, tt.want, f.Matches(eventWith(tt.x)), "%s %s: %s", tt.operator, tt.operand, tt.x)
	}
}

func TestStringsIgnoreCaseInAllAlphabets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		operator, value, x string
		want               bool
	}{
		{"StringIn", "ÄRGER", "ärger", true},
		{"StringIn", "ΟΔΌΣ", "οδός", true},
		{"StringIn", "k", "\u212a", true}, // the Kelvin sign
		{"StringContains", "ß", "STRAẞE", true},
		{"StringContains", "ss", "straße", false},
		{"StringContains", "\U00010400", "x\U00010428", true},
		{"StringBeginsWith", "ŽL", "žluť", true},
		{"StringEndsWith", "УТЬ", "путь", true},
		{"StringEndsWith", "ь", "путь!", false},
	} {
		f := filterOf(t, false, clauseOf(tt.operator, fmt.Sprintf(`"values":[%q]`, tt.value)))
		require.Equal(t, tt.want, f.Matches(eventWith(fmt.Sprintf("%q", tt.x))), "%s %s: %s", tt.operator, tt.value, tt.x)
	}
}

func TestMatchingReturnsIndexes(t *testing.T) {
	t.Parallel()
	filters := []*filter.Filter{
		{},
		{IncludedEventTypes: []string{"other"}},
		filterOf(t, false, clauseOf("NumberIn", `"values":[1]`)),
		filterOf(t, false, clauseOf("NumberIn", `"values":[2]`)),
		filterOf(t, false, `{"operatorType":"StringIn","key":"data.y","values":["a"]}`),
		filterOf(t, true, `{"operatorType":"StringIn","key":"data.y","values":["A"]}`),
	}
	set := filter.NewSet(filters)
	view := &filter.EventView{Type: "t", Body: []byte(`{"data":{"y":["a"],"x":2}}`)}
	require.Equal(t, []int{7, 0, 3, 5}, set.Matching([]int{7}, view))
	require.Equal(t, []int{0}, set.Matching(nil, &filter.EventView{Type: "t"}), "an event without a body")
	require.Empty(t, filter.NewSet(nil).Matching(nil, view))
}

// Invalid filters match nothing, not everything.
func TestInvalidFiltersMatchNothing(t *testing.T) {
	t.Parallel()
	for _, clause := range []string{
		clauseOf("NumberNotEquals", `"value":1`), clauseOf("NumberNotIn", ""), clauseOf("NumberNotIn", `"values":["1"]`),
		clauseOf("StringNotIn", `"values":[1]`), clauseOf("NumberNotInRange", `"values":[[1]]`),
		clauseOf("NumberNotInRange", `"values":[[1,2,3]]`), clauseOf("NumberNotInRange", `"values":[1,2]`),
		clauseOf("BoolEquals", `"value":"true"`), clauseOf("NumberIn", `"value":7`),
	} {
		f := filterOf(t, false, clause)
		require.Error(t, f.Validate(), clause)
		require.False(t, f.Matches(eventWith("7")), clause)
		require.False(t, f.Matches(eventWith("")), clause)
		require.Contains(t, f.Explain(eventWith("7"))[0].Why, "cannot be read", clause)
	}
}

// TestManyKeys has more keys on a level, and more keys, than are kept in lists.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	const keys = 2000
	body, filters := []string{}, []*filter.Filter{}
	for i := range keys {
		body = append(body, fmt.Sprintf(`"k%d":{"v":%d}`, i, i))
		clause := fmt.Sprintf(`{"operatorType":"NumberIn","key":"data.k%d.v","values":[%d]}`, i, i-i%2)
		filters = append(filters, filterOf(t, false, clause))
	}
	set := filter.NewSet(filters)
	places := set.Matching(nil, &filter.EventView{Body: []byte(`{"data":{` + strings.Join(body, ",") + `}}`)})
	require.Len(t, places, keys/2)
	require.False(t, slices.ContainsFunc(places, func(i int) bool { return i%2 == 1 }))
}
