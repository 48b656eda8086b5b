package terminal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
