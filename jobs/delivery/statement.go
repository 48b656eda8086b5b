package delivery

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"postrider/postgres"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// sqlFile returns an embedded SQL file. A line that ends in "-- NAME.sql" includes that file. The lines between
// "-- begin PART" and "-- end" are left out if PART is named.
func sqlFile(name string, without ...string) string {
	text, err := sqlFiles.ReadFile("sql/" + name)
	if err != nil {
		panic(err) // the file is not part of the program
	}
	var b strings.Builder
	skip := false
	for line := range strings.Lines(string(text)) {
		code, comment, _ := strings.Cut(line, "-- ")
		code, comment = strings.TrimRight(code, " \n"), strings.TrimSpace(comment)
		part, begins := strings.CutPrefix(comment, "begin ")
		switch {
		case code == "" && begins:
			skip = slices.Contains(without, part)
		case code == "" && comment == "end":
			skip = false
		case code == "" || skip: // comments stay in the file
		case strings.HasSuffix(comment, ".sql"):
			b.WriteString(code + " " + sqlFile(comment, without...))
		default:
			b.WriteString(code + "\n")
		}
	}
	return b.String()
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
