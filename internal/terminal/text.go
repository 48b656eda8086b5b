package terminal

import (
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

const maxCell = 80

// Cell returns a value in one line of up to 80 characters, without control characters.
func Cell(value any) string {
	text := OneLine(PlainText(value))
	if utf8.RuneCountInString(text) > maxCell {
		return string([]rune(text)[:maxCell-1]) + "…"
	}
	return text
}

// PlainText formats a value for people.
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
	case driver.Valuer: // numeric, interval, … of pgx
		plain, err := v.Value()
		if err != nil {
			return fmt.Sprint(v)
		}
		return PlainText(plain)
	case map[string]any, []any:
		encoded, err := EncodePlainly(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(encoded)
	default:
		return fmt.Sprint(v)
	}
}

// OneLine replaces line breaks and control characters by spaces.
func OneLine(text string) string { return strings.ReplaceAll(PlainLines(text), "\n", " ") }

// EscapeControls escapes the control characters that JSON allows in strings (DEL and C1), because terminals interpret
// them.
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

// PlainLines replaces control characters except line breaks by spaces: messages can quote text of publishers.
func PlainLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Plural returns a number of things: "1 event", "2 deliveries".
func Plural[N int | int64](n N, thing string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(thing, "y") && !strings.HasSuffix(thing, "ay"): // delivery, policy; not day
		thing = strings.TrimSuffix(thing, "y") + "ies"
	case strings.HasSuffix(thing, "s"), strings.HasSuffix(thing, "ch"): // address, batch
		thing += "es"
	default:
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Either returns yes if condition is true, else no.
func Either[T any](condition bool, yes, no T) T {
	if condition {
		return yes
	}
	return no
}

// TimeFlag reads a flag of type *time.Time: an RFC 3339 time, a date (its beginning in UTC) or an age.
func TimeFlag(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	at, err := parseTime(text)
	target.Set(reflect.ValueOf(&at))
	return err
}

// DurationFlag reads a flag of type time.Duration, which may begin with days.
func DurationFlag(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	size, negative := strings.CutPrefix(text, "-") // which the ranges of flags reject with what is allowed
	d, ok := parseAge(size)
	if !ok {
		return fmt.Errorf("%q: must be a duration such as 30s, 20m, 24h or 7d", text)
	}
	target.SetInt(int64(Either(negative, -d, d)))
	return nil
}

func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if age, ok := parseAge(text); ok {
		return time.Now().Add(-age), nil
	}
	return time.Time{}, fmt.Errorf("%q: must be an age such as 1h, 30m or 7d, a time such as 2026-11-20T09:30:00Z, "+
		"or a date such as 2026-11-20, which is its beginning in UTC", text)
}

// parseAge reads a duration, which may begin with days: 1h30m, 7d, 1d12h.
func parseAge(text string) (time.Duration, bool) {
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
	age, err := time.ParseDuration(text)
	return age + time.Duration(days)*24*time.Hour, err == nil && age >= 0
}

// Time formats a time in UTC, to the second.
func Time(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Clock formats the time of day.
func Clock(t time.Time) string { return t.Format("15:04:05") }

// Percentile sorts the durations and returns the one that p percent of them do not exceed; 0 if there are none.
func Percentile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	rank := int(math.Ceil(p / 100 * float64(len(took))))
	return took[max(rank, 1)-1]
}
