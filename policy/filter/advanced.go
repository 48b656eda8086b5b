package filter

import "encoding/json"

// AdvancedFilter compares one value of an event, spelled as in Event Grid's management API. Value and Values are kept
// as the JSON text they came in, because a number must not be rounded. Source: Microsoft, Understand event filtering
// for Event Grid subscriptions, 2022-09-09.
type AdvancedFilter struct {
	// Key is the path of the value: a member of the event, and after each dot a member of the object before it. The names
	// of the envelope's own members are read without regard to case ("Subject", "Data.color"), all others exactly. A name
	// that contains a dot cannot be reached, as in Event Grid. Elements of arrays cannot be named.
	Key string `json:"key"`
	// OperatorType is one of Operators, letter for letter.
	OperatorType string `json:"operatorType"`
	// Value is what an operator of one value compares with.
	Value json.RawMessage `json:"value,omitempty"`
	// Values are what an operator of many values compares with; ranges are pairs: [[1, 5], [10, 20]].
	Values []json.RawMessage `json:"values,omitempty"`
}

// operandKind is what an operator compares.
type operandKind uint8

const (
	operandNumber operandKind = iota
	operandRange
	operandBool
	operandText
	operandNone // the operator asks whether there is a value
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
	list     bool // takes values; otherwise value, if anything
	negated  bool // true where the positive operator is false, for a value of the kind that it compares
	// ifMissing is the answer where the event has no such value, has null, or has a value of another kind. That a key is
	// missing is Event Grid's rule, except for NumberNotInRange, which it leaves open. The other two are ours: an array's
	// elements of another kind are ignored as well, and an ignored value is a missing one.
	ifMissing bool
	wanted    string // reads on from "must"
}

// operators is Event Grid's table. Source: Microsoft, Understand event filtering for Event Grid subscriptions,
// 2022-09-09: the sections of the operators, and the note on an event that does not contain the key.
var operators = []operator{
	{name: "NumberIn", operand: operandNumber, list: true, wanted: "be one of"},
	{name: "NumberNotIn", operand: operandNumber, list: true, negated: true, ifMissing: true, wanted: "be none of"},
	{name: "NumberLessThan", operand: operandNumber, compares: compareLess, wanted: "be less than"},
	{name: "NumberGreaterThan", operand: operandNumber, compares: compareGreater, wanted: "be greater than"},
	{
		name: "NumberLessThanOrEquals", operand: operandNumber, compares: compareLessOrEqual,
		wanted: "be less than or equal to",
	},
	{
		name: "NumberGreaterThanOrEquals", operand: operandNumber, compares: compareGreaterOrEqual,
		wanted: "be greater than or equal to",
	},
	{name: "NumberInRange", operand: operandRange, list: true, wanted: "be within one of"},
	{
		name: "NumberNotInRange", operand: operandRange, list: true, negated: true, ifMissing: true,
		wanted: "be within none of",
	},
	{name: "BoolEquals", operand: operandBool, wanted: "be"},
	{name: "StringContains", operand: operandText, compares: compareContains, list: true, wanted: "contain one of"},
	{
		name: "StringNotContains", operand: operandText, compares: compareContains, list: true, negated: true,
		wanted: "contain none of",
	},
	{name: "StringBeginsWith", operand: operandText, compares: compareBeginsWith, list: true, wanted: "begin with one of"},
	{
		name: "StringNotBeginsWith", operand: operandText, compares: compareBeginsWith, list: true, negated: true,
		wanted: "begin with none of",
	},
	{name: "StringEndsWith", operand: operandText, compares: compareEndsWith, list: true, wanted: "end with one of"},
	{
		name: "StringNotEndsWith", operand: operandText, compares: compareEndsWith, list: true, negated: true,
		wanted: "end with none of",
	},
	{name: "StringIn", operand: operandText, list: true, wanted: "be one of"},
	{name: "StringNotIn", operand: operandText, list: true, negated: true, ifMissing: true, wanted: "be none of"},
	{name: "IsNullOrUndefined", operand: operandNone, wanted: "be null or missing"},
	{name: "IsNotNull", operand: operandNone, negated: true, wanted: "be neither null nor missing"},
}

// Operators lists the operators that an advanced filter may name, in Event Grid's order.
func Operators() []string {
	names := make([]string, len(operators))
	for i := range operators {
		names[i] = operators[i].name
	}
	return names
}

// Arity is how many values an operator compares with.
type Arity uint8

// The arities of operators. A filter has one value in value, and many in values.
const (
	NoValue Arity = iota
	OneValue
	ManyValues
)

// ArityOf reports how many values the operator takes; false if there is no such operator.
func ArityOf(name string) (Arity, bool) {
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

// stated reports whether a property was said: null is as good as absent.
func stated(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] != 'n' }

// operands are the texts an operator compares with: those of a list, or the one of a single value.
func (a *AdvancedFilter) operands(op *operator) []json.RawMessage {
	switch {
	case op.list:
		return a.Values
	case stated(a.Value):
		return []json.RawMessage{a.Value}
	}
	return nil
}
