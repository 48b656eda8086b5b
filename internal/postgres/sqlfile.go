package postgres

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// SQLFile returns the statement of an embedded file without its comments. A line that ends in "-- NAME.sql" includes
// that file of the same folder. The lines between "-- begin PART" and "-- end" are omitted if without has PART. It
// panics if the file does not exist: call it when the program starts.
func SQLFile(folder fs.FS, name string, without ...string) string {
	text, err := fs.ReadFile(folder, "sql/"+name)
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	b.Grow(len(text))
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
		case skip:
		case strings.HasSuffix(comment, ".sql") && !strings.Contains(comment, " "):
			b.WriteString(code)
			b.WriteByte(' ')
			b.WriteString(SQLFile(folder, comment, without...))
		case code != "":
			b.WriteString(code)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// SQLFiles reads the statements of a package's folder sql. The function returns one of them by its name without ".sql".
// It panics if there is none.
func SQLFiles(folder fs.FS) func(name string) string {
	paths, _ := fs.Glob(folder, "sql/*.sql") // the pattern is valid
	statements := map[string]string{}
	for _, file := range paths {
		name := path.Base(file)
		statements[strings.TrimSuffix(name, ".sql")] = SQLFile(folder, name)
	}
	return func(name string) string {
		statement, known := statements[name]
		if !known {
			panic("no file sql/" + name + ".sql")
		}
		return statement
	}
}
