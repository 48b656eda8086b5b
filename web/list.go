package web

import (
	"github.com/labstack/echo/v4"

	"postrider/query"
	"postrider/web/display"
)

// list is what the page of a list shows.
type list[T any] struct {
	Noun   string // what it lists, in the singular
	Filter *display.Filter
	Rows   []T
	Paging display.Paging
	SQL    string // the statement that lists the same; "" for none
}

// Empty reports that there is nothing to list, with any filter.
func (l list[T]) Empty() bool { return len(l.Rows) == 0 && l.Paging.Further == "" && !l.Filter.Set }

// listOf reads a page of a list: the one that the address names, of the rows that its filter matches.
func listOf[T, K any](
	c echo.Context, noun string, f *display.Filter, key func(*T) K,
	read func(query.Turn[K]) (query.SearchedPage[T, K], error),
) (l list[T], err error) {
	turn := display.TurnOf[K](f)
	if f.Err != nil {
		return l, f.Err
	}
	page, err := read(turn)
	return list[T]{Noun: noun, Filter: f, Rows: page.Rows, Paging: display.PagingOf(c, page, key)}, err
}

// forward reads a page of a list that can be read only forward, from a place after which limit rows are read.
func forward[T, K any](
	t query.Turn[K], read func(after K, limit int) ([]T, error),
) (page query.SearchedPage[T, K], err error) {
	var after K
	if t.Before != nil {
		after = *t.Before
	}
	found, err := read(after, t.Limit+1)
	page.Rows, page.Older = found[:min(len(found), t.Limit)], len(found) > t.Limit
	return page, err
}

// owner reads the fields of an event subscription and its topic.
func owner(f *display.Filter) (topic, subscription string) {
	return f.Name("Topic", "topic", "topic = ?"), f.Name("Event subscription", "subscription", "subscription = ?")
}
