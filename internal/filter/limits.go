package filter

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits bounds one event subscription's filter. A field that is zero or less takes its value from DefaultLimits.
type Limits struct {
	MaxFilters      int // advanced filters
	MaxValues       int // values of all advanced filters together; a range counts as one
	MaxStringLength int // characters of one string value
	MaxKeyLength    int // characters of a key
	MaxKeyLevels    int // names in a key: 3 in data.order.total
}

// DefaultLimits are Event Grid's 25 filters, 25 values and 512 characters (Microsoft, Understand event filtering for
// Event Grid subscriptions, 2022-09-09), and our own 512 characters of a key and 256 levels, the depth of an event.
// Event Grid once had 5 filters, 5 values each and two levels below data (Microsoft, Event filtering, 2018-10-23).
func DefaultLimits() Limits {
	return Limits{MaxFilters: 25, MaxValues: 25, MaxStringLength: 512, MaxKeyLength: 512, MaxKeyLevels: 256}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	or := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	return Limits{
		MaxFilters: or(l.MaxFilters, d.MaxFilters), MaxValues: or(l.MaxValues, d.MaxValues),
		MaxStringLength: or(l.MaxStringLength, d.MaxStringLength), MaxKeyLength: or(l.MaxKeyLength, d.MaxKeyLength),
		MaxKeyLevels: or(l.MaxKeyLevels, d.MaxKeyLevels),
	}
}

// Bounds of a number in a filter, which PostgreSQL stores with all its digits written out.
const (
	maxExponent = 1000
	maxDigits   = 100
)

// Validate is ValidateWithin the default limits.
func (f *Filter) Validate() error { return f.ValidateWithin(DefaultLimits()) }

// ValidateWithin returns the first mistake in the filter as a *ValidationError. Like Event Grid, it does not limit the
// number of event types.
func (f *Filter) ValidateWithin(l Limits) error {
	if err := f.validateBasic(); err != nil {
		return err
	}
	return f.validateAdvanced(l.withDefaults())
}

func (f *Filter) validateBasic() error {
	for i, t := range f.IncludedEventTypes {
		field := fmt.Sprintf("filter.includedEventTypes[%d]", i)
		switch {
		case t == "":
			return &ValidationError{field, "must not be empty"}
		case t == allEventTypes && len(f.IncludedEventTypes) > 1:
			return &ValidationError{field, `"All" must be the only entry`}
		case !Storable(t):
			return &ValidationError{field, notStorable}
		}
	}
	if !Storable(f.SubjectBeginsWith) {
		return &ValidationError{"filter.subjectBeginsWith", notStorable}
	}
	if !Storable(f.SubjectEndsWith) {
		return &ValidationError{"filter.subjectEndsWith", notStorable}
	}
	return nil
}

func (f *Filter) validateAdvanced(l Limits) error {
	const field = "filter.advancedFilters"
	if n := len(f.AdvancedFilters); n > l.MaxFilters {
		return &ValidationError{field, fmt.Sprintf("must have at most %d entries, has %d", l.MaxFilters, n)}
	}
	values := 0
	for i := range f.AdvancedFilters {
		a := &f.AdvancedFilters[i]
		if err := a.validate(fmt.Sprintf("%s[%d]", field, i), l); err != nil {
			return err
		}
		values += len(a.operands(operatorOf(a.OperatorType)))
	}
	if values > l.MaxValues {
		return &ValidationError{
			field, fmt.Sprintf("must have at most %d values in all filters together, has %d", l.MaxValues, values),
		}
	}
	return nil
}

