package api

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// capitalized finds the later words of a name, such as From in deadLetteredFrom: a client may send from.
var capitalized = regexp.MustCompile(`[A-Z][a-z]+`)

// readQuery reads the query parameters and rejects unknown ones: a misspelled filter would return everything. known is
// in alphabetical order.
func readQuery(r *http.Request, known []string) (url.Values, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	given, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Reject(http.StatusBadRequest, CodeInvalidRequest,
			"the query string is malformed: separate parameters with &, and percent-encode their values")
	}
	var found Problems
	for name := range given {
		if !slices.Contains(known, name) {
			found.Add("UnknownQueryParameter", name, "%s", unknownParameter(name, known))
		}
	}
	slices.SortFunc(found, func(a, b ErrorDetail) int { return strings.Compare(a.Target, b.Target) })
	return given, found.Err()
}

// unknownParameter is the message for an unknown parameter. It suggests the most similar known one.
func unknownParameter(name string, known []string) string {
	if len(known) == 0 {
		return "is not a query parameter of this operation, which has none"
	}
	var nearest string
	least := len(name)/2 + 1 // a larger distance is no typing mistake
	for _, candidate := range known {
		for _, word := range append([]string{candidate}, capitalized.FindAllString(candidate, -1)...) {
			distance := levenshtein.ComputeDistance(strings.ToLower(Shorten(name)), strings.ToLower(word))
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
