package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"postrider/internal/cli/rest"
	"postrider/internal/query"
	"postrider/internal/terminal"
	"postrider/server/openapi"
)

// listVerb lists the newest rows of type T. F has the flags that filter them.
type listVerb[F, T any] struct {
	rest.Flags
	Limit  int `help:"How many to list at most: 1 to 10000." default:"50" range:"1..10000" placeholder:"N"`
	Filter F   `embed:""`
}

// path is the path of the list in the REST API.
func (*listVerb[F, T]) path() string { return rest.ListURL[T]() }

func (c *listVerb[F, T]) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	filter, err := rest.Filter(&c.Filter)
	if err != nil {
		return err
	}
	rest.Shown(&c.Filter, filter)
	list, err := client.First(ctx, c.path(), filter, c.Limit)
	if err != nil {
		return err
	}
	return c.Print(std.Out, list, func(w io.Writer) { rest.PrintColumns(w, rest.ColumnsOf[T](), list) })
}

// showVerb shows a row of type T.
type showVerb[T any] struct {
	rest.Flags
	rowArg[T]
}

// Run executes the verb. In JSON, the object includes the lists that belong to it.
func (c *showVerb[T]) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	list, at := rest.ListURL[T](), c.Path()
	var o rest.Object
	if err := client.Call(ctx, http.MethodGet, at, nil, &o); err != nil {
		return err
	}
	for _, part := range parts[list] {
		if part.path == "" {
			continue
		}
		list, err := client.All(ctx, at+part.path)
		if err != nil {
			return err
		}
		o[part.member] = list
	}
	return c.Print(std.Out, o, func(w io.Writer) {
		rest.PrintRow[T](w, o)
		for _, part := range parts[list] {
			if rows := rest.Objects(o, part.member); len(rows) > 0 {
				fmt.Fprintln(w)
				rest.PrintColumns(w, part.columns, rows)
			}
		}
	})
}

// part is a list that belongs to an object.
type part struct {
	member  string // of the object
	path    string // of the REST API, after the object's; "" if the object has the list
	columns []rest.Column
}

var attempts = part{"attemptsMade", "/attempts", rest.ColumnsOf[query.AttemptLine]()}

// parts are by the path of the list of their objects.
var parts = map[string][]part{
	rest.ListURL[query.DeliveryLine](): {attempts},
	rest.ListURL[query.BatchLine](): {
		attempts, {"membersCut", "/members?limit=1000", rest.ColumnsOf[query.MemberLine]()},
	},
	rest.ListURL[query.EventRow](): {{"deliveries", "", rest.ColumnsOf[query.DeliveryLine]()}},
}

// rowArg is the argument that chooses a row of type T.
type rowArg[T any] struct {
	ID rowID[T] `arg:"" name:"id"`
}

// Path returns the path of the row.
func (a rowArg[T]) Path() string { return rest.ItemURL(rest.ListURL[T](), a.ID) }

// rowID is the id of a row of type T, which is checked before a request is sent.
type rowID[T any] string

// describe returns the text of the id in the OpenAPI document.
func (rowID[T]) describe() string {
	member, _, _ := strings.Cut(query.KeyOf(reflect.TypeFor[T]()).Tag.Get("json"), ",")
	return openapi.IDText(member)
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *rowID[T]) UnmarshalText(text []byte) error {
	kind, canonical := "UUID", string(text)
	parsed, err := uuid.Parse(canonical) // from any form that it has, such as urn:uuid: or braces
	if query.KeyOf(reflect.TypeFor[T]()).Type != reflect.TypeFor[uuid.UUID]() {
		kind = "number"
		_, err = strconv.ParseInt(canonical, 10, 64)
	} else if err == nil {
		canonical = parsed.String()
	}
	if err != nil {
		name, _, _ := strings.Cut(strings.ReplaceAll(id.describe(), ",", "."), ".")
		return terminal.Usagef("%s %q: must be a %s", name, text, kind)
	}
	*id = rowID[T](canonical)
	return nil
}
