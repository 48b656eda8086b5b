package filter

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

type valueKind uint8

// The kinds of a value. A key that leads nowhere has valueMissing.
const (
	valueMissing valueKind = iota
	valueNull
	valueBool
	valueNumber
	valueString
	valueArray
	valueObject
)

// String names a kind as people do.
func (k valueKind) String() string {
	return [...]string{"missing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// node is one level of the keys of a FilterSet, put together as a tree, so that one pass over an event finds them all.
type node struct {
	name     string
	key      int // the key that ends here, -1 for none
	from, to int // the keys that end here or further down
	children []*node
	index    map[string]*node // of children, where there are many
}

// manyChildren is from how many names on a map is faster than comparing.
const manyChildren = 12

func (n *node) child(name []byte) *node {
	if n.index != nil {
		return n.index[string(name)]
	}
	for _, c := range n.children {
		if c.name == string(name) {
			return c
		}
	}
	return nil
}

// walker finds the values of keys in JSON text that was checked when it was accepted. It goes over the text once,
// decodes nothing but a key's own escapes, and jumps over what no key asks for. Of members with equal names the last
// counts, as in PostgreSQL's jsonb, JavaScript and encoding/json: that is what whoever gets the event reads. Text that
// is no JSON after all is read up to where that shows.
type walker struct {
	src    []byte
	values []value
}

// object reads the object that starts at src[i] and returns the place behind it.
func (w *walker) object(i int, n *node) int {
	src := w.src
	for i++; ; i++ {
		i = skipSpace(src, i)
		if i >= len(src) || src[i] != '"' {
			return i + 1
		}
		start := i + 1
		end := stringEnd(src, start)
		i = skipSpace(src, end+1)
		i = skipSpace(src, i+1)
		if i >= len(src) {
			return i
		}
		name, _ := unescape(src[start:end])
		if c := n.child(name); c != nil {
			i = w.value(i, c)
		} else {
			i = skipValue(src, i)
		}
		if i = skipSpace(src, i); i >= len(src) || src[i] != ',' {
			return i + 1
		}
	}
}

// value notes the value at src[i] and returns the place behind it. An earlier member of the same name is forgotten,
// with all that was found in it.
func (w *walker) value(i int, n *node) int {
	for k := n.from; k < n.to; k++ {
		w.values[k].kind = valueMissing
	}
	var end int
	if w.src[i] == '{' && len(n.children) > 0 {
		end = w.object(i, n)
	} else {
		end = skipValue(w.src, i)
	}
	if n.key >= 0 {
		w.values[n.key].kind, w.values[n.key].text = readValue(w.src[i:min(end, len(w.src))])
	}
	return end
}

// readValue tells a value's kind. The text of a string is what stands between its quotes.
func readValue(raw []byte) (valueKind, []byte) {
	switch raw[0] {
	case '"':
		return valueString, raw[1:max(1, len(raw)-1)]
	case '{':
		return valueObject, raw
	case '[':
		return valueArray, raw
	case 't', 'f':
		return valueBool, raw
	case 'n':
		return valueNull, raw
	}
	return valueNumber, raw
}

// elements calls yield for each element of an array until it returns false.
func elements(array []byte, yield func(raw []byte) bool) {
	for i := 1; ; i++ {
		i = skipSpace(array, i)
		if i >= len(array) || array[i] == ']' {
			return
		}
		end := min(skipValue(array, i), len(array))
		if !yield(array[i:end]) {
			return
		}
		if i = skipSpace(array, end); i >= len(array) || array[i] != ',' {
			return
		}
	}
}

func skipSpace(src []byte, i int) int {
	for i < len(src) && src[i] <= ' ' {
		i++
	}
	return i
}

// skipValue returns the place behind the value at src[i], always further on than i.
func skipValue(src []byte, i int) int {
	switch src[i] {
	case '"':
		return stringEnd(src, i+1) + 1
	case '{', '[':
		return skipNested(src, i)
	}
	for i++; i < len(src); i++ {
		if c := src[i]; c <= ' ' || c == ',' || c == ']' || c == '}' {
			break
		}
	}
	return i
}

// skipNested counts brackets and braces together: in JSON text they cannot cross.
func skipNested(src []byte, i int) int {
	for depth := 0; i < len(src); i++ {
		switch src[i] {
		case '"':
			i = stringEnd(src, i+1)
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return i
}

// stringEnd returns the place of the quote that ends the string whose inside starts at src[i], or the text's end. Most
// strings are short: eight bytes at once show their end.
func stringEnd(src []byte, i int) int {
	for k := i; k+8 <= len(src) && k <= i+8; k += 8 {
		if hit := quotes(src[k:]); hit != 0 {
			if end := k + bits.TrailingZeros64(hit)/8; src[end-1] != '\\' {
				return end
			}
			break
		}
	}
	return longStringEnd(src, i)
}

// quotes sets the top bit of the first byte that is a quote, of eight. A borrow can set bits above the first true one,
// never below it, so the lowest is exact.
func quotes(src []byte) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	w := binary.LittleEndian.Uint64(src) ^ ones*'"'
	return (w - ones) &^ w & tops
}

// longStringEnd looks for quotes and then back from them: an odd number of backslashes escapes one.
func longStringEnd(src []byte, i int) int {
	for start := i; ; i++ {
		at := bytes.IndexByte(src[i:], '"')
		if at < 0 {
			return len(src)
		}
		i += at
		before := i
		for before > start && src[before-1] == '\\' {
			before--
		}
		if (i-before)%2 == 0 {
			return i
		}
	}
}
