package filter

import "cmp"

// number is a JSON number that is compared exactly, whatever its size: nothing is rounded, as in Event Grid.
// Source: Microsoft, Advanced filtering (Event Grid on IoT Edge), 2021-05-10, "Floating-point rounding behavior".
type number struct {
	small   bool // integer is the value: a whole number of up to 18 digits
	integer int64
	decimal decimal // set for every number of a filter; for one of an event when small is false or no help
}

// readNumber reads a number of a filter, once for all events.
func readNumber(text []byte) number {
	n := number{decimal: readDecimal(text)}
	n.integer, n.small = readInteger(text)
	return n
}

// maxIntegerDigits is how many digits always fit an int64.
const maxIntegerDigits = 18

// readInteger reads what most numbers are. Anything with a point, an exponent or more digits is left to readDecimal.
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

// decimal is sign × 0.digits × 10^point. Zero has sign 0. It refers to the text it was read from and computes nothing,
// so 1e999999999 costs no more than 1.
type decimal struct {
	sign   int
	digits []byte // from the first digit that is not 0 to the last, the text's decimal point among them where it stood
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
		switch {
		case c == '.':
			dot = i
		case c != '0':
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

// hugeExponent stands for all exponents beyond it. No filter has one: see maxExponent.
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

// compareDigits compares digit by digit. Neither ends with a 0: where one is longer, it is the larger.
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
