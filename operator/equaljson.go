package operator

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// equalJSON reports whether two values are equal as a JSON Patch compares them: the order of members does not count,
// and numbers are compared by their value.
func equalJSON(a, b []byte) bool {
	return bytes.Equal(a, b) || equalValues(decoded(a), decoded(b))
}

func decoded(text []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	_ = decoder.Decode(&value) // it is JSON
	return value
}

func equalValues(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, same := b.(map[string]any)
		return same && maps.EqualFunc(a, b, equalValues)
	case []any:
		b, same := b.([]any)
		return same && slices.EqualFunc(a, b, equalValues)
	case json.Number:
		b, same := b.(json.Number)
		return same && normalNumber(a.String()) == normalNumber(b.String())
	default:
		return a == b
	}
}

// number is a decimal number: 0.digits × 10^exponent.
type number struct {
	negative bool
	digits   string
	exponent int64
}

// normalNumber is the value of a number, without converting it: 1e999999999 would take a gigabyte.
func normalNumber(text string) (n number) {
	text, n.negative = strings.CutPrefix(text, "-")
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	n.exponent, _ = strconv.ParseInt(exponent, 10, 64) // the nearest one if it is out of range
	n.digits = strings.TrimLeft(whole+fraction, "0")
	n.exponent += int64(len(whole) - (len(whole+fraction) - len(n.digits)))
	if n.digits = strings.TrimRight(n.digits, "0"); n.digits == "" {
		return number{}
	}
	return n
}
