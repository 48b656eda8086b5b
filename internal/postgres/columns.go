package postgres

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// columnOf is a column of a group of rows. A statement gets it as one array.
type columnOf[T any] struct {
	name   string
	values func([]T) any
}

// Col is a column with its value in a row.
func Col[T, V any](name string, value func(T) V) columnOf[T] {
	return columnOf[T]{name, func(rows []T) any { return Column(rows, value) }}
}

// NullTimeCol is a column of times that is NULL for the zero time.
func NullTimeCol[T any](name string, value func(T) time.Time) columnOf[T] {
	return Col(name, func(row T) pgtype.Timestamptz { return NullTime(value(row)) })
}

// NullTextCol is a column of texts that is NULL for "".
func NullTextCol[T any](name string, value func(T) string) columnOf[T] {
	return Col(name, func(row T) pgtype.Text { return NullText(value(row)) })
}

// NullIntCol is a column of integers that is NULL for 0.
func NullIntCol[T any](name string, value func(T) int64) columnOf[T] {
	return Col(name, func(row T) pgtype.Int8 { return NullInt(value(row)) })
}

// Columns are the columns of a group of rows that a statement reads as a table, with unnest.
type Columns[T any] []columnOf[T]

// Append adds an array for each column to the parameters of a statement.
func (c Columns[T]) Append(args []any, rows []T) []any {
	for _, column := range c {
		args = append(args, column.values(rows))
	}
	return args
}

// Names are the names of the arrays in a statement, see SQLFiles.
func (c Columns[T]) Names(rows string) (names []string) {
	for _, column := range c {
		names = append(names, rows+"_"+column.name)
	}
	return names
}

// Column returns one value of each member of a group: an array parameter of a statement.
func Column[Q, T any](group []Q, value func(Q) T) []T {
	values := make([]T, len(group))
	for i, member := range group {
		values[i] = value(member)
	}
	return values
}

// NullTime is NULL for the zero time.
func NullTime(t time.Time) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}
}

// NullInt is NULL for 0.
func NullInt(n int64) pgtype.Int8 { return pgtype.Int8{Int64: n, Valid: n != 0} }

// NullText is NULL for "". It removes what a text column cannot hold, so that no text of a third party fails a
// statement.
func NullText(s string) pgtype.Text {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "\uFFFD")
	return pgtype.Text{String: s, Valid: s != ""}
}

// TimeOrNone is the zero time for NULL.
func TimeOrNone(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return *at
}
