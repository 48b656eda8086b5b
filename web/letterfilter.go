package web

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"postrider/query"
	"postrider/web/display"
)

// fact is something that is known, by its name.
type fact struct{ Name, Value string }

// filterFacts are the members that a filter has, in words.
func filterFacts(f *query.DeadLetterFilter) (facts []fact) {
	for _, member := range []struct {
		name  string
		value *string
	}{
		{"Topic", f.Topic},
		{"Event subscription", f.Subscription},
		{"Reason", f.Reason},
		{"Last outcome", f.LastOutcome},
		{"Last status", statusOrNil(f.LastStatus)},
		{"Event id", f.EventID},
		{"Event type", f.EventType},
		{"Subject", f.Subject},
		{"Subject begins with", f.SubjectPrefix},
		{"Source", f.Source},
		{"Given up from", timeOrNil(f.DeadLetteredFrom)},
		{"Given up before", timeOrNil(f.DeadLetteredUntil)},
	} {
		if member.value != nil {
			facts = append(facts, fact{member.name, *member.value})
		}
	}
	if f.Redelivered != nil {
		facts = append(facts, fact{"Redelivered before", map[bool]string{true: "yes", false: "no"}[*f.Redelivered]})
	}
	if f.DeadLetterIDs != nil {
		facts = append(facts, fact{"Named by id", display.Plural(len(f.DeadLetterIDs), "dead letter")})
	}
	return facts
}

func statusOrNil(status *int) *string {
	if status == nil {
		return nil
	}
	return new(display.StatusText(*status))
}

func timeOrNil(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return new(t.UTC().Format("2006-01-02 15:04:05.999999 MST"))
}

// exportLine is the command that writes what matches.
type exportLine struct {
	Command string
	More    bool // it knows less of a filter than a page, and writes more
}

func exportOf(f *query.DeadLetterFilter) exportLine {
	line := exportLine{Command: "postrider deadletter export", More: f.LastOutcome != nil || f.LastStatus != nil ||
		f.EventID != nil || f.EventType != nil}
	for _, option := range []struct {
		name  string
		value *string
	}{
		{"topic", f.Topic},
		{"subscription", f.Subscription},
		{"reason", f.Reason},
		{"from", clockOrNil(f.DeadLetteredFrom)},
		{"until", clockOrNil(f.DeadLetteredUntil)},
	} {
		if option.value != nil {
			line.Command += " --" + option.name + " " + quoteShell(*option.value)
		}
	}
	line.Command += " -o dead.ndjson"
	return line
}

func clockOrNil(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return new(t.UTC().Format(time.RFC3339Nano))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:][A-Za-z0-9_./:-]*$`)

// quoteShell writes a text as a shell takes it for one word. One that begins with a dash would be taken for an option,
// quoted or not; no name does.
func quoteShell(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// progress is how far an operation is.
func progress(o *query.Operation) (text string, percent int) {
	seen := o.Done + o.Skipped + o.Failed
	if o.Matched == nil {
		return display.Grouped(seen), 0
	}
	if o.MatchedAtLeast {
		return display.Grouped(seen) + " of more than " + display.Grouped(*o.Matched), 0
	}
	return display.Grouped(seen) + " of " + display.Grouped(*o.Matched),
		int(100 * min(seen, *o.Matched) / max(1, *o.Matched))
}

// rateText is what somebody allowed.
func rateText(rate *int) string {
	if rate == nil {
		return "as fast as it goes"
	}
	return "at most " + strconv.Itoa(*rate) + " in a second"
}
