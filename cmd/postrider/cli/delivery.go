package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/cmd/postrider/cli/rest"
)

// DeliveryCmd is delivery with its verbs.
type DeliveryCmd struct {
	List          deliveryListCmd          `cmd:"" help:"List deliveries, the newest first."`
	Show          deliveryShowCmd          `cmd:"" help:"Show a delivery and its attempts."`
	Cancel        deliveryCancelCmd        `cmd:"" help:"End a pending delivery."`
	RetryNow      deliveryRetryNowCmd      `cmd:"" help:"Make the next attempt of a pending delivery due now."`
	DeadLetterNow deliveryDeadLetterNowCmd `cmd:"" help:"Give a pending delivery up: it becomes a dead letter."`
}

type deliveryListCmd struct {
	rest.Flags
	rest.LimitFlag
	Topic        string     `api:"topic" help:"Of this topic." placeholder:"NAME"`
	Subscription string     `api:"subscription" help:"To this event subscription." placeholder:"NAME"`
	State        string     `api:"state" help:"In this state: pending, delivered, dead_lettered, dropped or canceled." enum:",pending,delivered,dead_lettered,dropped,canceled" default:"" placeholder:"STATE"`
	Hold         string     `api:"hold" help:"Waiting for the end of this hold: paused, not_validated, probation or admission." enum:",paused,not_validated,probation,admission" default:"" placeholder:"HOLD"`
	LastOutcome  string     `api:"lastOutcome" help:"Whose last attempt came to this, such as Busy." placeholder:"OUTCOME"`
	EventID      string     `api:"eventId" name:"event-id" help:"Of the event with this id: the publisher's, or postrider's own." placeholder:"ID"`
	Operation    string     `api:"operationId" help:"That this operation redelivered: its id." placeholder:"ID"`
	From         *time.Time `api:"publishedFrom" help:"Of events that were published at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `api:"publishedUntil" aliases:"to" help:"Of events that were published before this time." placeholder:"TIME"`
}

// Help is shown by delivery list --help.
func (deliveryListCmd) Help() string {
	return `Unfinished and finished ones. With --from or --until they come in the order of their events, else in the ` +
		`order in which they were made.

Examples:
  postrider delivery list --topic orders --subscription billing --state pending
  postrider delivery list --event-id o-42
  postrider delivery list --hold probation --from 1h -o json`
}

var deliveryColumns = []rest.Column{
	{Title: "DELIVERY", Path: "deliveryId"},
	{Title: "TOPIC", Path: "topic"},
	{Title: "SUBSCRIPTION", Path: "subscription"},
	{Title: "EVENT ID", Path: "eventId"},
	{Title: "TYPE", Path: "eventType"},
	{Title: "STATE", Text: rest.StateAndHold},
	{Title: "ATTEMPTS", Path: "attempts"},
	{Title: "LAST", Text: rest.LastResult},
	{Title: "NEXT", Path: "nextAttemptAt"},
	{Title: "ENDED", Path: "finishedAt"},
	{Title: "REASON", Path: "reason"},
}

// Run executes delivery list.
func (c *deliveryListCmd) Run(ctx context.Context) error {
	if err := rest.CheckSpan(c.From, c.Until); err != nil {
		return err
	}
	if c.Operation != "" {
		if _, err := readID("an operation", c.Operation); err != nil {
			return err
		}
	}
	return c.List(ctx, "/v1/deliveries", rest.Given(c), c.Limit, deliveryColumns)
}

// oneDelivery is a verb about one delivery.
type oneDelivery struct {
	rest.Flags
	ID int64 `arg:"" name:"id" help:"Id of the delivery, as delivery list shows it."`
}

func (c *oneDelivery) url() string { return rest.ItemURL("/v1/deliveries", c.ID) }

type deliveryShowCmd struct{ oneDelivery }

// Help is shown by delivery show --help.
func (deliveryShowCmd) Help() string {
	return "Examples:\n  postrider delivery show 4711\n  postrider delivery show 4711 -o json"
}

var deliveryLines = []rest.Column{
	{Title: "delivery", Path: "deliveryId"},
	{Title: "topic", Path: "topic"},
	{Title: "subscription", Path: "subscription"},
	{Title: "event", Path: "eventId"},
	{Title: "type", Path: "eventType"},
	{Title: "subject", Path: "subject"},
	{Title: "system id", Path: "systemId"},
	{Title: "state", Path: "state"},
	{Title: "hold", Path: "hold"},
	{Title: "reason", Path: "reason"},
	{Title: "attempts", Path: "attempts"},
	{Title: "pending since", Path: "owedSince"},
	{Title: "expires", Path: "expiresAt"},
	{Title: "next attempt", Path: "nextAttemptAt"},
	{Title: "hold until", Path: "holdUntil"},
	{Title: "finished", Path: "finishedAt"},
	{Title: "dead letter", Path: "deadLetterId"},
}

var attemptColumns = []rest.Column{
	{Title: "ATTEMPT", Path: "number"},
	{Title: "STARTED", Path: "startedAt"},
	{Title: "STATUS", Path: "status"},
	{Title: "OUTCOME", Path: "outcome"},
	{Title: "VERDICT", Path: "verdict"},
	{Title: "WHY", Path: "why"},
}

func printAttempts(w io.Writer, attempts []rest.Object) {
	if len(attempts) > 0 {
		fmt.Fprintln(w)
		rest.PrintColumns(w, attemptColumns, attempts)
	}
}

// Run executes delivery show. JSON is the delivery with its attempts (attemptsMade).
func (c *deliveryShowCmd) Run(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	var d rest.Object
	if err := client.Call(ctx, http.MethodGet, c.url(), nil, &d); err != nil {
		return err
	}
	attempts, err := client.All(ctx, c.url()+"/attempts")
	if err != nil {
		return err
	}
	d["attemptsMade"] = attempts
	return c.Print(d, func(w io.Writer) {
		rest.PrintObject(w, deliveryLines, d)
		printAttempts(w, attempts)
	})
}

type deliveryCancelCmd struct{ oneDelivery }

// Help is shown by delivery cancel --help.
func (deliveryCancelCmd) Help() string {
	return "An attempt that is in progress may still reach the endpoint; nothing of it is recorded.\n\nExample:\n  " +
		"postrider delivery cancel 4711"
}

// Run executes delivery cancel.
func (c *deliveryCancelCmd) Run(ctx context.Context) error {
	return c.Act(ctx, c.url()+"/cancel", nil, "Delivery %d was canceled.", c.ID)
}

type deliveryRetryNowCmd struct{ oneDelivery }

// Help is shown by delivery retry-now --help.
func (deliveryRetryNowCmd) Help() string {
	return "Its count of attempts and its time to live stay. Rejected while an attempt is in progress, and while its " +
		"event subscription is on hold.\n\nExample:\n  postrider delivery retry-now 4711"
}

// Run executes delivery retry-now.
func (c *deliveryRetryNowCmd) Run(ctx context.Context) error {
	return c.Act(ctx, c.url()+"/retryNow", nil, "The next attempt of delivery %d is due now.", c.ID)
}

type deliveryDeadLetterNowCmd struct{ oneDelivery }

// Help is shown by delivery dead-letter-now --help.
func (deliveryDeadLetterNowCmd) Help() string {
	return "Also if the event subscription keeps no dead letters.\n\nExample:\n  postrider delivery dead-letter-now 4711"
}

// Run executes delivery dead-letter-now.
func (c *deliveryDeadLetterNowCmd) Run(ctx context.Context) error {
	var d rest.Object
	if err := c.Call(ctx, http.MethodPost, c.url()+"/deadLetterNow", nil, &d); err != nil {
		return err
	}
	return c.Print(d, func(w io.Writer) {
		fmt.Fprintf(w, "Delivery %d became dead letter %s.\n", c.ID, rest.TextAt(d, "deadLetterId"))
	})
}