func (a *AdvancedFilter) validate(field string, l Limits) error {
	op := operatorOf(a.OperatorType)
	if op == nil {
		return &ValidationError{field + ".operatorType", "must be one of " + strings.Join(Operators(), ", ")}
	}
	if message := l.KeyProblem(a.Key); message != "" {
		return &ValidationError{field + ".key", message}
	}
	switch {
	case op.operand == operandNone && (stated(a.Value) || len(a.Values) > 0):
		return &ValidationError{field, "must have neither value nor values: " + op.name + " compares with nothing"}
	case op.list && stated(a.Value):
		return &ValidationError{field + ".value", "must be absent: " + op.name + " compares with values"}
	case op.list && len(a.Values) == 0:
		return &ValidationError{field + ".values", "must have 1 entry or more: " + op.name + " compares with values"}
	case !op.list && len(a.Values) > 0:
		return &ValidationError{field + ".values", "must be absent: " + op.name + " compares with value"}
	case !op.list && op.operand != operandNone && !stated(a.Value):
		return &ValidationError{field + ".value", "is required by " + op.name}
	}
	for i, raw := range a.operands(op) {
		if message := l.operandProblem(op, raw); message != "" {
			if field += ".value"; op.list {
				field += fmt.Sprintf("s[%d]", i)
			}
			return &ValidationError{field, message}
		}
	}
	return nil
}

// KeyProblem describes what is wrong with a key; "" if nothing.
func (l Limits) KeyProblem(key string) string {
	names := strings.Split(key, ".")
	switch {
	case key == "":
		return "is required"
	case !Storable(key):
		return notStorable
	case utf8.RuneCountInString(key) > l.MaxKeyLength:
		return fmt.Sprintf("must be 1 to %d characters long", l.MaxKeyLength)
	case len(names) > l.MaxKeyLevels:
		return fmt.Sprintf("must have 1 to %d names, has %d", l.MaxKeyLevels, len(names))
	}
	for _, name := range names {
		if name == "" {
			return "must be names with a dot between them, none of them empty"
		}
	}
	return ""
}

// operandProblem describes what is wrong with one value; "" if nothing.
func (l Limits) operandProblem(op *operator, raw json.RawMessage) string {
	switch op.operand {
	case operandNumber:
		return numberProblem(raw)
	case operandRange:
		from, to, ok := readPair(raw)
		if !ok {
			return "must be a pair of numbers: [from, to]"
		}
		for _, end := range []json.RawMessage{from, to} {
			if message := numberProblem(end); message != "" {
				return "must be a pair of numbers, each of which " + message
			}
		}
		if readDecimal(from).compare(readDecimal(to)) > 0 {
			return fmt.Sprintf("must be [from, to] with from not greater than to, not [%s, %s]", shorten(string(from)),
				shorten(string(to)))
		}
		return ""
	case operandBool:
		if s := string(raw); s != "true" && s != "false" {
			return "must be true or false"
		}
	case operandText:
		text, lone, ok := readText(raw)
		if !ok {
			return "must be a string"
		}
		if n := utf8.RuneCount(text); n > l.MaxStringLength {
			return fmt.Sprintf("must be at most %d characters long, is %d", l.MaxStringLength, n)
		}
		if lone || !Storable(string(text)) {
			return notStorable
		}
		return ""
	case operandNone:
	}
	return ""
}

func numberProblem(raw json.RawMessage) string {
	var c clause
	if !c.addNumber(raw) {
		return "must be a number"
	}
	d := c.numbers[0].decimal
	exponent := d.point - 1
	huge := d.sign != 0 && (exponent > maxExponent || exponent < -maxExponent)
	if huge || writtenHuge(raw) || len(d.digits) > maxDigits {
		return fmt.Sprintf("must be a number of at most %d digits, its size between 1e-%d and 1e%d", maxDigits, maxExponent,
			maxExponent)
	}
	return ""
}

// writtenHuge reports whether a number has more zeros than PostgreSQL's numeric can hold; a decimal has none of them.
func writtenHuge(raw json.RawMessage) bool {
	_, exponent, _ := bytes.Cut(bytes.ToLower(raw), []byte("e"))
	n, err := strconv.Atoi(cmp.Or(string(exponent), "0"))
	return err != nil || n < -2*maxExponent || n > maxExponent*1000 || len(raw) > maxExponent+2*maxDigits
}

const notStorable = "must be valid UTF-8 without a null character"

// Storable reports whether PostgreSQL can keep s as text.
func Storable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}
