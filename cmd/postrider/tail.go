package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/store"
)

type tailCmd struct {
	databaseFlags
	outputFlag
	Topic        string   `help:"Only what happens on this topic." placeholder:"NAME"`
	Subscription string   `help:"Only attempts for this event subscription; say its --topic, too." placeholder:"NAME"`
	State        []string `help:"Only attempts after which a delivery is pending, delivered, dead_lettered or dropped." enum:"pending,delivered,dead_lettered,dropped" placeholder:"STATE"`
}

// Help is shown by tail --help.
func (tailCmd) Help() string {
	return `Published events (-->) and attempts (<--), within about a second. Where more than 200 of either happen in a second, the newest 200 are told. Ctrl-C ends it.

Examples:
  postrider tail
  postrider tail --topic orders --state pending,dead_lettered
  postrider tail --topic orders --subscription billing -o json`
}

// tailInterval is between two looks, and a person does not notice less.
const tailInterval = time.Second

// Run executes tail until ctx ends.
func (c *tailCmd) Run(ctx context.Context) error {
	if c.Subscription != "" && c.Topic == "" {
		return usagef("--subscription %s: of which topic? say --topic", c.Subscription)
	}
	return c.withPool(ctx, func(pool *pgxpool.Pool) error {
		tail, err := store.TailOf(ctx, pool, store.TailFilter{Topic: c.Topic, Subscription: c.Subscription})
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "Following. Ctrl-C ends it.")
		for pause(ctx, tailInterval) == nil {
			lines, err := tail.Next(ctx)
			if err := c.tell(ctx, lines, err); err != nil {
				return err
			}
		}
		return nil
	})
}

// tell prints what a look found. A database that is away for a while is waited for.
func (c *tailCmd) tell(ctx context.Context, lines []store.TailLine, err error) error {
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrTooSlow):
		fmt.Fprintln(os.Stderr, "postrider:", plainLines(err.Error()))
		return nil
	case err != nil:
		return err
	}
	for i := range lines {
		if !c.wanted(&lines[i]) {
			continue
		}
		line := tailText(&lines[i])
		if c.Output == "json" {
			encoded, err := encodePlainly(tailObject(&lines[i]))
			if err != nil {
				return err
			}
			line = escapeControls(string(encoded))
		}
		if _, err := fmt.Println(line); err != nil {
			return err
		}
	}
	return nil
}

// stateAfter is the state that a delivery has after an attempt with this verdict; "" of a note.
var stateAfter = map[string]string{"deliver": "delivered", "retry": "pending", "dead_letter": "dead_lettered", "drop": "dropped"}

func (c *tailCmd) wanted(l *store.TailLine) bool {
	return len(c.State) == 0 || l.Kind == "attempt" && slices.Contains(c.State, stateAfter[l.Verdict])
}

func tailText(l *store.TailLine) string {
	at := l.At.Local().Format("15:04:05.000")
	if l.Kind == "published" {
		return fmt.Sprintf("%s --> %s  %s (%s) %s", at, cell(l.Topic), cell(l.EventID), cell(l.Type), cell(l.Subject))
	}
	what := cell(l.EventID)
	if l.BatchID != nil {
		what = fmt.Sprintf("batch %d", *l.BatchID)
	}
	met := cell(l.Outcome)
	if l.Status != nil {
		met = fmt.Sprintf("%d %s", *l.Status, met)
	}
	return fmt.Sprintf("%s <-- %s/%s  %s attempt %d: %s in %.1f ms, %s", at, cell(l.Topic), cell(l.Subscription), what, l.Number, met, l.DurationMs, strings.ReplaceAll(cell(l.Verdict), "_", "-"))
}

// tailObject has the names that the views have, in JSON's spelling.
func tailObject(l *store.TailLine) object {
	o := object{"at": l.At.UTC().Format(time.RFC3339Nano), "kind": l.Kind, "topic": l.Topic, "eventId": l.EventID, "eventType": l.Type, "subject": l.Subject, "systemId": nil}
	if l.SystemID != nil {
		o["systemId"] = l.SystemID.String()
	}
	if l.Kind == "attempt" {
		for name, value := range map[string]any{
			"subscription": l.Subscription, "deliveryId": l.DeliveryID, "batchId": l.BatchID, "number": l.Number, "status": l.Status,
			"outcome": l.Outcome, "verdict": l.Verdict, "durationMs": l.DurationMs, "state": stateAfter[l.Verdict],
		} {
			o[name] = value
		}
	}
	return o
}
