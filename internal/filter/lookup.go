package filter

import "postrider/internal/jsonscan"

type valueKind uint8

// The kinds of a value. A key that is not in the event has valueMissing.
const (
	valueMissing valueKind = iota
	valueNull
	valueBool
	valueNumber
	valueString
	valueArray
	valueObject
)

// String names a kind in a sentence.
func (k valueKind) String() string {
	return [...]string{"missing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// node is one level of the tree of a set's keys, by which one pass over an event finds them all.
type node struct {
	name     string
	key      int // the key that ends here, -1 for none
	from, to int // the keys that end here or below
	children []*node
	index    map[string]*node // of children, if there are many
}

// manyChildren is the number of names from which a map is faster than comparing.
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

// walker finds the values of keys in JSON text. It reads the text once and decodes only escapes in names. The last of
// members with equal names counts, as in PostgreSQL's jsonb, JavaScript and encoding/json. In text that is not JSON, it
// finds values before the error.
type walker struct {
	jsonscan.Scanner
	values []value
}

// object reads the object at Pos.
func (w *walker) object(n *node) bool {
	return w.Object(func(name []byte) bool {
		name, _ = jsonscan.Unescape(name)
		if c := n.child(name); c != nil {
			return w.value(c)
		}
		return w.Value()
	})
}

// value stores the value at Pos. It removes the values found in an earlier member of the same name.
func (w *walker) value(n *node) bool {
	var ok bool
	for k := n.from; k < n.to; k++ {
		w.values[k].kind = valueMissing
	}
	start := w.Pos
	if len(n.children) > 0 && w.Peek() == '{' {
		ok = w.object(n)
	} else {
		ok = w.Value()
	}
	if n.key >= 0 && w.Pos > start {
		w.values[n.key].kind, w.values[n.key].text = readValue(w.Text[start:w.Pos])
	}
	return ok
}

// readValue returns a value's kind and text, of a string without its quotes.
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
	s := jsonscan.Scanner{Text: array}
	s.Array(func() bool {
		start := s.Pos
		return s.Value() && yield(array[start:s.Pos])
	})
}
