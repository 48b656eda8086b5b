package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/store"
)

func TestPretty(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ body, want string }{
		"an object":                    {`{"a":1,"b":[true,null]}`, "{\n  \"a\": 1,\n  \"b\": [\n    true,\n    null\n  ]\n}"},
		"white space of the publisher": {" {\t\"a\" :\r\n 1 } ", "{\n  \"a\": 1\n}"},
		"empty things stay on a line":  {`[{},[ ],{ }]`, "[\n  {},\n  [],\n  {}\n]"},
		"numbers stay as written":      {`[1.50,1e400]`, "[\n  1.50,\n  1e400\n]"},
		"strings stay as written":      {`"a,{}[]: \"\\ \u0000 é"`, `"a,{}[]: \"\\ \u0000 é"`},
		"cut within a string":          {`{"a":"b`, "{\n  \"a\": \"b"},
		"cut behind a backslash":       {`["\`, "[\n  \"\\"},
		"cut behind a bracket":         {`[[`, "[\n  [\n    "},
		"nothing":                      {"", ""},
		"more closed than open":        {`]]}1`, "\n]\n]\n}1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, pretty(row.body))
		})
	}
}

func TestPrettyIndentsOnlySoDeep(t *testing.T) {
	t.Parallel()
	require.Less(t, len(pretty(strings.Repeat("[", 4000))), 4000*(2*maxIndent+2))
}

// Whatever the text, nothing but white space is added or taken away.
func FuzzPretty(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{}],"b":"\"\\"}`, `["`, `]}`, "[ \n]", "\xff\x00\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		got := pretty(body)
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

func TestPlaceOfADeadLetterComesBackAsItWas(t *testing.T) {
	t.Parallel()
	want := store.DeadLetterPlace{DeadLetteredAt: time.Date(2026, 1, 31, 9, 30, 15, 123_456_000, time.UTC), DeadLetterID: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")}
	got, ok := parseDeadLetterPlace(deadLetterPlace(want))
	require.True(t, ok)
	require.Equal(t, want, got)
}

// A place is either refused or one that PostgreSQL can hold, with one spelling.
func FuzzParseDeadLetterPlace(f *testing.F) {
	for _, seed := range []string{"", "AAAA", strings.Repeat("A", 32), strings.Repeat("_", 32), deadLetterPlace(store.DeadLetterPlace{DeadLetteredAt: time.Unix(1, 0)})} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if key, ok := parseDeadLetterPlace(text); ok {
			require.Equal(t, text, deadLetterPlace(key))
			require.False(t, key.DeadLetteredAt.Year() < 1970 || key.DeadLetteredAt.Year() > lastYear)
		}
	})
}

func TestMoment(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		ago  time.Duration
		want string
	}{
		"this moment":          {0, "now"},
		"due in a moment":      {-999 * time.Millisecond, "now"},
		"due in seconds":       {-3 * time.Second, "in 3 seconds"},
		"a countdown":          {-(2*time.Minute + 5*time.Second), "in 2 min 5 s"},
		"seconds":              {59 * time.Second, "59 seconds ago"},
		"one minute":           {time.Minute, "1 minute ago"},
		"not yet an hour":      {time.Hour - 1, "59 minutes ago"},
		"hours":                {23 * time.Hour, "23 hours ago"},
		"one day":              {24 * time.Hour, "1 day ago"},
		"a leap year and more": {400 * 24 * time.Hour, "400 days ago"},
		"due in hours":         {-2 * time.Hour, "in 2 hours"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, momentOf(now.Add(-row.ago), now).Relative)
		})
	}
	elsewhere := time.FixedZone("", 2*60*60)
	require.Equal(t, moment{Machine: "2026-03-01T12:00:00Z", Absolute: "2026-03-01 12:00:00 UTC", Relative: "now"}, momentOf(now.In(elsewhere), now))
}

func TestWordsOfNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "any number of attempts", attemptsAllowed(nil))
	require.Equal(t, "up to 1 attempt", attemptsAllowed(new(1)))
	for n, want := range map[int]string{1: "1 minute", 90: "90 minutes", 120: "2 hours", 1440: "1 day", 1500: "25 hours", 10080: "7 days"} {
		require.Equal(t, want, minutes(n))
	}
	require.Equal(t, "499", met(1, new(499)), "a status without a name")
	require.Equal(t, "no answer", met(1, nil))
	require.Equal(t, "not attempted", met(0, nil))
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567"} {
		require.Equal(t, want, grouped(n))
	}
	for rate, want := range map[float64]string{0: "0", 0.001: "<0.01", 0.25: "0.25", 7: "7", 12.34: "12.3", 1234.5: "1,235"} {
		require.Equal(t, want, perSecond(rate))
	}
	for bytes, want := range map[int64]string{0: "0 B", 999: "999 B", 1200: "1.2 kB", 34_000_000: "34 MB", 5_000_000_000_000: "5.0 TB"} {
		require.Equal(t, want, size(bytes))
	}
	for ms, want := range map[float64]string{0.42: "0.4 ms", 12.3: "12 ms", 1250: "1.25 s", 125_000: "2 min 5 s"} {
		require.Equal(t, want, milliseconds(ms))
	}
	for d, want := range map[time.Duration]string{0: "0 s", 12 * time.Second: "12 s", 26*time.Hour + 5*time.Minute: "1 d 2 h", 24*time.Hour + 5*time.Second: "1 d"} {
		require.Equal(t, want, span(d))
	}
}

