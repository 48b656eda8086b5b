// Package rest is the client of the REST API that verbs use: flags for server and key, requests, lists and tables of
// what the API returns.
package rest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"postrider/internal/query"
	"postrider/internal/terminal"
)

// Flags are the flags of verbs that call the REST API and print the response.
type Flags struct {
	ServerFlags
	terminal.OutputFlag
}

// Column is a column of a table, or a line of show.
type Column struct {
	Title string
	Path  string              // of the value in the API's object
	Text  func(Object) string // computes the value; nil: it is at Path
	None  string              // for no value; "" is "-"
}

// ColumnsOf returns the columns that the command line shows of a list with rows of type T, see query.Column.
func ColumnsOf[T any]() (columns []Column) {
	for _, c := range query.ColumnsOf(reflect.TypeFor[T]()) {
		if c.Member != "" && !c.Line && !c.OffCLI {
			columns = append(columns, Column{Title: c.Title, Path: c.Member, None: c.None})
		}
	}
	return columns
}

// PrintRow writes a line for each column of a row of type T that has a value.
func PrintRow[T any](w io.Writer, o Object) {
	for _, c := range query.ColumnsOf(reflect.TypeFor[T]()) {
		if c.Member != "" {
			Column{Title: strings.ToLower(c.Title), Path: c.Member, None: c.None}.printLine(w, o)
		}
	}
}

// Columns reads a title and, behind the last space, a path from each text.
func Columns(texts ...string) []Column {
	list := make([]Column, len(texts))
	for i, text := range texts {
		space := strings.LastIndexByte(text, ' ')
		list[i] = Column{Title: text[:space], Path: text[space+1:]}
	}
	return list
}

// PrintLines writes the title and the whole value of each column that has a value. The texts are as for Columns.
func PrintLines(w io.Writer, o Object, texts ...string) {
	for _, c := range Columns(texts...) {
		c.printLine(w, o)
	}
}

func (c Column) printLine(w io.Writer, o Object) {
	if value := cmp.Or(c.whole(o), c.None); value != "" {
		fmt.Fprintf(w, "%s\t%s\n", c.Title, value)
	}
}

// timeNamed matches the names of times in the API.
var timeNamed = regexp.MustCompile(`(^at|^since|At|Until|Since)$`)

// whole is the value of the column in one line; "" for none.
func (c Column) whole(o Object) string {
	value := PresentAt(o, c.Path)
	if text, ok := value.(string); ok && timeNamed.MatchString(c.Path) {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return terminal.Time(at)
		}
	}
	if is, ok := value.(bool); ok {
		return terminal.Either(is, "yes", "no")
	}
	return terminal.OneLine(terminal.PlainText(value))
}

// Cell is the beginning of the value of the column in one line; "-" for none.
func (c Column) Cell(o Object) string {
	if c.Text != nil {
		return terminal.Cell(c.Text(o))
	}
	return terminal.Cell(cmp.Or(c.whole(o), c.None, "-"))
}

