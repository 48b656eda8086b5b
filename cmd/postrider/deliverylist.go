package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"postrider/server"
	"postrider/store"
)

type deliveryListCmd struct {
	newestFlags
	Topic        string     `help:"Of this topic." placeholder:"NAME"`
	Subscription string     `help:"To this event subscription." placeholder:"NAME"`
	State        string     `help:"In this state: pending, delivered, dead_lettered, dropped or canceled." enum:",pending,delivered,dead_lettered,dropped,canceled" default:"" placeholder:"STATE"`
	Hold         string     `help:"Waiting for the end of this hold: paused, not_validated, probation or admission." enum:",paused,not_validated,probation,admission" default:"" placeholder:"HOLD"`
	LastOutcome  string     `help:"Whose last attempt came to this, such as Busy." placeholder:"OUTCOME"`
	EventID      string     `name:"event-id" help:"Of the event with this id: the publisher's, or postrider's own." placeholder:"ID"`
	Operation    string     `help:"That this operation redelivered: its id." placeholder:"ID"`
	From         *time.Time `help:"Of events that were published at this time or later, such as 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `help:"Of events that were published before this time." placeholder:"TIME"`
}

// Help is shown by delivery list --help.
func (deliveryListCmd) Help() string {
	return `Unfinished and finished ones. With --from or --until they come in the order of their events, else in the order in which they were made.

Examples:
  postrider delivery list --topic orders --subscription billing --state pending
  postrider delivery list --event-id o-42
  postrider delivery list --hold probation -o json`
}

// Run executes delivery list.
func (c *deliveryListCmd) Run(ctx context.Context) error {
	if err := spanGiven(c.From, c.Until); err != nil {
		return err
	}
	f := store.DeliveryFilter{
		Topic: c.Topic, Subscription: c.Subscription, State: c.State, Hold: c.Hold, Outcome: c.LastOutcome, Event: c.EventID, From: c.From, To: c.Until,
	}
	if c.Operation != "" {
		id, err := readID("operation", c.Operation)
		if err != nil {
			return err
		}
		f.Operation = &id
	}
	return c.read(ctx, func(r *store.Reader) error {
		place := func(l store.DeliveryLine) store.DeliveryPlace { return l.Place() }
		list, err := newest(c.Limit, place, func(turn store.Turn[store.DeliveryPlace]) (store.Page[store.DeliveryLine], *store.DeliveryPlace, error) {
			page, err := r.ReadDeliveries(ctx, f, turn)
			return page.Page, page.LookedTo, err
		})
		if err != nil {
			return err
		}
		return c.print(describedAs(list, server.DescribeDelivery), func(w io.Writer) { printDeliveries(w, list) })
	})
}

func printDeliveries(w io.Writer, list []store.DeliveryLine) {
	fmt.Fprintln(w, "DELIVERY\tTOPIC\tSUBSCRIPTION\tEVENT ID\tTYPE\tSTATE\tATTEMPTS\tLAST\tNEXT\tENDED\tREASON")
	for i := range list {
		d := &list[i]
		fmt.Fprint(w, tableRow(d.DeliveryID, d.Topic, d.Subscription, d.EventID, d.EventType, stateCell(d.State, d.Hold), d.Attempts, answerCell(d.LastStatus, d.LastOutcome),
			d.NextAttemptAt, d.FinishedAt, d.Reason))
	}
}
