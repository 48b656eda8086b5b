package management

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"postrider/catalog/spec"
	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// TableFlags are command-line flags for the settings of a table.
type TableFlags struct {
	kong.Plugins                 // one struct with a field for each flag
	settings     []*spec.Setting // of these fields
}

// NewTableFlags creates a flag for each setting that has one. group is the help group of flags that the Azure CLI does
// not have; "" for none.
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
			Name: "Flag" + strconv.Itoa(i), Type: flagType(s), Tag: flagTag(s, terminal.Either(s.Azure, "", group)),
		})
	}
	f.Plugins = kong.Plugins{reflect.New(reflect.StructOf(fields)).Interface()}
	return f
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

// flagTag is the tag of the flag's field, as kong reads it.
func flagTag(s *spec.Setting, group string) reflect.StructTag {
	help, separator := s.Help, ""
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

// Settings are the settings that were given, as the REST API takes them.
func (f *TableFlags) Settings() (rest.Object, error) {
	settings, fields := rest.Object{}, reflect.ValueOf(f.Plugins[0]).Elem()
	for i, s := range f.settings {
		field := fields.Field(i)
		if field.IsZero() {
			continue
		}
		value, err := flagValue(s, field.Interface())
		if err != nil {
			return nil, terminal.Usagef("--%s: %v", s.FlagName(), err)
		}
		setAt(settings, s.Name, value)
	}
	return settings, nil
}

func flagValue(s *spec.Setting, given any) (any, error) {
	switch v := given.(type) {
	case azBool:
		return *v.value, nil
	case []string:
		if syntax, has := syntaxes[s.Name]; has {
			return readEach(v, syntax.read)
		}
		return v, nil
	case *string:
		return textValue(s, *v)
	}
	return reflect.Indirect(reflect.ValueOf(given)).Interface(), nil
}

func textValue(s *spec.Setting, text string) (any, error) {
	switch {
	case readsFile(s):
		content, err := terminal.ReadFileOrInput(text)
		return strings.TrimRight(string(content), "\r\n"), err
	case s.Kind == spec.Choice:
		return anyCase(text, s.Choices), nil
	case s.Kind == spec.Time:
		return timeValue(text)
	case s.Kind == spec.JSON && !json.Valid([]byte(text)):
		return nil, errors.New("not one JSON document")
	case s.Kind == spec.JSON:
		return json.RawMessage(text), nil
	}
	return text, nil
}

// anyCase is the one of names that differs from text in letter case only, or text, which the server then rejects.
func anyCase(text string, names []string) string {
	i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, text) })
	if i < 0 {
		return text
	}
	return names[i]
}

// timeValue takes a date as well: its beginning in UTC.
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

// setAt sets a value by its path, and creates the objects around it.
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

// azBool is true, false or not given. As in the Azure CLI, the flag alone is true.
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
