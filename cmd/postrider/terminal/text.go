package terminal

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

const maxCell = 80

// Cell is a value on one line of a terminal: text of publishers must not move the cursor or color the screen.
func Cell(value any) string {
	text := OneLine(PlainText(value))
	if utf8.RuneCountInString(text) > maxCell {
		return string([]rune(text)[:maxCell-1]) + "…"
	}
	return text
}

// PlainText is a value as a person writes it.
func PlainText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case time.Time:
		return v.UTC().Format("2006-01-02 15:04:05.000Z")
	case [16]byte:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v[0:4], v[4:6], v[6:8], v[8:10], v[10:])
	case string:
		return v
	case driver.Valuer: // numeric, interval, …: pgx's own types know their text
		plain, err := v.Value()
		if err != nil {
			return fmt.Sprint(v)
		}
		return PlainText(plain)
	case map[string]any, []any:
		encoded, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(encoded)
	default:
		return fmt.Sprint(v)
	}
}

// OneLine is a text without line ends and control characters.
func OneLine(text string) string { return strings.ReplaceAll(PlainLines(text), "\n", " ") }

// EscapeControls writes the control characters that JSON lets stand (DEL and C1) as escapes: a terminal obeys them too.
// In an encoded document they can be inside strings only; a line's end can not.
func EscapeControls(encoded string) string {
	var out strings.Builder
	for _, r := range encoded {
		if r != '\n' && unicode.IsControl(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// PlainLines is an error's text for a terminal. PostgreSQL quotes in its messages what publishers wrote.
func PlainLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Plural is a number of things: "1 event", "2 deliveries". thing is one of them.
func Plural[N int | int64](n N, thing string) string {
	if n != 1 {
		thing = many(thing)
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func many(thing string) string {
	switch {
	case strings.HasSuffix(thing, "y") && !strings.HasSuffix(thing, "ay"): // delivery, policy; day
		return strings.TrimSuffix(thing, "y") + "ies"
	case strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "ch"): // address, batch
		return thing + "es"
	default:
		return thing + "s"
	}
}

// Either is yes or no, whichever holds.
func Either[T any](holds bool, yes, no T) T {
	if holds {
		return yes
	}
	return no
}

// TimeFlags lets flags of *time.Time be an RFC 3339 time, a date, which is its beginning in UTC, or how long ago it
// was. Kong's own reader takes only the first, and its error shows Go's layout.
func TimeFlags() []kong.Option {
	return []kong.Option{kong.TypeMapper(reflect.TypeFor[*time.Time](),
		kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			var text string
			if err := ctx.Scan.PopValueInto("time", &text); err != nil {
				return err
			}
			at, err := momentIn(text)
			target.Set(reflect.ValueOf(&at))
			return err
		}))}
}

func momentIn(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if ago, ok := agoIn(text); ok {
		return time.Now().Add(-ago), nil
	}
	return time.Time{}, fmt.Errorf("%q is no time: write 1h, 30m or 7d for that long ago, 2026-11-20T09:30:00Z, "+
		"or 2026-11-20 for the beginning of that day in UTC", text)
}

// agoIn reads a duration, which may begin with days: 1h30m, 7d, 1d12h.
func agoIn(text string) (time.Duration, bool) {
	var days int
	if number, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, false
		}
		if days = int(n); rest == "" {
			rest = "0s"
		}
		text = rest
	}
	ago, err := time.ParseDuration(text)
	return ago + time.Duration(days)*24*time.Hour, err == nil && ago >= 0
}

// Time is a time in UTC, to the second.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Clock is the time of day.
func Clock(t time.Time) string { return t.Format("15:04:05") }
