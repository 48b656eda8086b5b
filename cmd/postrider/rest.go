package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// restFlags are the flags of each verb that calls the REST API and prints the response.
type restFlags struct {
	serverFlags
	outputFlag
}

// column is a column of a table, or a line of what show prints.
type column struct {
	title string
	path  string              // where the API's object has the value
	text  func(object) string // instead of path: a value that is made of several
}

// timeNamed are the names that the API gives to times.
var timeNamed = regexp.MustCompile(`(^at|At|Until|Since)$`)

// cell is the value of the column in one line; "-" for none.
func (c column) cell(o object) string {
	if c.text != nil {
		return cell(c.text(o))
	}
	if text, ok := valueAt(o, c.path).(string); ok && timeNamed.MatchString(c.path) {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return moment(at)
		}
	}
	return textAt(o, c.path)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// printColumns writes a head and a line for each object.
func printColumns(w io.Writer, columns []column, list []object) {
	cells := make([]string, len(columns))
	for i, c := range columns {
		cells[i] = c.title
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
	for _, o := range list {
		for i, c := range columns {
			cells[i] = c.cell(o)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// printObject writes a line for each value.
func printObject(w io.Writer, lines []column, o object) {
	for _, c := range lines {
		fmt.Fprintf(w, "%s\t%s\n", c.title, c.cell(o))
	}
}

// call makes one request. The flags of the verb say to which server.
func (f restFlags) call(ctx context.Context, method, path string, body, into any, headers ...string) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	return client.call(ctx, method, path, body, into, headers...)
}

// noServer reports whether no server was named and none runs on this machine.
func (f restFlags) noServer(err error) bool {
	var response *apiError
	return err != nil && f.Server == "" && !errors.As(err, &response)
}

// list prints the first objects of a list: those that match the filter, at most limit.
func (f restFlags) list(ctx context.Context, path string, filter object, limit int, columns []column) error {
	if limit < 1 || limit > maxListed {
		return usagef("--limit %d: must be 1 to %d", limit, maxListed)
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	list, err := client.first(ctx, path, filter, limit)
	if err != nil {
		return err
	}
	return f.print(list, func(w io.Writer) { printColumns(w, columns, list) })
}

// all prints a whole list.
func (f restFlags) all(ctx context.Context, path string, columns []column) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	list, err := client.all(ctx, path)
	if err != nil {
		return err
	}
	return f.print(list, func(w io.Writer) { printColumns(w, columns, list) })
}

// show prints one object.
func (f restFlags) show(ctx context.Context, path string, table func(io.Writer, object)) error {
	var shown object
	if err := f.call(ctx, http.MethodGet, path, nil, &shown); err != nil {
		return err
	}
	return f.print(shown, func(w io.Writer) { table(w, shown) })
}

// act posts an action and prints what was done; in JSON and YAML, what the API responded.
func (f restFlags) act(ctx context.Context, path string, body any, done string, args ...any) error {
	var now object
	if err := f.call(ctx, http.MethodPost, path, body, &now); err != nil {
		return err
	}
	return f.print(now, func(w io.Writer) { fmt.Fprintf(w, done+"\n", args...) })
}

// limitFlag is a flag of verbs that list the newest of many.
type limitFlag struct {
	Limit int `help:"How many to list at most: 1 to 10000." default:"50" placeholder:"N"`
}

// maxListed bounds a list of a command line.
const maxListed = 10_000

// given are the values of the flags that were given, by the name that the REST API has for them: the flag's tag api.
func given(flags any) object {
	o := object{}
	addGiven(o, reflect.Indirect(reflect.ValueOf(flags)))
	return o
}

func addGiven(o object, flags reflect.Value) {
	for i := range flags.NumField() {
		field, value := flags.Type().Field(i), flags.Field(i)
		name, has := field.Tag.Lookup("api")
		switch {
		case field.Anonymous:
			addGiven(o, value)
		case has && !value.IsZero():
			value = reflect.Indirect(value)
			if at, ok := value.Interface().(time.Time); ok {
				o[name] = at.UTC().Format(time.RFC3339Nano)
			} else {
				o[name] = value.Interface()
			}
		}
	}
}

// first reads the first objects of a list, at most limit, page by page.
func (c *apiClient) first(ctx context.Context, path string, filter object, limit int) ([]object, error) {
	const maxPage = 1000
	list := []object{}
	for next := listURL(path, filter, min(limit, maxPage)); ; {
		var p page
		if err := c.call(ctx, http.MethodGet, next, nil, &p); err != nil {
			return nil, err
		}
		list = append(list, p.Value[:min(len(p.Value), limit-len(list))]...)
		if p.NextLink == nil || len(list) == limit {
			return list, nil
		}
		next = *p.NextLink
	}
}

// listURL is the first page of a list.
func listURL(path string, filter object, limit int) string {
	query := url.Values{"limit": {fmt.Sprint(limit)}}
	for name, value := range filter {
		query.Set(name, fmt.Sprint(value))
	}
	return path + "?" + query.Encode()
}

// checkSpan rejects a span of time that is empty.
func checkSpan(from, until *time.Time) error {
	if from != nil && until != nil && !from.Before(*until) {
		return usagef("--from must be before --until: %s is not before %s", moment(*from), moment(*until))
	}
	return nil
}

// stateAndHold is a state with the hold that keeps it.
func stateAndHold(o object) string {
	if hold := valueAt(o, "hold"); hold != nil {
		return fmt.Sprintf("%v, %v", o["state"], hold)
	}
	return fmt.Sprint(o["state"])
}

// lastResult is the last status of an endpoint, or the outcome of an attempt without a response.
func lastResult(o object) string {
	for _, name := range []string{"lastStatus", "lastOutcome"} {
		if value := o[name]; value != nil {
			return fmt.Sprint(value)
		}
	}
	return "-"
}
