package management

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"

	"postrider/query"
	"postrider/server/api"
)

// key converts the key of a row to text for a cursor.
type key[K any] struct {
	parse func(string) (K, error)
	text  func(K) string
}

var (
	numberKey = key[int64]{parseNumber, numberText}
	idKey     = key[uuid.UUID]{uuid.Parse, uuid.UUID.String}
)

// newestFirst is a page of a list from the newest row to the oldest. The link to the next page keeps the query
// parameters of request.
func newestFirst[R, F, T, K any](
	ctx context.Context, path string, request *R, params *api.PageParams, filter F,
	read func(context.Context, F, query.Turn[K]) (query.SearchedPage[T, K], error), keyOf func(*T) K, as key[K],
) (*api.List[T], error) {
	after, err := params.After()
	if err != nil {
		return nil, err
	}
	turn := query.Turn[K]{Limit: params.Limit}
	if params.Cursor != nil {
		before, err := as.parse(after)
		if err != nil {
			return nil, api.InvalidCursor()
		}
		turn.Before = &before
	}
	page, err := read(ctx, filter, turn)
	if err != nil {
		return nil, err
	}
	list := &api.List[T]{Value: api.Shown(page.Rows)}
	last := page.SearchedTo
	if last == nil && page.Older {
		last = new(keyOf(&page.Rows[len(page.Rows)-1]))
	}
	if last != nil {
		list.NextLink = api.NextLink(path, api.QueryOf(request), as.text(*last))
	}
	return list, nil
}

// inOrder checks that a time span begins before its end.
func inOrder(fromName string, from *time.Time, untilName string, until *time.Time) error {
	if from != nil && until != nil && !from.Before(*until) {
		return api.Invalid(fromName, "must be before %s", untilName)
	}
	return nil
}

func parseNumber(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func numberText(n int64) string { return strconv.FormatInt(n, 10) }
