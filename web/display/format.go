// Package display writes for a person what the pages of the dashboard show: times, numbers, JSON, charts, paging and
// filters.
package display

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Grouped prints a whole number with separators: 1,234,567.
func Grouped(n any) string {
	digits := strconv.FormatInt(reflect.Indirect(reflect.ValueOf(n)).Int(), 10)
	sign := strings.Count(digits, "-")
	for at := len(digits) - 3; at > sign; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// AtMost prints a number that was counted up to a limit: "10,000+" at the limit.
func AtMost(n any, limit int) string {
	if reflect.Indirect(reflect.ValueOf(n)).Int() >= int64(limit) {
		return Grouped(limit) + "+"
	}
	return Grouped(n)
}

// PerSecond prints a rate with at least two significant digits: 1,234 12.3 0.25 0.
func PerSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 0.01:
		return "<0.01"
	case rate < 10:
		return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(rate, 'f', 2, 64), "0"), ".")
	case rate < 100:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	default:
		return Grouped(int64(math.Round(rate)))
	}
}

// Percent prints 100 % only for all, and 0 % only for none: it does not round 99.996 % to 100 %.
func Percent(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	share := 100 * float64(part) / float64(whole)
	switch {
	case part == whole:
		return "100 %"
	case part > 0 && share < 0.1:
		return "<0.1 %"
	case share >= 99.9:
		return strconv.FormatFloat(math.Floor(share*100)/100, 'f', 2, 64) + " %"
	default:
		return strconv.FormatFloat(math.Floor(share*10)/10, 'f', 1, 64) + " %"
	}
}

// Milliseconds prints a duration in milliseconds: 0.4 ms, 12 ms, 1.25 s, 2 min 5 s.
func Milliseconds(ms float64) string {
	switch {
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms < 60_000:
		return strconv.FormatFloat(ms/1000, 'f', 2, 64) + " s"
	default:
		return Span(time.Duration(ms * float64(time.Millisecond)))
	}
}

