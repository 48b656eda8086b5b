package query

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Condition is one of the conditions of DeadLetterFilter.Match: a field, an operator and a value.
type Condition struct {
	Field string          `json:"field"`
	Op    string          `json:"op" enum:"=,!=,<,<=,>,>=,~,!~,:"`
	Value json.RawMessage `json:"value"`
}

// String writes the condition as ParseSearch reads it.
func (c Condition) String() string {
	value, text := string(c.Value), ""
	if json.Unmarshal(c.Value, &text) == nil && value != "null" {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	}
	if c.Field == "text" && c.Op == ":" {
		return value
	}
	return c.Field + " " + c.Op + " " + value
}

// SearchError is a mistake in the text of a search.
type SearchError struct {
	// Position is the character, from 1, at which the mistake is.
	Position int
	Message  string
}

// Error returns the position, the mistake and an example.
func (e *SearchError) Error() string {
	return fmt.Sprintf("at character %d: %s; for example: %s", e.Position, e.Message, SearchExample)
}

// SearchExample is a search with each kind of condition.
const SearchExample = `data.order.id = 42 error ~ "currency" refund`

const (
	maxSearch     = 4096 // bytes
	maxConditions = 20
)

// searchFields are the fields besides data.<path>.
var searchFields = []string{"subject", "type", "id", "source", "error", "response", "text"}

// dataField is a field data.<path> at the beginning of a text.
var dataField = regexp.MustCompile(`^data(\.("([^"\\[:cntrl:]]|\\["\\])+"|[^."\\\s[:cntrl:]=!<>~:]+))*`)

// operators are those of a condition; a longer one comes before its beginning.
var operators = []string{"!=", "!~", "<=", ">=", "=", "<", ">", "~", ":"}

// ParseSearch parses the text of a search: conditions such as data.order.id = 42, and words, which are part of the last
// error or response. All must match. *SearchError.
func ParseSearch(text string) ([]Condition, error) {
	s := search{text: text}
	switch {
	case len(text) > maxSearch:
		return nil, s.wrong(maxSearch, "a search has at most %d bytes", maxSearch)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return nil, s.wrong(0, "a search must be UTF-8 without the character 0")
	}
	var list []Condition
	for s.skipSpace(); s.at < len(text); s.skipSpace() {
		if len(list) == maxConditions {
			return nil, s.wrong(s.at, "a search has at most %d conditions", maxConditions)
		}
		c, err := s.condition()
		if err != nil {
			return nil, err
		}
		if c != nil {
			list = append(list, *c)
		}
	}
	return list, nil
}

// search is a text and how far it is parsed.
type search struct {
	text string
	at   int
}

func (s *search) wrong(at int, format string, args ...any) error {
	return &SearchError{utf8.RuneCountInString(s.text[:at]) + 1, fmt.Sprintf(format, args...)}
}

func (s *search) rest() string { return s.text[s.at:] }

func (s *search) skipSpace() {
	s.at = len(s.text) - len(strings.TrimLeftFunc(s.rest(), unicode.IsSpace))
}

// operator reads an operator after white space; "" and nothing read if there is none.
func (s *search) operator() string {
	begin := s.at
	s.skipSpace()
	for _, op := range operators {
		if strings.HasPrefix(s.rest(), op) {
			s.at += len(op)
			return op
		}
	}
	s.at = begin
	return ""
}

// condition reads one condition, or a word or quoted text. It returns nil for AND.
func (s *search) condition() (*Condition, error) {
	begin := s.at
	if s.text[begin] == '"' {
		value, err := s.quoted()
		if err != nil {
			return nil, err
		}
		return &Condition{"text", ":", jsonText(value)}, nil
	}
	s.at += len(dataField.FindString(s.rest()))
	s.word()
	field := s.text[begin:s.at]
	op := s.operator()
	known := dataField.FindString(field) == field || slices.Contains(searchFields, field)
	switch {
	case op != "" && field == "":
		return nil, s.wrong(begin, "%s has no field before it", op)
	case op != "" && !known:
		return nil, s.wrong(begin, "%q is not a field; fields are data.<path>, %s. To search for a text, quote it",
			field, strings.Join(searchFields, ", "))
	case op != "":
		return s.comparison(field, op)
	}
	s.at = begin
	for s.at < len(s.text) && !unicode.IsSpace(s.rune()) {
		s.at += utf8.RuneLen(s.rune())
	}
	switch word := s.text[begin:s.at]; word {
	case "AND":
		return nil, nil
	case "OR", "NOT":
		return nil, s.wrong(begin, "%s is not supported: all conditions must match. To search for the word, quote it", word)
	default:
		return &Condition{"text", ":", jsonText(word)}, nil
	}
}

func (s *search) rune() rune {
	r, _ := utf8.DecodeRuneInString(s.rest())
	return r
}

// word reads up to white space or an operator.
func (s *search) word() {
	for s.at < len(s.text) && !unicode.IsSpace(s.rune()) {
		if at := *s; at.operator() != "" {
			break
		}
		s.at += utf8.RuneLen(s.rune())
	}
}

// comparison reads the value of a condition.
func (s *search) comparison(field, op string) (*Condition, error) {
	s.skipSpace()
	begin, isData := s.at, strings.HasPrefix(field, "data")
	switch {
	case s.rest() == "":
		return nil, s.wrong(begin, "%s %s has no value after it", field, op)
	case s.text[begin] == '"':
		value, err := s.quoted()
		return &Condition{field, op, jsonText(value)}, err
	case isData && strings.ContainsRune("{[", rune(s.text[begin])):
		value, err := s.document()
		return &Condition{field, op, value}, err
	}
	for s.at < len(s.text) && !unicode.IsSpace(s.rune()) {
		s.at += utf8.RuneLen(s.rune())
	}
	value := s.text[begin:s.at]
	if isData && op != "~" && op != "!~" && json.Valid([]byte(value)) { // a number, true, false or null
		return &Condition{field, op, json.RawMessage(value)}, nil
	}
	return &Condition{field, op, jsonText(value)}, nil
}

// quoted reads a text in double quotes. A backslash escapes only a quote or a backslash, so that regular expressions
// keep theirs.
func (s *search) quoted() (string, error) {
	begin := s.at
	var value strings.Builder
	for s.at++; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		if c == '"' {
			s.at++
			return value.String(), nil
		}
		if c == '\\' && s.at+1 < len(s.text) && strings.ContainsRune(`"\`, rune(s.text[s.at+1])) {
			s.at++
			c = s.text[s.at]
		}
		value.WriteByte(c)
	}
	return "", s.wrong(begin, "the quote does not end")
}

// document reads a JSON object or array.
func (s *search) document() (value json.RawMessage, err error) {
	decoder := json.NewDecoder(strings.NewReader(s.rest()))
	if err := decoder.Decode(&value); err != nil {
		return nil, s.wrong(s.at, "the JSON value is not valid")
	}
	s.at += int(decoder.InputOffset())
	return value, nil
}

// jsonText writes a text as JSON.
func jsonText(text string) json.RawMessage {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // impossible: a string
	}
	return quoted
}
