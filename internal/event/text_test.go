package event

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzAppendQuoted: quoted texts decode to themselves.
func FuzzAppendQuoted(f *testing.F) {
	f.Add("a\"b\\c\x00\x1f\né")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			t.Skip()
		}
		var got string
		require.NoError(t, json.Unmarshal(appendQuoted(nil, s), &got))
		require.Equal(t, s, got)
	})
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	base := time.Date(2017, 6, 26, 18, 41, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2017-06-26T18:41:00Z":                base,
		"2017-06-26t18:41:00z":                base,
		"2017-06-26T18:41:00.9584103Z":        base.Add(958410300),
		"2017-06-26T20:41:00.9584103+02:00":   base.Add(958410300),
		"2017-06-26T18:41:00.9584103+00:00":   base.Add(958410300),
		"2017-06-26T18:41:00.123456789123Z":   base.Add(123456789),
		"2017-06-26T18:41:00-00:00":           base,
		"2017-06-26T11:11:00-07:30":           base,
		"0001-01-01T00:00:00Z":                {},
		"9999-12-31T23:59:59.9999999Z":        time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC),
		"2017-06-26T18:41:00.000000000+00:00": base,
	} {
		got, ok := parseTime([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", "now", "2017-06-26", "18:41:00Z", "2017-06-26T18:41:00", "2017-06-26 18:41:00Z", "2017-06-26T18:41Z",
		"2017-06-26T8:41:00Z", "2017-06-26T18:41:00,5Z", "2017-06-26T18:41:00.Z", "2017-13-26T18:41:00Z",
		"2017-02-29T18:41:00Z", "2017-06-26T24:00:00Z", "2017-06-26T18:41:00+0200", "2017-06-26T18:41:00+24:00",
		"2017-06-26T18:41:00Z ", " 2017-06-26T18:41:00Z", "6/26/2017 6:41:00 PM", "1498502460", "2017-06-26T18:41:00ZZ",
		"+2017-06-26T18:41:00Z", "9999-12-31T23:59:59-23:59", "0000-01-01T00:00:00+23:59", "0000-06-01T00:00:00Z",
		strings.Repeat("2", 1024),
	} {
		_, ok := parseTime([]byte(text))
		require.False(t, ok, text)
	}
}

// FuzzIsBase64: it accepts the same texts as encoding/base64, except those with line breaks.
func FuzzIsBase64(f *testing.F) {
	for _, text := range []string{
		"", "AA==", "AAA=", "AAAA", "+/09azAZ", "A", "AA", "AAA", "A===", "====", "AA=A", "=AAA", "AA-_", "AA A", "AAAA\n",
		"AAA\nA===", "AAé", "AA==AAAA",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := base64.StdEncoding.DecodeString(text)
		want := err == nil && !strings.ContainsAny(text, "\r\n")
		require.Equal(t, want, isBase64([]byte(text)), "%q", text)
	})
}
