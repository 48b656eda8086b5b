package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/alecthomas/kong"

	"postrider/internal/catalog/spec"
	"postrider/internal/cli/rest"
	"postrider/internal/filter"
	"postrider/internal/terminal"
)

// TableFlags are command-line flags for a table of settings.
type TableFlags struct {
	kong.Plugins                 // one struct with a field for each flag
	settings     []*spec.Setting // of these fields
}

// NewTableFlags creates a flag for each setting with a flag name. group is the help group of flags that the Azure CLI
// does not have, unless they are those of destinations; "" for none.
func NewTableFlags(table []spec.Setting, group string) TableFlags {
	var f TableFlags
	var fields []reflect.StructField
	for i := range table {
		s := &table[i]
		if s.FlagName() == "" {
			continue
		}
		f.settings = append(f.settings, s)
		fields = append(fields, reflect.StructField{
			Name: "Flag" + strconv.Itoa(i), Type: flagType(s), Tag: flagTag(s, helpGroup(s, group)),
		})
	}
	f.Plugins = kong.Plugins{reflect.New(reflect.StructOf(fields)).Interface()}
	return f
}

// helpGroup is the heading that --help lists a flag under; "" is that of all verbs' flags.
func helpGroup(s *spec.Setting, group string) string {
	switch {
	case s.Azure:
		return ""
	case s.Section == spec.Destination:
		return "Destinations:"
	}
	return group
}

func flagType(s *spec.Setting) reflect.Type {
	_, repeated := syntaxes[s.Name]
	switch {
	case repeated || s.Kind == spec.Lines:
		return reflect.TypeFor[[]string]()
	case s.Kind == spec.List:
		return reflect.TypeFor[[]float64]()
	case s.Kind == spec.Whole:
		return reflect.TypeFor[*int64]()
	case s.Kind == spec.Number:
		return reflect.TypeFor[*float64]()
	case s.Kind == spec.Switch:
		return reflect.TypeFor[azBool]()
	}
	return reflect.TypeFor[*string]()
}

// flagTag is the tag of the flag's field for kong.
func flagTag(s *spec.Setting, group string) reflect.StructTag {
	help, separator := s.Text(), ""
	if limits := s.Limits(); limits != "" {
		help += " " + strings.ToUpper(limits[:1]) + limits[1:] + "."
	}
	if syntax, has := syntaxes[s.Name]; has {
		help, separator = help+" "+syntax.help, "none"
	}
	if readsFile(s) {
		help += " File; - reads it from standard input."
	}
	if s.Default != "" {
		help += " Default: " + s.Default + "."
	}
	var tag strings.Builder
	for _, item := range [][2]string{
		{"name", s.FlagName()},
		{"aliases", strings.Join(s.Aliases, ",")},
		{"help", help},
		{"group", group},
		{"placeholder", placeholder(s)},
		{"sep", separator},
	} {
		if item[1] != "" {
			fmt.Fprintf(&tag, "%s:%q ", item[0], item[1])
		}
	}
	return reflect.StructTag(strings.TrimSpace(tag.String()))
}

func placeholder(s *spec.Setting) string {
	switch {
	case readsFile(s):
		return "FILE"
	case s.Kind == spec.Choice:
		return strings.Join(s.Choices, "|")
	case s.Kind == spec.Switch:
		return "true|false"
	case strings.Contains(s.Example, " "):
		return "'" + s.Example + "'"
	case strings.HasPrefix(s.Example, "/"):
		return "ID"
	case s.Example != "":
		return s.Example
	case s.Kind == spec.Whole, s.Kind == spec.Number, s.Kind == spec.List:
		return "N"
	}
	return strings.ToUpper(string(s.Kind))
}

// readsFile reports whether the flag names a file with the value.
func readsFile(s *spec.Setting) bool {
	return s.Kind == spec.PEM || strings.HasSuffix(s.FlagName(), "-file")
}

