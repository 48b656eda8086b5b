package operations

import (
	"context"
	"time"

	"postrider/internal/query"
	"postrider/server/api"
)

// newestFirst is a page of a list from the newest row to the oldest. The link to the next page keeps the query
// parameters of request.
func newestFirst[F, T, K any](
	ctx context.Context, request api.Paged, filter F,
	read func(context.Context, F, query.Turn[K]) (query.SearchedPage[T, K], error), keyOf func(*T) K,
) (*api.List[T], error) {
	params := request.Page()
	turn := query.Turn[K]{Limit: params.Limit}
	if params.Cursor != nil {
		turn.Before = new(K)
		if err := api.ReadCursor(params.Cursor, turn.Before); err != nil {
			return nil, err
		}
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
		list.NextLink = api.NextLink(ctx, request, *last)
	}
	return list, nil
}

// named returns a list. If it is empty, the topic and the event subscription of its filter must exist or have existed.
func named[T any](
	ctx context.Context, m *Handlers, list *api.List[T], err error, topic, subscription string,
) (*api.List[T], error) {
	if err == nil && len(list.Value) == 0 && list.NextLink == nil {
		err = m.Parts.Reader.CheckNames(ctx, topic, subscription)
	}
	return list, err
}

// inOrder checks that a time span begins before its end.
func inOrder(fromName string, from *time.Time, untilName string, until *time.Time) error {
	if from != nil && until != nil && !from.Before(*until) {
		return api.Invalid(fromName, "must be before %s", untilName)
	}
	return nil
}
