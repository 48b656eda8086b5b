package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"postrider/server"
	"postrider/store"
)

type eventCmd struct {
	List  eventListCmd  `cmd:"" help:"List events, the newest first."`
	Show  eventShowCmd  `cmd:"" help:"Show an event as it was accepted, and its deliveries."`
	Erase eventEraseCmd `cmd:"" help:"Erase what an event says, or all events of a subject, everywhere."`
}

type eventListCmd struct {
	newestFlags
	Topic         string     `help:"Of this topic." placeholder:"NAME"`
	EventID       string     `name:"event-id" help:"With this id: the publisher's, or postrider's own." placeholder:"ID"`
	EventType     string     `help:"Of this event type." placeholder:"TYPE"`
	Subject       string     `help:"With this subject." placeholder:"SUBJECT"`
	SubjectPrefix string     `help:"Whose subject begins so." placeholder:"PREFIX"`
	From          *time.Time `help:"Published at this time or later, such as 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until         *time.Time `help:"Published before this time." placeholder:"TIME"`
	Unmatched     bool       `help:"Only those that no event subscription wanted."`
}

// Help is shown by event list --help.
func (eventListCmd) Help() string {
	return "Examples:\n  postrider event list --topic orders --limit 20\n  postrider event list --event-id o-42\n  postrider event list --unmatched --from 2026-11-20T09:00:00Z -o json"
}

// Run executes event list.
func (c *eventListCmd) Run(ctx context.Context) error {
	if err := spanGiven(c.From, c.Until); err != nil {
		return err
	}
	f := store.EventFilter{
		Topic: c.Topic, Event: c.EventID, Type: c.EventType, Subject: c.Subject, SubjectPrefix: c.SubjectPrefix, From: c.From, To: c.Until, Unmatched: c.Unmatched,
	}
	return c.read(ctx, func(r *store.Reader) error {
		id := func(l store.EventLine) uuid.UUID { return l.SystemID }
		list, err := newest(c.Limit, id, func(turn store.Turn[uuid.UUID]) (store.Page[store.EventLine], *uuid.UUID, error) {
			page, err := r.ReadEvents(ctx, f, turn)
			return page.Page, page.LookedTo, err
		})
		if err != nil {
			return err
		}
		return c.print(describedAs(list, server.DescribeEvent), func(w io.Writer) {
			fmt.Fprintln(w, "PUBLISHED\tTOPIC\tEVENT ID\tTYPE\tSUBJECT\tWANTED BY\tSYSTEM ID")
			for _, e := range list {
				fmt.Fprint(w, tableRow(e.PublishedAt, e.Topic, e.EventID, e.EventType, e.Subject, wantedBy(e.Matched), e.SystemID.String()))
			}
		})
	})
}

// wantedBy is how many event subscriptions wanted an event.
func wantedBy(matched *int) string {
	if matched == nil {
		return "not routed yet"
	}
	return fmt.Sprint(*matched)
}

type eventShowCmd struct {
	databaseFlags
	outputFlag
	SystemID string `arg:"" name:"system-id" help:"postrider's own id of the event; event list finds it by the publisher's."`
}

// Help is shown by event show --help.
func (eventShowCmd) Help() string {
	return "Of its deliveries the newest 200; delivery list --event-id has all.\n\nExample:\n  postrider event show 0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11"
}

// Run executes event show.
func (c *eventShowCmd) Run(ctx context.Context) error {
	id, err := uuid.Parse(c.SystemID)
	if err != nil {
		return usagef("%q is no system id: it is a UUID, and not the publisher's id; try event list --event-id", c.SystemID)
	}
	return c.withReader(ctx, func(r *store.Reader) error {
		e, err := r.ReadEvent(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return usagef("event %s does not exist, or is not kept any more", id)
		}
		if err != nil {
			return err
		}
		return c.print(server.DescribeWholeEvent(e), func(w io.Writer) { printEvent(w, e) })
	})
}

func printEvent(w io.Writer, e *store.EventRow) {
	printNamed(w,
		"system id", e.SystemID.String(),
		"topic", e.Topic,
		"event", e.EventID,
		"type", e.EventType,
		"subject", e.Subject,
		"source", e.Source,
		"published", e.PublishedAt,
		"schema", e.Schema,
		"wanted by", wantedBy(e.Matched),
		"bytes", e.BodyBytes,
		"erased", e.ErasedAt,
	)
	if e.ErasedAt == nil {
		fmt.Fprintf(w, "event\t%s\n", oneLine(string(e.Body)))
	}
	if len(e.Deliveries) > 0 {
		fmt.Fprintln(w)
		printDeliveries(w, e.Deliveries)
	}
}
