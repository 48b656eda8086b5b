// Package docs is the folder of the documentation. As a package it knows the questions of sql.md, so that the program
// asks, the tests check and the benchmark measures the very text that people read.
package docs

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed sql.md
var page string

// Question is one that people on call ask, with the SQL that answers it.
type Question struct {
	// Number counts from 1, in the page's order.
	Number int
	// Name is one word for it, in lower case, with hyphens.
	Name string
	// Title is the question itself.
	Title string
	// SQL is one statement without a semicolon at its end. Names in it are examples: see With.
	SQL string
}

// The names that stand in the questions for those of the reader.
const (
	ExampleTopic        = "orders"
	ExampleSubscription = "billing"
	ExampleEventID      = "order-42"
)

// asked is a heading such as "### 3 `event` What became of one event?" with the fence that follows it.
var asked = regexp.MustCompile("(?m)^### (\\d+) `([a-z-]+)` (.+)\n(?:[^`#]*\n)?```sql(?: run)?\n((?:[^`]*\n)?)```$")

// Questions are those of sql.md, in its order.
func Questions() []Question {
	found := asked.FindAllStringSubmatch(page, -1)
	all := make([]Question, len(found))
	for i, m := range found {
		all[i] = Question{Number: i + 1, Name: m[2], Title: m[3], SQL: strings.TrimSuffix(strings.TrimSpace(m[4]), ";")}
	}
	return all
}

// Find is the question of that number or name.
func Find(nameOrNumber string) (Question, bool) {
	for _, q := range Questions() {
		if q.Name == nameOrNumber || fmt.Sprint(q.Number) == nameOrNumber {
			return q, true
		}
	}
	return Question{}, false
}

// Names are what a question is asked about, instead of the examples; "" leaves the example.
type Names struct{ Topic, Subscription, EventID string }

// With is the question's SQL about other names. They stand in it as literals, of which each is replaced whole and
// quoted.
func (q Question) With(n Names) string {
	return strings.NewReplacer(
		literal(ExampleTopic), literal(orElse(n.Topic, ExampleTopic)),
		literal(ExampleSubscription), literal(orElse(n.Subscription, ExampleSubscription)),
		literal(ExampleEventID), literal(orElse(n.EventID, ExampleEventID)),
	).Replace(q.SQL)
}

// About names what the question is asked about: topic, subscription, event-id.
func (q Question) About() (names []string) {
	for _, about := range []struct{ name, example string }{
		{"topic", ExampleTopic}, {"subscription", ExampleSubscription}, {"event-id", ExampleEventID},
	} {
		if strings.Contains(q.SQL, literal(about.example)) {
			names = append(names, about.name)
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

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