// PrintColumns writes a line of titles and a line for each object.
func PrintColumns(w io.Writer, columns []Column, list []Object) {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.Title
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
	for _, o := range list {
		for i, c := range columns {
			cells[i] = c.Cell(o)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// NoServer reports whether no server was named and none runs on this machine.
func (f Flags) NoServer(err error) bool {
	return err != nil && f.URL == "" && ErrorOf(err).Status == 0
}

// All prints a whole list.
func (f Flags) All(ctx context.Context, std terminal.Streams, client *Client, path string, columns []Column) error {
	list, err := client.All(ctx, path)
	if err != nil {
		return err
	}
	return f.Print(std.Out, list, func(w io.Writer) { PrintColumns(w, columns, list) })
}

// Do makes one request and prints the object of the response.
func (f Flags) Do(
	ctx context.Context, std terminal.Streams, client *Client, method, path string, body any,
	table func(io.Writer, Object), headers ...string,
) error {
	var o Object
	if err := client.Call(ctx, method, path, body, &o, headers...); err != nil {
		return err
	}
	return f.Print(std.Out, o, func(w io.Writer) { table(w, o) })
}

// Delete deletes the object at a path and prints done, or the names of the object in JSON or YAML.
func (f Flags) Delete(
	ctx context.Context, std terminal.Streams, client *Client, path, done string, names Object, headers ...string,
) error {
	if err := client.Call(ctx, http.MethodDelete, path, nil, nil, headers...); err != nil {
		return err
	}
	names["deleted"] = true
	return f.Print(std.Out, names, func(w io.Writer) { fmt.Fprintln(w, done) })
}

// AllVerb is a verb that prints the whole list with rows of type T.
type AllVerb[T any] struct{ Flags }

// Run executes the verb.
func (c *AllVerb[T]) Run(ctx context.Context, std terminal.Streams, client *Client) error {
	return c.All(ctx, std, client, ListURL[T](), ColumnsOf[T]())
}

// ActVerb is a verb that posts its flags with the tag api to the object of its arguments. The action is named like the
// verb. Then it prints its tag done, which can name arguments and members of the response.
type ActVerb[A interface{ Path() string }] struct {
	Flags
	Argument A `embed:""`
}

// Run executes the verb.
func (c *ActVerb[A]) Run(ctx context.Context, std terminal.Streams, client *Client, k *kong.Context) error {
	return c.Act(ctx, std, client, k, c.Argument.Path(), Given(&c.Argument))
}

// Act does what an ActVerb does, for the object at a path and with a body, unless that is empty.
func (f Flags) Act(
	ctx context.Context, std terminal.Streams, client *Client, k *kong.Context, path string, given Object,
) error {
	var body any
	if len(given) > 0 {
		body = given
	}
	values := map[string]string{}
	for _, argument := range k.Selected().Positional {
		values[argument.Name] = fmt.Sprint(argument.Target.Interface())
	}
	return f.Do(ctx, std, client, http.MethodPost, ActionURL(path, k), body, func(w io.Writer, now Object) {
		fmt.Fprintln(w, nameInBraces.ReplaceAllStringFunc(k.Selected().Tag.Get("done"), func(name string) string {
			name = strings.Trim(name, "{}")
			return cmp.Or(values[name], TextAt(now, name))
		}))
	})
}

// ActionURL is the path of the action of a verb on the object or the list at a path: retry-now is retryNow.
func ActionURL(path string, k *kong.Context) string {
	words := strings.Split(k.Selected().Name, "-")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return path + "/" + strings.Join(words, "")
}

// nameInBraces matches what a tag done names.
var nameInBraces = regexp.MustCompile(`\{[\w-]+\}`)

// Filter is Given for flags that can have --from and --until. The first must be before the second.
func Filter(flags any) (Object, error) {
	value, span := reflect.Indirect(reflect.ValueOf(flags)), []time.Time{}
	for _, field := range reflect.VisibleFields(value.Type()) {
		if parameterOf(field) == "" {
			continue
		}
		if at, isTime := value.FieldByIndex(field.Index).Interface().(*time.Time); isTime && at != nil {
			span = append(span, *at)
		}
	}
	if len(span) == 2 && !span[0].Before(span[1]) {
		return nil, terminal.Usagef("--from must be before --until: %s is not before %s", terminal.Time(span[0]),
			terminal.Time(span[1]))
	}
	return Given(flags), nil
}

// Shown gives each flag of a filter with the tag shown that value in the request, unless the flag is set; "all" selects
// everything.
func Shown(flags any, request Object) {
	for _, field := range reflect.VisibleFields(reflect.Indirect(reflect.ValueOf(flags)).Type()) {
		shown, name := query.ShownOf(field.Tag), parameterOf(field)
		switch {
		case shown == "":
		case request[name] == nil:
			request[name] = shown
		case request[name] == "all":
			delete(request, name)
		}
	}
}

// parameterOf is the name of a flag in the REST API: its tag api, or query in a filter of package query; "" for none.
func parameterOf(field reflect.StructField) string {
	return cmp.Or(field.Tag.Get("api"), field.Tag.Get("query"))
}

// Given returns the values of the flags that are set, by their names in the REST API.
func Given(flags any) Object {
	o, all := Object{}, reflect.Indirect(reflect.ValueOf(flags))
	for _, field := range reflect.VisibleFields(all.Type()) {
		value, name := all.FieldByIndex(field.Index), parameterOf(field)
		if name == "" || value.IsZero() {
			continue
		}
		o[name] = reflect.Indirect(value).Interface()
		if at, ok := o[name].(time.Time); ok {
			o[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return o
}

// Count counts the objects of a list up to 100: "3 pending deliveries", "more than 100 pending deliveries".
func (c *Client) Count(ctx context.Context, path string, filter Object, thing string) (string, error) {
	const most = 100
	list, err := c.First(ctx, path, filter, most+1)
	if err != nil {
		return "", err
	}
	return terminal.Either(len(list) > most, "more than ", "") + terminal.Plural(min(len(list), most), thing), nil
}

// ListURL is the path of the list with rows of type T.
func ListURL[T any]() string { return query.KeyOf(reflect.TypeFor[T]()).Tag.Get("list") }

// ItemURL is the path of something that has an id.
func ItemURL(list string, id any) string { return list + "/" + url.PathEscape(fmt.Sprint(id)) }

// DevAdminToken is the admin token of postrider dev on loopback. It is public on purpose.
const DevAdminToken = "postrider-dev-admin" //nolint:gosec // no secret

// devServer is where postrider dev listens.
const devServer = "http://127.0.0.1:7480"
