package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/server"
	"postrider/store"
)

type deliveryCmd struct {
	List          deliveryListCmd          `cmd:"" help:"List deliveries, the newest first."`
	Show          deliveryShowCmd          `cmd:"" help:"Show a delivery and its attempts."`
	Cancel        deliveryCancelCmd        `cmd:"" help:"End a pending delivery."`
	RetryNow      deliveryRetryNowCmd      `cmd:"" help:"Make the next attempt of a pending delivery due now."`
	DeadLetterNow deliveryDeadLetterNowCmd `cmd:"" help:"Give a pending delivery up: it becomes a dead letter."`
}

// oneDelivery is what these verbs take.
type oneDelivery struct {
	databaseFlags
	ID int64 `arg:"" name:"id" help:"Id of the delivery, as postrider.deliveries tells it."`
}

// now is what became of the delivery, as the API tells it.
func (c *oneDelivery) now(ctx context.Context, o *store.Operator) func() (any, error) {
	return func() (any, error) {
		d, err := o.Delivery(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		return server.DescribeDelivery(d), nil
	}
}

type deliveryShowCmd struct {
	oneDelivery
	outputFlag
}

// Help is shown by delivery show --help.
func (deliveryShowCmd) Help() string {
	return "Examples:\n  postrider delivery show 4711\n  postrider delivery show 4711 -o json"
}

// shownDelivery is what delivery show prints as JSON.
type shownDelivery struct {
	server.Delivery
	AttemptsMade []server.DeliveryAttempt `json:"attemptsMade"`
}

// maxAttemptsListed is how many attempts delivery show prints.
const maxAttemptsListed = 1000

// Run executes delivery show.
func (c *deliveryShowCmd) Run(ctx context.Context) error {
	return c.operate(ctx, func(ctx context.Context, o *store.Operator) error {
		d, err := o.Delivery(ctx, c.ID)
		if errors.Is(err, store.ErrNotFound) {
			return usagef("delivery %d does not exist", c.ID)
		}
		if err != nil {
			return err
		}
		attempts, err := o.Attempts(ctx, c.ID, maxAttemptsListed)
		if err != nil {
			return err
		}
		shown := shownDelivery{server.DescribeDelivery(d), describedAs(attempts, server.DescribeAttempt)}
		return c.print(shown, func(w io.Writer) { printDelivery(w, &shown) })
	})
}

func printDelivery(w io.Writer, d *shownDelivery) {
	for _, row := range []struct {
		name  string
		value any
	}{
		{"delivery", d.DeliveryId},
		{"topic", d.Topic},
		{"subscription", d.Subscription},
		{"event", optionalCell(d.EventId)},
		{"type", optionalCell(d.EventType)},
		{"subject", optionalCell(d.Subject)},
		{"system id", d.SystemId},
		{"state", d.State},
		{"hold", optionalCell(d.Hold)},
		{"reason", optionalCell(d.Reason)},
		{"attempts", d.Attempts},
		{"owed since", d.OwedSince.Format(time.RFC3339)},
		{"expires", optionalTime(d.ExpiresAt)},
		{"next attempt", optionalTime(d.NextAttemptAt)},
		{"hold until", optionalTime(d.HoldUntil)},
		{"finished", optionalTime(d.FinishedAt)},
		{"dead letter", optionalCell(d.DeadLetterId)},
	} {
		fmt.Fprintf(w, "%s\t%s\n", row.name, cell(row.value))
	}
	printAttempts(w, d.AttemptsMade)
}

func printAttempts(w io.Writer, made []server.DeliveryAttempt) {
	if len(made) > 0 {
		fmt.Fprintln(w, "\nATTEMPT\tSTARTED\tSTATUS\tOUTCOME\tVERDICT\tWHY")
	}
	for i := range made {
		a, status := &made[i], "-"
		if a.Status != nil {
			status = fmt.Sprint(*a.Status)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", a.Number, a.StartedAt.Format(time.RFC3339), status, cell(a.Outcome), cell(a.Verdict), oneLine(a.Why))
	}
}

func optionalCell(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func optionalTime(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
}

type deliveryCancelCmd struct {
	oneDelivery
	outputFlag
}

// Help is shown by delivery cancel --help.
func (deliveryCancelCmd) Help() string {
	return "An attempt that is under way may still reach the endpoint; nothing of it is recorded.\n\nExample:\n  postrider delivery cancel 4711"
}

// Run executes delivery cancel.
func (c *deliveryCancelCmd) Run(ctx context.Context) error {
	return c.operate(ctx, func(ctx context.Context, o *store.Operator) error {
		if err := o.Cancel(ctx, c.ID); err != nil {
			return err
		}
		return c.did(c.now(ctx, o), "Delivery %d was canceled.", c.ID)
	})
}

type deliveryRetryNowCmd struct {
	oneDelivery
	outputFlag
}

// Help is shown by delivery retry-now --help.
func (deliveryRetryNowCmd) Help() string {
	return "Its count of attempts and its time to live stay. Refused while an attempt is under way, and while its event subscription is on hold.\n\nExample:\n  postrider delivery retry-now 4711"
}

// Run executes delivery retry-now.
func (c *deliveryRetryNowCmd) Run(ctx context.Context) error {
	return c.operate(ctx, func(ctx context.Context, o *store.Operator) error {
		if err := o.RetryNow(ctx, c.ID); err != nil {
			return err
		}
		return c.did(c.now(ctx, o), "The next attempt of delivery %d is due now.", c.ID)
	})
}

type deliveryDeadLetterNowCmd struct {
	oneDelivery
	outputFlag
}

// Help is shown by delivery dead-letter-now --help.
func (deliveryDeadLetterNowCmd) Help() string {
	return "Also where the event subscription keeps no dead letters.\n\nExample:\n  postrider delivery dead-letter-now 4711"
}

// Run executes delivery dead-letter-now.
func (c *deliveryDeadLetterNowCmd) Run(ctx context.Context) error {
	return c.operate(ctx, func(ctx context.Context, o *store.Operator) error {
		letter, err := o.DeadLetterNow(ctx, c.ID)
		if err != nil {
			return err
		}
		return c.print(object{"deliveryId": c.ID, "deadLetterId": letter}, func(w io.Writer) { fmt.Fprintf(w, "Delivery %d became dead letter %s.\n", c.ID, letter) })
	})
}

type eventEraseCmd struct {
	databaseFlags
	outputFlag
	SystemID string `arg:"" optional:"" name:"system-id" help:"postrider's own id of the event, as postrider.events tells it."`
	Topic    string `help:"Instead: all events of this topic with --subject." placeholder:"NAME"`
	Subject  string `help:"Exactly this subject." placeholder:"SUBJECT"`
	NoWait   bool   `help:"Where they are many: print the operation's id; the service goes on."`
}

// Help is shown by event erase --help.
func (eventEraseCmd) Help() string {
	return `Erased are body and subject of the event and of its dead letters, and what endpoints answered; what is pending is canceled first. Ids,
types, times, attempts and states stay. What was exported, or an endpoint keeps, is out of reach. There is no way back.
More than a thousand events of a subject are erased by the service, in steps, and this waits until it has; Ctrl-C leaves it to the service.

Examples:
  postrider event erase 0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11
  postrider event erase --topic orders --subject customers/4711`
}

// Run executes event erase.
func (c *eventEraseCmd) Run(ctx context.Context) error {
	one := c.SystemID != ""
	if one == (c.Topic != "" || c.Subject != "") || !one && (c.Topic == "" || c.Subject == "") {
		return usagef("name an event, or --topic and --subject")
	}
	id, err := uuid.Parse(c.SystemID)
	if one && err != nil {
		return usagef("%q is no system id: it is a UUID, and not the publisher's id", c.SystemID)
	}
	return c.operate(ctx, func(ctx context.Context, o *store.Operator) error {
		var erased int
		var operation *uuid.UUID
		var err error
		if one {
			erased, err = o.EraseEvent(ctx, id)
		} else {
			erased, operation, err = o.EraseSubject(ctx, c.Topic, c.Subject)
		}
		switch {
		case err != nil:
			return err
		case operation != nil:
			return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
				return follow(ctx, letters, *operation, c.NoWait, c.outputFlag)
			})
		}
		return c.print(server.Erased{Events: erased}, func(w io.Writer) { fmt.Fprintf(w, "Events erased: %d\n", erased) })
	})
}

// operate does something to the database's deliveries or events, as this verb.
func (f databaseFlags) operate(ctx context.Context, do func(context.Context, *store.Operator) error) error {
	err := f.withPool(ctx, func(pool *pgxpool.Pool) error { return do(asVerb(ctx), store.OperatorOf(pool)) })
	var no *store.FunctionError
	switch {
	case !errors.As(err, &no):
		return err
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrInvalid):
		return usagef("%s", no.Message)
	default:
		return fmt.Errorf("%s. %s", no.Message, no.Hint)
	}
}
