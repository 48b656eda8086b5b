package query

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Column is a column of a list, which the tags of a field of the list's rows declare:
//   - column is its label. The field's name in JSON names it in the API and, with underscores, in SQL and in pages.
//   - line is the label of a value that only the verb show prints.
//   - title replaces the label on the command line.
//   - class are the CSS classes. A "long" text is cut at the end of its column, which is wider for a "wide" one. A
//     "number" is aligned to its right. A "spare" column is left out on a phone. By default, UUIDs are long.
//   - off has it left out unless the user chooses it: in lists of pages, of the command line (cli), or everywhere ("").
//   - in is the column in whose cell pages show it; SQL and the command line have it as a separate column.
//   - none is the text of an absent value.
//   - sql is the expression for a value that the documented view does not have.
//   - list, beside column, is the path of the list in the REST API. The field identifies a row.
type Column struct {
	Key, Member         string // in SQL and pages; in JSON, "" if the API does not have it
	Label, Title, Class string
	In, None            string
	SQL                 string
	OffPages, OffCLI    bool
	// Line: only show prints it.
	Line  bool
	Index []int // of the field
}

// ColumnsOf returns the columns of a list with rows of a struct type, in the order of the fields.
func ColumnsOf(row reflect.Type) (columns []Column) {
	for _, field := range reflect.VisibleFields(row) {
		label, is := field.Tag.Lookup("column")
		line, isLine := field.Tag.Lookup("line")
		if !is && !isLine {
			continue
		}
		c := Column{
			Label: cmp.Or(label, line), In: field.Tag.Get("in"), None: field.Tag.Get("none"), Line: isLine,
			Index: field.Index,
		}
		c.Member, _, _ = strings.Cut(field.Tag.Get("json"), ",")
		c.Member = strings.TrimPrefix(c.Member, "-")
		c.Key = ColumnOf(cmp.Or(c.Member, strings.NewReplacer("ID", "Id", "URL", "Url").Replace(field.Name)))
		c.Key = strings.TrimPrefix(c.Key, "_")
		c.SQL = cmp.Or(field.Tag.Get("sql"), c.Key)
		c.Title = cmp.Or(field.Tag.Get("title"), strings.ToUpper(c.Label))
		off, isOff := field.Tag.Lookup("off")
		c.OffPages, c.OffCLI = isOff && off != "cli", isOff && off != "pages"
		if c.Class, is = field.Tag.Lookup("class"); !is {
			c.Class = classOf(field.Type, c.Key)
		}
		columns = append(columns, c)
	}
	return columns
}

// Cut reports that a long text is cut at the end of the column.
func (c Column) Cut() bool { return slices.Contains(strings.Fields(c.Class), "long") }

// classOf is the class of a column with values of a type.
func classOf(t reflect.Type, key string) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[uuid.UUID]():
		return "long"
	case t.ConvertibleTo(reflect.TypeFor[float64]()) && !strings.HasSuffix("_"+key, "_id"):
		return "number"
	}
	return ""
}

// KeyOf returns the field that identifies a row of a struct type, whose tag list is the path of the list in the REST
// API.
func KeyOf(row reflect.Type) reflect.StructField {
	fields := reflect.VisibleFields(row)
	return fields[slices.IndexFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("list") != "" })]
}
