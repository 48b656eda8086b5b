package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"postrider/internal/query"
	"postrider/server/openapi"
)

// DescribeFilters completes the flags that are members of a filter of package query: their help is the text of the
// parameter of the list, their placeholder the last word of its name, and other values than its choices are rejected.
// The help of an id is its text in the API, too. It is a kong.PostBuild.
func DescribeFilters(k *kong.Kong) error {
	for _, verb := range k.Model.Leaves(false) {
		for _, argument := range verb.Positional {
			if id, is := argument.Target.Interface().(interface{ describe() string }); is && argument.Help == "" {
				argument.Help = id.describe()
			}
		}
		path := ""
		for _, sibling := range verb.Parent.Children {
			if list, is := sibling.Target.Addr().Interface().(interface{ path() string }); is {
				path = list.path()
			}
		}
		for _, flag := range verb.Flags {
			name := flag.Tag.Get("query")
			if name == "" || path == "" {
				continue
			}
			flag.Help = openapi.ParameterText(path, name)
			words := strings.Split(query.ColumnOf(name), "_")
			flag.PlaceHolder = strings.ToUpper(words[len(words)-1])
			if _, isTime := flag.Target.Interface().(*time.Time); isTime {
				flag.PlaceHolder = "TIME"
				flag.Help = strings.TrimSuffix(flag.Help, ".") + ": 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z."
			}
			if flag.Tag.Negatable != "" {
				flag.Help = strings.Replace(flag.Help, "with false", "with --no-"+flag.Name, 1)
			}
			if choices := query.ChoicesByName(flag.Tag.Get("choices")); choices != nil {
				if shown := flag.Tag.Get("shown"); shown != "" {
					choices = append(slices.Clip(choices), "all")
					flag.Help = fmt.Sprintf("%s, or all (default: %s).", strings.TrimSuffix(flag.Help, "."), shown)
				}
				flag.Enum, flag.Mapper = ","+strings.Join(choices, ","), onlyThese(choices) // "" is absent
			}
		}
	}
	return nil
}

// onlyThese reads a word, and rejects others than these before kong does, whose error lists the absent word, too.
func onlyThese(words []string) kong.MapperFunc {
	return func(c *kong.DecodeContext, target reflect.Value) error {
		var word string
		if err := c.Scan.PopValueInto("word", &word); err != nil {
			return err
		}
		if word != "" && !slices.Contains(words, word) {
			return fmt.Errorf("must be one of %s, not %q", strings.Join(words, ", "), word)
		}
		if target.Kind() == reflect.Pointer {
			target.Set(reflect.ValueOf(&word))
			return nil
		}
		target.SetString(word)
		return nil
	}
}
