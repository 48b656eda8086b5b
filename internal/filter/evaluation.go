package filter

import (
	"bytes"
	"cmp"
	"sync"

	"postrider/internal/jsonscan"
)

// value is an event's value at a key, with results that many filters share.
type value struct {
	kind      valueKind
	attribute bool // a number or boolean that is a text too
	isFolded  bool
	isRead    bool   // number has its decimal
	text      []byte // as in the event, a string still escaped and without its quotes
	plain     string // of a member of the envelope, instead of text: decoded
	folded    []byte
	number    number
}

// evaluation is the state of matching one event against a set's filters.
type evaluation struct {
	values []value // by key
	memory []byte  // of folded texts
	ready  bool    // values are read
}

var evaluations = sync.Pool{New: func() any { return &evaluation{} }}

// Kept between events; larger ones are not reused.
const (
	keptValues = 1 << 10
	keptMemory = 1 << 14
)

// release returns e for another event, without references to the body.
func (e *evaluation) release() {
	if cap(e.values) > keptValues || cap(e.memory) > keptMemory {
		return
	}
	clear(e.values)
	e.values, e.memory, e.ready = e.values[:0], e.memory[:0], false
	evaluations.Put(e)
}

// Matching appends to dst the indexes of the filters that match the event, in ascending order. It allocates nothing
// unless a value is very long or has escapes.
func (s *Set) Matching(dst []int, view *EventView) []int {
	e := evaluations.Get().(*evaluation)
	for i := range s.filters {
		f := &s.filters[i]
		if f.matchType(view.Type) && f.matchSubject(view.Subject) && e.all(&s.keySet, view, f.clauses) {
			dst = append(dst, i)
		}
	}
	e.release()
	return dst
}

func (e *evaluation) all(s *keySet, view *EventView, clauses []clause) bool {
	if len(clauses) > 0 && !e.ready {
		e.read(s, view)
	}
	for i := range clauses {
		if !e.holds(&clauses[i]) {
			return false
		}
	}
	return true
}

// read looks up the values of all keys.
func (e *evaluation) read(s *keySet, view *EventView) {
	e.ready = true
	if cap(e.values) < len(s.keys) {
		e.values = make([]value, len(s.keys))
	}
	e.values = e.values[:len(s.keys)]
	if s.inBody || !e.envelope(s, view) {
		w := walker{Scanner: jsonscan.Scanner{Text: view.Body}, values: e.values}
		first := w.Space()
		start := w.Pos
		if first == '{' {
			w.object(&s.root)
		}
		if data := s.root.child([]byte("data")); data != nil && view.Custom {
			w.Pos = start
			w.value(data)
		}
		for k := range e.values {
			e.values[k].attribute = view.CloudEvent && s.keys[k].attribute
		}
		e.envelope(s, view)
	}
}

// envelope reads the members that EventView has decoded. It returns false if a member may be in the body.
func (e *evaluation) envelope(s *keySet, view *EventView) (complete bool) {
	complete = true
	for k := range s.keys {
		if s.keys[k].envelope == memberNone {
			continue
		}
		text, known := view.member(s.keys[k].envelope)
		switch {
		case known:
			e.values[k] = value{kind: valueString, plain: text}
		case view.Custom && s.keys[k].envelope.mapped():
			e.values[k] = value{}
		default:
			complete = false
		}
	}
	return complete
}

// member returns a member of the envelope. "" may be absent, null or empty, which only the body shows, except for an
// Event Grid event's subject, which is required.
func (v *EventView) member(m envelopeMember) (text string, known bool) {
	switch {
	case m == memberID:
		text = v.ID
	case m == memberSubject:
		return v.Subject, v.Subject != "" || !v.CloudEvent
	case m == memberEventType && !v.CloudEvent, m == memberType && v.CloudEvent:
		text = v.Type
	case m == memberTopic && !v.CloudEvent:
		text = v.Topic
	case m == memberSource && v.CloudEvent:
		text = v.Source
	case m == memberDataVersion && !v.CloudEvent:
		text = v.DataVersion
	case m == memberEventTime && v.Custom:
		text = v.EventTime
	case m == memberMetadataVersion && v.Custom:
		text = "1"
	}
	return text, text != ""
}

// mapped reports whether a custom event can have the member only by its topic's mapping.
func (m envelopeMember) mapped() bool { return m != memberType && m != memberSource }

