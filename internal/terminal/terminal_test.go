package terminal

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProgressLine(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &ProgressLine{out: &out}
	p.End()
	require.Empty(t, out.String(), "a line that was not shown is not cleared")
	p.Show(func() string { return Bar(1, 2) + "1" })
	p.Show(func() string { t.Error("must not be called"); return "" })
	require.Equal(t, clearLine+"[============            ] 1", out.String(), "the second change comes too early")
	p.shown = time.Now().Add(-time.Minute)
	p.Show(func() string { return "3" })
	p.End()
	require.True(t, strings.HasSuffix(out.String(), clearLine+"3"+clearLine), out.String())
	require.Empty(t, Bar(1, 0))
	require.Equal(t, Bar(2, 2), Bar(5, 2))

	(&ProgressLine{}).Show(func() string { t.Error("must not be called without a terminal"); return "" })
	require.NoError(t, Await(&out, "nothing", func() error { return nil }))
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"2026-11-20T09:30:00Z": "2026-11-20T09:30:00Z", "2026-11-20T09:30:00.5+02:00": "2026-11-20T07:30:00.5Z",
		"2026-11-20": "2026-11-20T00:00:00Z",
	} {
		at, err := parseTime(text)
		require.NoError(t, err, text)
		require.Equal(t, want, at.UTC().Format(time.RFC3339Nano))
	}
	for _, text := range []string{
		"", "yesterday", "2026-13-01", "2026-11-20 09:30", "-1h", "1", "d", "1.5d", "-1d", "1d-2h",
	} {
		_, err := parseTime(text)
		require.ErrorContains(t, err, "must be an age", text)
	}
	for text, ago := range map[string]time.Duration{
		"1h": time.Hour, "10m": 10 * time.Minute, "90s": 90 * time.Second, "1h30m": 90 * time.Minute,
		"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0,
	} {
		at, err := parseTime(text)
		require.NoError(t, err, text)
		require.WithinDuration(t, time.Now().Add(-ago), at, time.Minute, text)
	}
}

func TestEncodeYAML(t *testing.T) {
	t.Parallel()
	text, err := encodeYAML(json.RawMessage(`{"b":1e999,"a":["true","1","",null,{},[],9007199254740993,` +
		`"2026-11-20T09:30:00Z","x\ty","\u009b","two\nlines","<&>"],"c":{"d":1.50}}`))
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
  - "\x9B"
  - |-
    two
    lines
  - <&>
c:
  d: 1.50
`, string(text))
}