// A share says 100 % only of all, and 0 % only of none.
func TestPercentRoundsNoFailureAway(t *testing.T) {
	t.Parallel()
	require.Equal(t, "–", percent(0, 0))
	require.Equal(t, "100 %", percent(7, 7))
	require.Equal(t, "99.99 %", percent(999_999, 1_000_000))
	require.Equal(t, "66.6 %", percent(2, 3))
	require.Equal(t, "<0.1 %", percent(1, 1_000_000))
	require.Equal(t, "0.0 %", percent(0, 3))
}

func TestSQLOfAFilterIsOneStatement(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	require.Equal(t, "select * from postrider.dead_letters\n order by dead_lettered_at desc, dead_letter_id desc", deadLetterSQL(store.DeadLetterQuery{}))
	require.Equal(t, "select * from postrider.dead_letters\n where topic = 'a''; drop table x; --'\n   and last_status is null\n   and dead_lettered_at >= '2026-01-31 00:00:00Z'\n order by dead_lettered_at desc, dead_letter_id desc",
		deadLetterSQL(store.DeadLetterQuery{Unanswered: true, DeadLetterFilter: store.DeadLetterFilter{Topic: new("a'; drop table x; --"), DeadLetteredFrom: &from}}))
}

func TestPhasesFillTheAttempt(t *testing.T) {
	t.Parallel()
	phases := phasesOf(&store.AttemptLine{DurationMs: 50, DNSMs: new(5.0), ConnectMs: new(10.0), FirstByteMs: new(25.0)}, 100)
	require.Equal(t, []phase{
		{"DNS", "phase-dns", "5.0 ms", "0.000%", "5.000%"},
		{"connect", "phase-connect", "10 ms", "5.000%", "10.000%"},
		{"first byte", "phase-wait", "25 ms", "15.000%", "25.000%"},
		{"answer", "phase-read", "10 ms", "40.000%", "10.000%"},
	}, phases)
	require.Equal(t, []phase{{"no answer", "phase-none", "30.00 s", "0.000%", "100.000%"}}, phasesOf(&store.AttemptLine{DurationMs: 30_000}, 30_000))
	require.Empty(t, phasesOf(&store.AttemptLine{}, 0))
}

func TestSparkShowsASingleFailure(t *testing.T) {
	t.Parallel()
	s := sparkOf([]int64{0, 10_000}, []int64{1, 0})
	require.Equal(t, []bar{{X: 0, GoodY: 20, Good: 0, BadY: 18, Bad: 2}, {X: 5, GoodY: 2, Good: 18, BadY: 2}}, s.Bars)
	require.Equal(t, "10,000 succeeded, 1 failed", s.Text)
}

func TestStatusOfErrors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		want int
	}{
		"the store is unavailable":  {fmt.Errorf("read: %w", store.ErrUnavailable), http.StatusServiceUnavailable},
		"the connection is refused": {fmt.Errorf("read: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), http.StatusServiceUnavailable},
		"not a filter":              {fmt.Errorf("%w: x", errQuery), http.StatusBadRequest},
		"not there":                 {fmt.Errorf("x: %w", store.ErrNotFound), http.StatusNotFound},
		"too slow":                  {fmt.Errorf("x: %w", store.ErrTooSlow), http.StatusGatewayTimeout},
		"paused":                    {fmt.Errorf("x: %w", store.ErrPaused), http.StatusConflict},
		"echo's own":                {echo.ErrNotFound, http.StatusNotFound},
		"anything else":             {errors.New("boom"), http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, statusOf(row.err))
		})
	}
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
			require.Equal(t, row.want, visible(row.text))
		})
	}
}

// A hint that was worded anew would leave a page without advice.
func TestAdviceKnowsTheHintsOfTheFunctions(t *testing.T) {
	t.Parallel()
	var hints strings.Builder
	files, err := filepath.Glob("../migrations/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		hints.Write(text)
	}
	for _, w := range pageWords {
		require.Contains(t, hints.String(), w.hint)
		require.Equal(t, w.advice, advice(&store.FunctionError{Hint: "x " + w.hint + " x"}))
	}
	require.Empty(t, advice(&store.FunctionError{Hint: "SELECT something"}))
}

func TestQuoteShell(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"orders": "orders", "a-b_c.d/e:1": "a-b_c.d/e:1", "": "''", "-x": "'-x'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "a b\n": "'a b\n'"} {
		require.Equal(t, want, quoteShell(given))
	}
}

func TestOperationsSayHowFarTheyAre(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, row := range map[string]struct {
		operation            store.Operation
		progress, pace, left string
		percent              int
	}{
		"just begun":     {store.Operation{State: "running", CreatedAt: now, Matched: new(int64(10))}, "0 of 10", "", "", 0},
		"half way":       {store.Operation{State: "running", CreatedAt: now.Add(-time.Minute), Matched: new(int64(1200)), Done: 500, Skipped: 60, Failed: 40}, "600 of 1,200", "10.0", "1 min", 50},
		"over":           {store.Operation{State: "done", CreatedAt: now.Add(-time.Hour), FinishedAt: new(now.Add(-time.Hour + 10*time.Second)), Matched: new(int64(20)), Done: 20}, "20 of 20", "2", "", 100},
		"nothing at all": {store.Operation{State: "done", CreatedAt: now, FinishedAt: &now, Matched: new(int64(0))}, "0 of 0", "", "", 0},
		"past events":    {store.Operation{State: "running", CreatedAt: now.Add(-10 * time.Second), Done: 5}, "5", "0.5", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view := operationViewOf(&row.operation, now)
			require.Equal(t, []any{row.progress, row.pace, row.left, row.percent}, []any{view.Progress, view.Pace, view.Left, view.Percent})
		})
	}
}
