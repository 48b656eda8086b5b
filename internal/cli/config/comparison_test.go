package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The signs of advanced filters become Event Grid's operators, which also stand for themselves.
func TestAdvancedFilterFlag(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // of the clause, beside the key; without a brace: of the error
		"data.total > 100":                        `{"operatorType":"NumberGreaterThan","value":100}`,
		"data.total >= 1.50":                      `{"operatorType":"NumberGreaterThanOrEquals","value":1.50}`,
		"data.total < -1e3":                       `{"operatorType":"NumberLessThan","value":-1e3}`,
		"data.total <= 0":                         `{"operatorType":"NumberLessThanOrEquals","value":0}`,
		"data.total = 9007199254740993":           `{"operatorType":"NumberIn","values":[9007199254740993]}`,
		"data.total == 1 2":                       `{"operatorType":"NumberIn","values":[1,2]}`,
		"data.total != 5":                         `{"operatorType":"NumberNotIn","values":[5]}`,
		"data.total <> 5":                         `{"operatorType":"NumberNotIn","values":[5]}`,
		"data.city = Berlin 'New York'":           `{"operatorType":"StringIn","values":["Berlin","New York"]}`,
		"data.city != Berlin":                     `{"operatorType":"StringNotIn","values":["Berlin"]}`,
		`data.zip = "12345"`:                      `{"operatorType":"StringIn","values":["12345"]}`,
		"data.zip = 01234":                        `{"operatorType":"StringIn","values":["01234"]}`,
		`data.note = ""`:                          `{"operatorType":"StringIn","values":[""]}`,
		"data.paid = true":                        `{"operatorType":"BoolEquals","value":true}`,
		"data.paid = FALSE":                       `{"operatorType":"BoolEquals","value":false}`,
		"data.paid = 'true'":                      `{"operatorType":"StringIn","values":["true"]}`,
		"data.paid = null":                        `{"operatorType":"IsNullOrUndefined"}`,
		"data.paid != null":                       `{"operatorType":"IsNotNull"}`,
		"data.total NumberGreaterThan 1":          `{"operatorType":"NumberGreaterThan","value":1}`,
		"data.total\x00>\x00100":                  `{"operatorType":"NumberGreaterThan","value":100}`,
		" data.total  numberin 1 2e3 ":            `{"operatorType":"NumberIn","values":[1,2e3]}`,
		"data.on BoolEquals TRUE":                 `{"operatorType":"BoolEquals","value":true}`,
		"data.n NumberInRange 1,10 -5,2.5":        `{"operatorType":"NumberInRange","values":[[1,10],[-5,2.5]]}`,
		`data.s StringContains "a b" 'c "d"' e"f`: `{"operatorType":"StringContains","values":["a b","c \"d\"","e\"f"]}`,
		"data.x NumberLessThan":                   "takes one value, not 0",
		"data.x NumberLessThan a":                 "takes numbers",
		`data.x NumberIn "1" 0x1`:                 "takes numbers",
		"data.x NumberInRange 1-2":                "takes ranges",
		"data.x BoolEquals yes":                   "true or false",
		"data.x StringIn":                         "at least one value",
		"data.total > many":                       `"data.total > many": > compares numbers, not "many"`,
		`data.total > "1"`:                        `> compares numbers, not "1"`,
		"data.paid >= true":                       `>= compares numbers, not "true"`,
		"data.total < null":                       `< compares numbers, not "null"`,
		"data.paid != true":                       "!= does not compare booleans: use = with the other value",
		"data.total = 1 two":                      "= takes values of one type, not the number 1 and the text two",
		"data.paid = true false":                  "BoolEquals takes one value, not 2",
		"data.total > 1 2":                        "NumberGreaterThan takes one value, not 2",
		"data.paid = null null":                   "IsNullOrUndefined takes no value",
		"data.total >":                            "> takes a value",
		"data.total>100":                          "such as 'data.total > 100'",
		"data.total => 1":                         "unknown operator =>: must be one of = != > >= < <= NumberIn",
		"data.total = 'open":                      "a quotation mark ' is not closed",
	} {
		clause, err := advancedFilter(text)
		if !strings.HasPrefix(want, "{") {
			require.ErrorContains(t, err, want, text)
			continue
		}
		require.NoError(t, err, text)
		require.True(t, strings.HasPrefix(clause["key"].(string), "data."), text)
		delete(clause, "key")
		require.Equal(t, want, encoded(t, clause), text)
	}
}
