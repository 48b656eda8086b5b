package postgres

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// ColumnOf is a column of a group of rows: one array for each statement.
type ColumnOf[T any] struct {
	name, kind string
	values     func([]T) any
}

// Col is a column with its type in SQL, and its value in a row.
func Col[T, V any](name, kind string, value func(T) V) ColumnOf[T] {
	return ColumnOf[T]{name, kind, func(rows []T) any { return Column(rows, value) }}
}

// NullTimeCol is a column of times that is NULL for the zero time.
func NullTimeCol[T any](name string, value func(T) time.Time) ColumnOf[T] {
	return Col(name, "timestamptz", func(row T) pgtype.Timestamptz { return NullTime(value(row)) })
}

// NullTextCol is a column of texts that is NULL for "".
func NullTextCol[T any](name string, value func(T) string) ColumnOf[T] {
	return Col(name, "text", func(row T) pgtype.Text { return NullText(value(row)) })
}

// NullIntCol is a column of integers that is NULL for 0.
func NullIntCol[T any](name string, value func(T) int64) ColumnOf[T] {
	return Col(name, "bigint", func(row T) pgtype.Int8 { return NullInt(value(row)) })
}

// Columns are the columns of a group of rows, which a statement reads as a table.
type Columns[T any] []ColumnOf[T]

// Append adds an array for each column to the parameters of a statement.
func (c Columns[T]) Append(args []any, rows []T) []any {
	for _, column := range c {
		args = append(args, column.values(rows))
	}
	return args
}

// As names the rows in a statement, see Bind.
func (c Columns[T]) As(name string) Parameters {
	p := Parameters{name: name}
	for _, column := range c {
		p.columns, p.kinds = append(p.columns, column.name), append(p.kinds, column.kind+"[]")
	}
	return p
}

// Value is a single parameter.
func Value(name, kind string) Parameters { return Parameters{name: name, kinds: []string{kind}} }

// Parameters are consecutive parameters of a statement: a single value, or the arrays of a group of rows.
type Parameters struct {
	name           string
	columns, kinds []string
}

// Bind replaces the names of parameters by their numbers, in their order: @value, @rows.column for one array, @rows for
// the rows as a table, and @rows.* for the names of its columns. No name is the beginning of another.
func Bind(statement string, parameters ...Parameters) string {
	var pairs []string
	number := 0
	for _, p := range parameters {
		arrays := make([]string, len(p.kinds))
		for i, kind := range p.kinds {
			number++
			arrays[i] = fmt.Sprintf("$%d::%s", number, kind)
		}
		if p.columns == nil {
			pairs = append(pairs, "@"+p.name, arrays[0])
			continue
		}
		pairs = append(pairs, "@"+p.name+".*", strings.Join(p.columns, ", "))
		for i, column := range p.columns {
			pairs = append(pairs, "@"+p.name+"."+column, arrays[i])
		}
		pairs = append(pairs, "@"+p.name, "unnest("+strings.Join(arrays, ", ")+")")
	}
	return strings.NewReplacer(pairs...).Replace(statement)
}
