package site

import (
	"context"

	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
)

// List is what the page of a list shows.
type List[T any] struct {
	Noun   string // what it lists, in the singular
	Filter *display.Filter
	Rows   []T
	Paging display.Paging
}

// Empty reports that there is nothing to list, with any filter.
func (l List[T]) Empty() bool { return len(l.Rows) == 0 && l.Paging.Further == "" && !l.Filter.Set }

// ListOf reads a page of a list: the one that the address names, of the rows that the filter matches.
func ListOf[F, T, K any](
	ctx context.Context, c echo.Context, noun string, f *display.Filter, filter F,
	read func(context.Context, F, query.Turn[K]) (query.SearchedPage[T, K], error), key func(*T) K,
) (l List[T], err error) {
	turn := display.TurnOf[K](f)
	if f.Err != nil {
		return l, f.Err
	}
	page, err := read(ctx, filter, turn)
	return List[T]{noun, f, page.Rows, display.PagingOf(c, page, key)}, err
}

// ForwardList is ListOf for a list without a filter that can be read only forward: limit rows after a key.
func ForwardList[T, K any](
	ctx context.Context, c echo.Context, noun string,
	read func(ctx context.Context, after K, limit int) ([]T, error), key func(*T) K,
) (List[T], error) {
	page := func(ctx context.Context, after K, t query.Turn[K]) (page query.SearchedPage[T, K], err error) {
		if t.Before != nil {
			after = *t.Before
		}
		found, err := read(ctx, after, t.Limit+1)
		page.Rows, page.Older = found[:min(len(found), t.Limit)], len(found) > t.Limit
		return page, err
	}
	var first K
	return ListOf(ctx, c, noun, display.FilterOf(c), first, page, key)
}

// ShowList responds with the page of a list, or with the error of reading it.
func (s *Site) ShowList(c echo.Context, name, title string, view any, err error) error {
	if err != nil {
		return err
	}
	return s.Show(c, name, title, true, view)
}
