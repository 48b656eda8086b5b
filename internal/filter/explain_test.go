package filter_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"postrider/internal/filter"

	"github.com/stretchr/testify/require"
)

func TestFilterExplain(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 300)
	for _, tt := range []struct {
		filter, x, clause, why string
	}{
		{`{"includedEventTypes":["a","b"]}`, "1", "includedEventTypes", `the event type is "t", but must be one of "a", "b"`},
		{`{"subjectBeginsWith":"/a"}`, "1", "subjectBeginsWith", `the subject is "/sub", but must begin with "/a"`},
		{`{"subjectEndsWith":"B","isSubjectCaseSensitive":true}`, "1", "subjectEndsWith", `the subject is "/sub", but must ` +
			`end with "B", with regard to case`},
		{clauseOf("NumberGreaterThan", `"value":10`), "5", "", `data.x is 5, but must be greater than 10`},
		{clauseOf("NumberIn", `"values":[1,2.50]`), "", "", `data.x is missing, but must be one of 1, 2.50`},
		{clauseOf("NumberNotInRange",
			`"values":[[1,2],[3,4]]`), "1.5", "", `data.x is 1.5, but must be within none of [1,2], [3,4]`},
		{clauseOf("NumberIn", `"values":[1]`), `"1"`, "", `data.x is "1", but must be one of 1; NumberIn compares ` +
			`numbers only`},
		{clauseOf("BoolEquals", `"value":true`), "false", "", `data.x is false, but must be true`},
		{clauseOf("StringNotContains", `"values":["b"]`), "null", "", `data.x is null, but must contain none of "b"`},
		{clauseOf("StringIn", `"values":["b"]`), `"\u0061\n"`, "", `data.x is "a\n", but must be one of "b"`},
		{clauseOf("StringIn", `"values":["b"]`), `{"a":1}`, "", `data.x is an object, {"a":1}, but must be one of "b";` +
			` StringIn compares strings only`},
		{
			clauseOf("StringIn", `"values":["b"]`), `["a"]`, "",
			`data.x is an array, ["a"], but must be one of "b"; arrays match only with ` +
				`enableAdvancedFilteringOnArrays`,
		},
		{clauseOf("IsNotNull", ""), "null", "", `data.x is null, but must be neither null nor missing`},
		{clauseOf("IsNullOrUndefined", ""), "[]", "", `data.x is an array, [], but must be null or missing`},
		{clauseOf("StringIn", `"values":["b"]`), `"` + long + `"`, "", `data.x is "` + long[:2*99] +
			`…", but must be one of "b"`},
	} {
		text := tt.filter
		if tt.clause == "" {
			text, tt.clause = `{"advancedFilters":[`+text+`]}`, "advancedFilters[0]"
		}
		view := eventWith(tt.x)
		view.Subject = "/sub"
		require.Equal(t, []filter.Clause{{Clause: tt.clause, Why: tt.why}}, parseFilter(t, text).Explain(view))
	}
	why := func(clause, x string) string { return filterOf(t, true, clause).Explain(eventWith(x))[0].Why }
	require.Equal(t, `data.x is an array, [1,2], but must be one of 3, or one of its elements must`,
		why(clauseOf("NumberIn", `"values":[3]`), "[1,2]"))
	require.Equal(t, `data.x is an array, [1,3], but must be none of 3, and so must each of its elements`,
		why(clauseOf("NumberNotIn", `"values":[3]`), "[1,3]"))
}

func TestExplainHasEveryClause(t *testing.T) {
	t.Parallel()
	f := filterOf(t, false, clauseOf("NumberIn", `"values":[5]`), clauseOf("NumberIn", `"values":[6]`))
	f.IncludedEventTypes, f.SubjectBeginsWith = []string{"other"}, "/"
	clauses := f.Explain(&filter.EventView{Type: "t", Subject: "/s", Body: []byte(`{"data":{"x":5}}`)})
	require.Len(t, clauses, 4)
	require.Equal(t, []bool{false, true, true, false},
		[]bool{clauses[0].Passed, clauses[1].Passed, clauses[2].Passed, clauses[3].Passed})
	require.Equal(t, "advancedFilters[1]", clauses[3].Clause)
	require.Empty(t, clauses[1].Why)
	none, err := json.Marshal((&filter.Filter{IncludedEventTypes: []string{"All"}}).Explain(&gridEvent))
	require.NoError(t, err)
	require.Equal(t, "[]", string(none), "a filter that states nothing")
}

// pick returns one of the texts.
func pick(r *rand.Rand, texts ...string) string { return texts[r.IntN(len(texts))] }

