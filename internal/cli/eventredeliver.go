package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/internal/cli/rest"
	"postrider/internal/query"
	"postrider/internal/terminal"
	"postrider/server/api"
)

type eventRedeliverCmd struct {
	bulkFlags
	terminal.ConfirmFlag
	SystemID rowID[query.EventRow] `arg:"" optional:"" name:"system-id" help:"postrider's own id of the event, as event list shows it."`
	To       string                `help:"Event subscription that receives it." required:"" predictor:"subscription" placeholder:"NAME"`
	Topic    string                `help:"Instead of an event: past events of this topic." predictor:"topic" placeholder:"NAME"`
	From     *time.Time            `api:"from" help:"Those published at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until    *time.Time            `api:"until" help:"Those published before this time (default: now)." placeholder:"TIME"`
}

// Help is shown by event redeliver --help.
func (eventRedeliverCmd) Help() string {
	return `Each becomes a new delivery with its own time to live, also if it was delivered before. An event that did not
match the event subscription is delivered after a confirmation. With --topic and --from, all stored events of that time
that match the event subscription's filter are delivered, and the command waits for the end; Ctrl-C stops only the
waiting. A dry run counts for five seconds at most.

Examples:
  postrider event redeliver 0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11 --to billing
  postrider event redeliver --topic orders --to billing --from 1h --dry-run
  postrider event redeliver --topic orders --to billing --from 2026-11-20 --until 2026-11-21 --rate 50`
}

func (c *eventRedeliverCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	past, err := rest.Filter(c)
	if err != nil {
		return err
	}
	switch {
	case c.SystemID != "" && (c.Topic != "" || len(past) > 0 || c.Rate != 0 || c.DryRun || c.NoWait):
		return terminal.Usagef("name either an event, or --topic and --from with their flags")
	case c.SystemID != "":
		return c.one(ctx, std, client)
	case c.Topic == "" || c.From == nil:
		return terminal.Usagef("name an event, or --topic and --from")
	}
	if err := c.checkRate(); err != nil {
		return err
	}
	return c.start(ctx, std, client, rest.SubscriptionURL(c.Topic, c.To)+"/redeliverEvents", past, "past event")
}

// one redelivers the event. If it did not match, it does so after a confirmation.
func (c *eventRedeliverCmd) one(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	at, body := rest.ItemURL("/v1/events", c.SystemID)+"/redeliver", rest.Object{"subscription": c.To}
	var created rest.Object
	err := client.Call(ctx, http.MethodPost, at, body, &created)
	if rest.IsConflict(err, api.ConflictCodeEventNotMatched) {
		if err := c.Confirm(std, func() (string, error) {
			return fmt.Sprintf("The event did not match event subscription %s. Deliver it all the same?", c.To), nil
		}); err != nil {
			return err
		}
		body["unmatched"] = true
		err = client.Call(ctx, http.MethodPost, at, body, &created)
	}
	if err != nil {
		return err
	}
	return c.Print(std.Out, created, func(w io.Writer) {
		fmt.Fprintf(w, "Redelivered as delivery %v.\n", created["deliveryId"])
	})
}
