package form

import (
	"encoding/json"
	"strings"

	"postrider/internal/filter"
)

// OperandText writes an operand for its line: a range without brackets.
func OperandText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && value[0] == '"' {
		return LineOf(text)
	}
	return strings.Trim(string(value), "[]")
}

// AdvancedFilter reads a condition, whose fields begin with at. Its operator decides the type of its values.
func (f *Input) AdvancedFilter(at string) filter.AdvancedFilter {
	a := filter.AdvancedFilter{OperatorType: f.Get(at + "operatorType"), Key: f.Get(at + "key")}
	begins := func(prefix string) bool { return strings.HasPrefix(a.OperatorType, prefix) }
	for _, line := range f.Lines(at + "value") {
		operand := operandOf(line)
		if begins("String") || begins("Is") {
			operand = TextJSON(line)
		}
		a.Values = append(a.Values, operand)
	}
	if len(a.Values) == 1 && (begins("Bool") || begins("NumberLess") || begins("NumberGreater")) {
		a.Value, a.Values = a.Values[0], nil
	}
	return a
}

// operandOf reads a number, a boolean or a range.
func operandOf(line string) json.RawMessage {
	if line == "true" || line == "false" {
		return json.RawMessage(line)
	}
	if pair := "[" + strings.Trim(line, "[] ") + "]"; strings.Contains(line, ",") && json.Valid([]byte(pair)) {
		return json.RawMessage(pair)
	}
	return NumberOf(line)
}
