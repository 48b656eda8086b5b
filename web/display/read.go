package display

import (
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/internal/query"
)

// Read reads the parameters of a page into the filter of a list, a pointer to a struct of package query. Each field
// with the tag query is a parameter, and a field of the form if it has the tag label. The tag sql is its condition on
// the view, by default that the column of its name is equal; sqluuid is the condition if the value is a UUID. A time
// span has two fields: publishedFrom begins that of the column published_at.
func (f *Filter) Read(filter any, now time.Time) {
	v := reflect.ValueOf(filter).Elem()
	var until *time.Time // of the span whose beginning was read
	for _, field := range reflect.VisibleFields(v.Type()) {
		name, is := field.Tag.Lookup("query")
		if !is {
			continue
		}
		label, condition := field.Tag.Get("label"), field.Tag.Get("sql")
		if condition == "" {
			condition = query.ColumnOf(name) + " = ?"
		}
		switch target := v.FieldByIndex(field.Index).Addr().Interface().(type) {
		case *string:
			*target = f.words(field.Tag, label, name, condition)
		case **string:
			if text := f.words(field.Tag, label, name, condition); text != "" {
				*target = &text
			}
		case *bool:
			*target = f.Check(label, name, condition)
		case **bool:
			if text := f.OneOf(label, name, condition, []string{"true", "false"}, ""); text != "" {
				*target = new(text == "true")
			}
		case **int:
			if n := f.Number(label, name, condition); n != nil {
				*target = new(int(min(*n, math.MaxInt32)))
			}
		case **uuid.UUID:
			if text := f.Text(label, name, condition); text != "" {
				id, err := uuid.Parse(text)
				if err != nil {
					f.Reject(name)
				}
				*target = &id
			}
		case **time.Time:
			*target = until
			if of, begins := strings.CutSuffix(strings.ToLower(query.ColumnOf(name)), "from"); begins {
				*target, until = f.Span(of+"at", now)
			}
		}
	}
}

// words reads a text of a filter, which may have a list of values.
func (f *Filter) words(tag reflect.StructTag, label, name, condition string) string {
	if example := tag.Get("example"); example != "" {
		return f.Search(label, name, example)
	}
	if shown := query.ShownOf(tag); shown != "" {
		return f.Group(name, condition, query.ChoicesOf(tag), shown)
	}
	if words := query.ChoicesOf(tag); words != nil {
		return f.OneOf(label, name, condition, words, "")
	}
	if words := query.SuggestionsOf(tag); words != nil {
		return f.Suggest(label, name, condition, words)
	}
	value := f.values.Get(name)
	if byID := tag.Get("sqluuid"); byID != "" && uuid.Validate(value) == nil {
		condition = byID
	}
	if !strings.HasPrefix(name, "subject") && name != "eventId" { // white space is a part of these
		value = strings.TrimSpace(value)
	}
	return f.text(label, name, condition, value)
}
