package management

import (
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/labstack/echo/v4"

	"postrider/server/api"
)

const codeUnknownParameter = "UnknownQueryParameter"

// capitalized finds the later words of a name, such as From in deadLetteredFrom: a request may well say from.
var capitalized = regexp.MustCompile(`[A-Z][a-z]+`)

// KnownParameters rejects query parameters that the operation does not have: a filter with a typing mistake would
// otherwise return everything. The known ones are those of the request's generated type, and so of openapi.yaml.
func KnownParameters(next api.StrictHandlerFunc, _ string) api.StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		query := c.Request().URL.RawQuery
		if query == "" {
			return next(c, request)
		}
		given, err := url.ParseQuery(query)
		if err != nil {
			return nil, api.Refuse(http.StatusBadRequest, api.CodeInvalidRequest,
				"the query string is malformed: separate parameters with &, and percent-encode their values")
		}
		var found problems
		known := queryParameters(reflect.TypeOf(request))
		for name := range given {
			if !slices.Contains(known, name) {
				found.Add(codeUnknownParameter, name, "%s", isUnknown(name, known))
			}
		}
		slices.SortFunc(found.Problems, func(a, b api.ErrorDetail) int { return strings.Compare(a.Target, b.Target) })
		if err := found.Err(); err != nil {
			return nil, err
		}
		return next(c, request)
	}
}

// queryParameters lists the query parameters of a generated request type, in alphabetical order.
func queryParameters(request reflect.Type) (names []string) {
	params, has := request.FieldByName("Params")
	if !has {
		return nil
	}
	for field := range params.Type.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("form"), ","); name != "" { // headers have no such tag
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// isUnknown says what is wrong with a parameter of this name, and which known one was probably meant.
func isUnknown(name string, known []string) string {
	if len(known) == 0 {
		return "is not a query parameter of this operation, which has none"
	}
	var nearest string
	least := len(name)/2 + 1 // farther is not a typing mistake
	for _, candidate := range known {
		for _, as := range append([]string{candidate}, capitalized.FindAllString(candidate, -1)...) {
			distance := levenshtein.ComputeDistance(strings.ToLower(api.Shorten(name)), strings.ToLower(as))
			if distance < least {
				least, nearest = distance, candidate
			}
		}
	}
	problem := "is not a query parameter of this operation"
	if nearest != "" {
		problem += " (did you mean " + nearest + "?)"
	}
	return problem + "; its parameters are: " + strings.Join(known, ", ")
}
