// Package docs has the questions of operators, with the SQL that the program runs, the tests check, the benchmark
// measures and reference/sql.md shows.
package docs

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed questions.sql
var questions string

// Question is a question of operators, with the SQL that answers it.
type Question struct {
	// Number counts from 1, in the file's order.
	Number int
	// Name is one word, in lower case, with hyphens.
	Name string
	// Title is the question itself.
	Title string
	// Note is what to know about the answer; it may be empty.
	Note string
	// SQL is one statement without a semicolon at its end, with examples of its parameters: see With.
	SQL string
}

// parameters are what a question may be about, each with the example that stands in the SQL of the page.
var parameters = []struct{ name, example string }{
	{"topic", "orders"}, {"subscription", "billing"}, {"event-id", "order-42"},
}

// Questions returns those of questions.sql, in its order.
func Questions() (all []Question) {
	for i, text := range strings.Split(questions, "\n\n")[1:] {
		q := Question{Number: i + 1}
		title, rest, _ := strings.Cut(strings.TrimPrefix(text, "-- "), "\n")
		q.Name, q.Title, _ = strings.Cut(title, ": ")
		for strings.HasPrefix(rest, "-- ") {
			var note string
			note, rest, _ = strings.Cut(rest[3:], "\n")
			q.Note = strings.TrimSpace(q.Note + " " + note)
		}
		q.SQL = strings.TrimSuffix(strings.TrimSpace(rest), ";")
		all = append(all, q)
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

// Template returns the question's SQL with $1, $2, … instead of the examples, and the names of these parameters.
func (q Question) Template() (sql string, names []string) {
	names = q.About()
	var pairs []string
	for _, p := range parameters {
		if i := slices.Index(names, p.name); i >= 0 {
			pairs = append(pairs, literal(p.example), fmt.Sprintf("$%d", i+1))
		}
	}
	return strings.NewReplacer(pairs...).Replace(q.SQL), names
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
