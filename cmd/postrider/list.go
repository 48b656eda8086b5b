package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/store"
)

// newestFlags are what the verbs take that list the newest of very many rows, from the database.
type newestFlags struct {
	databaseFlags
	outputFlag
	Limit int `help:"How many to list at most: 1 to 10000." default:"50" placeholder:"N"`
}

// maxListed bounds a list of a command line.
const maxListed = 10_000

// read does something with the database's lists, where the flags allow it.
func (f newestFlags) read(ctx context.Context, do func(*store.Reader) error) error {
	if f.Limit < 1 || f.Limit > maxListed {
		return usagef("--limit %d: must be 1 to %d", f.Limit, maxListed)
	}
	return f.withReader(ctx, do)
}

// withReader does something with what the database has.
func (f databaseFlags) withReader(ctx context.Context, do func(*store.Reader) error) error {
	return f.withPool(ctx, func(pool *pgxpool.Pool) error { return do(store.ReaderOf(pool)) })
}

// newest reads the newest rows of a list, up to limit, and goes on where a page looked through all it may and found too few.
func newest[T, K any](limit int, key func(T) K, read func(store.Turn[K]) (store.Page[T], *K, error)) (list []T, err error) {
	const most = 1000
	turn := store.Turn[K]{}
	for {
		turn.Limit = min(most, limit-len(list))
		page, lookedTo, err := read(turn)
		if err != nil {
			return nil, err
		}
		list = append(list, page.Rows...)
		switch {
		case len(list) == limit:
			return list, nil
		case lookedTo != nil:
			turn.Before = lookedTo
		case page.Older:
			last := key(page.Rows[len(page.Rows)-1])
			turn.Before = &last
		default:
			return list, nil
		}
	}
}

// describedAs is the list as the REST API writes it.
func describedAs[T, D any](list []T, describe func(*T) D) []D {
	shown := make([]D, len(list))
	for i := range list {
		shown[i] = describe(&list[i])
	}
	return shown
}

// spanGiven refuses a stretch of time that is none.
func spanGiven(from, until *time.Time) error {
	if from != nil && until != nil && !from.Before(*until) {
		return usagef("--from must be before --until")
	}
	return nil
}

// stateCell is a state with the hold that is in its way.
func stateCell(state string, hold *string) string {
	if hold == nil {
		return state
	}
	return state + ", " + *hold
}

// answerCell is the status that was met last, or what came of the attempt where there was none.
func answerCell(status *int, outcome *string) string {
	switch {
	case status != nil:
		return fmt.Sprint(*status)
	case outcome != nil:
		return *outcome
	default:
		return "-"
	}
}

// printNamed writes a name and its value on each line.
func printNamed(w io.Writer, namesAndValues ...any) {
	for pair := range slices.Chunk(namesAndValues, 2) {
		fmt.Fprint(w, tableRow(pair...))
	}
}

// tableRow writes cells of one row; what others wrote cannot leave its cell.
func tableRow(cells ...any) string {
	text := make([]string, len(cells))
	for i, value := range cells {
		switch value := value.(type) {
		case *string:
			text[i] = cell(optionalCell(value))
		case *time.Time:
			if text[i] = "-"; value != nil {
				text[i] = moment(*value)
			}
		case time.Time:
			text[i] = moment(value)
		default:
			text[i] = cell(value)
		}
	}
	return strings.Join(text, "\t") + "\n"
}
