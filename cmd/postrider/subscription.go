package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/event"
	"postrider/policy"
	"postrider/server"
	"postrider/store"
)

type subscriptionCmd struct {
	Create subscriptionCreateCmd `cmd:"" help:"Make an event subscription."`
	Update subscriptionUpdateCmd `cmd:"" help:"Change some settings of an event subscription."`
	List   subscriptionListCmd   `cmd:"" help:"List a topic's event subscriptions, or all."`
	Show   subscriptionShowCmd   `cmd:"" help:"Show an event subscription with its effective settings."`
	Delete subscriptionDeleteCmd `cmd:"" help:"Delete an event subscription and cancel what it is owed."`

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

type testFilterCmd struct {
	databaseFlags
	filterFlags
	outputFlag
	Topic        string `arg:"" help:"Name of the topic."`
	Subscription string `arg:"" help:"Name of the event subscription."`
	Event        string `help:"Test with the one event in this file, in the topic's input schema; - reads it from standard input." xor:"events" placeholder:"FILE"`
	Last         *int   `help:"Test with as many of the topic's last events: 1 to 50 (default 50)." xor:"events" placeholder:"N"`
	Filter       string `help:"Try the filter in this file, JSON as filter of an event subscription takes it, instead of the one that is stored; - reads it from standard input." placeholder:"FILE"`
}

// Help is shown by subscription test-filter --help.
func (testFilterCmd) Help() string {
	return `Nothing is stored or delivered. Every clause that an event does not pass is told; JSON is what POST …/testFilter answers and tells of each clause.

Examples:
  postrider subscription test-filter orders billing
  postrider subscription test-filter orders billing --event order.json -o json
  echo '{"includedEventTypes":["Shop.OrderPlaced"]}' | postrider subscription test-filter orders billing --filter -`
}

// Run executes subscription test-filter.
func (c *testFilterCmd) Run(ctx context.Context) error {
	last, filter, event, err := c.read()
	if err != nil {
		return err
	}
	return c.withPool(ctx, func(pool *pgxpool.Pool) error {
		stored, err := store.ReadFilter(ctx, pool, c.Topic, c.Subscription)
		if errors.Is(err, store.ErrNotFound) {
			return usagef("topic %q has no event subscription %q", c.Topic, c.Subscription)
		}
		if err != nil {
			return err
		}
		if filter == nil {
			filter = &stored.Filter
		}
		events, err := c.events(ctx, pool, &stored.Topic, event, last)
		if err != nil {
			return err
		}
		tested := server.TestFilter(stored.Topic.Name, filter, events)
		return c.print(tested, func(w io.Writer) { printTested(w, events, tested) })
	})
}

// read judges what the command line brings; filter and event are nil where it brings none.
func (c *testFilterCmd) read() (last int, filter *policy.Filter, event []byte, err error) {
	last = server.MaxTestedEvents
	if c.Last != nil {
		last = *c.Last
	}
	if last < 1 || last > server.MaxTestedEvents {
		return 0, nil, nil, usagef("--last %d: must be 1 to %d", last, server.MaxTestedEvents)
	}
	if c.Event == "-" && c.Filter == "-" {
		return 0, nil, nil, usagef("--event and --filter cannot both be read from standard input")
	}
	limits, err := c.limits()
	if err != nil {
		return 0, nil, nil, err
	}
	if c.Filter != "" {
		text, err := readFileOrInput(c.Filter)
		if err != nil {
			return 0, nil, nil, err
		}
		read, err := server.ReadFilter(text, limits)
		if err != nil {
			return 0, nil, nil, usagef("%s: %v", c.Filter, err)
		}
		filter = &read
	}
	if c.Event != "" {
		event, err = readFileOrInput(c.Event)
	}
	return last, filter, event, err
}

// events are the one that was brought, or the topic's last ones.
func (c *testFilterCmd) events(ctx context.Context, pool *pgxpool.Pool, topic *store.Topic, brought []byte, last int) ([]event.Event, error) {
	if c.Event == "" {
		events, err := store.LastEvents(ctx, pool, topic.ID, last)
		if errors.Is(err, store.ErrTooSlow) {
			return nil, fmt.Errorf("%w: very many events of other topics are newer; bring one with --event", err)
		}
		return events, err
	}
	events, err := server.ReadTestedEvent(topic, brought)
	if err != nil {
		return nil, usagef("%s: %v", c.Event, err)
	}
	return events, nil
}

// printTested has a line for each event, and one for each further clause that it did not pass. events are nil where the server has looked at them.
func printTested(w io.Writer, events []event.Event, tested server.FilterResults) {
	known := events != nil || len(tested.Value) == 0
	fmt.Fprintln(w, "EVENT ID\t"+either(known, "TYPE\tSUBJECT\t", "")+"WANTED\tCLAUSE\tWHY NOT")
	wanted := 0
	for i, result := range tested.Value {
		line := cell(result.Id) + "\t"
		if known {
			line += fmt.Sprintf("%s\t%s\t", cell(events[i].Type), cell(events[i].Subject))
		}
		if result.Matched {
			wanted++
			fmt.Fprintln(w, line+"yes\t\t")
		}
		line += "no"
		for _, clause := range result.Clauses {
			if !clause.Passed {
				fmt.Fprintf(w, "%s\t%s\t%s\n", line, clause.Clause, oneLine(*clause.Why))
				line = either(known, "\t\t\t", "\t")
			}
		}
	}
	fmt.Fprintf(w, "(%d of %s wanted)\n", wanted, plural(len(tested.Value), "event"))
}
