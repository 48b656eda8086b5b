package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/postgres"
	"postrider/internal/query"
)

// Route is one operation of the REST API: its handler, and the types that describe it in /openapi.yaml.
type Route struct {
	// ID is the operation id in the document, and Tag the group of the operation.
	ID, Tag string
	// Handle serves the operation's requests.
	Handle echo.HandlerFunc
	// In is the type of the request, Out that of the response, and Handler the function whose comment describes the
	// operation. They are nil if openapi/base.yaml describes it.
	In, Out reflect.Type
	Handler any
	// Errors are 404 and 409 if the operation responds with them.
	Errors []int
}

// Handle creates the route of a handler. I has a field for each parameter, with the tag path, query or header, and the
// field Body for a JSON body, whose tag extraBytes raises the limit of its size. A pointer is nil if the parameter is
// absent. Parameters are checked by the tags minimum, maximum, enum and default; in a body these tags are
// documentation.
//
// O is sent as JSON with status 200, unless it is a Response. ErrNotFound becomes the response 404 about the object in
// the path.
func Handle[I, O any](id string, handle func(context.Context, *I) (*O, error), statuses ...int) Route {
	in := inputOf(reflect.TypeFor[I]())
	return Route{
		ID: id, In: reflect.TypeFor[I](), Out: reflect.TypeFor[O](), Handler: handle, Errors: statuses,
		Handle: func(c echo.Context) error {
			request := new(I)
			if err := in.read(c, reflect.ValueOf(request).Elem()); err != nil {
				return err
			}
			ctx := context.WithValue(c.Request().Context(), pathKey{}, c.Request().URL.EscapedPath())
			out, err := handle(ctx, request)
			var function *postgres.FunctionError // has its own message
			if errors.Is(err, postgres.ErrNotFound) && !errors.As(err, &function) {
				return notFound(c)
			}
			if err != nil {
				return err
			}
			return write(c, out)
		},
	}
}

// Body is a request with nothing but a body.
type Body[T any] struct{ Body T }

// input is the type of a request.
type input struct {
	parameters []Parameter
	query      []string // names of the query parameters, in alphabetical order
	body       []int    // index of the field Body; nil without a body
	maxBody    int
}

// Parameter is a field of a request that is read from the path, the query or a header.
type Parameter struct {
	// In is path, query or header.
	In, Name string
	Field    reflect.StructField
}

// Parameters are the parameters of a type of request, in the order of their fields.
func Parameters(t reflect.Type) (list []Parameter) {
	for _, field := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header"} {
			if name, tagged := field.Tag.Lookup(in); tagged {
				list = append(list, Parameter{in, name, field})
			}
		}
	}
	return list
}

func inputOf(t reflect.Type) input {
	in := input{parameters: Parameters(t)}
	for _, p := range in.parameters {
		if p.In == "query" {
			in.query = append(in.query, p.Name)
		}
	}
	slices.Sort(in.query)
	if body, has := t.FieldByName("Body"); has && len(body.Index) == 1 {
		extra, _ := strconv.Atoi(body.Tag.Get("extraBytes"))
		in.body, in.maxBody = body.Index, MaxBodyBytes+extra
	}
	return in
}

func (in *input) read(c echo.Context, request reflect.Value) error {
	given, err := readQuery(c.Request(), in.query)
	if err != nil {
		return err
	}
	var found Problems
	for i := range in.parameters {
		p := &in.parameters[i]
		var values []string
		switch p.In {
		case "path":
			values = []string{PathValue(c, p.Name)}
			if c.Request().Method != http.MethodPut && !p.canExist(values[0]) { // a PUT checks the name
				return notFound(c)
			}
		case "query":
			values = given[p.Name]
		default:
			values = c.Request().Header.Values(p.Name)
		}
		p.read(&found, values, request.FieldByIndex(p.Field.Index))
	}
	if err := found.Err(); err != nil || in.body == nil {
		return err
	}
	return readJSON(c.Request(), request.FieldByIndex(in.body).Addr().Interface(), in.maxBody)
}

