package management

import (
	"context"
	"strconv"
	"time"

	"github.com/google/uuid"

	"postrider/query"
	"postrider/server/api"
)

// key is how a cursor has the key of a row.
type key[K any] struct {
	parse func(string) (K, error)
	text  func(K) string
}

var (
	numberKey = key[int64]{parseNumber, numberText}
	idKey     = key[uuid.UUID]{uuid.Parse, uuid.UUID.String}
)

// newestFirst is a page of a list that runs from the newest row to the oldest. request has the parameters that the link
// to the next page keeps.
func newestFirst[R, F, T, K any](
	ctx context.Context, path string, request *R, params *api.PageParams, filter F,
	read func(context.Context, F, query.Turn[K]) (query.SearchedPage[T, K], error), keyOf func(*T) K, as key[K],
) (*api.List[T], error) {
	asked, err := params.Page()
	if err != nil {
		return nil, err
	}
	turn := query.Turn[K]{Limit: asked.Limit}
	if params.Cursor != nil {
		before, err := as.parse(asked.After)
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
	after := page.SearchedTo
	if after == nil && page.Older {
		after = new(keyOf(&page.Rows[len(page.Rows)-1]))
	}
	if after != nil {
		list.NextLink = api.NextLink(path, api.QueryOf(request), as.text(*after))
	}
	return list, nil
}

// inOrder checks the ends of a time span by their names.
func inOrder(fromName string, from *time.Time, untilName string, until *time.Time) error {
	if from != nil && until != nil && !from.Before(*until) {
		return api.Invalid(fromName, "must be before %s", untilName)
	}
	return nil
}

func parseNumber(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func numberText(n int64) string { return strconv.FormatInt(n, 10) }

// described shows each row of a page.
func described[T, D any](rows []T, describe func(*T) D) []D {
	shown := make([]D, len(rows))
	for i := range rows {
		shown[i] = describe(&rows[i])
	}
	return shown
}
