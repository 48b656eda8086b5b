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
		got, problem := parseTime([]byte(text))
		require.Empty(t, problem, text)
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
		_, problem := parseTime([]byte(text))
		require.Equal(t, notRFC3339, problem, text)
	}
}

// The forms that publishers send: date +%z, Get-Date -Format s, .NET's "u", PostgreSQL's, and shorter ones.
func TestParseISOTime(t *testing.T) {
	t.Parallel()
	base := time.Date(2017, 6, 26, 18, 41, 0, 0, time.UTC)
	for text, row := range map[string]struct {
		want  time.Time
		usual string
	}{
		"2017-06-26T18:41:00Z":           {base, "2017-06-26T18:41:00Z"},
		"2017-06-26t18:41:00.5z":         {base.Add(5e8), "2017-06-26T18:41:00.5Z"},
		"2017-06-26T20:41:00+0200":       {base, "2017-06-26T20:41:00+02:00"},
		"2017-06-26T18:41:00+0000":       {base, "2017-06-26T18:41:00+00:00"},
		"2017-06-26T11:11:00.120-0730":   {base.Add(12e7), "2017-06-26T11:11:00.120-07:30"},
		"2017-06-26T18:41:00+00":         {base, "2017-06-26T18:41:00+00:00"},
		"2017-06-26T18:41:00":            {base, "2017-06-26T18:41:00Z"},
		"2017-06-26T18:41:00.1234567":    {base.Add(123456700), "2017-06-26T18:41:00.1234567Z"},
		"2017-06-26T18:41:00.1234567891": {base.Add(123456789), "2017-06-26T18:41:00.1234567891Z"},
		"2017-06-26 18:41:00Z":           {base, "2017-06-26T18:41:00Z"},
		"2017-06-26 20:41:00.25+02":      {base.Add(25e7), "2017-06-26T20:41:00.25+02:00"},
		"2017-06-26 20:41:00 +02:00":     {base, "2017-06-26T20:41:00+02:00"},
		"2017-06-26T18:41Z":              {base, "2017-06-26T18:41:00Z"},
		"2017-06-26T18:41":               {base, "2017-06-26T18:41:00Z"},
		"2017-06-26":                     {base.Add(-18*time.Hour - 41*time.Minute), "2017-06-26T00:00:00Z"},
		"0001-01-01T00:00:00":            {time.Time{}, "0001-01-01T00:00:00Z"},
		"2017-06-26T18:41:00.9584103Z":   {base.Add(958410300), "2017-06-26T18:41:00.9584103Z"},
		"2017-06-26T18:41:00.0000+00:00": {base, "2017-06-26T18:41:00.0000+00:00"},
		"9999-12-31T23:59:59":            {time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), "9999-12-31T23:59:59Z"},
	} {
		got, problem := parseISOTime([]byte(text))
		require.Empty(t, problem, text)
		require.Equal(t, row.want, got, text)
		require.Equal(t, row.usual, string(usualTime([]byte(text))), text)
		got, problem = parseTime([]byte(row.usual))
		require.Empty(t, problem, "CloudEvents have the same time: %s", text)
		require.Equal(t, row.want, got, text)
	}
	for _, text := range []string{
		"", "now", "18:41:00", "2017-6-26T18:41:00", "2017-06-26T8:41:00", "2017-06-26T18", "2017-06-26T18:41:00,5Z",
		"2017-06-26T18:41:00.", "2017-06-26T18:41.5", "2017-06-26T24:00:00", "2017-02-29", "2017-02-29T18:41:00+0000",
		"2017-13-26 18:41", "2017-06-26T18:41:00+2", "2017-06-26T18:41:00+020", "2017-06-26T18:41:00+24",
		"2017-06-26T18:41:00+0260", "2017-06-26Z", "2017-06-26  18:41:00", "2017-06-26T18:41:00 ", " 2017-06-26T18:41:00",
		"20170626T184100Z", "6/26/2017 6:41:00 PM", "1498502460", "2017-W26-1", "9999-12-31T23:59:59-0100", "0000-06-01",
		"２０１７-06-26T18:41:00", strings.Repeat("2", 1024),
	} {
		_, problem := parseISOTime([]byte(text))
		require.Equal(t, notRFC3339, problem, text)
		_, ok := ParseTime(text)
		require.False(t, ok, text)
	}
	for _, text := range []string{"1990-12-31T23:59:60Z", "1990-12-31t15:59:60.25-08:00", "2017-06-26T18:41:99Z"} {
		_, problem := parseTime([]byte(text))
		require.Equal(t, "seconds must be 00 to 59", problem, text)
	}
	for _, text := range []string{"1990-12-31T23:59:60Z", "1990-12-31 23:59:60", "1990-12-31T23:59:60+0000"} {
		_, problem := parseISOTime([]byte(text))
		require.Equal(t, "seconds must be 00 to 59", problem, text)
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
