package event

import (
	"bytes"
	"cmp"
	"regexp"
	"strings"
	"time"
)

// appendQuoted appends s as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// The problems of times.
const (
	notRFC3339   = "not an RFC 3339 time, such as 2026-11-28T03:00:00Z"
	noLeapSecond = "seconds must be 00 to 59"
)

// parseTime reads an RFC 3339 time with any number of fractional digits (.NET sends seven) and returns it in UTC.
// problem is "" if it is one. time.Parse needs capital letters, which RFC 3339 section 5.6 does not, and accepts what
// it forbids: "T8:41:00", a decimal comma, an offset of 24 hours (go.dev/issue/54580). So the form is checked first.
func parseTime(text []byte) (t time.Time, problem string) {
	if bytes.ContainsAny(text, "tz") {
		text = bytes.ToUpper(text)
	}
	switch {
	case !isTimeShaped(text):
		return time.Time{}, notRFC3339
	case t.UnmarshalText(text) == nil:
	case string(text[17:19]) > "59": // neither Go nor PostgreSQL has leap seconds
		return time.Time{}, noLeapSecond
	default:
		return time.Time{}, notRFC3339
	}
	t = t.UTC()
	if t.Year() < 1 || t.Year() > 9999 { // an offset may lead out of the years of RFC 3339
		return time.Time{}, notRFC3339
	}
	return t, ""
}

// parseISOTime is parseTime for the forms of Event Grid and custom events, which usualTime lists.
func parseISOTime(text []byte) (t time.Time, problem string) {
	if t, problem = parseTime(text); problem == notRFC3339 {
		return parseTime(usualTime(text))
	}
	return t, problem
}

// ParseTime reads a time as publishers of Event Grid events may write it: a date, or a date and a time of ISO 8601. It
// is UTC if it has no offset.
func ParseTime(text string) (t time.Time, ok bool) {
	t, problem := parseISOTime([]byte(text))
	return t, problem == ""
}

// isoTime has the date, the time, its seconds and the offset of the forms that Event Grid's parser, .NET's, reads and
// RFC 3339 does not have: without seconds or offset, with offsets of +0000 and +00, with a space instead of T.
// postrider_internal.usual_time has the same expression.
var isoTime = regexp.MustCompile(
	`^(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(:\d\d(?:\.\d+)?)?(?: ?([Zz]|[+-]\d\d(?::?\d\d)?))?)?$`)

// usualTime returns the RFC 3339 form of a date and time of ISO 8601, with every digit of its seconds. It returns texts
// that have this form, or none, as they are.
func usualTime(text []byte) []byte {
	if isTimeShaped(text) {
		return text
	}
	parts := isoTime.FindStringSubmatch(string(text))
	if parts == nil {
		return text
	}
	date, minutes, seconds, zone := parts[1], cmp.Or(parts[2], "00:00"), cmp.Or(parts[3], ":00"), parts[4]
	switch len(zone) {
	case 0:
		zone = "Z"
	case len("+00"):
		zone += ":00"
	case len("+0000"):
		zone = zone[:3] + ":" + zone[3:]
	}
	return []byte(strings.ToUpper(date + "T" + minutes + seconds + zone))
}

// isTimeShaped checks the form and the offset's range; time.Parse checks the calendar.
func isTimeShaped(text []byte) bool {
	const seconds = "0000-00-00T00:00:00"
	if !matches(text, seconds) {
		return false
	}
	zone := text[len(seconds):]
	if len(zone) > 0 && zone[0] == '.' {
		digits := 1
		for digits < len(zone) && isDigit(zone[digits]) {
			digits++
		}
		if digits == 1 {
			return false
		}
		zone = zone[digits:]
	}
	if string(zone) == "Z" {
		return true
	}
	return len(zone) == len("+00:00") && (matches(zone, "+00:00") || matches(zone, "-00:00")) &&
		string(zone[1:3]) <= "23" && string(zone[4:6]) <= "59"
}

// matches reports whether text starts like pattern, in which 0 stands for any digit.
func matches(text []byte, pattern string) bool {
	if len(text) < len(pattern) {
		return false
	}
	for i := range len(pattern) {
		if pattern[i] == '0' && isDigit(text[i]) {
			continue
		}
		if pattern[i] == '0' || pattern[i] != text[i] {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isBase64 reports whether text is base64 with the standard alphabet and padding (RFC 4648 section 4). encoding/base64
// would need a buffer as large as the data and skips line breaks, which RFC 4648 section 3.3 forbids.
func isBase64(text []byte) bool {
	if len(text)%4 != 0 {
		return false
	}
	for range 2 {
		text = bytes.TrimSuffix(text, []byte("="))
	}
	for _, c := range text {
		if (c < 'A' || 'Z' < c) && (c < 'a' || 'z' < c) && !isDigit(c) && c != '+' && c != '/' {
			return false
		}
	}
	return true
}
