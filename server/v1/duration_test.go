package v1

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMinutes(t *testing.T) {
	t.Parallel()
	for text, minutes := range map[string]int{
		"P1D": 1440, "PT90M": 90, "P1DT2H": 1560, "P1DT2H3M": 1563, "PT0M": 0, "P0D": 0, "P007D": 7 * 1440,
		"P1DT0H0M0S": 1440, "P0DT23H12M": 23*60 + 12, "PT0S": 0, "PT999999M": 999999, "P999999D": 999999 * 1440,
		"P1W": 10080, "P2W": 20160, "P142856W": 142856 * 10080, "PT60S": 1, "PT3600S": 60, "PT1M60S": 2, "P1DT120S": 1442,
	} {
		got, err := parseMinutes(text)
		require.NoError(t, err, text)
		require.Equal(t, minutes, got, text)
		again, err := parseMinutes(formatMinutes(minutes))
		require.NoError(t, err, text)
		require.Equal(t, minutes, again, text)
	}
	for _, text := range []string{
		"", "P", "T", "PT", "P1DT", "1D", "p1d", "P1d", "P1Y", "P1M", "PW", "P1W1D", "P1WT1H", "P1D1W", "PT1W", "1W",
		"P1000000W", "P999999W", "P999999DT24H", "PT0.0S", "PT0S1M", "P0S", "P1.5D", "P1,5D", "P-1D", "-P1D", "+P1D", "P+1D",
		"P 1D", "P1D ",
		"P1H", "PT1D", "PT1M1H", "P1D1D", "PT1H1H", "P1000000D", "PD", "PTM", "P1DTT1H", "P١D", "P1DT1H1M1", "P0x1D",
	} {
		_, err := parseMinutes(text)
		require.ErrorContains(t, err, "must be an ISO 8601 duration", text)
	}
	for _, text := range []string{"PT1S", "PT30S", "PT90S", "PT1H1S", "P1DT0H0M59S"} {
		_, err := parseMinutes(text)
		require.EqualError(t, err, "must be whole minutes: its seconds must be a multiple of 60", text)
	}
	for minutes, text := range map[int]string{
		0: "PT0M", 1: "PT1M", 60: "PT1H", 90: "PT1H30M", 1440: "P1D", 1441: "P1DT1M", 1563: "P1DT2H3M", 10080: "P7D",
	} {
		require.Equal(t, text, formatMinutes(minutes))
	}
}

// FuzzParseMinutes: parsed minutes are formatted as text that parses to the same.
func FuzzParseMinutes(f *testing.F) {
	for _, text := range []string{
		"P1D", "PT1H30M", "P7DT23H59M", "PT", "P", "PT-1M", "P99999999999D", "PT1.5H", "p1d", "P1DT", "PT1M1H", "PT0M", "P1W",
		"PT60S", "PT1M30S",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		minutes, err := parseMinutes(text)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.GreaterOrEqual(t, minutes, 0)
		again, err := parseMinutes(formatMinutes(minutes))
		require.NoError(t, err)
		require.Equal(t, minutes, again)
	})
}
