package delivery

import (
	"embed"
	"fmt"
	"strings"

	"postrider/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string, without ...string) string {
	return postgres.SQLFile(sqlFiles, name, without...)
}

// parameterOf is a column of a group of rows: one array for each statement.
type parameterOf[T any] struct {
	name, kind string
	values     func([]T) any
}

func param[T, V any](name, kind string, value func(T) V) parameterOf[T] {
	return parameterOf[T]{name, kind, func(rows []T) any { return postgres.Column(rows, value) }}
}

// parameters are the columns of a group of rows, which a statement reads as a table.
type parameters[T any] []parameterOf[T]

// table is the SQL for the rows, if the first column is the parameter with this number.
func (p parameters[T]) table(alias string, first int) string {
	arrays, names := make([]string, len(p)), make([]string, len(p))
	for i, c := range p {
		arrays[i], names[i] = fmt.Sprintf("$%d::%s[]", first+i, c.kind), c.name
	}
	return fmt.Sprintf("unnest(%s) AS %s(%s)", strings.Join(arrays, ", "), alias, strings.Join(names, ", "))
}

// append adds an array for each column.
func (p parameters[T]) append(args []any, rows []T) []any {
	for _, c := range p {
		args = append(args, c.values(rows))
	}
	return args
}
