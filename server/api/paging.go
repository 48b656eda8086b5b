package api

import (
	"context"
	"encoding/base64"
	"net/url"
)

// PageParams are the parameters of a list.
type PageParams struct {
	Limit  int     `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor *string `query:"cursor"`
}

// After is the key of the last row of the previous page; "" without a cursor.
func (p *PageParams) After() (string, error) { return ReadCursor(p.Cursor) }

// ReadCursor decodes a cursor; "" for nil. Cursors are encoded so that clients do not build them.
func ReadCursor(cursor *string) (string, error) {
	if cursor == nil {
		return "", nil
	}
	key, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err != nil || !Storable(string(key)) {
		return "", InvalidCursor()
	}
	return string(key), nil
}

// List is one page of a list.
type List[T any] struct {
	Value    []T     `json:"value" doc:"The rows of this page."`
	NextLink *string `json:"nextLink" doc:"Path and query of the next page; null on the last page."`
}

// Shown is the list, or an empty one for nil, which would be null in JSON.
func Shown[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// InvalidCursor is the response to a cursor that is not from a nextLink.
func InvalidCursor() error { return Invalid("cursor", "must be the cursor of a nextLink") }

// NextLink is the path and query of the next page. query are the parameters of this one.
func NextLink(path string, query url.Values, cursor string) *string {
	query.Set("cursor", base64.RawURLEncoding.EncodeToString([]byte(cursor)))
	return new(path + "?" + query.Encode())
}

// ListByName is a page of a list that is sorted by name. read returns the rows after a name.
func ListByName[T any](
	ctx context.Context, params *PageParams, path string,
	read func(ctx context.Context, after string, limit int) ([]T, error), name func(T) string,
) (*List[T], error) {
	after, err := params.After()
	if err != nil {
		return nil, err
	}
	list, err := read(ctx, after, params.Limit+1)
	if err != nil {
		return nil, err
	}
	page := &List[T]{Value: Shown(list)}
	if len(list) > params.Limit {
		page.Value = list[:params.Limit]
		page.NextLink = NextLink(path, QueryOf(params), name(list[params.Limit-1]))
	}
	return page, nil
}
