package api

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/labstack/echo/v4"
)

const codeUnknownParameter = "UnknownQueryParameter"

// capitalized finds the later words of a name, such as From in deadLetteredFrom: a request may well say from.
var capitalized = regexp.MustCompile(`[A-Z][a-z]+`)

// KnownParameters reads the query parameters, and rejects those that the operation does not have: a filter with a
// typing mistake would otherwise return everything. known is in alphabetical order.
func KnownParameters(c echo.Context, known []string) (url.Values, error) {
	text := c.Request().URL.RawQuery
	if text == "" {
		return nil, nil
	}
	given, err := url.ParseQuery(text)
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, CodeInvalidRequest,
			"the query string is malformed: separate parameters with &, and percent-encode their values")
	}
	var found Problems
	for name := range given {
		if !slices.Contains(known, name) {
			found.Add(codeUnknownParameter, name, "%s", isUnknown(name, known))
		}
	}
	slices.SortFunc(found, func(a, b ErrorDetail) int { return strings.Compare(a.Target, b.Target) })
	return given, found.Err()
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
			distance := levenshtein.ComputeDistance(strings.ToLower(Shorten(name)), strings.ToLower(as))
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
