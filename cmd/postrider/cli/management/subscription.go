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

// SubscriptionCmd is subscription with its verbs.
type SubscriptionCmd struct {
	Create subscriptionCreateCmd `cmd:"" help:"Make an event subscription."`
	Update subscriptionUpdateCmd `cmd:"" help:"Change some settings of an event subscription."`
	List   subscriptionListCmd   `cmd:"" help:"List a topic's event subscriptions, or all."`
	Show   subscriptionShowCmd   `cmd:"" help:"Show an event subscription with its effective settings."`
	Delete subscriptionDeleteCmd `cmd:"" help:"Delete an event subscription and cancel its pending deliveries."`

	TestFilter testFilterCmd `cmd:"" help:"Show which events an event subscription's filter wants, and which clause decided."`
	Pause      pauseCmd      `cmd:"" help:"Hold an event subscription's deliveries until it is resumed."`
	Resume     resumeCmd     `cmd:"" help:"End a pause."`
	Release    releaseCmd    `cmd:"" help:"End a probation without waiting for its probe."`
	Probe      probeCmd      `cmd:"" help:"Let one delivery through a probation now."`

	Validate       validateCmd       `cmd:"" help:"Run the validation handshake with the endpoint again."`
	TestDelivery   testDeliveryCmd   `cmd:"" help:"Send a sample event to an event subscription alone."`
	Reveal         revealCmd         `cmd:"" help:"Show the endpoint's whole URL and the custom headers, secrets included."`
	SigningSecrets signingSecretsCmd `cmd:"" help:"Show the secrets that deliveries are signed with, or replace the newest."`
}

// testedFlags say which events a filter is tested with.
type testedFlags struct {
	Event string `help:"Test with the one event in this file, in the topic's input schema; - reads it from standard input." xor:"events" placeholder:"FILE"`
	Last  *int   `api:"last" help:"Test with as many of the topic's last events: 1 to 50 (default 50)." xor:"events" placeholder:"N"`
}

// test is the body of a request to test a filter; without a file, the filter that is stored.
func (f testedFlags) test(filterFile string) (rest.Object, error) {
	if f.Last != nil && (*f.Last < 1 || *f.Last > management.MaxTestedEvents) {
		return nil, terminal.Usagef("--last %d: must be 1 to %d", *f.Last, management.MaxTestedEvents)
	}
	if f.Event == "-" && filterFile == "-" {
		return nil, terminal.Usagef("--event and --filter cannot both be read from standard input")
	}
	test := rest.Given(&f)
	for name, file := range map[string]string{"filter": filterFile, "event": f.Event} {
		if file == "" {
			continue
		}
		text, err := terminal.ReadFileOrInput(file)
		if err != nil {
			return nil, err
		}
		if !json.Valid(text) {
			return nil, terminal.Usagef("%s: not one JSON document", file)
		}
		test[name] = json.RawMessage(text)
	}
	return test, nil
}

// testFilter tests a filter and prints what it says of each event.
func testFilter(ctx context.Context, f rest.Flags, path string, test rest.Object) error {
	var tested management.FilterResults
	if err := f.Call(ctx, http.MethodPost, path+"/testFilter", test, &tested); err != nil {
		return err
	}
	return f.Print(tested, func(w io.Writer) { printTested(w, tested) })
}

type testFilterCmd struct {
	oneSubscription
	testedFlags
	Filter string `help:"Try the filter in this file, JSON as filter of an event subscription takes it, instead of the one that is stored; - reads it from standard input." placeholder:"FILE"`
}

// Help is shown by subscription test-filter --help.
func (testFilterCmd) Help() string {
	return `Nothing is stored or delivered. Every clause that an event does not pass is shown; JSON has each clause.

Examples:
  postrider subscription test-filter orders billing
  postrider subscription test-filter orders billing --event order.json -o json
  echo '{"includedEventTypes":["Shop.OrderPlaced"]}' | postrider subscription test-filter orders billing --filter -`
}

// Run executes subscription test-filter.
func (c *testFilterCmd) Run(ctx context.Context) error {
	test, err := c.test(c.Filter)
	if err != nil {
		return err
	}
	path := rest.SubscriptionURL(c.Topic, c.Subscription)
	if c.Filter != "" { // only the topic's operation takes a filter
		path = rest.TopicURL(c.Topic)
	}
	return testFilter(ctx, c.Flags, path, test)
}

type topicTestFilterCmd struct {
	oneTopic
	testedFlags
	Filter string `required:"" help:"The filter is in this file, JSON as filter of an event subscription takes it; - reads it from standard input." placeholder:"FILE"`
}

// Help is shown by topic test-filter --help.
func (topicTestFilterCmd) Help() string {
	return `Nothing is stored or delivered. subscription test-filter tests the filter of an event subscription.

Examples:
  echo '{"includedEventTypes":["Shop.OrderPlaced"]}' | postrider topic test-filter orders --filter -
  postrider topic test-filter orders --filter filter.json --event order.json -o json`
}

// Run executes topic test-filter.
func (c *topicTestFilterCmd) Run(ctx context.Context) error {
	test, err := c.test(c.Filter)
	if err != nil {
		return err
	}
	return testFilter(ctx, c.Flags, rest.TopicURL(c.Topic), test)
}

// printTested has a line for each event, and one for each further clause that it did not pass.
func printTested(w io.Writer, tested management.FilterResults) {
	fmt.Fprintln(w, "EVENT ID\tTYPE\tSUBJECT\tWANTED\tCLAUSE\tWHY NOT")
	wanted := 0
	for _, result := range tested.Value {
		line := fmt.Sprintf("%s\t%s\t%s\t", terminal.Cell(result.ID), terminal.Cell(result.EventType),
			terminal.Cell(result.Subject))
		if result.Matched {
			wanted++
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
	fmt.Fprintf(w, "(%d of %s wanted)\n", wanted, terminal.Plural(len(tested.Value), "event"))
}
