package display

import (
	"bytes"
	"encoding/json"
	"html"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/query"
)

func TestPretty(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 4000) + strings.Repeat("]", 4000)
	for body, want := range map[string]string{
		`{"a":1,"b":[true,null]}`: "{\n  \"a\": 1,\n  \"b\": [\n    true,\n    null\n  ]\n}",
		" {\t\"a\" :\r\n 1 } ":    "{\n  \"a\": 1\n}",
		`[{},[ ],{ }]`:            "[\n  {},\n  [],\n  {}\n]", // on a line
		`[1.50,1e400]`:            "[\n  1.50,\n  1e400\n]",
		`{"a":"b`:                 `{"a":"b`,
		`]]}1`:                    `]]}1`,
		deep:                      deep,
	} {
		require.Equal(t, want, Pretty(body))
	}
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
	for ago, want := range map[time.Duration]string{
		0: "now", -999 * time.Millisecond: "now", -3 * time.Second: "in 3 seconds",
		-(2*time.Minute + 5*time.Second): "in 2 min 5 s", 59 * time.Second: "59 seconds ago", time.Minute: "1 minute ago",
		time.Hour - 1: "59 minutes ago", 23 * time.Hour: "23 hours ago", 24 * time.Hour: "1 day ago",
		400 * 24 * time.Hour: "400 days ago", -2 * time.Hour: "in 2 hours",
	} {
		require.Equal(t, want, MomentOf(now.Add(-ago), now).Relative)
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
	for text, want := range map[string]string{
		"Order.Placed ü 訂單": "Order.Placed ü 訂單", "\u202egnp.exe": "[U+202E]gnp.exe",
		"a\u2066b\u2069": "a[U+2066]b[U+2069]", "or\u200bder\ufeff": "or[U+200B]der[U+FEFF]",
		"\x1b[31m": "[U+001B][31m", "a\tb\nc": "a\tb\nc", "👩\u200d🚀": "👩\u200d🚀", "טלפון": "טלפון",
	} {
		require.Equal(t, want, Visible(text))
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

func TestHighlight(t *testing.T) {
	t.Parallel()
	require.Equal(t, `{<span class="json-name">&#34;a&lt;&#34;</span>: [`+
		`<span class="json-text">&#34;b\&#34;:&#34;</span>, `+
		`<span class="json-number">-1.5e+3</span>, <span class="json-literal">true</span>]}`,
		string(Highlight(`{"a<": ["b\":", -1.5e+3, true]}`)))
	require.Equal(t, "&lt;b&gt;no JSON&lt;/b&gt;", string(Highlight("<b>no JSON</b>")))
	require.Empty(t, Highlight(""))
	long := `"` + strings.Repeat("<", maxHighlighted) + `"`
	require.NotContains(t, Highlight(long), "span")
}

// Without the marks, the text is the same, and no character of it is markup.
func FuzzHighlight(f *testing.F) {
	for _, seed := range []string{`{"a":[1,null,"<script>\u003c"]}`, `"\\"`, "[\n]", `<`, `-0.1E-2`, "\"\xff\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		marked := string(Highlight(text))
		for _, class := range []string{"name", "text", "number", "literal"} {
			marked = strings.ReplaceAll(marked, `<span class="json-`+class+`">`, "")
		}
		marked = strings.ReplaceAll(marked, "</span>", "")
		require.NotContains(t, marked, "<")
		require.Equal(t, strings.ReplaceAll(text, "\x00", "\ufffd"), html.UnescapeString(marked))
	})
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	require.Equal(t, []Header{{"Content-Type", "text/plain"}, {"X-Time", "10:30"}, {"X-Cut", ""}},
		Headers("Content-Type: text/plain\r\nX-Time: 10:30\r\n\r\nX-Cut"))
	require.Empty(t, Headers(""))
}

func TestQuoteShell(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"orders": "orders", "a-b_c.d/e:1": "a-b_c.d/e:1", "": "''", "-x": "'-x'", "it's": `'it'\''s'`, "$(x)": "'$(x)'",
		"a b\n": "'a b\n'",
	} {
		require.Equal(t, want, QuoteShell(given))
	}
}

func filterWith(name, value string) *Filter { return FilterOfForm(url.Values{name: {value}}) }

// A key is rejected or has exactly one spelling.
func FuzzDecodeKey(f *testing.F) {
	for _, seed := range []string{
		"", "AAAA", strings.Repeat("A", 32), strings.Repeat("_", 32), EncodeKey("orders\x00"),
		EncodeKey(query.DeadLetterPlace{DeadLetteredAt: time.Unix(1, 0)}),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		filter := filterWith("before", text)
		if key := decodeKey[query.DeadLetterPlace](filter, "before"); key != nil {
			require.NoError(t, filter.Err)
			require.Equal(t, text, EncodeKey(*key))
		} else if text != "" {
			require.ErrorIs(t, filter.Err, ErrQuery)
		}
		if name := decodeKey[string](filterWith("before", text), "before"); name != nil {
			require.NotContains(t, *name, "\x00")
		}
	})
}

func TestFilterSQL(t *testing.T) {
	t.Parallel()
	const order = "dead_lettered_at desc, dead_letter_id desc"
	empty := FilterOfForm(nil)
	require.Empty(t, empty.SQL())
	empty.View, empty.Order = "dead_letters", order
	empty.Name("Topic", "topic", "topic = ?")
	require.Equal(t, "select * from postrider.dead_letters\n order by "+order+" limit 50", empty.SQL())
	require.False(t, empty.Set)
	f := FilterOfForm(url.Values{"topic": {"a'; drop table x; --"}, "status": {"0"}, "from": {"2026-01-31"}})
	f.View, f.Order = "dead_letters", order
	f.Name("Topic", "topic", "topic = ?")
	f.Number("", "status", "last_status is null")
	f.Time("From (UTC)", "from", "dead_lettered_at >= ?")
	require.Equal(t, "select * from postrider.dead_letters\n where topic = 'a''; drop table x; --'\n   and last_status "+
		"is null\n   and dead_lettered_at >= '2026-01-31 00:00:00Z'\n order by "+order+" limit 50",
		f.SQL())
	require.True(t, f.Set)
}
