package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"

	"postrider/server"
	"postrider/store"
)

type deadletterEventsCmd struct {
	databaseFlags
	outputFlag
	Topic        string     `arg:"" help:"Name of the topic."`
	Subscription string     `arg:"" help:"Name of the event subscription that gets them."`
	From         time.Time  `required:"" help:"Published at this time or later, such as 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `help:"Published before this time (default: now)." placeholder:"TIME"`
	Rate         int        `help:"At most so many in a second (default: as fast as it goes)." placeholder:"N"`
	DryRun       bool       `help:"Count them, for five seconds at most, and do nothing."`
	NoWait       bool       `help:"Start it and print its id; the service goes on."`
}

// Help is shown by deadletter events --help.
func (deadletterEventsCmd) Help() string {
	return `Those that its filter wants, as far as they are kept; each becomes a new delivery with a time to live of its own.

Examples:
  postrider deadletter events orders billing --from 2026-11-20T09:00:00Z --dry-run
  postrider deadletter events orders billing --from 2026-11-20T09:00:00Z --until 2026-11-20T10:00:00Z --rate 50`
}

// Run executes deadletter events.
func (c *deadletterEventsCmd) Run(ctx context.Context) error {
	if c.Rate < 0 {
		return usagef("--rate %d: must be 1 or more", c.Rate)
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		if c.DryRun {
			found, err := letters.CountEvents(ctx, c.Topic, c.Subscription, c.From, c.Until)
			return c.counted(found, "past event", err)
		}
		id, err := letters.RedeliverEvents(ctx, c.Topic, c.Subscription, c.From, c.Until, c.Rate)
		if err != nil {
			return err
		}
		return follow(ctx, letters, id, c.NoWait, c.outputFlag)
	})
}

type deadletterCancelCmd struct {
	databaseFlags
	outputFlag
	Operation string `arg:"" help:"Id of the operation; postrider.operations lists them."`
}

// Help is shown by deadletter cancel --help.
func (deadletterCancelCmd) Help() string {
	return "What is done stays done.\n\nExample:\n  postrider deadletter cancel 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"
}

// Run executes deadletter cancel.
func (c *deadletterCancelCmd) Run(ctx context.Context) error {
	id, err := readID("operation", c.Operation)
	if err != nil {
		return err
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		canceled, err := letters.CancelOperation(ctx, id)
		if err != nil {
			return err
		}
		now := func() (any, error) {
			operation, err := letters.Operation(ctx, id)
			if err != nil {
				return nil, err
			}
			return server.DescribeOperation(operation), nil
		}
		return c.did(now, "Operation %s %s.", id, either(canceled, "was canceled", "was over already"))
	})
}

// inBulk counts what a filter matches, or starts an operation and follows it.
func (c *chosenFlags) inBulk(ctx context.Context, letters *store.DeadLetters, filter *store.DeadLetterFilter, start func() (uuid.UUID, error)) error {
	if c.DryRun {
		found, err := letters.Count(ctx, filter)
		return c.counted(found, "dead letter", err)
	}
	id, err := start()
	if err != nil {
		return err
	}
	return follow(ctx, letters, id, c.NoWait, c.outputFlag)
}

// counted prints what a dry run found; thing is one of them.
func (f outputFlag) counted(found store.Matched, thing string, err error) error {
	if err != nil {
		return err
	}
	return f.print(server.DescribeMatched(found), func(w io.Writer) {
		text := plural(found.Matched, thing) + either(found.Matched == 1, " matches", " match")
		fmt.Fprintf(w, "%s%s%s.\n", either(found.AtLeast, "At least ", ""), text, either(found.AtLeast, "; counting was stopped", ""))
	})
}

const (
	followInterval = 250 * time.Millisecond
	// idlePatience is how long nothing may happen before somebody is told that a service is needed.
	idlePatience = 5 * time.Second
)

// follow waits until an operation is over and prints how it ended. On a terminal a line tells how far it is.
func follow(ctx context.Context, letters *store.DeadLetters, id uuid.UUID, noWait bool, out outputFlag) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	told, line := false, newProgressLine()
	defer line.end()
	for began := time.Now(); ; {
		o, err := letters.Operation(ctx, id)
		if err != nil {
			return err
		}
		if noWait || o.State != store.OperationRunning {
			line.end()
			return ended(o, out)
		}
		if line.show(func() string { return progress(o) }); !told && o.Done+o.Skipped+o.Failed == 0 && o.ReachedAt == nil && time.Since(began) > idlePatience {
			told = true
			line.end()
			fmt.Fprintln(os.Stderr, "postrider: nothing was done yet: is postrider serve running?")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("operation %s goes on without this; stop it with: postrider deadletter cancel %s", id, id)
		}
	}
}

// ended prints an operation; one that did not do all of its work is an error.
func ended(o *store.Operation, out outputFlag) error {
	if err := out.print(server.DescribeOperation(o), func(w io.Writer) { fmt.Fprintf(w, "Operation %s: %s, %s.\n", o.OperationID, o.State, howFar(o)) }); err != nil {
		return err
	}
	switch {
	case o.State == "failed" || o.Failed > 0:
		return errors.New(*o.LastError)
	case o.State == "canceled":
		return errors.New("the operation was canceled")
	default:
		return nil
	}
}

func howFar(o *store.Operation) string {
	of := ""
	if o.Matched != nil {
		of = fmt.Sprintf(" of %s%d", either(o.MatchedAtLeast, "more than ", ""), *o.Matched)
	}
	verb := "redelivered"
	switch o.Kind {
	case "purge":
		verb = "purged"
	case "erase_subject":
		verb = "erased"
	}
	return fmt.Sprintf("%d%s %s, %d skipped, %d failed", o.Done, of, verb, o.Skipped, o.Failed)
}

// progress is a line that says how far an operation is.
func progress(o *store.Operation) string {
	line := ""
	if o.Matched != nil && !o.MatchedAtLeast {
		line = bar(o.Done+o.Skipped+o.Failed, *o.Matched)
	}
	line += o.State + ": " + howFar(o)
	if o.ReachedAt != nil {
		line += ", looked at until " + moment(*o.ReachedAt)
	}
	return line
}