// randomJSON is a value of any kind, from few values that often match.
func randomJSON(r *rand.Rand, depth int) string {
	switch n := r.IntN(8); {
	case n < 2:
		return pick(r, "0", "1", "-1", "1.0", "10e-1", "2", "1e400", "12345678901234567890123")
	case n < 4:
		return pick(r, `"a"`, `"A"`, `"ab"`, `"\u0061b"`, `""`, `"b"`, `"é"`, `"É"`, `"1"`)
	case n < 5 || depth == 0:
		return pick(r, "true", "false", "null")
	case n < 6:
		return "[" + randomJSON(r, 0) + "," + randomJSON(r, depth-1) + "]"
	}
	members := []string{}
	for range r.IntN(4) {
		members = append(members, fmt.Sprintf("%q : %s", pick(r, "x", "y", "X"), randomJSON(r, depth-1)))
	}
	return "{" + strings.Join(members, ", ") + "}"
}

func randomClause(r *rand.Rand) string {
	name := filter.Operators()[r.IntN(len(filter.Operators()))]
	key := pick(r, "data", "data.x", "data.y", "data.x.y", "Data.y.x", "subject", "ID", "ext", "eventType", "type")
	number := func() string { return pick(r, "0", "1", "-1.0", "1e400", "12345678901234567890123", "1.5") }
	operand := ""
	switch {
	case strings.HasSuffix(name, "Range"):
		operand = `,"values":[[` + number() + "," + number() + `]]`
	case strings.HasSuffix(name, "In") && name[0] == 'N':
		operand = `,"values":[` + number() + "," + number() + `]`
	case name[0] == 'N':
		operand = `,"value":` + number()
	case name[0] == 'B':
		operand = `,"value":` + pick(r, "true", "false")
	case name[0] == 'S':
		operand = `,"values":[` + pick(r, `"a"`, `"B"`, `""`, `"é"`) + "," + pick(r, `"1"`, `"AB"`) + `]`
	}
	return fmt.Sprintf(`{"operatorType":%q,"key":%q%s}`, name, key, operand)
}

func randomFilter(t *testing.T, r *rand.Rand) *filter.Filter {
	t.Helper()
	clauses := []string{}
	for range r.IntN(4) {
		clauses = append(clauses, randomClause(r))
	}
	f := filterOf(t, r.IntN(2) == 0, clauses...)
	if r.IntN(4) == 0 {
		f.IncludedEventTypes = []string{pick(r, "a", "b", "All")}
	}
	if r.IntN(4) == 0 {
		f.SubjectBeginsWith, f.SubjectEndsWith, f.IsSubjectCaseSensitive = pick(r, "", "a", "A"), pick(r, "", "b"),
			r.IntN(2) == 0
	}
	return f
}

func randomView(r *rand.Rand) *filter.EventView {
	return &filter.EventView{
		CloudEvent: r.IntN(2) == 0, ID: "1", Type: pick(r, "a", "b"), Subject: pick(r, "", "ab", "AB"), Topic: "/topics/t",
		Source: "s",
		Body:   []byte(fmt.Sprintf(`{"ext":%s,"data":%s}`, pick(r, "1", `"a"`, "true", "null"), randomJSON(r, 3))),
	}
}

// TestExplainAgreesWithMatching compares Explain, Matches, Matching and the naive rule for random events.
func TestExplainAgreesWithMatching(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	matched, rejected := 0, 0
	for range 2000 {
		filters := []*filter.Filter{}
		for range 10 {
			filters = append(filters, randomFilter(t, r))
		}
		set, view := filter.NewSet(filters), randomView(r)
		var passed []int
		for i, f := range filters {
			if requireExplained(t, f, view) {
				passed = append(passed, i)
			}
		}
		require.Equal(t, passed, set.Matching(nil, view), "%s", view.Body)
		matched, rejected = matched+len(passed), rejected+len(filters)-len(passed)
	}
	require.Greater(t, matched, 2000)
	require.Greater(t, rejected, 2000)
}

// requireExplained compares the explanation with Matches and the naive rule, and returns the result.
func requireExplained(t *testing.T, f *filter.Filter, view *filter.EventView) bool {
	t.Helper()
	passed, basic := true, false
	for _, c := range f.Explain(view) {
		basic = basic || !strings.HasPrefix(c.Clause, "advanced")
		require.Equal(t, c.Passed, c.Why == "", c.Clause)
		require.True(t, utf8.ValidString(c.Why))
		passed = passed && c.Passed
	}
	require.Equal(t, f.Matches(view), passed, "%+v %s", f, view.Body)
	if !basic {
		require.Equal(t, naiveMatches(t, f, view), passed, "%s %s", f.AdvancedFilters, view.Body)
	}
	return passed
}
