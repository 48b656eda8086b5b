package display

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPretty(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ body, want string }{
		"an object": {
			`{"a":1,"b":[true,null]}`, "{\n  \"a\": 1,\n  \"b\": [\n    true,\n    null\n  ]\n}",
		},
		"white space of the publisher": {" {\t\"a\" :\r\n 1 } ", "{\n  \"a\": 1\n}"},
		"empty values stay on a line":  {`[{},[ ],{ }]`, "[\n  {},\n  [],\n  {}\n]"},
		"numbers stay as written":      {`[1.50,1e400]`, "[\n  1.50,\n  1e400\n]"},
		"strings stay as written":      {`"a,{}[]: \"\\ \u0000 é"`, `"a,{}[]: \"\\ \u0000 é"`},
		"no JSON":                      {`{"a":"b`, `{"a":"b`},
		"empty":                        {"", ""},
		"unbalanced brackets":          {`]]}1`, `]]}1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, Pretty(row.body))
		})
	}
}

func TestPrettyDepthLimit(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 4000) + strings.Repeat("]", 4000)
	require.Equal(t, deep, Pretty(deep))
	few := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	require.Greater(t, len(Pretty(few)), len(few))
}

// Pretty changes only white space.
func FuzzPretty(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{}],"b":"\"\\"}`, `["`, `]}`, "[ \n]", "\xff\x00\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got := Pretty(body)
		strip := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "")
		require.Equal(t, strip.Replace(body), strip.Replace(got))
		if !json.Valid([]byte(body)) {
			return
		}
		var before, after bytes.Buffer
		require.NoError(t, json.Compact(&before, []byte(body)))
		require.NoError(t, json.Compact(&after, []byte(got)))
		require.Equal(t, before.String(), after.String())
	})
}

func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		ago  time.Duration
		want string
	}{
		"now":              {0, "now"},
		"due in under 1 s": {-999 * time.Millisecond, "now"},
		"due in seconds":   {-3 * time.Second, "in 3 seconds"},
		"a countdown":      {-(2*time.Minute + 5*time.Second), "in 2 min 5 s"},
		"seconds":          {59 * time.Second, "59 seconds ago"},
		"one minute":       {time.Minute, "1 minute ago"},
		"under an hour":    {time.Hour - 1, "59 minutes ago"},
		"hours":            {23 * time.Hour, "23 hours ago"},
		"one day":          {24 * time.Hour, "1 day ago"},
		"more than a year": {400 * 24 * time.Hour, "400 days ago"},
		"due in hours":     {-2 * time.Hour, "in 2 hours"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, MomentOf(now.Add(-row.ago), now).Relative)
		})
	}
	elsewhere := time.FixedZone("", 2*60*60)
	require.Equal(t, Moment{
		Machine: "2026-03-01T12:00:00Z", Absolute: "2026-03-01 12:00:00 UTC", Short: "Mar 1 12:00:00 UTC", Relative: "now",
	}, MomentOf(now.In(elsewhere), now))
	require.Equal(t, "Mar 1, 2026", MomentOf(now, now.AddDate(1, 0, 0)).Short)
}

func TestNumbersWithUnits(t *testing.T) {
	t.Parallel()
	require.Equal(t, "any number of attempts", AttemptsAllowed(nil))
	require.Equal(t, "up to 1 attempt", AttemptsAllowed(new(1)))
	require.Equal(t, "499", ResponseText(1, new(499)), "a status without a name")
	require.Equal(t, "no response", ResponseText(1, nil))
	require.Equal(t, "not attempted", ResponseText(0, nil))
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		require.Equal(t, want, Grouped(n))
	}
	for rate, want := range map[float64]string{
		0: "0", 0.001: "<0.01", 0.25: "0.25", 7: "7", 12.34: "12.3", 1234.5: "1,235",
	} {
		require.Equal(t, want, PerSecond(rate))
	}
	for bytes, want := range map[int64]string{
		0: "0 B", 999: "999 B", 1200: "1.2 kB", 34_000_000: "34 MB", 5_000_000_000_000: "5.0 TB",
	} {
		require.Equal(t, want, Size(bytes))
	}
	for ms, want := range map[float64]string{0.42: "0.4 ms", 12.3: "12 ms", 1250: "1.25 s", 125_000: "2 min 5 s"} {
		require.Equal(t, want, Milliseconds(ms))
	}
	for d, want := range map[time.Duration]string{
		0: "0 s", 12 * time.Second: "12 s", 26*time.Hour + 5*time.Minute: "1 d 2 h", 24*time.Hour + 5*time.Second: "1 d",
	} {
		require.Equal(t, want, Span(d))
	}
}

// Percent prints 100 % only for all, and 0 % only for none.
func TestPercentRounding(t *testing.T) {
	t.Parallel()
	require.Equal(t, "–", Percent(0, 0))
	require.Equal(t, "100 %", Percent(7, 7))
	require.Equal(t, "99.99 %", Percent(999_999, 1_000_000))
	require.Equal(t, "66.6 %", Percent(2, 3))
	require.Equal(t, "<0.1 %", Percent(1, 1_000_000))
	require.Equal(t, "0.0 %", Percent(0, 3))
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ text, want string }{
		"plain":                     {"Order.Placed ü 訂單", "Order.Placed ü 訂單"},
		"right-to-left override":    {"\u202egnp.exe", "[U+202E]gnp.exe"},
		"isolates":                  {"a\u2066b\u2069", "a[U+2066]b[U+2069]"},
		"zero width":                {"or\u200bder\ufeff", "or[U+200B]der[U+FEFF]"},
		"a control character":       {"\x1b[31m", "[U+001B][31m"},
		"white space stays":         {"a\tb\nc", "a\tb\nc"},
		"an emoji keeps its joiner": {"👩\u200d🚀", "👩\u200d🚀"},
		"right-to-left letters":     {"טלפון", "טלפון"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, Visible(row.text))
		})
	}
}

func TestDollarQuote(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a": "$event$a$event$", "": "$event$$event$", "$event$": "$event1$$event$$event1$",
		"a$event": "$event1$a$event$event1$", "$event1$ $event": "$event2$$event1$ $event$event2$",
	} {
		require.Equal(t, want, DollarQuote(text))
	}
}
