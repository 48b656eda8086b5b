package v1

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

var (
	errDuration = errors.New("must be an ISO 8601 duration of whole weeks (P1W), or of days, hours, minutes and seconds " +
		"(P1D, PT90M, P1DT2H)")
	errSeconds = errors.New("must be whole minutes: its seconds must be a multiple of 60")
)

// maxMinutes is the most that parseMinutes reads: 999,999 days.
const maxMinutes = 999999 * 24 * 60

// parseMinutes reads an ISO 8601 duration of whole minutes, the form of eventTimeToLive on namespace topics: P1D,
// PT90M, P1DT2H, PT60S, P1W. A day is 24 hours; weeks stand alone. It rejects years, months, fractions, signs, and
// parts of more than six digits, whose sum could overflow. The error says what is allowed.
//
// Source: Microsoft, Event retention for Azure Event Grid namespace topics and event subscriptions.
func parseMinutes(text string) (int, error) {
	rest, ok := strings.CutPrefix(text, "P")
	if weeks, after, weeksOK := part(rest, "W", 7*24*60); ok && weeksOK && rest != after && after == "" &&
		weeks <= maxMinutes {
		return weeks, nil
	}
	date, clock, timed := strings.Cut(rest, "T")
	if !ok || rest == "" || timed && clock == "" {
		return 0, errDuration
	}
	days, date, dateOK := part(date, "D", 24*60)
	hours, clock, hoursOK := part(clock, "H", 60)
	minutes, clock, minutesOK := part(clock, "M", 1)
	seconds, clock, secondsOK := part(clock, "S", 1)
	sum := days + hours + minutes + seconds/60
	switch {
	case !dateOK || !hoursOK || !minutesOK || !secondsOK || date != "" || clock != "" || sum > maxMinutes:
		return 0, errDuration
	case seconds%60 != 0:
		return 0, errSeconds
	}
	return sum, nil
}

// part reads the number before a designator, times unit; 0 if there is none.
func part(text, designator string, unit int) (n int, rest string, ok bool) {
	digits, rest, found := strings.Cut(text, designator)
	if !found {
		return 0, text, true
	}
	if len(digits) == 0 || len(digits) > 6 || strings.Trim(digits, "0123456789") != "" {
		return 0, "", false
	}
	n, err := strconv.Atoi(digits)
	return n * unit, rest, err == nil
}

// formatMinutes writes minutes as parseMinutes reads them, in the largest units: P7D, P1DT2H, PT90M becomes PT1H30M.
func formatMinutes(minutes int) string {
	var text strings.Builder
	text.WriteByte('P')
	if days := minutes / (24 * 60); days > 0 {
		fmt.Fprintf(&text, "%dD", days)
	}
	hours, rest := minutes/60%24, minutes%60
	if hours > 0 || rest > 0 || minutes == 0 {
		text.WriteByte('T')
	}
	if hours > 0 {
		fmt.Fprintf(&text, "%dH", hours)
	}
	if rest > 0 || minutes == 0 {
		fmt.Fprintf(&text, "%dM", rest)
	}
	return text.String()
}

// minutesOf limits its result to values that fit a Duration and are outside every valid range.
func minutesOf(n int) time.Duration {
	const most = 1e7
	return time.Duration(min(max(n, -most), most)) * time.Minute
}
