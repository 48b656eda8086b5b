package terminal

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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
