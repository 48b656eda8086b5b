package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/policy/filter"
)

// syntax is how a setting with its own form is written on the command line: one entry in each argument.
type syntax struct {
	read func(text string) (rest.Object, error)
	help string
}

// syntaxes are by the name of the setting. The Azure CLI separates the words of an entry alike.
var syntaxes = map[string]syntax{
	"filter.advancedFilters": {
		advancedFilter, "One condition in one argument: key, operator and values. Quote a value that has spaces.",
	},
	"deliveryAttributeMappings": {
		attributeMapping,
		"One header in one argument: 'NAME static VALUE [true]', true for a secret, or 'NAME dynamic PATH'.",
	},
}

func readEach(texts []string, read func(string) (rest.Object, error)) (list []rest.Object, err error) {
	for _, text := range texts {
		entry, err := read(text)
		if err != nil {
			return nil, err
		}
		list = append(list, entry)
	}
	return list, nil
}

// advancedFilter reads "KEY OPERATOR VALUE …".
func advancedFilter(text string) (clause rest.Object, err error) {
	parts, err := splitQuoted(text)
	if err == nil && len(parts) < 2 {
		err = errors.New("must be a key, an operator and its values, such as 'data.total NumberGreaterThan 100'")
	}
	if err == nil {
		clause = rest.Object{"key": parts[0]}
		err = addOperator(clause, anyCase(parts[1], filter.Operators()), parts[2:])
	}
	if err != nil {
		return nil, fmt.Errorf("%q: %w", text, err)
	}
	return clause, nil
}

func addOperator(clause rest.Object, operator string, given []string) error {
	takes, known := filter.ArityOf(operator)
	if !known {
		return fmt.Errorf("there is no operator %s: they are %s", operator, strings.Join(filter.Operators(), ", "))
	}
	values := make([]any, len(given))
	for i, text := range given {
		var err error
		if values[i], err = filterValue(operator, text); err != nil {
			return err
		}
	}
	clause["operatorType"] = operator
	switch {
	case takes == filter.NoValue && len(given) > 0:
		return fmt.Errorf("%s takes no value", operator)
	case takes == filter.OneValue && len(given) != 1:
		return fmt.Errorf("%s takes one value, not %d", operator, len(given))
	case takes == filter.ManyValues && len(given) == 0:
		return fmt.Errorf("%s takes at least one value", operator)
	case takes == filter.OneValue:
		clause["value"] = values[0]
	case takes == filter.ManyValues:
		clause["values"] = values
	}
	return nil
}

func filterValue(operator, text string) (any, error) {
	switch {
	case operator == "BoolEquals":
		yes, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return nil, fmt.Errorf("%s takes true or false, not %q", operator, text)
		}
		return yes, nil
	case strings.HasSuffix(operator, "InRange"):
		low, high, _ := strings.Cut(text, ",")
		from, err1 := jsonNumber(low)
		to, err2 := jsonNumber(high)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%s takes ranges such as 1,10, not %q", operator, text)
		}
		return []json.Number{from, to}, nil
	case strings.HasPrefix(operator, "Number"):
		n, err := jsonNumber(text)
		if err != nil {
			return nil, fmt.Errorf("%s takes numbers, not %q", operator, text)
		}
		return n, nil
	}
	return text, nil
}

// errNoNumber is for text that looks like a number and is none in JSON, such as 007.
var errNoNumber = errors.New("no number")

// jsonNumber is text as a number, with all its digits.
func jsonNumber(text string) (json.Number, error) {
	var n json.Number
	if strings.HasPrefix(text, `"`) || json.Unmarshal([]byte(text), &n) != nil || n == "" {
		return "", errNoNumber
	}
	return n, nil
}

// splitQuoted splits at spaces. Text between two quotation marks, single or double, is one word.
func splitQuoted(text string) (words []string, err error) {
	var word strings.Builder
	inWord, quote := false, rune(0)
	for _, r := range text {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case (r == '"' || r == '\'') && !inWord:
			quote, inWord = r, true
		case unicode.IsSpace(r):
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quotation mark %c is not closed", quote)
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// attributeMapping reads a header. Its errors leave out the text, which may hold a secret.
func attributeMapping(text string) (rest.Object, error) {
	parts, err := splitQuoted(text)
	if err != nil {
		return nil, err
	}
	dynamic := len(parts) == 3 && strings.EqualFold(parts[1], "dynamic")
	static := (len(parts) == 3 || len(parts) == 4) && strings.EqualFold(parts[1], "static")
	secret := false
	if static && len(parts) == 4 {
		secret, err = strconv.ParseBool(strings.ToLower(parts[3]))
	}
	if err != nil || !static && !dynamic {
		return nil, errors.New("must be 'NAME static VALUE', 'NAME static VALUE true' for a secret, or 'NAME dynamic PATH'")
	}
	properties := rest.Object{"sourceField": parts[2]}
	if static {
		properties = rest.Object{"value": parts[2], "isSecret": secret}
	}
	return rest.Object{
		"name": parts[0], "type": terminal.Either(static, "Static", "Dynamic"), "properties": properties,
	}, nil
}

// deadLettersTo is a destination as --deadletter-endpoint names it.
func deadLettersTo(where string) rest.Object {
	switch {
	case strings.EqualFold(where, "rows"):
		return rest.Object{"endpointType": "Rows"}
	case strings.EqualFold(where, "none"):
		return rest.Object{"endpointType": "None"}
	case strings.HasPrefix(where, "/"): // a resource id, as the Azure CLI takes it
		return rest.Object{"endpointType": "StorageBlob", "properties": rest.Object{"resourceId": where}}
	}
	return rest.Object{"endpointType": "Blob", "properties": rest.Object{"url": where}}
}
