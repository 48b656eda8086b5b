package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"postrider/internal/jsonscan"
)

// Condition is a condition on a field of dead letters.
type Condition struct {
	// A path in the data such as `data.order.id`, or subject, type, id, source, error, response, text (error or response).
	Field string `json:"field"`
	// Operator; `~` is a regular expression, `:` a part of the text, or of the JSON if `value` is one.
	Op string `json:"op" enum:"=,!=,<,<=,>,>=,~,!~,:"`
	// A text; for a field of the data any JSON value.
	Value json.RawMessage `json:"value"`
	// at is the character of a search, from 1, at which the value begins; 0 for other conditions.
	at int
}

// String writes the condition as ParseSearch reads it.
func (c Condition) String() string {
	value, text := string(c.Value), ""
	if json.Unmarshal(c.Value, &text) == nil && value != "null" {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
	}
	if c.Field == textField && c.Op == ":" {
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
var dataField = regexp.MustCompile(`^data(\.("([^"\\[:cntrl:]]|\\["\\])+"|[^."\\\s\pZ[:cntrl:]=!<>~:]+))*`)

// operators are those of a condition; a longer one comes before its beginning.
var operators = []string{"!=", "!~", "<=", ">=", "=", "<", ">", "~", ":"}

// operatorRun is an operator, or one of another language, at the beginning of a text.
var operatorRun = regexp.MustCompile(`^[=!<>~:&|]+`)

// otherOperators are operators of other languages, and what to use instead.
var otherOperators = map[string]string{
	"==": "=", "===": "=", "!==": "!=", "<>": "!=", "=~": "~", "=<": "<=", "=>": ">=", "!:": "!~",
}

// connective is an operator of other languages between conditions.
var connective = regexp.MustCompile(`&&|\|\|`)

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
	var items []searchItem
	for s.skipSpace(); s.at < len(text); s.skipSpace() {
		item, err := s.item()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return s.conditions(items)
}

// searchItem is a condition, or a word without a field.
type searchItem struct {
	Condition
	word  string // "" for a condition and for a quoted text
	begin int
}

// conditions returns the items without AND. AND, OR and NOT are operators; and, or and not only in a search with a
// field: without one, they are words of an error.
func (s *search) conditions(items []searchItem) (list []Condition, err error) {
	withField := slices.ContainsFunc(items, func(i searchItem) bool { return i.Field != textField })
	for _, item := range items {
		upper := strings.ToUpper(item.word)
		operator := withField || item.word == upper
		switch {
		case operator && upper == "AND":
			continue
		case operator && (upper == "OR" || upper == "NOT"):
			return nil, s.wrong(item.begin, "%s is not supported: all conditions must match. To search for the word, quote it",
				item.word)
		case len(list) == maxConditions:
			return nil, s.wrong(item.begin, "a search has at most %d conditions", maxConditions)
		}
		list = append(list, item.Condition)
	}
	if list == nil && items != nil {
		return nil, s.wrong(items[0].begin, "%s has no conditions around it", items[0].word)
	}
	return list, nil
}

// search is a text and how far it is parsed.
type search struct {
	text string
	at   int
}

func (s *search) wrong(at int, format string, args ...any) error {
	return &SearchError{s.character(at), fmt.Sprintf(format, args...)}
}

// character is the character, from 1, at a byte.
func (s *search) character(at int) int { return utf8.RuneCountInString(s.text[:at]) + 1 }

func (s *search) rest() string { return s.text[s.at:] }

func (s *search) skipSpace() {
	s.at = len(s.text) - len(strings.TrimLeftFunc(s.rest(), unicode.IsSpace))
}

// operator reads an operator after white space, and what looks like a longer one; "" and nothing read if there is none.
func (s *search) operator() string {
	begin := s.at
	s.skipSpace()
	if !slices.ContainsFunc(operators, func(op string) bool { return strings.HasPrefix(s.rest(), op) }) {
		s.at = begin
		return ""
	}
	op := operatorRun.FindString(s.rest())
	s.at += len(op)
	return op
}

// item reads one condition, or a word or quoted text.
func (s *search) item() (item searchItem, err error) {
	begin := s.at
	if s.text[begin] == '"' {
		value, err := s.quoted()
		return s.textItem(begin, "", value), err
	}
	s.at += len(dataField.FindString(s.rest()))
	for s.at < len(s.text) && !unicode.IsSpace(s.rune()) {
		if at := *s; at.operator() != "" {
			break
		}
		s.at += utf8.RuneLen(s.rune())
	}
	field := s.text[begin:s.at]
	op := s.operator()
	inData := dataField.FindString(field) == field
	switch {
	case op != "" && field == "":
		return item, s.wrong(begin, "%s has no field before it", op)
	case op != "" && !inData && !slices.Contains(searchFields, field):
		return item, s.wrong(begin, "%q is not a field; fields are data.<path>, %s. To search for a text, quote it",
			field, strings.Join(searchFields, ", "))
	case op != "":
		item.Condition, err = s.comparison(field, op)
		return item, err
	case inData && strings.HasPrefix(field, "data."):
		return item, s.wrong(s.at, "%s has no operator after it; operators are %s. To search for a text, quote it", field,
			strings.Join(operators, " "))
	}
	s.at = begin
	word, err := s.plain()
	return s.textItem(begin, word, word), err
}

// textField is the field of a word.
const textField = "text"

func (s *search) textItem(begin int, word, value string) searchItem {
	return searchItem{Condition{textField, ":", jsonText(value), s.character(begin)}, word, begin}
}

// plain reads a text without quotes, up to white space. An operator of another language in it would match nothing.
func (s *search) plain() (string, error) {
	begin := s.at
	for s.at < len(s.text) && !unicode.IsSpace(s.rune()) {
		s.at += utf8.RuneLen(s.rune())
	}
	text := s.text[begin:s.at]
	if at := connective.FindStringIndex(text); at != nil {
		return "", s.wrong(begin+at[0], "%s is not supported: all conditions must match. To search for a text, quote it",
			text[at[0]:at[1]])
	}
	if op := operatorRun.FindString(text); op != "" {
		return "", s.wrong(begin, "a text must not begin with the operator %s; to search for a text, quote it", op)
	}
	if text[0] == '\'' {
		return "", s.wrong(begin, "a text is quoted with \", not with '")
	}
	return text, nil
}

func (s *search) rune() rune {
	r, _ := utf8.DecodeRuneInString(s.rest())
	return r
}

// comparison reads the value of a condition.
func (s *search) comparison(field, op string) (c Condition, err error) {
	if !slices.Contains(operators, op) {
		instead := "operators are " + strings.Join(operators, " ") + ". To search for a text, quote it"
		if other, ok := otherOperators[op]; ok {
			instead = "use " + other
		}
		return c, s.wrong(s.at-len(op), "%s is not an operator; %s", op, instead)
	}
	s.skipSpace()
	begin, inData := s.at, strings.HasPrefix(field, "data")
	c = Condition{Field: field, Op: op, at: s.character(begin)}
	switch {
	case s.rest() == "":
		return c, s.wrong(begin, "%s %s has no value after it", field, op)
	case s.text[begin] == '"':
		value, err := s.quoted()
		c.Value = jsonText(value)
		return c, err
	case inData && strings.ContainsRune("{[", rune(s.text[begin])):
		c.Value, err = s.document()
		return c, err
	}
	value, err := s.plain()
	if err != nil {
		return c, err
	}
	if inData && op != "~" && op != "!~" && json.Valid([]byte(value)) { // a number, true, false or null
		c.Value = json.RawMessage(value)
		return c, s.storable(begin)
	}
	c.Value = jsonText(value)
	return c, nil
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
	begin := s.at
	s.at += int(decoder.InputOffset())
	return value, s.storable(begin)
}

// scalar is a string or a number of a JSON text.
var scalar = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*`)

// storable returns an error if PostgreSQL cannot hold a string or a number of the JSON text from begin to here.
func (s *search) storable(begin int) error {
	text := s.text[begin:s.at]
	for _, at := range scalar.FindAllStringIndex(text, -1) {
		value := text[at[0]:at[1]]
		if value[0] != '"' {
			if !storableNumber(value) {
				return s.wrong(begin+at[0], "a number has at most 131072 digits before the decimal point and 16383 after it")
			}
			continue
		}
		decoded, lone := jsonscan.Unescape([]byte(value[1 : len(value)-1]))
		if lone || slices.Contains(decoded, 0) {
			return s.wrong(begin+at[0], "a string must not have the character 0 or a lone surrogate")
		}
	}
	return nil
}

// storableNumber reports whether PostgreSQL's numeric can hold a JSON number with the zeros that its exponent stands
// for.
func storableNumber(text string) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	n, err := strconv.Atoi(cmp.Or(exponent, "0"))
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(mantissa, "-"), ".")
	return err == nil && len(whole)+n <= 131072 && len(fraction)-n <= 16383
}

// jsonText writes a text as JSON.
func jsonText(text string) json.RawMessage {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // impossible: a string
	}
	return quoted
}
