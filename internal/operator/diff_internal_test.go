package operator

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	before := `{"id":"e", "data":{"a":1,"big":1e400,"list":[1,2,{"x":1}],"gone":[0],"kind":{}}}`
	after := `{"data":{"list":[1,3,{"x":1.0},4],"a":1, "big":1e400,"kind":[],"new/~":{"y":null}},"id":"e"}`
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	require.Equal(t, []Change{
		{"/data/list/1", raw("2"), raw("3")},
		{"/data/list/2/x", raw("1"), raw("1.0")},
		{"/data/list/3", nil, raw("4")},
		{"/data/gone", raw("[0]"), nil},
		{"/data/kind", raw("{}"), raw("[]")},
		{"/data/new~1~0", nil, raw(`{"y":null}`)},
	}, Diff([]byte(before), []byte(after)))
	require.Empty(t, Diff([]byte("{ }"), []byte("{}")))
}
