package api

import (
	"context"
	"encoding/base64"
	"net/url"
	"strconv"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// Page is one page of a list that is sorted by name.
type Page struct {
	After string
	Limit int
}

// ReadPage reads the parameters of a list. A cursor is the last name shown, encoded so that nobody builds one.
func ReadPage(limit *int, cursor *string) (Page, error) {
	p := Page{Limit: defaultPage}
	var found Problems
	if limit != nil {
		if p.Limit = *limit; p.Limit < 1 || p.Limit > maxPage {
			found.Value("limit", "must be between 1 and %d, not %d", maxPage, p.Limit)
		}
	}
	if cursor != nil {
		name, err := base64.RawURLEncoding.DecodeString(*cursor)
		if p.After = string(name); err != nil || !Storable(p.After) {
			return p, InvalidCursor()
		}
	}
	return p, found.Err()
}

// Cut shows a list's first limit items; the list was asked for one more, which tells whether there is a next page.
func Cut[T any](p Page, list []T, path string, name func(T) string) (shown []T, nextLink *string) {
	if len(list) <= p.Limit {
		return list, nil
	}
	shown = list[:p.Limit]
	return shown, NextLink(path, url.Values{"limit": {strconv.Itoa(p.Limit)}}, name(shown[p.Limit-1]))
}

// PageParams are the parameters of a list that is read page by page.
type PageParams struct {
	Limit  int     `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor *string `query:"cursor"`
}

// Page reads the parameters.
func (p *PageParams) Page() (Page, error) { return ReadPage(&p.Limit, p.Cursor) }

// List is one page of a list.
type List[T any] struct {
	Value    []T     `json:"value"`
	NextLink *string `json:"nextLink"`
}

// Shown is the list, or an empty one for nil, which would be null in JSON.
func Shown[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// InvalidCursor is the response to a cursor that no page had.
func InvalidCursor() error { return Invalid("cursor", "must be one that a nextLink had") }

// NextLink is the path and query of the next page. query has the parameters of this one.
func NextLink(path string, query url.Values, cursor string) *string {
	query.Set("cursor", base64.RawURLEncoding.EncodeToString([]byte(cursor)))
	return new(path + "?" + query.Encode())
}

// ListByName is a page of a list that is sorted by name. read returns the items after a name.
func ListByName[T any](
	ctx context.Context, params *PageParams, path string,
	read func(ctx context.Context, after string, limit int) ([]T, error), name func(T) string,
) (*List[T], error) {
	page, err := params.Page()
	if err != nil {
		return nil, err
	}
	list, err := read(ctx, page.After, page.Limit+1)
	if err != nil {
		return nil, err
	}
	shown, next := Cut(page, list, path, name)
	return &List[T]{Value: Shown(shown), NextLink: next}, nil
}
