package display

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Grouped prints a whole number with separators: 1,234,567.
func Grouped(n any) string {
	digits := strconv.FormatInt(reflect.Indirect(reflect.ValueOf(n)).Int(), 10)
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return sign + out.String()
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

// Percent prints 100 % only if all are, and 0 % only if none is: 99.996 % is not rounded to 100 %.
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
	units := []struct {
		name string
		long time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}
	var parts []string
	for _, u := range units {
		if n := d / u.long; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
			d -= n * u.long
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	if len(parts) == 0 {
		return "0 s"
	}
	return strings.Join(parts, " ")
}

// Size prints bytes: 512 B, 1.2 kB, 34 MB.
func Size(bytes any) string {
	n := float64(reflect.Indirect(reflect.ValueOf(bytes)).Int())
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if n < 1000 {
			return sized(n, unit)
		}
		n /= 1000
	}
	return sized(n, "TB")
}

func sized(n float64, unit string) string {
	if n < 10 && unit != "B" {
		return strconv.FormatFloat(n, 'f', 1, 64) + " " + unit
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " " + unit
}

// StatusText is an HTTP status with its name.
func StatusText(status int) string {
	return strings.TrimSpace(strconv.Itoa(status) + " " + http.StatusText(status))
}

// AttemptsAllowed prints a limit of attempts; nil or 0 = none.
func AttemptsAllowed(limit *int) string {
	if limit == nil || *limit == 0 {
		return "any number of attempts"
	}
	return "up to " + Plural(*limit, "attempt")
}

// Minutes prints minutes as whole days or hours if they are: 1440 is 1 day.
func Minutes(n int) string {
	const hour, day = 60, 24 * 60
	switch {
	case n >= day && n%day == 0:
		return Plural(n/day, "day")
	case n >= hour && n%hour == 0:
		return Plural(n/hour, "hour")
	default:
		return Plural(n, "minute")
	}
}

// OrEmpty is the text that a pointer points to, or "".
func OrEmpty(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// Provisioning is the word for a provisioning state. "Succeeded" means that the event subscription was created, but
// reads as if its endpoint were healthy: it is shown as "active".
func Provisioning(state any) string {
	if text := fmt.Sprint(state); text != "Succeeded" {
		return text
	}
	return "active"
}

// Tone is the CSS class for the color of a state, an outcome or a hold.
func Tone(word string) string {
	switch word {
	case "delivered", "done", "Delivered", "succeeded", "completed", "success", "deliver":
		return "good"
	case "active", "pending", "available", "running", "published", "note":
		return "calm"
	case "paused", "not_validated", "probation", "admission", "awaiting", "AwaitingManualAction", "Creating", "Updating",
		"scheduled", "retryable", "retry", "canceled", "cancelled":
		return "waiting"
	default:
		return "bad"
	}
}

// Met is the response to the last attempt: an HTTP status with its name, or none.
func Met(attempts int, status *int) string {
	switch {
	case status == nil && attempts == 0:
		return "not attempted"
	case status == nil:
		return "no answer"
	}
	return StatusText(*status)
}

// Phrase joins the parts that are not empty.
func Phrase(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ", ")
}

// IDText prints an id.
func IDText(id int64) string { return strconv.FormatInt(id, 10) }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:][A-Za-z0-9_./:-]*$`)

// QuoteShell writes a text as one word of a shell command. A word that begins with a dash would still be an option; no
// name does.
func QuoteShell(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
