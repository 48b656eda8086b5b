package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"

	"postrider/cmd/postrider/terminal"
)

// Flags are the flags of each verb that calls the REST API and prints the response.
type Flags struct {
	ServerFlags
	terminal.OutputFlag
}

// Column is a column of a table, or a line of what show prints.
type Column struct {
	Title string
	Path  string              // where the API's object has the value
	Text  func(Object) string // instead of path: a value of several members
}

// timeNamed are the names that the API gives to times.
var timeNamed = regexp.MustCompile(`(^at|At|Until|Since)$`)

// Cell is the value of the column in one line; "-" for none.
func (c Column) Cell(o Object) string {
	if c.Text != nil {
		return terminal.Cell(c.Text(o))
	}
	if text, ok := ValueAt(o, c.Path).(string); ok && timeNamed.MatchString(c.Path) {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return terminal.Time(at)
		}
	}
	return TextAt(o, c.Path)
}

// PrintColumns writes a head and a line for each object.
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

// Call makes one request. The flags of the verb say to which server.
func (f Flags) Call(ctx context.Context, method, path string, body, into any, headers ...string) error {
	client, err := f.Client()
	if err != nil {
		return err
	}
	return client.Call(ctx, method, path, body, into, headers...)
}

// NoServer reports whether no server was named and none runs on this machine.
func (f Flags) NoServer(err error) bool {
	return err != nil && f.Server == "" && ErrorOf(err).Status == 0
}

// All prints a whole list.
func (f Flags) All(ctx context.Context, path string, columns []Column) error {
	client, err := f.Client()
	if err != nil {
		return err
	}
	list, err := client.All(ctx, path)
	if err != nil {
		return err
	}
	return f.Print(list, func(w io.Writer) { PrintColumns(w, columns, list) })
}

// Show prints one object.
func (f Flags) Show(ctx context.Context, path string, table func(io.Writer, Object)) error {
	var shown Object
	if err := f.Call(ctx, http.MethodGet, path, nil, &shown); err != nil {
		return err
	}
	return f.Print(shown, func(w io.Writer) { table(w, shown) })
}

// Act posts an action and prints what was done; in JSON and YAML, what the API responded.
func (f Flags) Act(ctx context.Context, path string, body any, done string, args ...any) error {
	var now Object
	if err := f.Call(ctx, http.MethodPost, path, body, &now); err != nil {
		return err
	}
	return f.Print(now, func(w io.Writer) { fmt.Fprintf(w, done+"\n", args...) })
}

// Filter is Given of flags that may have a span of time, From and Until, which must not be empty.
func Filter(flags any) (Object, error) {
	value := reflect.Indirect(reflect.ValueOf(flags))
	if value.FieldByName("From").IsValid() {
		from, _ := value.FieldByName("From").Interface().(*time.Time)
		until, _ := value.FieldByName("Until").Interface().(*time.Time)
		if from != nil && until != nil && !from.Before(*until) {
			return nil, terminal.Usagef("--from must be before --until: %s is not before %s", terminal.Time(*from),
				terminal.Time(*until))
		}
	}
	return Given(flags), nil
}

// Given are the values of the flags that were given, by the name that the REST API has for them: the flag's tag api.
func Given(flags any) Object {
	o, all := Object{}, reflect.Indirect(reflect.ValueOf(flags))
	for _, field := range reflect.VisibleFields(all.Type()) {
		value := all.FieldByIndex(field.Index)
		name, has := field.Tag.Lookup("api")
		if !has || value.IsZero() {
			continue
		}
		o[name] = reflect.Indirect(value).Interface()
		if at, ok := o[name].(time.Time); ok {
			o[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return o
}

// HowMany counts a list as far as one page goes: "3 pending deliveries", "more than 100 pending deliveries".
func (f Flags) HowMany(ctx context.Context, path string, filter Object, thing string) (string, error) {
	const most = 100
	client, err := f.Client()
	if err != nil {
		return "", err
	}
	list, err := client.First(ctx, path, filter, most+1)
	if err != nil {
		return "", err
	}
	return terminal.Either(len(list) > most, "more than ", "") + terminal.Plural(min(len(list), most), thing), nil
}

// ItemURL is the path of something that has an id.
func ItemURL(list string, id any) string { return list + "/" + url.PathEscape(fmt.Sprint(id)) }
