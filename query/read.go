package query

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// Reader reads what the REST API's lists, the dashboard's pages and the metrics show. It needs no encryption key.
type Reader struct {
	db    *postgres.DB
	clock *postgres.Clock
}

// NewReader returns a Reader of a database.
func NewReader(db *postgres.DB, clock *postgres.Clock) *Reader { return &Reader{db, clock} }

// Turn says which page of a list that runs from the newest to the oldest: the rows older than Before, or those newer
// than After. At most one of them is set; neither is the newest page.
type Turn[K any] struct {
	Before, After *K
	// Limit is how many rows a page has.
	Limit int
}

// Page is a page of such a list, the newest row first.
type Page[T any] struct {
	Rows []T
	// Newer and Older: there is a page on that side.
	Newer, Older bool
}

// way is the order in which the rows of the page are met, and how their key compares to the cursor.
func (t Turn[K]) way() (order, compare string) {
	if t.After != nil {
		return "ASC", ">"
	}
	return "DESC", "<"
}

// cursor is the key that the page goes on from; nil = from the newest.
func (t Turn[K]) cursor() *K {
	if t.After != nil {
		return t.After
	}
	return t.Before
}

// args are those of the page's query. One row more than it shows tells whether there are more.
func (t Turn[K]) args(more pgx.NamedArgs) pgx.NamedArgs {
	more["cursor"], more["limit"] = t.cursor(), t.Limit+1
	return more
}

// pageOf makes a page of the rows that were met in the turn's way.
func pageOf[T, K any](rows []T, t Turn[K]) Page[T] {
	more := len(rows) > t.Limit
	rows = rows[:min(len(rows), t.Limit)]
	if t.After != nil {
		slices.Reverse(rows)
		return Page[T]{Rows: rows, Newer: more, Older: true}
	}
	return Page[T]{Rows: rows, Newer: t.Before != nil, Older: more}
}

// pageBy runs a query that is written with the verbs %[1]s for the order and %[2]s for the comparison.
func pageBy[T, K any](ctx context.Context, tx pgx.Tx, query string, t Turn[K], args pgx.NamedArgs) (Page[T], error) {
	order, compare := t.way()
	rows, err := postgres.Rows[T](ctx, tx, fmt.Sprintf(query, order, compare), t.args(args))
	return pageOf(rows, t), err
}

// lookLimit is how many rows a page looks through for those that its filter wants, where no index knows them: 20,000
// are 5 to 15 ms. A page that has found too few by then says how far it has looked, and the next one goes on from
// there.
const lookLimit = 20_000

// lookEach is how many rows a look goes along each of some indexes. One at least, be there ever so many: or it would
// end where it began.
func lookEach(indexes int) int { return max(1, lookLimit/max(1, indexes)) }

// given passes an unset filter on as NULL.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
