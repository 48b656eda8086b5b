package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// readTime bounds each statement that reads a page or a list for a person.
const readTime = 5 * time.Second

// Reader answers what people ask of what is stored. It holds no secret: a program without the encryption key has one, see ReaderOf.
type Reader struct {
	pool *pgxpool.Pool
}

// ReaderOf reads a database without a store.
func ReaderOf(pool *pgxpool.Pool) *Reader { return &Reader{pool} }

// reading runs statements of one page, all of one snapshot: what a page counts and what it lists agree. ErrTooSlow where one of them
// took longer than readTime, ErrUnavailable, ErrNotFound of read itself.
func (r *Reader) reading(ctx context.Context, what string, read func(pgx.Tx) error) error {
	return readingOver(ctx, r.pool, what, read)
}

// beginner begins transactions: a pool, or one connection.
type beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// readingOver is reading over a connection that the caller has.
func readingOver(ctx context.Context, db beginner, what string, read func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, db, options, func(tx pgx.Tx) error {
		if err := endAfter(ctx, tx, readTime); err != nil {
			return err
		}
		return read(tx)
	})
	switch {
	case err == nil, errors.Is(err, ErrNotFound):
		return err
	case sqlState(err) == queryCanceled:
		return fmt.Errorf("read %s within %s: %w: %w", what, readTime, ErrTooSlow, err)
	default:
		return readError(what, err)
	}
}

// rowsOf collects what a query finds, column by name.
func rowsOf[T any](ctx context.Context, tx pgx.Tx, query string, args pgx.NamedArgs) ([]T, error) {
	rows, err := tx.Query(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[T])
}

// rowOf collects the one row that a query finds; ErrNotFound where there is none.
func rowOf[T any](ctx context.Context, tx pgx.Tx, query string, args pgx.NamedArgs) (*T, error) {
	rows, err := tx.Query(ctx, query, args)
	if err != nil {
		return nil, err
	}
	row, err := pgx.CollectOneRow(rows, pgx.RowToAddrOfStructByName[T])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return row, err
}

// Turn says which page of a list that runs from the newest to the oldest: the rows older than Before, or those newer than After. At
// most one of them is set; neither is the newest page.
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
	rows, err := rowsOf[T](ctx, tx, fmt.Sprintf(query, order, compare), t.args(args))
	return pageOf(rows, t), err
}

// lookLimit is how many rows a page looks through for those that its filter wants, where no index knows them: 20,000 are 5 to 15 ms. A page that
// has found too few by then says how far it has looked, and the next one goes on from there.
const lookLimit = 20_000

// lookEach is how many rows a look goes along each of some indexes. One at least, be there ever so many: or it would end where it began.
func lookEach(indexes int) int { return max(1, lookLimit/max(1, indexes)) }

// given passes an unset filter on as NULL.
func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
