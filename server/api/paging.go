package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
)

// PageParams are the parameters of a list.
type PageParams struct {
	Limit  int     `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor *string `query:"cursor"`
}

// Page is the parameters, for structs that embed them.
func (p *PageParams) Page() *PageParams { return p }

// Paged is a request with PageParams.
type Paged interface{ Page() *PageParams }

// ReadCursor decodes the key in a cursor; nil does not change the key.
func ReadCursor(cursor *string, key any) error {
	if cursor == nil {
		return nil
	}
	text, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err != nil || json.Unmarshal(text, key) != nil {
		return InvalidCursor()
	}
	if name, is := key.(*string); is && !Storable(*name) {
		return InvalidCursor()
	}
	return nil
}

// List is a page of a list.
type List[T any] struct {
	// The entries.
	Value []T `json:"value"`
	// Path and query of the next page; null on the last page.
	NextLink *string `json:"nextLink"`
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

// pathKey is the key of the request's path in its context.
type pathKey struct{}

// NextLink is the path and query of the next page. It has the query parameters of request, and the key as the cursor.
func NextLink(ctx context.Context, request, key any) *string {
	path, _ := ctx.Value(pathKey{}).(string)
	text, _ := json.Marshal(key) // keys have only numbers, strings, times and ids
	query := queryOf(request)
	query.Set("cursor", base64.RawURLEncoding.EncodeToString(text))
	return new(path + "?" + query.Encode())
}

// ListAfter is a page of a list. read returns the rows after the row with a key, which is zero for the first page.
func ListAfter[T, K any](
	ctx context.Context, request Paged,
	read func(ctx context.Context, after K, limit int) ([]T, error), key func(T) K,
) (*List[T], error) {
	var after K
	params := request.Page()
	if err := ReadCursor(params.Cursor, &after); err != nil {
		return nil, err
	}
	list, err := read(ctx, after, params.Limit+1)
	if err != nil {
		return nil, err
	}
	page := &List[T]{Value: Shown(list)}
	if len(list) > params.Limit {
		page.Value = list[:params.Limit]
		page.NextLink = NextLink(ctx, request, key(list[params.Limit-1]))
	}
	return page, nil
}
