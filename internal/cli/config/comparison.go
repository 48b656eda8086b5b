package config

import (
	"errors"
	"fmt"
	"strings"
)

// comparison has Event Grid's operator for each type of value; "": there is none.
type comparison struct{ number, text, boolean, null string }

var (
	equal   = comparison{"NumberIn", "StringIn", "BoolEquals", "IsNullOrUndefined"}
	unequal = comparison{"NumberNotIn", "StringNotIn", "", "IsNotNull"}
)

// comparisons are by the signs of an advanced filter on the command line.
var comparisons = map[string]comparison{
	"=": equal, "==": equal, "!=": unequal, "<>": unequal,
	">": {number: "NumberGreaterThan"}, ">=": {number: "NumberGreaterThanOrEquals"},
	"<": {number: "NumberLessThan"}, "<=": {number: "NumberLessThanOrEquals"},
}

// eventGridOperator returns Event Grid's operator for a sign and values of one type, and the values that it takes.
func eventGridOperator(sign string, values []word) (string, []word, error) {
	if len(values) == 0 {
		return "", nil, errors.New(sign + " takes a value")
	}
	kind := values[0].kind()
	for _, v := range values {
		if v.kind() != kind {
			return "", nil, fmt.Errorf("%s takes values of one type, not the %s %s and the %s %s", sign, kind, values[0].text,
				v.kind(), v.text)
		}
	}
	c := comparisons[sign]
	operator := map[string]string{"number": c.number, "text": c.text, "boolean": c.boolean, "null": c.null}[kind]
	switch {
	case operator == "" && c == unequal:
		return "", nil, fmt.Errorf("%s does not compare booleans: use = with the other value", sign)
	case operator == "":
		return "", nil, fmt.Errorf("%s compares numbers, not %q", sign, values[0].text)
	case kind == "null":
		return operator, values[1:], nil
	}
	return operator, values, nil
}

// word is a part of a text on the command line.
type word struct {
	text   string
	quoted bool
}

// kind is the type of the word as a value: number, boolean, null or text, which is any other or a quoted word.
func (w word) kind() string {
	if w.quoted {
		return "text"
	}
	if _, err := jsonNumber(w.text); err == nil {
		return "number"
	}
	switch strings.ToLower(w.text) {
	case "true", "false":
		return "boolean"
	case "null":
		return "null"
	}
	return "text"
}
