package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

type batchCmd struct {
	List batchListCmd `cmd:"" help:"List batches, the newest first."`
	Show batchShowCmd `cmd:"" help:"Show a batch, its attempts, and the deliveries that it was cut of."`
}

type batchListCmd struct {
	restFlags
	limitFlag
	Topic        string `api:"topic" help:"Of this topic." placeholder:"NAME"`
	Subscription string `api:"subscription" help:"To this event subscription." placeholder:"NAME"`
	State        string `api:"state" help:"In this state: pending, delivered, dead_lettered, dropped or canceled." enum:",pending,delivered,dead_lettered,dropped,canceled" default:"" placeholder:"STATE"`
	Hold         string `api:"hold" help:"Waiting for the end of this hold: paused, not_validated, probation or admission." enum:",paused,not_validated,probation,admission" default:"" placeholder:"HOLD"`
}

// Help is shown by batch list --help.
func (batchListCmd) Help() string {
	return "Examples:\n  postrider batch list --topic orders --subscription audit\n  postrider batch list --state pending -o json"
}

var batchColumns = []column{
	{title: "BATCH", path: "batchId"},
	{title: "TOPIC", path: "topic"},
	{title: "SUBSCRIPTION", path: "subscription"},
	{title: "EVENTS", path: "members"},
	{title: "BYTES", path: "bytes"},
	{title: "STATE", text: stateAndHold},
	{title: "ATTEMPTS", path: "attempts"},
	{title: "LAST", text: lastResult},
	{title: "NEXT", path: "nextAttemptAt"},
	{title: "ENDED", path: "finishedAt"},
}

// Run executes batch list.
func (c *batchListCmd) Run(ctx context.Context) error {
	return c.list(ctx, "/v1/batches", given(c), c.Limit, batchColumns)
}

type batchShowCmd struct {
	restFlags
	ID int64 `arg:"" name:"id" help:"Id of the batch, as batch list shows it."`
}

// Help is shown by batch show --help.
func (batchShowCmd) Help() string {
	return "Examples:\n  postrider batch show 4711\n  postrider batch show 4711 -o json"
}

var batchLines = []column{
	{title: "batch", path: "batchId"},
	{title: "topic", path: "topic"},
	{title: "subscription", path: "subscription"},
	{title: "state", text: stateAndHold},
	{title: "events", path: "members"},
	{title: "bytes", path: "bytes"},
	{title: "attempts", path: "attempts"},
	{title: "cut", path: "createdAt"},
	{title: "next attempt", path: "nextAttemptAt"},
	{title: "hold until", path: "holdUntil"},
	{title: "finished", path: "finishedAt"},
}

var memberColumns = []column{
	{title: "PLACE", path: "position"},
	{title: "DELIVERY", path: "deliveryId"},
	{title: "EVENT ID", path: "eventId"},
	{title: "LEFT", path: "leftAt"},
	{title: "WHY", path: "leftReason"},
}

// Run executes batch show. JSON is the batch with its attempts (attemptsMade) and members (membersCut).
func (c *batchShowCmd) Run(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	var b object
	at := idURL("/v1/batches", c.ID)
	if err := client.call(ctx, http.MethodGet, at, nil, &b); err != nil {
		return err
	}
	attempts, err := client.all(ctx, at+"/attempts")
	if err != nil {
		return err
	}
	members, err := client.all(ctx, at+"/members?limit=1000")
	if err != nil {
		return err
	}
	b["attemptsMade"], b["membersCut"] = attempts, members
	return c.print(b, func(w io.Writer) {
		printObject(w, batchLines, b)
		printAttempts(w, attempts)
		fmt.Fprintln(w)
		printColumns(w, memberColumns, members)
	})
}