// Settings returns the settings of the flags in the form of the REST API.
func (f *TableFlags) Settings(stdin io.Reader) (rest.Object, error) {
	settings, fields := rest.Object{}, reflect.ValueOf(f.Plugins[0]).Elem()
	for i, s := range f.settings {
		field := fields.Field(i)
		if field.IsZero() {
			continue
		}
		value, err := flagValue(stdin, s, field.Interface())
		if err != nil {
			return nil, terminal.Usagef("--%s: %v", s.FlagName(), err)
		}
		setAt(settings, s.Name, value)
	}
	return settings, nil
}

func flagValue(stdin io.Reader, s *spec.Setting, given any) (any, error) {
	switch v := given.(type) {
	case azBool:
		return *v.value, nil
	case []string:
		if syntax, has := syntaxes[s.Name]; has {
			var list []rest.Object
			for _, text := range v {
				entry, err := syntax.read(text)
				if err != nil {
					return nil, err
				}
				list = append(list, entry)
			}
			return list, nil
		}
		return v, nil
	case *string:
		return textValue(stdin, s, *v)
	}
	return reflect.Indirect(reflect.ValueOf(given)).Interface(), nil
}

func textValue(stdin io.Reader, s *spec.Setting, text string) (any, error) {
	switch {
	case readsFile(s):
		content, err := terminal.ReadFileOrInput(stdin, text)
		return strings.TrimRight(string(content), "\r\n"), err
	case s.Kind == spec.Choice:
		return anyCase(text, s.Choices), nil
	case s.Kind == spec.Time:
		return timeValue(text)
	case s.Kind == spec.JSON && !json.Valid([]byte(text)):
		return nil, errors.New("must be one JSON document")
	case s.Kind == spec.JSON:
		return json.RawMessage(text), nil
	}
	return text, nil
}

// anyCase returns the name that equals text except for letter case, or text, which the server then rejects.
func anyCase(text string, names []string) string {
	i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, text) })
	if i < 0 {
		return text
	}
	return names[i]
}

// timeValue reads a time, or a date as its beginning in UTC.
func timeValue(text string) (string, error) {
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateTime, time.DateOnly,
	} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC().Format(time.RFC3339), nil
		}
	}
	return "", fmt.Errorf("%q must be a date such as 2030-01-31, or a time such as 2030-01-31T12:00:00Z", text)
}

// setAt sets a value by its path, and creates the objects that contain it.
func setAt(o rest.Object, path string, value any) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		inner, ok := o[name].(rest.Object)
		if !ok {
			inner = rest.Object{}
			o[name] = inner
		}
		o = inner
	}
	o[names[len(names)-1]] = value
}

// azBool is true, false or nil. As in the Azure CLI, the flag alone is true.
type azBool struct{ value *bool }

// Decode implements kong.MapperValue: the next word is the flag's value if it is one.
func (b *azBool) Decode(ctx *kong.DecodeContext) error {
	yes := true
	if token := ctx.Scan.Peek(); token.Type == kong.FlagValueToken || token.IsValue() {
		given, err := strconv.ParseBool(strings.ToLower(fmt.Sprint(token.Value)))
		switch {
		case err == nil:
			ctx.Scan.Pop()
			yes = given
		case token.Type == kong.FlagValueToken:
			return errors.New("must be true or false")
		}
	}
	b.value = &yes
	return nil
}

// syntax is the command-line form of a setting that is a list of objects: one in each argument.
type syntax struct {
	read func(text string) (rest.Object, error)
	help string
}

// syntaxes are by the name of the setting. The Azure CLI separates the words of an entry in the same way.
var syntaxes = map[string]syntax{
	"filter.advancedFilters": {
		advancedFilter,
		"One condition: key, operator and values, such as 'data.total > 100'. The operator is Event Grid's, or one of = != " +
			"> >= < <=. In one argument, quote a value that has spaces.",
	},
	"deliveryAttributeMappings": {
		attributeMapping,
		"One header: NAME static VALUE [true], true for a secret, or NAME dynamic PATH.",
	},
}

// advancedFilter reads "KEY OPERATOR VALUE …". The operator may be a sign of comparisons.
func advancedFilter(text string) (rest.Object, error) {
	clause, err := readClause(text)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", strings.ReplaceAll(text, wordSeparator, " "), err)
	}
	return clause, nil
}

