package postgres

import (
	"io/fs"
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
			b.WriteString(code + " " + SQLFile(folder, comment, without...))
		case code != "":
			b.WriteString(code + "\n")
		}
	}
	return b.String()
}
