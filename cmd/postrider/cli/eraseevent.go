package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

type eventEraseCmd struct {
	rest.Flags
	terminal.ConfirmFlag
	SystemID systemID `arg:"" optional:"" name:"system-id" help:"postrider's own id of the event, as event list shows it."`
	Topic    string   `help:"Instead: all events of this topic with --subject." placeholder:"NAME"`
	Subject  string   `help:"Exactly this subject." placeholder:"SUBJECT"`
	NoWait   bool     `help:"If they are many: print the operation's id; the service goes on."`
}

// Run executes event erase.
func (c *eventEraseCmd) Run(ctx context.Context) error {
	one, at, body := c.SystemID != "", rest.ItemURL("/v1/events", c.SystemID), any(nil)
	switch {
	case one && c.Topic == "" && c.Subject == "":
		at += "/erase"
	case !one && c.Topic != "" && c.Subject != "":
		at, body = rest.TopicURL(c.Topic)+"/eraseSubject", rest.Object{"subject": c.Subject}
	default:
		return terminal.Usagef("name an event, or --topic and --subject")
	}
	if err := c.Confirm(func() (string, error) { return c.question(ctx) }); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	var erased rest.Object
	if err := client.Call(ctx, http.MethodPost, at, body, &erased); err != nil {
		return err
	}
	if operation := erased["operationId"]; operation != nil {
		return follow(ctx, client, operation, c.NoWait, c.OutputFlag)
	}
	return c.Print(erased, func(w io.Writer) { fmt.Fprintf(w, "Events erased: %v\n", erased["events"]) })
}

// question says what the erasure loses.
func (c *eventEraseCmd) question(ctx context.Context) (string, error) {
	if c.SystemID == "" {
		return fmt.Sprintf("Erase all events of topic %s with subject %s? "+
			"Their bodies and subjects are lost for good, and pending deliveries are canceled.", c.Topic, c.Subject), nil
	}
	var e rest.Object
	if err := c.Call(ctx, http.MethodGet, rest.ItemURL("/v1/events", c.SystemID), nil, &e); err != nil {
		return "", err
	}
	pending := 0
	for _, d := range rest.Objects(e, "deliveries") {
		pending += terminal.Either(d["state"] == "pending", 1, 0)
	}
	return fmt.Sprintf("Erase event %s of topic %s (type %s)? Its body and subject are lost for good, and %s %s canceled.",
		rest.TextAt(e, "eventId"), rest.TextAt(e, "topic"), rest.TextAt(e, "eventType"),
		terminal.Plural(pending, "pending delivery"), terminal.Either(pending == 1, "is", "are")), nil
}