func readClause(text string) (rest.Object, error) {
	parts, err := splitQuoted(text)
	if err != nil {
		return nil, err
	}
	if len(parts) < 2 {
		return nil, errors.New("must be a key, an operator and its values, such as 'data.total > 100' or " +
			"'data.total NumberGreaterThan 100'")
	}
	clause, operator, values := rest.Object{"key": parts[0].text}, parts[1].text, parts[2:]
	if _, sign := comparisons[operator]; sign {
		operator, values, err = eventGridOperator(operator, values)
	}
	if err != nil {
		return nil, err
	}
	return clause, addOperator(clause, anyCase(operator, filter.Operators()), values)
}

func addOperator(clause rest.Object, operator string, given []word) error {
	takes, known := filter.ArityOf(operator)
	if !known {
		return fmt.Errorf("unknown operator %s: must be one of = != > >= < <= %s", operator,
			strings.Join(filter.Operators(), ", "))
	}
	values := make([]any, len(given))
	for i, w := range given {
		var err error
		if values[i], err = filterValue(operator, w.text); err != nil {
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

// jsonNumber returns a number of JSON with all its digits. It rejects text such as 007.
func jsonNumber(text string) (json.Number, error) {
	var n json.Number
	if strings.HasPrefix(text, `"`) || json.Unmarshal([]byte(text), &n) != nil || n == "" {
		return "", errors.New("not a number")
	}
	return n, nil
}

// splitQuoted splits a text at spaces. Text in single or double quotation marks is one word. Words that SpacedLists has
// joined are as they were given.
func splitQuoted(text string) (words []word, err error) {
	if strings.Contains(text, wordSeparator) {
		for part := range strings.SplitSeq(text, wordSeparator) {
			words = append(words, word{text: part})
		}
		return words, nil
	}
	var part strings.Builder
	inWord, quoted, quote := false, false, rune(0)
	for _, r := range text + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\'') && !inWord:
			quote, inWord, quoted = r, true, true
		case quote == 0 && unicode.IsSpace(r):
			if inWord {
				words = append(words, word{part.String(), quoted})
			}
			part.Reset()
			inWord, quoted = false, false
		default:
			part.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a quotation mark %c is not closed", quote)
	}
	return words, nil
}

// attributeMapping reads a header. Its errors omit the text, which may contain a secret.
func attributeMapping(text string) (rest.Object, error) {
	parts, err := splitQuoted(text)
	if err != nil {
		return nil, err
	}
	dynamic := len(parts) == 3 && strings.EqualFold(parts[1].text, "dynamic")
	static := (len(parts) == 3 || len(parts) == 4) && strings.EqualFold(parts[1].text, "static")
	secret := false
	if static && len(parts) == 4 {
		secret, err = strconv.ParseBool(strings.ToLower(parts[3].text))
	}
	if err != nil || !static && !dynamic {
		return nil, errors.New("must be 'NAME static VALUE', 'NAME static VALUE true' for a secret, or 'NAME dynamic PATH'")
	}
	properties := rest.Object{"sourceField": parts[2].text}
	if static {
		properties = rest.Object{"value": parts[2].text, "isSecret": secret}
	}
	return rest.Object{
		"name": parts[0].text, "type": terminal.Either(static, "Static", "Dynamic"), "properties": properties,
	}, nil
}

// deadLettersTo returns the dead letter destination of --deadletter-endpoint.
func deadLettersTo(where string) rest.Object {
	switch {
	case strings.EqualFold(where, "rows"):
		return rest.Object{"endpointType": "Rows"}
	case strings.EqualFold(where, "none"):
		return rest.Object{"endpointType": "None"}
	case strings.HasPrefix(where, "/"): // a resource id, as in the Azure CLI
		return rest.Object{"endpointType": "StorageBlob", "properties": rest.Object{"resourceId": where}}
	}
	return rest.Object{"endpointType": "Blob", "properties": rest.Object{"url": where}}
}
