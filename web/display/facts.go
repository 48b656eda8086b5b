package display

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/internal/query"
)

// Fact is a member of a filter that is set.
type Fact struct {
	Label, Text string
	Time        *time.Time // instead of Text
}

// FactsOf lists the members that are set in a filter, a struct of package query. The label is that of the tag label,
// otherwise the words of the member's name.
func FactsOf(filter any) (facts []Fact) {
	eachSet(filter, func(field reflect.StructField, label string, value any) {
		switch v := value.(type) {
		case time.Time:
			facts = append(facts, Fact{Label: label, Time: &v})
		case bool:
			facts = append(facts, Fact{Label: label, Text: map[bool]string{true: "yes", false: "no"}[v]})
		case []uuid.UUID:
			facts = append(facts, Fact{Label: label, Text: Grouped(len(v))})
		case []int64:
			facts = append(facts, Fact{Label: label, Text: Grouped(len(v))})
		case []query.Condition:
			for _, condition := range v {
				facts = append(facts, Fact{Label: label, Text: condition.String()})
			}
		case int:
			text := strconv.Itoa(v)
			switch status := memberOf(field) == "lastStatus"; {
			case status && v == 0:
				text = "no response"
			case status:
				text = StatusText(v)
			}
			facts = append(facts, Fact{Label: label, Text: text})
		default:
			facts = append(facts, Fact{Label: label, Text: fmt.Sprint(v)})
		}
	})
	return facts
}

// Export is a command that exports dead letters.
type Export struct {
	Command string
	// Missing are the labels of the members of the filter for which the command has no flag.
	Missing []string
}

// ExportFlags are the members of query.DeadLetterFilter for which "postrider deadletter export" has a flag.
var ExportFlags = []string{"topic", "subscription", "reason", "state", "deadLetteredFrom", "deadLetteredUntil"}

// ExportOf is the command that exports the dead letters that match a filter.
func ExportOf(filter query.DeadLetterFilter) Export {
	e := Export{Command: "postrider deadletter export"}
	eachSet(filter, func(field reflect.StructField, label string, value any) {
		member := memberOf(field)
		if !slices.Contains(ExportFlags, member) {
			e.Missing = append(e.Missing, label)
			return
		}
		text := fmt.Sprint(value)
		if at, is := value.(time.Time); is {
			text = at.UTC().Format(time.RFC3339Nano)
		}
		e.Command += " --" + cmp.Or(field.Tag.Get("name"), member) + " " + QuoteShell(text)
	})
	e.Command += " -o dead.ndjson"
	return e
}

// eachSet calls do for each member of a filter that is set, with its label and its value. Pointers are followed.
func eachSet(filter any, do func(field reflect.StructField, label string, value any)) {
	v := reflect.Indirect(reflect.ValueOf(filter))
	if !v.IsValid() {
		return
	}
	for _, field := range reflect.VisibleFields(v.Type()) {
		value := v.FieldByIndex(field.Index)
		if value.IsZero() {
			continue
		}
		label := field.Tag.Get("label")
		if label == "" {
			label = wordsOf(memberOf(field))
		}
		do(field, label, reflect.Indirect(value).Interface())
	}
}

// memberOf is the name of a member of a filter.
func memberOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return cmp.Or(field.Tag.Get("query"), name)
}

// wordsOf is the name of a member in words: deadLetteredUntil is "Dead-lettered before".
func wordsOf(member string) string {
	words := strings.ReplaceAll(query.ColumnOf(member), "_", " ")
	words = strings.NewReplacer("dead letter", "dead-letter", "until", "before").Replace(words)
	return strings.ToUpper(words[:1]) + words[1:]
}
