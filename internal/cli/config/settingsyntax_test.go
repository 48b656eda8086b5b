package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/terminal"
)

func TestAdvancedFilterFlag(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want, wrong string }{
		{text: "data.total NumberGreaterThan 1.50", want: `{"key":"data.total","operatorType":"NumberGreaterThan",` +
			`"value":1.50}`},
		{text: " data.total  numberin 1 2e3 ", want: `{"key":"data.total","operatorType":"NumberIn","values":[1,2e3]}`},
		{
			text: "data.n NumberInRange 1,10 -5,2.5",
			want: `{"key":"data.n","operatorType":"NumberInRange","values":[[1,10],[-5,2.5]]}`,
		},
		{text: "data.on BoolEquals TRUE", want: `{"key":"data.on","operatorType":"BoolEquals","value":true}`},
		{text: `subject StringContains "a b" 'c "d"' e"f`, want: `{"key":"subject","operatorType":"StringContains",` +
			`"values":["a b","c \"d\"","e\"f"]}`},
		{text: `subject StringIn ""`, want: `{"key":"subject","operatorType":"StringIn","values":[""]}`},
		{text: "data.x IsNotNull", want: `{"key":"data.x","operatorType":"IsNotNull"}`},
		{text: "data.x", wrong: "must be a key, an operator"},
		{text: "data.x IsNotNull 1", wrong: "takes no value"},
		{text: "data.x NumberLessThan", wrong: "takes one value, not 0"},
		{text: "data.x NumberLessThan a", wrong: "takes numbers"},
		{text: `data.x NumberIn "1" 0x1`, wrong: "takes numbers"},
		{text: "data.x NumberInRange 1-2", wrong: "takes ranges"},
		{text: "data.x BoolEquals yes", wrong: "true or false"},
		{text: "data.x StringIn", wrong: "at least one value"},
		{text: "data.x Like a", wrong: "unknown operator Like"},
		{text: `data.x StringIn "a`, wrong: "is not closed"},
	} {
		clause, err := advancedFilter(row.text)
		if row.wrong != "" {
			require.ErrorContains(t, err, row.wrong, row.text)
			continue
		}
		require.NoError(t, err, row.text)
		encoded, err := terminal.EncodePlainly(clause)
		require.NoError(t, err)
		require.Equal(t, row.want, string(encoded))
	}
}
