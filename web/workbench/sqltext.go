package workbench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"postrider/docs"
)

// parameter is a parameter of a query, with its field in the form.
type parameter struct{ Name, Value string }

var (
	// namedParameters is a line of SQL that names parameters: -- $1 = topic, $2 = subscription
	namedParameters = regexp.MustCompile(`(?m)^--((?:\s*\$\d+ = [^,\n]+,?)+)\s*$`)
	namedParameter  = regexp.MustCompile(`\$(\d+) = ([^,\n]+)`)
	// quoted are the parts of SQL in which $1 is no parameter.
	quoted = regexp.MustCompile(`(?s)'(?:[^']|'')*'|"[^"]*"|\$\$.*?\$\$|--[^\n]*|/\*.*?\*/`)
	used   = regexp.MustCompile(`\$(\d+)`)
)

// maxParameters is the most parameters that the form shows.
const maxParameters = 100

// parametersOf returns the parameters $1, $2, … of SQL with the values of a form. A comment may name them.
func parametersOf(sql string, values []string) []parameter {
	last := 0
	for _, found := range used.FindAllStringSubmatch(quoted.ReplaceAllString(sql, " "), -1) {
		if n, err := strconv.Atoi(found[1]); err == nil && n <= maxParameters {
			last = max(last, n)
		}
	}
	list := make([]parameter, last)
	for i := range list {
		list[i].Name = fmt.Sprintf("$%d", i+1)
		if i < len(values) {
			list[i].Value = values[i]
		}
	}
	for _, line := range namedParameters.FindAllStringSubmatch(sql, -1) {
		for _, named := range namedParameter.FindAllStringSubmatch(line[1], -1) {
			if n, err := strconv.Atoi(named[1]); err == nil && n >= 1 && n <= last {
				list[n-1].Name = strings.TrimSpace(named[2])
			}
		}
	}
	return list
}

// templateOf is a documented question as a query with parameters, which a comment names.
func templateOf(q docs.Question) (sql string, names []string) {
	sql, names = q.Template()
	if len(names) == 0 {
		return sql, nil
	}
	named := make([]string, len(names))
	for i, name := range names {
		named[i] = fmt.Sprintf("$%d = %s", i+1, name)
	}
	return "-- " + strings.Join(named, ", ") + "\n" + sql, names
}

// mistake is why a query has no result.
type mistake struct {
	Title, Advice string
	// Position is the character of the SQL, from 1; 0 = unknown.
	Position, Line, Column int
	// Excerpt is the line of the SQL with a mark below the character.
	Excerpt string
}

// locate sets the place of the mistake in the SQL.
func (m *mistake) locate(sql string, position int) {
	characters := []rune(sql)
	if position < 1 || position > len(characters)+1 {
		return
	}
	before := string(characters[:position-1])
	start := strings.LastIndexByte(before, '\n') + 1
	m.Position, m.Line = position, strings.Count(before, "\n")+1
	m.Column = len([]rune(before[start:])) + 1
	line, _, _ := strings.Cut(sql[start:], "\n")
	m.Excerpt = line + "\n" + blanks.ReplaceAllString(before[start:], " ") + "^"
}

// blanks are the characters before a mark that take its width; a tab stays one.
var blanks = regexp.MustCompile(`[^\t]`)