// Span prints a duration in its two largest units: 1 d 2 h, 5 min 10 s, 12 s.
func Span(d time.Duration) string {
	if d < 0 {
		return "-" + Span(-d)
	}
	d = d.Round(time.Second)
	for _, u := range []struct {
		long, short      string
		longest, shorter time.Duration
	}{
		{"d", "h", 24 * time.Hour, time.Hour}, {"h", "min", time.Hour, time.Minute}, {"min", "s", time.Minute, time.Second},
	} {
		if d < u.longest {
			continue
		}
		text := fmt.Sprintf("%d %s", d/u.longest, u.long)
		if rest := d % u.longest / u.shorter; rest > 0 {
			text += fmt.Sprintf(" %d %s", rest, u.short)
		}
		return text
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// Size prints bytes: 512 B, 1.2 kB, 34 MB.
func Size(bytes any) string {
	n := float64(reflect.Indirect(reflect.ValueOf(bytes)).Int())
	units := []string{"B", "kB", "MB", "GB", "TB"}
	for ; n >= 1000 && len(units) > 1; units = units[1:] {
		n /= 1000
	}
	if n < 10 && units[0] != "B" {
		return strconv.FormatFloat(n, 'f', 1, 64) + " " + units[0]
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " " + units[0]
}

// StatusText is an HTTP status with its name.
func StatusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// AttemptsAllowed prints a limit of attempts; nil or 0 is no limit.
func AttemptsAllowed(limit *int) string {
	if limit == nil || *limit == 0 {
		return "any number of attempts"
	}
	return "up to " + Plural(*limit, "attempt")
}

// OrEmpty is the text that value points to; "" for nil.
func OrEmpty(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// Provisioning is how a provisioning state is shown. "Succeeded" becomes "active": it means that the event subscription
// was created, but reads as if its endpoint were healthy.
func Provisioning(state any) string {
	if text := fmt.Sprint(state); text != "Succeeded" {
		return text
	}
	return "active"
}

// Tone is the CSS class for the color of a state, an outcome or a hold.
func Tone(word string) string {
	switch word {
	case "delivered", "done", "Delivered", "Acknowledged", "succeeded", "completed", "success", "deliver",
		"resolved", "recovered":
		return "good"
	case "active", "pending", "available", "running", "published", "note", "redelivered":
		return "calm"
	case "paused", "not_validated", "probation", "admission", "rate_limited", "rate limited", "late", "awaiting",
		"AwaitingManualAction", "Creating", "Updating", "scheduled", "retryable", "retry", "canceled", "cancelled",
		"Released", "acknowledged", "ended", "unvalidated":
		return "waiting"
	default:
		return "bad"
	}
}

// ResponseText is the response to the last attempt: an HTTP status with its name, or none.
func ResponseText(attempts int, status *int) string {
	switch {
	case status == nil && attempts == 0:
		return "not attempted"
	case status == nil:
		return "no response"
	}
	return StatusText(*status)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:][A-Za-z0-9_./:-]*$`)

// QuoteShell writes a text as one word of a shell command. It does not protect words that begin with a dash; names
// never do.
func QuoteShell(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Moment is a time as a page shows it: in UTC and relative to now.
type Moment struct {
	Machine  string // RFC 3339, for <time datetime>
	Absolute string // 2026-01-31 09:30:15 UTC
	Short    string // Jan 31 09:30:15 UTC; with the year instead of the time if it is another year
	Relative string // 5 minutes ago
}

// MomentOf is t as a page shows it at the time now.
func MomentOf(t, now time.Time) Moment {
	t = t.UTC()
	short := "Jan 2 15:04:05 MST"
	if t.Year() != now.UTC().Year() {
		short = "Jan 2, 2006"
	}
	return Moment{
		Short:    t.Format(short),
		Machine:  t.Format(time.RFC3339Nano),
		Absolute: t.Format("2006-01-02 15:04:05 MST"),
		Relative: Relative(now.Sub(t)),
	}
}

// Relative prints how long ago a time was, or how far ahead it is if ago is negative. Less than a second is "now".
func Relative(ago time.Duration) string {
	switch {
	case ago <= -time.Second:
		return "in " + Count(-ago)
	case ago < time.Second:
		return "now"
	default:
		return Count(ago) + " ago"
	}
}

// Count prints a duration in its largest whole unit, and from 1 to 10 minutes in two, for countdowns.
func Count(d time.Duration) string {
	if d >= time.Minute && d < 10*time.Minute && d%time.Minute >= time.Second {
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	for _, unit := range []struct {
		name string
		long time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}} {
		if d >= unit.long {
			return Plural(int(d/unit.long), unit.name)
		}
	}
	return Plural(int(d/time.Second), "second")
}

// Plural is a number of things: "1 event", "2 events".
func Plural(n any, noun string) string {
	if count := Grouped(n); count != "1" {
		return count + " " + noun + "s"
	}
	return "1 " + noun
}

// maxDepth is the deepest JSON that Pretty indents: a publisher can send 4,000 brackets, which would become 16 MB of
// spaces.
const maxDepth = 64

// Pretty indents JSON and keeps numbers and escapes as the publisher wrote them. Text that is not JSON, or that is
// nested too deep, stays unchanged.
func Pretty(text string) string {
	var out bytes.Buffer
	if depthOf(text) > maxDepth || json.Indent(&out, []byte(strings.TrimSpace(text)), "", "  ") != nil {
		return text
	}
	return out.String()
}

// depthOf is an upper limit of the depth of JSON: it also counts brackets in strings.
func depthOf(text string) (deepest int) {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// Visible writes invisible characters as [U+202E], because escaped text can still deceive: a right-to-left override
// shows "exe.png" for an id that ends in "gnp.exe". Joiners stay, because scripts and emoji need them.
func Visible(text string) string {
	if strings.IndexFunc(text, IsHidden) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if IsHidden(r) {
			fmt.Fprintf(&out, "[U+%04X]", r)
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// IsHidden reports whether a character is invisible or changes how others are shown.
func IsHidden(r rune) bool {
	switch r {
	case '\t', '\r', '\n':
		return false
	case '\u200b', '\u2060', '\ufeff': // zero width
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
}
