package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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

func TestCursorComesBackAsItWas(t *testing.T) {
	t.Parallel()
	want := cursor{at: time.Date(2026, 1, 31, 9, 30, 15, 123_456_000, time.UTC), id: uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")}
	got, err := parseCursor(want.String())
	require.NoError(t, err)
	require.Equal(t, want, got)
	top, err := parseCursor("")
	require.NoError(t, err)
	require.Zero(t, top)
}

// A cursor is either refused or one that PostgreSQL can hold, with one spelling.
func FuzzParseCursor(f *testing.F) {
	for _, seed := range []string{"", "AAAA", strings.Repeat("A", 32), strings.Repeat("_", 32), cursor{at: time.Unix(1, 0)}.String()} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err != nil {
			require.ErrorIs(t, err, errCursor)
			return
		}
		if text != "" {
			require.Equal(t, text, c.String())
			require.False(t, c.at.Year() < 1970 || c.at.Year() > lastYear)
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
		"this moment":                     {0, "just now"},
		"the database's clock is ahead":   {-3 * time.Second, "just now"},
		"seconds":                         {59 * time.Second, "59 seconds ago"},
		"one minute":                      {time.Minute, "1 minute ago"},
		"not yet an hour":                 {time.Hour - 1, "59 minutes ago"},
		"hours":                           {23 * time.Hour, "23 hours ago"},
		"one day":                         {24 * time.Hour, "1 day ago"},
		"a leap year and more":            {400 * 24 * time.Hour, "400 days ago"},
		"the database's clock is far off": {-2 * time.Hour, "in 2 hours"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, momentOf(now.Add(-row.ago), now).Relative)
		})
	}
	elsewhere := time.FixedZone("", 2*60*60)
	require.Equal(t, moment{Machine: "2026-03-01T12:00:00Z", Absolute: "2026-03-01 12:00:00 UTC", Relative: "just now"}, momentOf(now.In(elsewhere), now))
}

func TestWordsOfNumbers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "any number of attempts", attemptLimit(nil))
	one := 1
	require.Equal(t, "up to 1 attempt", attemptLimit(&one))
	for minutes, want := range map[int]string{1: "1 minute", 90: "90 minutes", 120: "2 hours", 1440: "1 day", 1500: "25 hours", 10080: "7 days"} {
		require.Equal(t, want, timeToLive(minutes))
	}
	status := 499
	require.Equal(t, "499", met(1, &status), "a status without a name")
	require.Equal(t, "no answer", met(1, nil))
}

func TestSubscriptionsBeyondTheLimit(t *testing.T) {
	t.Parallel()
	view := subscriptionsOf(make([]store.SubscriptionLine, subscriptionLimit+1), time.Now())
	require.Len(t, view.Rows, subscriptionLimit)
	require.Equal(t, subscriptionLimit, view.Limit)
	require.Zero(t, subscriptionsOf(make([]store.SubscriptionLine, subscriptionLimit), time.Now()).Limit)
}

func TestStatusOfErrors(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		err  error
		want int
	}{
		"the store is unavailable":  {fmt.Errorf("read: %w", store.ErrUnavailable), http.StatusServiceUnavailable},
		"the connection is refused": {fmt.Errorf("read: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), http.StatusServiceUnavailable},
		"not a place in the list":   {fmt.Errorf("%w: x", errCursor), http.StatusBadRequest},
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
