package event

import (
	"bytes"
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

// parseTime reads an RFC 3339 time with any number of fractional digits (.NET sends seven) and returns it in UTC.
// time.Parse needs capital letters, which RFC 3339 section 5.6 does not, and accepts what it forbids: "T8:41:00", a
// decimal comma, an offset of 24 hours (go.dev/issue/54580). So the form is checked first.
func parseTime(text []byte) (t time.Time, ok bool) {
	if bytes.ContainsAny(text, "tz") {
		text = bytes.ToUpper(text)
	}
	if !isTimeShaped(text) || t.UnmarshalText(text) != nil {
		return time.Time{}, false
	}
	t = t.UTC()
	return t, 1 <= t.Year() && t.Year() <= 9999 // an offset may lead out of the years of RFC 3339
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
