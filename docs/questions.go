// Package docs reads the questions of reference/sql.md, so that the program runs, the tests check and the benchmark
// measures the text that people read.
package docs

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed reference/sql.md
var page string

// Question is a question of operators, with the SQL that answers it.
type Question struct {
	// Number counts from 1, in the page's order.
	Number int
	// Name is one word, in lower case, with hyphens.
	Name string
	// Title is the question itself.
	Title string
	// SQL is one statement without a semicolon at its end, with examples of its parameters: see With.
	SQL string
}

// parameters are what a question may be about, each with the example that stands in the SQL of the page.
var parameters = []struct{ name, example string }{
	{"topic", "orders"}, {"subscription", "billing"}, {"event-id", "order-42"},
}

// asked is a heading such as "### 3 `event` What became of one event?" with the fence that follows it.
var asked = regexp.MustCompile("(?m)^### (\\d+) `([a-z-]+)` (.+)\n(?:[^`#]*\n)?```sql(?: run)?\n((?:[^`]*\n)?)```$")

// Questions returns those of reference/sql.md, in its order.
func Questions() []Question {
	found := asked.FindAllStringSubmatch(page, -1)
	all := make([]Question, len(found))
	for i, m := range found {
		all[i] = Question{Number: i + 1, Name: m[2], Title: m[3], SQL: strings.TrimSuffix(strings.TrimSpace(m[4]), ";")}
	}
	return all
}

// Find returns the question of that number or name.
func Find(nameOrNumber string) (Question, bool) {
	for _, q := range Questions() {
		if q.Name == nameOrNumber || fmt.Sprint(q.Number) == nameOrNumber {
			return q, true
		}
	}
	return Question{}, false
}

// With returns the question's SQL with other values of its parameters; those that are absent or empty keep the example.
// In the SQL they are literals, of which each is replaced whole and quoted.
func (q Question) With(values map[string]string) string {
	var pairs []string
	for _, p := range parameters {
		pairs = append(pairs, literal(p.example), literal(cmp.Or(values[p.name], p.example)))
	}
	return strings.NewReplacer(pairs...).Replace(q.SQL)
}

// About returns the parameters of the question: topic, subscription, event-id.
func (q Question) About() (names []string) {
	for _, p := range parameters {
		if strings.Contains(q.SQL, literal(p.example)) {
			names = append(names, p.name)
		}
	}
	return names
}

// literal is the text as PostgreSQL reads it whatever standard_conforming_strings says.
func literal(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		return " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
