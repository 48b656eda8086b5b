package management

import (
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"postrider/server/api"
)

// KnownParameters rejects query parameters that a generated operation does not have.
func KnownParameters(next api.StrictHandlerFunc, _ string) api.StrictHandlerFunc {
	return func(c echo.Context, request any) (any, error) {
		if _, err := api.KnownParameters(c, queryParameters(reflect.TypeOf(request))); err != nil {
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
