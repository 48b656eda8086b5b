package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzFileEvents: a file of events is read to its end or rejected, and each event is one JSON object.
func FuzzFileEvents(f *testing.F) {
	for _, text := range []string{"", "[]", `{"a":1}`, `[{"a":1},{"b":2}] {"c":3}` + "\n" +
		`{"d":4}`, "[[{}]]", `[{"a":1}`, "\ufeff{}", "null", strings.Repeat("[", 100)} {
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		name := filepath.Join(dir, "events.json")
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		n := 0
		for event, err := range fileEvents(nil, []string{name}) {
			if n++; err != nil {
				return
			}
			require.Equal(t, byte('{'), event[0])
			require.True(t, json.Valid(event))
		}
		require.LessOrEqual(t, n, len(text)+1, "a file has more events than bytes")
	})
}
