package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/api"
)

// EventCmd is event with its verbs.
type EventCmd struct {
	List  eventListCmd  `cmd:"" help:"List events, the newest first."`
	Show  eventShowCmd  `cmd:"" help:"Show an event as it was accepted, and its deliveries."`
	Erase eventEraseCmd `cmd:"" help:"Erase what an event says, or all events of a subject, everywhere."`
}

type eventListCmd struct {
	rest.Flags
	rest.LimitFlag
	Topic         string     `api:"topic" help:"Of this topic." placeholder:"NAME"`
	EventID       string     `api:"eventId" name:"event-id" help:"With this id: the publisher's, or postrider's own." placeholder:"ID"`
	EventType     string     `api:"eventType" help:"Of this event type." placeholder:"TYPE"`
	Subject       string     `api:"subject" help:"With this subject." placeholder:"SUBJECT"`
	SubjectPrefix string     `api:"subjectPrefix" help:"Whose subject begins so." placeholder:"PREFIX"`
	From          *time.Time `api:"publishedFrom" help:"Published at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until         *time.Time `api:"publishedUntil" aliases:"to" help:"Published before this time." placeholder:"TIME"`
	Unmatched     bool       `api:"unmatched" help:"Only those that matched no event subscription."`
}

// Help is shown by event list --help.
func (eventListCmd) Help() string {
	return "Examples:\n  postrider event list --topic orders --limit 20\n  postrider event list --event-id o-42\n  " +
		"postrider event list --unmatched --from 1h --to 10m -o json"
}

var eventColumns = []rest.Column{
	{Title: "PUBLISHED", Path: "publishedAt"},
	{Title: "TOPIC", Path: "topic"},
	{Title: "EVENT ID", Path: "eventId"},
	{Title: "TYPE", Path: "eventType"},
	{Title: "SUBJECT", Path: "subject"},
	{Title: "WANTED BY", Text: wantedBy},
	{Title: "SYSTEM ID", Path: "systemId"},
}

// Run executes event list.
func (c *eventListCmd) Run(ctx context.Context) error {
	if err := rest.CheckSpan(c.From, c.Until); err != nil {
		return err
	}
	return c.List(ctx, "/v1/events", rest.Given(c), c.Limit, eventColumns)
}

// wantedBy is how many event subscriptions an event matched.
func wantedBy(event rest.Object) string {
	if event["matched"] == nil {
		return "not routed yet"
	}
	return fmt.Sprint(event["matched"])
}

type eventShowCmd struct {
	rest.Flags
	SystemID string `arg:"" name:"system-id" help:"postrider's own id of the event; event list finds it by the publisher's."`
}

// Help is shown by event show --help.
func (eventShowCmd) Help() string {
	return "Of its deliveries the newest 200; delivery list --event-id has all.\n\nExample:\n  postrider event show " +
		"0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11"
}

var eventLines = []rest.Column{
	{Title: "system id", Path: "systemId"},
	{Title: "topic", Path: "topic"},
	{Title: "event", Path: "eventId"},
	{Title: "type", Path: "eventType"},
	{Title: "subject", Path: "subject"},
	{Title: "source", Path: "source"},
	{Title: "published", Path: "publishedAt"},
	{Title: "schema", Path: "schema"},
	{Title: "wanted by", Text: wantedBy},
	{Title: "bytes", Path: "bodyBytes"},
	{Title: "erased", Path: "erasedAt"},
}

// Run executes event show.
func (c *eventShowCmd) Run(ctx context.Context) error {
	id, err := readSystemID(c.SystemID)
	if err != nil {
		return err
	}
	return c.Show(ctx, rest.ItemURL("/v1/events", id), func(w io.Writer, e rest.Object) {
		rest.PrintObject(w, eventLines, e)
		if e["event"] != nil {
			fmt.Fprintf(w, "event\t%s\n", terminal.OneLine(terminal.PlainText(e["event"])))
		}
		if deliveries := rest.Objects(e, "deliveries"); len(deliveries) > 0 {
			fmt.Fprintln(w)
			rest.PrintColumns(w, deliveryColumns, deliveries)
		}
	})
}

func readSystemID(text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id,
			terminal.Usagef("%q is no system id: it is a UUID, and not the publisher's id; try event list --event-id", text)
	}
	return id, nil
}

type eventEraseCmd struct {
	rest.Flags
	terminal.ConfirmFlag
	SystemID string `arg:"" optional:"" name:"system-id" help:"postrider's own id of the event, as event list shows it."`
	Topic    string `help:"Instead: all events of this topic with --subject." placeholder:"NAME"`
	Subject  string `help:"Exactly this subject." placeholder:"SUBJECT"`
	NoWait   bool   `help:"If they are many: print the operation's id; the service goes on."`
}

// Help is shown by event erase --help.
func (eventEraseCmd) Help() string {
	return `Erased are body and subject of the event and of its dead letters, and what endpoints answered;` +
		` what is pending is canceled first. Ids,
types, times, attempts and states stay. What was exported, or an endpoint keeps, is out of reach. There is no way back.
More than a thousand events of a subject are erased by the service, in steps, and this waits until it has;` +
		` Ctrl-C leaves it to the service.

Examples:
  postrider event erase 0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11
  postrider event erase --topic orders --subject customers/4711 --yes`
}

// Run executes event erase.
func (c *eventEraseCmd) Run(ctx context.Context) error {
	one := c.SystemID != ""
	if one == (c.Topic != "" || c.Subject != "") || !one && (c.Topic == "" || c.Subject == "") {
		return terminal.Usagef("name an event, or --topic and --subject")
	}
	if !one {
		return c.eraseSubject(ctx)
	}
	id, err := readSystemID(c.SystemID)
	if err != nil {
		return err
	}
	at := rest.ItemURL("/v1/events", id)
	if err := c.Confirm(func() (string, error) { return c.question(ctx, at) }); err != nil {
		return err
	}
	var erased api.Erased
	if err := c.Call(ctx, http.MethodPost, at+"/erase", nil, &erased); err != nil {
		return err
	}
	return c.printErased(erased)
}

// question says what erasing one event loses.
func (c *eventEraseCmd) question(ctx context.Context, at string) (string, error) {
	var e rest.Object
	if err := c.Call(ctx, http.MethodGet, at, nil, &e); err != nil {
		return "", err
	}
	pending := 0
	for _, d := range rest.Objects(e, "deliveries") {
		pending += terminal.Either(d["state"] == "pending", 1, 0)
	}
	return fmt.Sprintf("Erase event %s of topic %s (type %s)? Its body and subject are lost for good, and %s canceled.",
		rest.TextAt(e, "eventId"), rest.TextAt(e, "topic"), rest.TextAt(e, "eventType"),
		terminal.Plural(pending, "pending delivery")+terminal.Either(pending == 1, " is", " are")), nil
}

func (c *eventEraseCmd) eraseSubject(ctx context.Context) error {
	if err := c.Confirm(func() (string, error) {
		return fmt.Sprintf("Erase all events of topic %s with subject %s? "+
			"Their bodies and subjects are lost for good, and what is pending is canceled.", c.Topic, c.Subject), nil
	}); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	var result struct {
		api.Erased
		OperationID string `json:"operationId"` // if they are many
	}
	body := rest.Object{"subject": c.Subject}
	if err := client.Call(ctx, http.MethodPost, rest.TopicURL(c.Topic)+"/eraseSubject", body, &result); err != nil {
		return err
	}
	if result.OperationID != "" {
		return follow(ctx, client, result.OperationID, c.NoWait, c.OutputFlag)
	}
	return c.printErased(result.Erased)
}

func (c *eventEraseCmd) printErased(erased api.Erased) error {
	return c.Print(erased, func(w io.Writer) { fmt.Fprintf(w, "Events erased: %d\n", erased.Events) })
}
