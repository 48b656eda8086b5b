package filter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"postrider/internal/jsonscan"
)

// Clause is one clause of a filter with its result for one event.
type Clause struct {
	// Clause is the property: includedEventTypes, subjectBeginsWith, subjectEndsWith, advancedFilters[0].
	Clause string `json:"clause"`
	Passed bool   `json:"passed"`
	// Why says what the event has and what the clause requires; "" if the clause passed.
	Why string `json:"why,omitempty"`
}

// maxShown is the most characters of a value in Why.
const maxShown = 100

// Explain checks every clause of the filter, even after one that failed, with the functions of Matches. The event
// matches if all of them passed; a filter without clauses matches every event.
func (f *Filter) Explain(view *EventView) []Clause {
	clauses := []Clause{}
	if !f.everyType() {
		clauses = append(clauses, explained("includedEventTypes", f.matchType(view.Type), func() string {
			quoted := make([]string, len(f.IncludedEventTypes))
			for i, text := range f.IncludedEventTypes {
				quoted[i] = strconv.Quote(text)
			}
			return fmt.Sprintf("the event type is %s, but must be one of %s", shown(view.Type),
				shorten(strings.Join(quoted, ", ")))
		}))
	}
	if f.SubjectBeginsWith != "" {
		alone := Filter{SubjectBeginsWith: f.SubjectBeginsWith, IsSubjectCaseSensitive: f.IsSubjectCaseSensitive}
		clauses = append(clauses, explained("subjectBeginsWith", alone.matchSubject(view.Subject), func() string {
			return f.whySubject("begin with", f.SubjectBeginsWith, view.Subject)
		}))
	}
	if f.SubjectEndsWith != "" {
		alone := Filter{SubjectEndsWith: f.SubjectEndsWith, IsSubjectCaseSensitive: f.IsSubjectCaseSensitive}
		clauses = append(clauses, explained("subjectEndsWith", alone.matchSubject(view.Subject), func() string {
			return f.whySubject("end with", f.SubjectEndsWith, view.Subject)
		}))
	}
	return append(clauses, f.explainAdvanced(view)...)
}

func explained(clause string, passed bool, why func() string) Clause {
	if passed {
		return Clause{Clause: clause, Passed: true}
	}
	return Clause{Clause: clause, Why: why()}
}

func (f *Filter) whySubject(verb, part, subject string) string {
	why := fmt.Sprintf("the subject is %s, but must %s %s", shown(subject), verb, shown(part))
	if f.IsSubjectCaseSensitive {
		return why + ", with regard to case"
	}
	return why
}

func (f *Filter) explainAdvanced(view *EventView) []Clause {
	if !f.Advanced() {
		return nil
	}
	s, e := NewSet([]*Filter{f}), &evaluation{}
	e.read(&s.keySet, view)
	found := make([]Clause, len(f.AdvancedFilters))
	for i := range f.AdvancedFilters {
		c := &s.filters[0].clauses[i]
		found[i] = explained(fmt.Sprintf("advancedFilters[%d]", i), e.holds(c), func() string {
			return f.AdvancedFilters[i].why(c, &e.values[c.key])
		})
	}
	return found
}

// why says why a clause failed: "data.total is 5, but must be greater than 10".
func (a *AdvancedFilter) why(c *clause, v *value) string {
	if c.operator == nil {
		return "the filter cannot be read and matches no event"
	}
	why := fmt.Sprintf("%s is %s, but must %s", shorten(a.Key), v.shown(), c.must)
	if operands := a.operands(c.operator); len(operands) > 0 {
		texts := make([]string, len(operands))
		for i, raw := range operands {
			texts[i] = string(raw)
		}
		why += " " + shorten(strings.Join(texts, ", "))
	}
	switch {
	case c.operand == operandNone || v.kind <= valueNull:
	case v.kind == valueArray && !c.arrays:
		why += "; arrays match only with enableAdvancedFilteringOnArrays"
	case v.kind == valueArray && c.negated:
		why += ", and so must each of its elements"
	case v.kind == valueArray:
		why += ", or one of its elements must"
	case !c.comparable(v):
		kinds := [...]string{"numbers", "numbers", "booleans", "strings", "nothing"}
		why += fmt.Sprintf("; %s compares %s only", c.name, kinds[c.operand])
	}
	return why
}

// shown is a value as the event has it, shortened.
func (v *value) shown() string {
	switch {
	case v.kind <= valueNull:
		return v.kind.String()
	case v.kind == valueString && v.text == nil:
		return shown(v.plain)
	case v.kind == valueString:
		text, _ := jsonscan.Unescape(v.text)
		return shown(string(text))
	case v.kind == valueArray || v.kind == valueObject:
		return v.kind.String() + ", " + shorten(string(v.text))
	default:
		return shorten(string(v.text))
	}
}

// shown quotes a shortened text.
func shown(text string) string { return strconv.Quote(shorten(text)) }

// shorten cuts a text to maxShown characters.
func shorten(text string) string {
	if utf8.RuneCountInString(text) <= maxShown {
		return text
	}
	return string([]rune(text)[:maxShown-1]) + "…"
}
