// Package jsonscan finds the parts of JSON text. It checks the text against RFC 8259 in one pass and decodes nothing.
//
// encoding/json needs several passes for the same, matches names without regard to case, keeps the last of two equal
// names and does not report where a member is. docs/internals/decisions.md compares the libraries that were measured.
// encoding/json decodes and writes all other values; Encode only keeps it from escaping HTML.
package jsonscan

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Scanner reads JSON text from Pos on. Its methods read one part and report success. After false, Pos and Problem say
// where and why, and no method may be called. The text must be valid UTF-8: a multi-byte character is accepted as it
// is, because it can only be inside a string. Equal names, numbers of any size and escaped lone surrogates are
// accepted.
type Scanner struct {
	Text []byte
	// Pos is the index of the next byte.
	Pos int
	// Depth is how many objects and arrays are open, MaxDepth the most there may be; 0 is no limit.
	Depth, MaxDepth int
	// Problem is what is wrong at Pos.
	Problem string
}

func (s *Scanner) fail(problem string) bool {
	if s.Pos >= len(s.Text) {
		problem = "the text ends too early"
	}
	s.Problem = problem
	return false
}

// Peek returns the next byte, or 0 at the end. NUL is legal nowhere in JSON text, so 0 never stands for a value.
func (s *Scanner) Peek() byte {
	if s.Pos < len(s.Text) {
		return s.Text[s.Pos]
	}
	return 0
}

// Space skips white space and peeks.
func (s *Scanner) Space() byte {
	for s.Pos < len(s.Text) {
		c := s.Text[s.Pos]
		if c > ' ' || (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
			return c
		}
		s.Pos++
	}
	return 0
}

// Value reads any value.
func (s *Scanner) Value() bool {
	switch s.Peek() {
	case '"':
		return s.text()
	case '{':
		return s.Object(nil)
	case '[':
		return s.Array(nil)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number()
	}
	return s.fail("expected a value")
}

// Object reads the object at Pos. For each member, it calls member with the name, without quotes and still escaped.
// member reads the value; it stops the scan by returning false. Without member, Object reads the values itself.
func (s *Scanner) Object(member func(name []byte) bool) bool {
	if empty, ok := s.open('}'); empty || !ok {
		return ok
	}
	for {
		if s.Peek() != '"' {
			return s.fail("expected a member's name in double quotes")
		}
		start := s.Pos + 1
		if !s.text() {
			return false
		}
		name := s.Text[start : s.Pos-1]
		if s.Space() != ':' {
			return s.fail("expected ':' after a member's name")
		}
		s.Pos++
		s.Space()
		if member == nil {
			if !s.Value() {
				return false
			}
		} else if !member(name) {
			return false
		}
		if end, ok := s.next('}', "expected ',' or '}' after a member"); end || !ok {
			return ok
		}
	}
}

// Array reads the array at Pos. It calls element for each element, as Object calls member.
func (s *Scanner) Array(element func() bool) bool {
	if element == nil {
		element = s.Value
	}
	if empty, ok := s.open(']'); empty || !ok {
		return ok
	}
	for {
		if !element() {
			return false
		}
		if end, ok := s.next(']', "expected ',' or ']' after an element"); end || !ok {
			return ok
		}
	}
}

// open reads the bracket that opens an object or an array, and the closing one if nothing is inside.
func (s *Scanner) open(closing byte) (empty, ok bool) {
	if s.Depth == s.MaxDepth && s.MaxDepth > 0 {
		return false, s.fail(fmt.Sprintf("nested deeper than %d levels", s.MaxDepth))
	}
	s.Depth++
	s.Pos++
	if s.Space() != closing {
		return false, true
	}
	s.Pos++
	s.Depth--
	return true, true
}

// next reads what follows a member or an element: a comma, or the closing bracket.
func (s *Scanner) next(closing byte, problem string) (end, ok bool) {
	switch s.Space() {
	case ',':
		s.Pos++
		s.Space()
		return false, true
	case closing:
		s.Pos++
		s.Depth--
		return true, true
	}
	return false, s.fail(problem)
}

func (s *Scanner) literal(word string) bool {
	if len(s.Text)-s.Pos < len(word) || string(s.Text[s.Pos:s.Pos+len(word)]) != word {
		return s.fail("expected a value")
	}
	s.Pos += len(word)
	return true
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *Scanner) number() bool {
	if s.Peek() == '-' {
		s.Pos++
	}
	if s.Peek() == '0' {
		s.Pos++
	} else if !s.digits() {
		return false
	}
	if s.Peek() == '.' {
		s.Pos++
		if !s.digits() {
			return false
		}
	}
	if c := s.Peek(); c != 'e' && c != 'E' {
		return true
	}
	s.Pos++
	if c := s.Peek(); c == '+' || c == '-' {
		s.Pos++
	}
	return s.digits()
}

func (s *Scanner) digits() bool {
	start := s.Pos
	for s.Pos < len(s.Text) && '0' <= s.Text[s.Pos] && s.Text[s.Pos] <= '9' {
		s.Pos++
	}
	return s.Pos > start || s.fail("expected a digit")
}

// text reads a string with its quotes.
func (s *Scanner) text() bool {
	s.Pos++
	for {
		s.Pos = skipPlain(s.Text, s.Pos)
		switch s.Peek() {
		case '"':
			s.Pos++
			return true
		case '\\':
			n := escapeLen(s.Text[s.Pos:])
			if n == 0 {
				return s.fail("not an escape sequence")
			}
			s.Pos += n
		default:
			return s.fail("a control character must be escaped in a string")
		}
	}
}

// skipPlain returns the first index from i on of a quote, a backslash or a control character, or the text's
// end. Strings are most of an event's bytes, so it checks eight at a time: a byte's top bit is set in hit if the byte
// is one of the three. A borrow can set bits above the first true one, never below it, so the lowest is exact.
func skipPlain(src []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(src); i += 8 {
		w := binary.LittleEndian.Uint64(src[i:])
		quote, slash := w^ones*'"', w^ones*'\\'
		hit := ((w-ones*' ')&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(src) && src[i] >= ' ' && src[i] != '"' && src[i] != '\\' {
		i++
	}
	return i
}