// holds reports whether the event meets a clause.
func (e *evaluation) holds(c *clause) bool {
	if c.operator == nil {
		return false
	}
	v := &e.values[c.key]
	switch {
	case c.operand == operandNone:
		return (v.kind <= valueNull) != c.negated
	case v.kind == valueArray:
		// Without the switch every operator fails, even negated ones.
		// Source: Microsoft, Advanced filtering (Event Grid on IoT Edge), 2021-05-10, "Filtering on array values".
		return c.arrays && e.anyElement(c, v) != c.negated
	case !c.comparable(v):
		return c.ifMissing
	default:
		return e.meets(c, v) != c.negated
	}
}

// comparable reports whether a value is of the kind that the operator compares.
func (c *clause) comparable(v *value) bool {
	switch c.operand {
	case operandNumber, operandRange:
		return v.kind == valueNumber
	case operandBool:
		return v.kind == valueBool
	case operandText:
		// Event Grid's page filters the extension attribute "comexampleothervalue": 5 by StringBeginsWith.
		return v.kind == valueString || v.attribute && (v.kind == valueNumber || v.kind == valueBool)
	case operandNone:
	}
	return false
}

// anyElement reports whether an element of an array meets the clause, ignoring elements of another kind.
func (e *evaluation) anyElement(c *clause, array *value) (found bool) {
	used := len(e.memory)
	elements(array.text, func(raw []byte) bool {
		var v value
		v.kind, v.text = readValue(raw)
		found = c.comparable(&v) && e.meets(c, &v)
		e.memory = e.memory[:used]
		return !found
	})
	return found
}

// meets compares a value with the operands, ignoring negation.
func (e *evaluation) meets(c *clause, v *value) bool {
	switch c.operand {
	case operandNumber:
		for i := range c.numbers {
			order := v.compare(&c.numbers[i])
			switch c.compares {
			case compareLess:
				return order < 0
			case compareLessOrEqual:
				return order <= 0
			case compareGreater:
				return order > 0
			case compareGreaterOrEqual:
				return order >= 0
			default:
				if order == 0 {
					return true
				}
			}
		}
		return false
	case operandRange:
		for i := 0; i+1 < len(c.numbers); i += 2 {
			if v.compare(&c.numbers[i]) >= 0 && v.compare(&c.numbers[i+1]) <= 0 {
				return true
			}
		}
		return false
	case operandBool:
		return (v.text[0] == 't') == c.truth
	case operandText:
		for _, operand := range c.texts {
			if c.meetsOne(e.fold(v), operand) {
				return true
			}
		}
		return false
	case operandNone:
	}
	return false
}

// compare compares a number of the event with one of a filter.
func (v *value) compare(n *number) int {
	if !v.isRead {
		v.isRead = true
		v.number.integer, v.number.small = readInteger(v.text)
		v.number.decimal = decimal{}
	}
	if v.number.small && n.small {
		return cmp.Compare(v.number.integer, n.integer)
	}
	if v.number.decimal.digits == nil {
		v.number.decimal = readDecimal(v.text)
	}
	return v.number.decimal.compare(n.decimal)
}

func (c *clause) meetsOne(text, operand []byte) bool {
	switch c.compares {
	case compareContains:
		return bytes.Contains(text, operand)
	case compareBeginsWith:
		return bytes.HasPrefix(text, operand)
	case compareEndsWith:
		return bytes.HasSuffix(text, operand)
	default:
		return bytes.Equal(text, operand)
	}
}

// fold returns a string with folded case, once for all filters.
func (e *evaluation) fold(v *value) []byte {
	if v.isFolded {
		return v.folded
	}
	start := len(e.memory)
	if v.plain != "" {
		e.memory = appendFold(e.memory, v.plain)
	} else {
		text, _ := jsonscan.Unescape(v.text)
		e.memory = appendFold(e.memory, text)
	}
	v.isFolded, v.folded = true, e.memory[start:len(e.memory):len(e.memory)]
	return v.folded
}

// scalar is a string, number or boolean as text. ok is false for null, arrays and objects, and for a string with a lone
// surrogate.
func (v *value) scalar() (text string, ok bool) {
	switch {
	case v.kind == valueString && v.text == nil:
		return v.plain, true
	case v.kind == valueString:
		raw, lone := jsonscan.Unescape(v.text)
		return string(raw), !lone
	case v.kind == valueNumber || v.kind == valueBool:
		return string(v.text), true
	default:
		return "", false
	}
}
