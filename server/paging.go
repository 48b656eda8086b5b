package server

import (
	"encoding/base64"
	"net/url"
	"strconv"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// page is one page of a list that is sorted by name.
type page struct {
	after string
	limit int
}

// readPage reads the parameters of a list. A cursor is the last name shown, encoded so that nobody builds one.
func readPage(limit *int, cursor *string) (page, error) {
	p := page{limit: defaultPage}
	var found problems
	if limit != nil {
		if p.limit = *limit; p.limit < 1 || p.limit > maxPage {
			found.value("limit", "must be between 1 and %d, not %d", maxPage, p.limit)
		}
	}
	if cursor != nil {
		name, err := base64.RawURLEncoding.DecodeString(*cursor)
		if p.after = string(name); err != nil || !storable(p.after) {
			found.value("cursor", "must be one that a nextLink had")
		}
	}
	return p, found.err()
}

// cut shows a list's first limit items; the list was asked for one more, which tells whether there is a next page.
func cut[T any](p page, list []T, path string, name func(T) string) (shown []T, nextLink *string) {
	if len(list) <= p.limit {
		return list, nil
	}
	shown = list[:p.limit]
	query := url.Values{
		"limit":  {strconv.Itoa(p.limit)},
		"cursor": {base64.RawURLEncoding.EncodeToString([]byte(name(shown[p.limit-1])))},
	}
	link := path + "?" + query.Encode()
	return shown, &link
}
