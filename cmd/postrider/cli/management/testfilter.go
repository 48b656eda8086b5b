package management

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/management"
)

// testedFlags say which events a filter is tested with.
type testedFlags struct {
	Event string `help:"Test with the one event in this file, in the topic's input schema; - reads it from standard input." xor:"events" placeholder:"FILE"`
	Last  *int   `api:"last" help:"Test with the topic's last N events: 1 to 50 (default 50)." xor:"events" placeholder:"N"`
}

// run tests a filter with the operation of this path and prints the result for each event. Without a file it is the
// stored filter.
func (f *testedFlags) run(ctx context.Context, server rest.Flags, path, filterFile string) error {
	if f.Last != nil && (*f.Last < 1 || *f.Last > management.MaxTestedEvents) {
		return terminal.Usagef("--last %d: must be 1 to %d", *f.Last, management.MaxTestedEvents)
	}
	if f.Event == "-" && filterFile == "-" {
		return terminal.Usagef("--event and --filter cannot both be read from standard input")
	}
	test := rest.Given(f)
	for name, file := range map[string]string{"filter": filterFile, "event": f.Event} {
		if file == "" {
			continue
		}
		text, err := terminal.ReadFileOrInput(file)
		if err != nil {
			return err
		}
		if !json.Valid(text) {
			return terminal.Usagef("%s: not one JSON document", file)
		}
		test[name] = json.RawMessage(text)
	}
	var tested management.FilterResults
	if err := server.Call(ctx, http.MethodPost, path+"/testFilter", test, &tested); err != nil {
		return err
	}
	return server.Print(tested, func(w io.Writer) { printTested(w, tested) })
}

type testFilterCmd struct {
	oneSubscription
	testedFlags
	Filter string `help:"Test the filter in this file instead of the stored one, JSON as the filter of an event subscription; - reads it from standard input." placeholder:"FILE"`
}

// Run executes subscription test-filter.
func (c *testFilterCmd) Run(ctx context.Context) error {
	path := c.url()
	if c.Filter != "" { // only the topic's operation takes a filter
		path = rest.TopicURL(c.Topic)
	}
	return c.run(ctx, c.Flags, path, c.Filter)
}

type topicTestFilterCmd struct {
	oneTopic
	testedFlags
	Filter string `required:"" help:"File with the filter, JSON as the filter of an event subscription; - reads it from standard input." placeholder:"FILE"`
}

// Run executes topic test-filter.
func (c *topicTestFilterCmd) Run(ctx context.Context) error {
	return c.run(ctx, c.Flags, rest.TopicURL(c.Topic), c.Filter)
}

// printTested has a line for each event, and one for each further clause that it did not pass.
func printTested(w io.Writer, tested management.FilterResults) {
	fmt.Fprintln(w, "EVENT ID\tTYPE\tSUBJECT\tMATCHED\tCLAUSE\tWHY NOT")
	matched := 0
	for _, result := range tested.Value {
		line := fmt.Sprintf("%s\t%s\t%s\t", terminal.Cell(result.ID), terminal.Cell(result.EventType),
			terminal.Cell(result.Subject))
		if result.Matched {
			matched++
			fmt.Fprintln(w, line+"yes\t\t")
		}
		line += "no"
		for _, clause := range result.Clauses {
			if !clause.Passed {
				fmt.Fprintf(w, "%s\t%s\t%s\n", line, clause.Clause, terminal.OneLine(*clause.Why))
				line = "\t\t\t"
			}
		}
	}
	fmt.Fprintf(w, "(%d of %s matched)\n", matched, terminal.Plural(len(tested.Value), "event"))
}
