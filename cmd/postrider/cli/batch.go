package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"postrider/cmd/postrider/cli/rest"
)

// BatchCmd is batch with its verbs.
type BatchCmd struct {
	List batchListCmd `cmd:"" help:"List batches, the newest first."`
	Show batchShowCmd `cmd:"" help:"Show a batch, its attempts, and the deliveries that it was cut of."`
}

type batchListCmd struct {
	rest.Flags
	rest.LimitFlag
	Topic        string `api:"topic" help:"Of this topic." placeholder:"NAME"`
	Subscription string `api:"subscription" help:"To this event subscription." placeholder:"NAME"`
	State        string `api:"state" help:"In this state: pending, delivered, dead_lettered, dropped or canceled." enum:",pending,delivered,dead_lettered,dropped,canceled" default:"" placeholder:"STATE"`
	Hold         string `api:"hold" help:"Waiting for the end of this hold: paused, not_validated, probation or admission." enum:",paused,not_validated,probation,admission" default:"" placeholder:"HOLD"`
}

// Help is shown by batch list --help.
func (batchListCmd) Help() string {
	return "Examples:\n  postrider batch list --topic orders --subscription audit\n  postrider batch list --state " +
		"pending -o json"
}

var batchColumns = []rest.Column{
	{Title: "BATCH", Path: "batchId"},
	{Title: "TOPIC", Path: "topic"},
	{Title: "SUBSCRIPTION", Path: "subscription"},
	{Title: "EVENTS", Path: "members"},
	{Title: "BYTES", Path: "bytes"},
	{Title: "STATE", Text: rest.StateAndHold},
	{Title: "ATTEMPTS", Path: "attempts"},
	{Title: "LAST", Text: rest.LastResult},
	{Title: "NEXT", Path: "nextAttemptAt"},
	{Title: "ENDED", Path: "finishedAt"},
}

// Run executes batch list.
func (c *batchListCmd) Run(ctx context.Context) error {
	return c.List(ctx, "/v1/batches", rest.Given(c), c.Limit, batchColumns)
}

type batchShowCmd struct {
	rest.Flags
	ID int64 `arg:"" name:"id" help:"Id of the batch, as batch list shows it."`
}

// Help is shown by batch show --help.
func (batchShowCmd) Help() string {
	return "Examples:\n  postrider batch show 4711\n  postrider batch show 4711 -o json"
}

var batchLines = []rest.Column{
	{Title: "batch", Path: "batchId"},
	{Title: "topic", Path: "topic"},
	{Title: "subscription", Path: "subscription"},
	{Title: "state", Text: rest.StateAndHold},
	{Title: "events", Path: "members"},
	{Title: "bytes", Path: "bytes"},
	{Title: "attempts", Path: "attempts"},
	{Title: "cut", Path: "createdAt"},
	{Title: "next attempt", Path: "nextAttemptAt"},
	{Title: "hold until", Path: "holdUntil"},
	{Title: "finished", Path: "finishedAt"},
}

var memberColumns = []rest.Column{
	{Title: "PLACE", Path: "position"},
	{Title: "DELIVERY", Path: "deliveryId"},
	{Title: "EVENT ID", Path: "eventId"},
	{Title: "LEFT", Path: "leftAt"},
	{Title: "WHY", Path: "leftReason"},
}

// Run executes batch show. JSON is the batch with its attempts (attemptsMade) and members (membersCut).
func (c *batchShowCmd) Run(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	var b rest.Object
	at := rest.ItemURL("/v1/batches", c.ID)
	if err := client.Call(ctx, http.MethodGet, at, nil, &b); err != nil {
		return err
	}
	attempts, err := client.All(ctx, at+"/attempts")
	if err != nil {
		return err
	}
	members, err := client.All(ctx, at+"/members?limit=1000")
	if err != nil {
		return err
	}
	b["attemptsMade"], b["membersCut"] = attempts, members
	return c.Print(b, func(w io.Writer) {
		rest.PrintObject(w, batchLines, b)
		printAttempts(w, attempts)
		fmt.Fprintln(w)
		rest.PrintColumns(w, memberColumns, members)
	})
}
