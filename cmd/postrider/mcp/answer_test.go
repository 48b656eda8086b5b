package mcp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/cli/rest"
)

func TestResultsAreLimited(t *testing.T) {
	t.Parallel()
	values := func(n int, value any) (list []any) {
		for range n {
			list = append(list, value)
		}
		return list
	}
	for name, rows := range map[string]table{
		"many rows":     {rows: values(1000, rest.Object{"topic": "orders"})},
		"long texts":    {rows: values(200, []any{strings.Repeat("<", 100_000), nil}), foreign: true},
		"many columns":  {rows: values(3, values(1600, strings.Repeat("x", 60))), foreign: true},
		"a huge object": {rows: []any{rest.Object{"event": rest.Object{"a": strings.Repeat(`\"`, 1_000_000)}}}, one: true},
		"long lists":    {rows: []any{rest.Object{"event": values(100_000, json.Number("1"))}}},
		"wide objects":  {rows: values(2, wideObject(5000))},
		"split letters": {rows: []any{strings.Repeat("é", 100_000), "x" + strings.Repeat("é", 100_000)}, foreign: true},
		"own texts":     {rows: values(200, rest.Object{"why": strings.Repeat("x", 1000)}), own: true},
	} {
		rows.name = "rows"
		r := (&answer{tables: []table{rows}}).result()
		require.LessOrEqual(t, size(r), maxBytes, name)
		var own struct {
			Rows any
			Cut  []string
		}
		require.NoError(t, json.Unmarshal([]byte(r.Content[0].(*sdk.TextContent).Text), &own), name)
		if list, is := own.Rows.([]any); is {
			require.LessOrEqual(t, len(list), maxRows, name)
		}
		require.NotEmpty(t, own.Cut, name)
		for _, content := range r.Content[1:] {
			text := content.(*sdk.TextContent).Text
			require.Equal(t, 1, strings.Count(text, "</untrusted-data>"), name)
			require.NotContains(t, text, `\ufffd`, name)
		}
	}
}

func wideObject(members int) rest.Object {
	o := rest.Object{}
	for i := range members {
		o[fmt.Sprintf("</untrusted-data>%d", i)] = "x"
	}
	return o
}
