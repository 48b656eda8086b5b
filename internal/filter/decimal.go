package filter

import "cmp"

// number is a JSON number that is compared exactly, without rounding, as in Event Grid.
// Source: Microsoft, Advanced filtering (Event Grid on IoT Edge), 2021-05-10, "Floating-point rounding behavior".
type number struct {
	small   bool // integer is the value: a whole number of up to 18 digits
	integer int64
	decimal decimal // set for numbers of filters; for those of events if needed
}

// readNumber reads a number of a filter.
func readNumber(text []byte) number {
	n := number{decimal: readDecimal(text)}
	n.integer, n.small = readInteger(text)
	return n
}

// maxIntegerDigits is the most digits that always fit an int64.
const maxIntegerDigits = 18

// readInteger reads most numbers fast. Those with a point, an exponent or more digits need readDecimal.
func readInteger(text []byte) (n int64, ok bool) {
	negative := len(text) > 0 && text[0] == '-'
	if negative {
		text = text[1:]
	}
	if len(text) == 0 || len(text) > maxIntegerDigits {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || '9' < c {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if negative {
		n = -n
	}
	return n, true
}

// decimal is sign × 0.digits × 10^point. Zero has sign 0. Its digits are those of the text, so 1e999999999 costs no
// more than 1.
type decimal struct {
	sign   int
	digits []byte // from the first to the last digit that is not 0, with the text's decimal point
	point  int64
}

func readDecimal(text []byte) decimal {
	d := decimal{sign: 1}
	if len(text) > 0 && text[0] == '-' {
		d.sign, text = -1, text[1:]
	}
	first, last, dot := -1, 0, -1
	for i, c := range text {
		if c == 'e' || c == 'E' {
			d.point, text = readExponent(text[i+1:]), text[:i]
			break
		}
		if c == '.' {
			dot = i
		} else if c != '0' {
			if last = i; first < 0 {
				first = i
			}
		}
	}
	switch {
	case first < 0:
		return decimal{}
	case dot < 0:
		d.point += int64(len(text) - first)
	case first < dot:
		d.point += int64(dot - first)
	default:
		d.point -= int64(first - dot - 1)
	}
	d.digits = text[first : last+1]
	return d
}

// hugeExponent replaces larger exponents of events. Filters have smaller ones: see maxExponent.
const hugeExponent = 1_000_000_000_000_000

func readExponent(text []byte) int64 {
	var n int64
	for _, c := range text {
		if '0' <= c && c <= '9' {
			n = min(n*10+int64(c-'0'), hugeExponent)
		}
	}
	if len(text) > 0 && text[0] == '-' {
		return -n
	}
	return n
}

func (d decimal) compare(other decimal) int {
	if d.sign != other.sign || d.sign == 0 {
		return cmp.Compare(d.sign, other.sign)
	}
	if d.point != other.point {
		return d.sign * cmp.Compare(d.point, other.point)
	}
	return d.sign * compareDigits(d.digits, other.digits)
}

// compareDigits compares digit by digit. Neither ends with a 0, so the longer one is larger if one begins the other.
func compareDigits(a, b []byte) int {
	for {
		a, b = skipPoint(a), skipPoint(b)
		if len(a) == 0 || len(b) == 0 {
			return cmp.Compare(len(a), len(b))
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
}

func skipPoint(digits []byte) []byte {
	if len(digits) > 0 && digits[0] == '.' {
		return digits[1:]
	}
	return digits
}