// nouns are what path parameters identify.
var nouns = map[string]string{
	"topic": "topic", "policy": "retry policy", "apiKey": "API key", "user": "user", "deadLetterId": "dead letter",
	"operationId": "operation", "systemId": "event", "deliveryId": "delivery", "batchId": "batch",
	"query": "query",
}

// notFound is the response for the object in the path, which does not exist.
func notFound(c echo.Context) error {
	if name := c.Param("subscription"); name != "" {
		return SubscriptionNotFound(PathValue(c, "topic"), PathValue(c, "subscription"))
	}
	names := c.ParamNames()
	if len(names) == 0 {
		return postgres.ErrNotFound
	}
	name := names[len(names)-1]
	value := strconv.Quote(Shorten(PathValue(c, name)))
	if !strings.HasSuffix(name, "Id") {
		return NotFound("%s %s does not exist", nouns[name], value)
	}
	if _, err := strconv.Atoi(c.Param(name)); err == nil {
		value = c.Param(name)
	}
	return NotFound("%s %s does not exist or is no longer stored", nouns[name], value)
}

// canExist reports whether an object can have this name or id.
func (p *Parameter) canExist(value string) bool {
	if p.Field.Type == reflect.TypeFor[uuid.UUID]() {
		return uuid.Validate(value) == nil
	}
	return Storable(value)
}

// read sets the field to the value in the request.
func (p *Parameter) read(found *Problems, given []string, field reflect.Value) {
	if len(given) > 1 {
		found.Value(p.Name, "must be given once, not %d times", len(given))
		return
	}
	if len(given) == 0 {
		text, has := p.Field.Tag.Lookup("default")
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
	if textForms[field.Type()] != "" {
		found.readText(p.Name, text, field.Addr())
		return
	}
	switch field.Kind() {
	case reflect.String:
		words := query.ChoicesOf(p.Field.Tag)
		switch {
		case words != nil && !slices.Contains(words, text):
			found.Value(p.Name, "must be one of %s, not %q", strings.Join(words, ", "), Shorten(text))
		case p.In == "query" && !Storable(text):
			found.Value(p.Name, "must be UTF-8 without the character 0")
		case p.In == "header":
			found.checkCondition(p.Name, text)
		}
		field.SetString(text)
	case reflect.Bool:
		value, err := strconv.ParseBool(text)
		if err != nil {
			found.Value(p.Name, "must be true or false, not %q", Shorten(text))
		}
		field.SetBool(value)
	case reflect.Int, reflect.Int64:
		field.SetInt(p.readInteger(found, text))
	default:
		panic(fmt.Sprintf("parameter %s has the type %s", p.Name, field.Type()))
	}
}

func (p *Parameter) readInteger(found *Problems, text string) int64 {
	tag := p.Field.Tag
	value, err := strconv.ParseInt(text, 10, 64)
	least, hasLeast := tag.Lookup("minimum")
	most, hasMost := tag.Lookup("maximum")
	form := "an integer"
	switch example, has := tag.Lookup("example"); {
	case hasLeast && hasMost:
		form += " between " + least + " and " + most
	case has && p.In == "query":
		form += ", such as " + example
	}
	if err != nil {
		found.Value(p.Name, "must be %s, not %q", form, Shorten(text))
		return 0
	}
	if hasLeast && value < limitOf(least) || hasMost && value > limitOf(most) {
		found.Value(p.Name, "must be %s, not %d", strings.TrimPrefix(form, "an integer "), value)
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

// queryOf is the query parameters of a request, for the link to the next page.
func queryOf(request any) url.Values {
	values, v := url.Values{}, reflect.ValueOf(request).Elem()
	for _, p := range Parameters(v.Type()) {
		field := v.FieldByIndex(p.Field.Index)
		if p.In != "query" || field.IsZero() {
			continue
		}
		if at, isTime := reflect.Indirect(field).Interface().(time.Time); isTime {
			values.Set(p.Name, at.Format(time.RFC3339Nano))
			continue
		}
		values.Set(p.Name, fmt.Sprint(reflect.Indirect(field).Interface()))
	}
	return values
}
