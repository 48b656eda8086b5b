package filter

import "encoding/json"

// AdvancedFilter compares one value of an event, see docs/guides/filter.md. Numbers keep all digits.
//
// It is as in Event Grid's management API. Value and Values stay JSON text, so that numbers are not rounded. Source:
// Microsoft, Understand event filtering for Event Grid subscriptions, 2022-09-09.
type AdvancedFilter struct {
	// Path of the value: subject, data.order.total.
	//
	// It is a member of the event, and after each dot a member of the object before it. Names of the envelope's members
	// are compared without regard to case ("Subject", "Data.color"), all others exactly. Names that contain a dot and
	// elements of arrays cannot be keys, as in Event Grid.
	Key string `json:"key"`
	// NumberIn, NumberNotIn, NumberLessThan, NumberGreaterThan, NumberLessThanOrEquals, NumberGreaterThanOrEquals,
	// NumberInRange, NumberNotInRange, BoolEquals, StringContains, StringNotContains, StringBeginsWith,
	// StringNotBeginsWith, StringEndsWith, StringNotEndsWith, StringIn, StringNotIn, IsNullOrUndefined or IsNotNull.
	OperatorType string `json:"operatorType"`
	// Number or boolean, for operators with one value.
	Value json.RawMessage `json:"value,omitempty"`
	// Numbers, strings, or ranges as pairs, for operators with several values.
	Values []json.RawMessage `json:"values,omitempty"`
}

// operandKind is what an operator compares.
type operandKind uint8

const (
	operandNumber operandKind = iota
	operandRange
	operandBool
	operandText
	operandNone // the operator checks whether there is a value
)

// comparison is how a value is compared with one operand.
type comparison uint8

const (
	compareEqual comparison = iota
	compareLess
	compareLessOrEqual
	compareGreater
	compareGreaterOrEqual
	compareContains
	compareBeginsWith
	compareEndsWith
)

// operator is one row of the table of operators.
type operator struct {
	name     string
	operand  operandKind
	compares comparison
	list     bool // has values; otherwise value, or none
	negated  bool // true where the positive operator is false, for a value of the kind that it compares
	// ifMissing is the result if the event has no such value, null, or a value of another kind. For missing keys it is
	// Event Grid's rule, except NumberNotInRange, which the page leaves open. For the other two it is ours: elements of an
	// array of another kind are ignored as well.
	ifMissing bool
	must      string // continues a sentence after "must"
}

// operators is Event Grid's table. Source: Microsoft, Understand event filtering for Event Grid subscriptions,
// 2022-09-09: the sections on operators, and the note on events without the key.
var operators = []operator{
	{name: "NumberIn", operand: operandNumber, list: true, must: "be one of"},
	{name: "NumberNotIn", operand: operandNumber, list: true, negated: true, ifMissing: true, must: "be none of"},
	{name: "NumberLessThan", operand: operandNumber, compares: compareLess, must: "be less than"},
	{name: "NumberGreaterThan", operand: operandNumber, compares: compareGreater, must: "be greater than"},
	{
		name: "NumberLessThanOrEquals", operand: operandNumber, compares: compareLessOrEqual,
		must: "be less than or equal to",
	},
	{
		name: "NumberGreaterThanOrEquals", operand: operandNumber, compares: compareGreaterOrEqual,
		must: "be greater than or equal to",
	},
	{name: "NumberInRange", operand: operandRange, list: true, must: "be within one of"},
	{
		name: "NumberNotInRange", operand: operandRange, list: true, negated: true, ifMissing: true,
		must: "be within none of",
	},
	{name: "BoolEquals", operand: operandBool, must: "be"},
	{name: "StringContains", operand: operandText, compares: compareContains, list: true, must: "contain one of"},
	{
		name: "StringNotContains", operand: operandText, compares: compareContains, list: true, negated: true,
		must: "contain none of",
	},
	{name: "StringBeginsWith", operand: operandText, compares: compareBeginsWith, list: true, must: "begin with one of"},
	{
		name: "StringNotBeginsWith", operand: operandText, compares: compareBeginsWith, list: true, negated: true,
		must: "begin with none of",
	},
	{name: "StringEndsWith", operand: operandText, compares: compareEndsWith, list: true, must: "end with one of"},
	{
		name: "StringNotEndsWith", operand: operandText, compares: compareEndsWith, list: true, negated: true,
		must: "end with none of",
	},
	{name: "StringIn", operand: operandText, list: true, must: "be one of"},
	{name: "StringNotIn", operand: operandText, list: true, negated: true, ifMissing: true, must: "be none of"},
	{name: "IsNullOrUndefined", operand: operandNone, must: "be null or missing"},
	{name: "IsNotNull", operand: operandNone, negated: true, must: "be neither null nor missing"},
}

// Operators lists the operators that an advanced filter may name, in Event Grid's order.
func Operators() []string {
	names := make([]string, len(operators))
	for i := range operators {
		names[i] = operators[i].name
	}
	return names
}

// arity is how many values an operator compares with.
type arity uint8

// The arities of operators. One value is in value, many are in values.
const (
	NoValue arity = iota
	OneValue
	ManyValues
)

// ArityOf returns how many values the operator has; false if there is no such operator.
func ArityOf(name string) (arity, bool) {
	op := operatorOf(name)
	switch {
	case op == nil:
		return NoValue, false
	case op.operand == operandNone:
		return NoValue, true
	case op.list:
		return ManyValues, true
	}
	return OneValue, true
}

func operatorOf(name string) *operator {
	for i := range operators {
		if operators[i].name == name {
			return &operators[i]
		}
	}
	return nil
}

// stated reports whether a property is neither absent nor null.
func stated(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] != 'n' }

// operands are the values that an operator compares with.
func (a *AdvancedFilter) operands(op *operator) []json.RawMessage {
	if op.list {
		return a.Values
	}
	if stated(a.Value) {
		return []json.RawMessage{a.Value}
	}
	return nil
}
