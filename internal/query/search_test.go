package query_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
)

func TestParseSearch(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                     `null`,
		"  ":                   `null`,
		query.SearchExample:    `[data.order.id|=|42 error|~|"currency" text|:|"refund"]`,
		`data.items.0.sku : A`: `[data.items.0.sku|:|"A"]`,
		`data.items.0.sku:"A"`: `[data.items.0.sku|:|"A"]`,
		`data."a.b c".x = "1"`: `[data."a.b c".x|=|"1"]`,
		`subject : invoices/`:  `[subject|:|"invoices/"]`,
		`type = order.paid`:    `[type|=|"order.paid"]`,
		`id = 42`:              `[id|=|"42"]`,
		`data.n>=-1.5e3`:       `[data.n|>=|-1.5e3]`,
		`data.n != null`:       `[data.n|!=|null]`,
		`data.ok = true AND data.at < 2026-11-20T09:00:00Z`: `[data.ok|=|true data.at|<|"2026-11-20T09:00:00Z"]`,
		`data.n ~ 42`:                           `[data.n|~|"42"]`,
		`data : {"order": {"id": 42}} x`:        `[data|:|{"order": {"id": 42}} text|:|"x"]`,
		`data.tags : ["a", "b"]`:                `[data.tags|:|["a", "b"]]`,
		`error !~ "\d+ \"of\" \\"`:              `[error|!~|"\\d+ \"of\" \\"]`,
		`"no field: here" database data`:        `[text|:|"no field: here" text|:|"database" text|:|"data"]`,
		`hello! a.b größe`:                      `[text|:|"hello!" text|:|"a.b" text|:|"größe"]`,
		`response : x source = "a" text ~ "^b"`: `[response|:|"x" source|=|"a" text|~|"^b"]`,
		`id = a=b`:                              `[id|=|"a=b"]`,
		`subject : a|b data.x="=="`:             `[subject|:|"a|b" data.x|=|"=="]`,
		`could not connect or read and retry`: `[text|:|"could" text|:|"not" text|:|"connect" text|:|"or" text|:|"read" ` +
			`text|:|"and" text|:|"retry"]`,
		`data.x = 1 and error : "or"`: `[data.x|=|1 error|:|"or"]`,
		`data.n < 1e131071`:           `[data.n|<|1e131071]`,
		`data.n > 1e-16383`:           `[data.n|>|1e-16383]`,
	} {
		found, err := query.ParseSearch(text)
		require.NoError(t, err, text)
		got := "["
		for i, c := range found {
			if i > 0 {
				got += " "
			}
			got += c.Field + "|" + c.Op + "|" + string(c.Value)
		}
		if got += "]"; found == nil {
			got = "null"
		}
		require.Equal(t, want, got, text)
	}
}

func TestParseSearchReportsThePosition(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`= 42`:                "at character 1: = has no field before it",
		`größe dta.x = 42`:    `at character 7: "dta.x" is not a field; fields are data.<path>, subject, type, id,`,
		`https://example.com`: `at character 1: "https" is not a field;`,
		`data. = 1`:           `at character 1: "data." is not a field;`,
		`data."a = 1`:         `at character 1: "data.\"a" is not a field;`,
		`data.x =`:            "at character 9: data.x = has no value after it",
		`error ~ "curr`:       "at character 9: the quote does not end",
		`"curr`:               "at character 1: the quote does not end",
		`a OR b`:              "at character 3: OR is not supported: all conditions must match",
		`data.x = {"a": }`:    "at character 10: the JSON value is not valid",
		"a\x00":               "at character 1: a search must be UTF-8 without the character 0",
		`a b c d e f g h i j k l m n o p q r s t u`: "at character 41: a search has at most 20 conditions",

		`data.a == 5`:                     "at character 8: == is not an operator; use =",
		`data.a===5`:                      "at character 7: === is not an operator; use =",
		`data.a !== 5`:                    "at character 8: !== is not an operator; use !=",
		`data.a <> 5`:                     "at character 8: <> is not an operator; use !=",
		`data.a => 5`:                     "at character 8: => is not an operator; use >=",
		`error =~ x`:                      "at character 7: =~ is not an operator; use ~",
		`subject :: x`:                    "at character 9: :: is not an operator; operators are != !~",
		`subject := x`:                    "at character 9: := is not an operator",
		`id = = b`:                        "at character 6: a text must not begin with the operator =; to search",
		`data.a = 5 && id = 1`:            "at character 12: && is not supported: all conditions must match",
		`data.a = 5||data.b = 1`:          "at character 11: || is not supported: all conditions must match",
		`refused || closed`:               "at character 9: || is not supported",
		`!refused`:                        "at character 1: a text must not begin with the operator !",
		`data.a = 1 or id = b`:            "at character 12: or is not supported: all conditions must match",
		`not data.a = 1`:                  "at character 1: not is not supported",
		`AND AND`:                         "at character 1: AND has no conditions around it",
		`größe data.a like x`:             "at character 13: data.a has no operator after it; operators are != !~",
		`data.a ! 5`:                      "at character 7: data.a has no operator after it",
		`data.a = 'x'`:                    `at character 10: a text is quoted with ", not with '`,
		`größe data.a = 1e131073`:         "at character 16: a number has at most 131072 digits before the decimal point",
		`data.a < -1e-16384`:              "at character 10: a number has at most",
		`data.a = 1e99999999999999999999`: "at character 10: a number has at most",
		`data : {"a": [1, 2e131072]}`:     "at character 18: a number has at most",
		`data : {"a": "\u0000"}`:          "at character 14: a string must not have the character 0 or a lone surrogate",
		`data : {"\ud800": 1}`:            "at character 9: a string must not have the character 0 or a lone surrogate",
	} {
		_, err := query.ParseSearch(text)
		var wrong *query.SearchError
		require.ErrorAs(t, err, &wrong, text)
		require.Contains(t, err.Error(), want, text)
		require.Contains(t, err.Error(), "for example: data.order.id = 42", text)
	}
}

// A search that is accepted has valid conditions, and is read again from what its conditions are shown as.
func FuzzParseSearch(f *testing.F) {
	for _, seed := range []string{
		query.SearchExample, `data."a.\"b".0:{"x":[1]} !~ "`, `error!~"\\"`, `data.x < -1 AND "a" id=é`, "OR", "data:null",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, err := query.ParseSearch(text)
		if err != nil {
			var wrong *query.SearchError
			require.ErrorAs(t, err, &wrong)
			require.Positive(t, wrong.Position)
			return
		}
		shown := ""
		for _, c := range found {
			require.True(t, json.Valid(c.Value), "%q", c.Value)
			shown += c.String() + " "
		}
		again, err := query.ParseSearch(shown)
		if len(shown) > 4096 {
			return // escaped texts are longer
		}
		require.NoError(t, err, shown)
		require.Len(t, again, len(found), shown)
		for i, c := range again {
			require.Equal(t, found[i].Field, c.Field)
			require.Equal(t, found[i].Op, c.Op)
			require.JSONEq(t, string(found[i].Value), string(c.Value), shown)
		}
	})
}
