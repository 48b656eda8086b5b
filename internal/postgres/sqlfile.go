package postgres

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// SQLFiles reads the statements of a package's folder sql, with the files that they include and without comments. The
// function returns one of them by its name without ".sql". It replaces named arguments by their numbers in this order,
// unless there are none: pgx.NamedArgs would do so at each call, 60 µs for the one that publishes. Both panic if a file
// or an argument does not exist.
func SQLFiles(folder fs.FS) func(name string, arguments ...string) string {
	paths, _ := fs.Glob(folder, "sql/*.sql") // the pattern is valid
	statements := map[string]string{}
	for _, file := range paths {
		name := path.Base(file)
		statements[strings.TrimSuffix(name, ".sql")] = withoutComments(includedFile(folder, name))
	}
	return func(name string, arguments ...string) string {
		statement, known := statements[name]
		if !known {
			panic("no file sql/" + name + ".sql")
		}
		if len(arguments) == 0 {
			return statement
		}
		return argument.ReplaceAllStringFunc(statement, func(found string) string {
			i := slices.Index(arguments, found[1:])
			if i < 0 {
				panic(name + ".sql has no argument for " + found)
			}
			return "$" + strconv.Itoa(i+1)
		})
	}
}

func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		code, _, _ := strings.Cut(line, "-- ")
		if code = strings.TrimRight(code, " \n"); code != "" {
			b.WriteString(code + "\n")
		}
	}
	return b.String()
}

var argument = regexp.MustCompile(`@[a-z_]+`)

var includes = regexp.MustCompile(`-- \w+\.sql\n`)

// Include replaces each "-- NAME.sql" at the end of a line by that file of the folder sql, as it is.
func Include(folder fs.FS, text string) string {
	return includes.ReplaceAllStringFunc(text, func(line string) string {
		return "\n" + includedFile(folder, strings.TrimSpace(line[len("-- "):]))
	})
}

func includedFile(folder fs.FS, name string) string {
	text, err := fs.ReadFile(folder, "sql/"+name)
	if err != nil {
		panic(err)
	}
	return Include(folder, string(text))
}
