package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
)

// Route is one operation of the REST API: its handler, and the types that describe it in /openapi.yaml.
type Route struct {
	// ID is the operation id in the document.
	ID string
	// Handle serves the operation's requests.
	Handle echo.HandlerFunc
	// In is the type of the request: parameters and body. Out is the type of the response.
	In, Out reflect.Type
	// Errors are the statuses that other operations of this kind do not have: 404 and 409.
	Errors []int
}

// Handle makes a route of a handler. I is a struct with one field per parameter, tagged path, query or header
// with its name, and the field Body for a JSON body. A pointer is nil if the parameter is absent. The tags minimum,
// maximum, enum and default hold for parameters before the handler runs; of a body they are documentation.
//
// O is written as JSON with status 200, unless it is a Response.
func Handle[I, O any](id string, handle func(context.Context, *I) (*O, error), errors ...int) Route {
	in := inputOf(reflect.TypeFor[I]())
	return Route{
		ID: id, In: reflect.TypeFor[I](), Out: reflect.TypeFor[O](), Errors: errors,
		Handle: func(c echo.Context) error {
			request := new(I)
			if err := in.read(c, reflect.ValueOf(request).Elem()); err != nil {
				return err
			}
			out, err := handle(c.Request().Context(), request)
			if err != nil {
				return err
			}
			if response, ok := any(out).(Response); ok {
				return response.Write(c)
			}
			return c.JSON(http.StatusOK, out)
		},
	}
}

// input is what is read of a request.
type input struct {
	parameters []parameter
	query      []string // names of the query parameters, in alphabetical order
	body       []int    // index of the field Body; nil without a body
}

// parameter is a parameter and the field that it is read into.
type parameter struct {
	in, name string
	index    []int
	field    reflect.StructField
}

func inputOf(t reflect.Type) (in input) {
	for _, field := range reflect.VisibleFields(t) {
		if field.Name == "Body" && len(field.Index) == 1 {
			in.body = field.Index
		}
		for _, place := range []string{"path", "query", "header"} {
			name, tagged := field.Tag.Lookup(place)
			if !tagged {
				continue
			}
			in.parameters = append(in.parameters, parameter{place, name, field.Index, field})
			if place == "query" {
				in.query = append(in.query, name)
			}
		}
	}
	slices.Sort(in.query)
	return in
}

func (in *input) read(c echo.Context, request reflect.Value) error {
	query, err := KnownParameters(c, in.query)
	if err != nil {
		return err
	}
	var found Problems
	for i := range in.parameters {
		p := &in.parameters[i]
		var given []string
		switch p.in {
		case "path":
			given = []string{PathValue(c, p.name)}
		case "query":
			given = query[p.name]
		default:
			given = c.Request().Header.Values(p.name)
		}
		p.read(&found, given, request.FieldByIndex(p.index))
	}
	if err := found.Err(); err != nil || in.body == nil {
		return err
	}
	return readJSON(c, request.FieldByIndex(in.body).Addr().Interface())
}

// read sets the field to what the request has.
func (p *parameter) read(found *Problems, given []string, field reflect.Value) {
	if len(given) > 1 {
		found.Value(p.name, "must be given once, not %d times", len(given))
		return
	}
	if len(given) == 0 {
		text, has := p.field.Tag.Lookup("default")
		if !has {
			return
		}
		given = []string{text}
	}
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		field = field.Elem()
	}
	text := given[0]
	if at, isTime := field.Addr().Interface().(*time.Time); isTime {
		var err error
		if *at, err = time.Parse(time.RFC3339, text); err != nil {
			found.Value(p.name, "must be an RFC 3339 time, such as 2026-11-20T09:30:00Z")
		}
		return
	}
	switch field.Kind() {
	case reflect.String:
		p.readText(found, text)
		field.SetString(text)
	case reflect.Bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			found.Value(p.name, "must be true or false, not %q", Shorten(text))
		}
		field.SetBool(value)
	case reflect.Int, reflect.Int64:
		field.SetInt(p.readInteger(found, text))
	default:
		panic(fmt.Sprintf("parameter %s has the type %s", p.name, field.Type()))
	}
}

func (p *parameter) readText(found *Problems, text string) {
	words := strings.Split(p.field.Tag.Get("enum"), ",")
	switch {
	case words[0] != "" && !slices.Contains(words, text):
		found.Value(p.name, "must be one of %s, not %q", strings.Join(words, ", "), Shorten(text))
	case p.in == "query" && !Storable(text):
		found.Value(p.name, "holds a character that nothing stored has")
	}
}

func (p *parameter) readInteger(found *Problems, text string) int64 {
	tag := p.field.Tag
	value, err := strconv.ParseInt(text, 10, 64)
	least, hasLeast := tag.Lookup("minimum")
	most, hasMost := tag.Lookup("maximum")
	form := "an integer"
	switch example, has := tag.Lookup("example"); {
	case hasLeast && hasMost:
		form += " between " + least + " and " + most
	case has && p.in == "query":
		form += ", such as " + example
	}
	if err != nil {
		found.Value(p.name, "must be %s, not %q", form, Shorten(text))
		return 0
	}
	if hasLeast && value < limitOf(least) || hasMost && value > limitOf(most) {
		found.Value(p.name, "must be %s, not %d", strings.TrimPrefix(form, "an integer "), value)
	}
	return value
}

// limitOf reads the tag minimum or maximum.
func limitOf(tag string) int64 {
	limit, err := strconv.ParseInt(tag, 10, 64)
	if err != nil {
		panic(err)
	}
	return limit
}

// QueryOf writes the query parameters of a request as they were read, for the link to the next page.
func QueryOf[I any](request *I) url.Values {
	query, v := url.Values{}, reflect.ValueOf(request).Elem()
	for _, p := range inputOf(v.Type()).parameters {
		field := v.FieldByIndex(p.index)
		if p.in != "query" || field.IsZero() {
			continue
		}
		if at, isTime := reflect.Indirect(field).Interface().(time.Time); isTime {
			query.Set(p.name, at.Format(time.RFC3339Nano))
			continue
		}
		query.Set(p.name, fmt.Sprint(reflect.Indirect(field).Interface()))
	}
	return query
}
