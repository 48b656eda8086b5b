package terminal

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEncodeYAML(t *testing.T) {
	t.Parallel()
	text, err := encodeYAML(json.RawMessage(`{"b":1e999,"a":["true","1","",null,{},[],9007199254740993,` +
		`"2026-11-20T09:30:00Z","x\ty","two\nlines","<&>"],"c":{"d":1.50}}`))
	require.NoError(t, err)
	require.Equal(t, `b: 1e999
a:
  - "true"
  - "1"
  - ""
  - null
  - {}
  - []
  - 9007199254740993
  - "2026-11-20T09:30:00Z"
  - "x\ty"
  - |-
    two
    lines
  - <&>
c:
  d: 1.50
`, string(text))
}
