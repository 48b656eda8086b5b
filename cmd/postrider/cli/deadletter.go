package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/api"
)

// DeadletterCmd is deadletter with its verbs.
type DeadletterCmd struct {
	List      deadletterListCmd      `cmd:"" help:"List dead letters, the newest first."`
	Show      deadletterShowCmd      `cmd:"" help:"Show one dead letter with its event."`
	Redeliver deadletterRedeliverCmd `cmd:"" help:"Redeliver dead letters: those named, or all that match."`
	Purge     deadletterPurgeCmd     `cmd:"" help:"Remove dead letters for good: those named, or all that match."`
	Events    deadletterEventsCmd    `cmd:"" help:"Deliver a topic's past events to one of its event subscriptions."`
	Export    deadletterExportCmd    `cmd:"" help:"Write dead letters as JSON, one a line."`
	Cancel    deadletterCancelCmd    `cmd:"" help:"Stop a redelivery, a purge or an erasure of many."`
}

// letterFilterFlags say which dead letters are meant.
type letterFilterFlags struct {
	Topic         *string    `api:"topic" help:"Of this topic." placeholder:"NAME"`
	Subscription  *string    `api:"subscription" help:"Of this event subscription." placeholder:"NAME"`
	Reason        *string    `api:"reason" help:"Dead-lettered for this reason, such as MaxDeliveryAttemptsExceeded." placeholder:"REASON"`
	LastOutcome   *string    `api:"lastOutcome" help:"Whose last attempt came to this, such as Busy." placeholder:"OUTCOME"`
	LastStatus    *int       `api:"lastStatus" help:"Whose last attempt met this HTTP status." placeholder:"CODE"`
	EventID       *string    `api:"eventId" name:"event-id" help:"With this id, the publisher's." placeholder:"ID"`
	EventType     *string    `api:"eventType" help:"Of this event type." placeholder:"TYPE"`
	Subject       *string    `api:"subject" help:"With this subject." placeholder:"SUBJECT"`
	SubjectPrefix *string    `api:"subjectPrefix" help:"Whose subject begins so." placeholder:"PREFIX"`
	Source        *string    `api:"source" help:"With this CloudEvents source." placeholder:"SOURCE"`
	From          *time.Time `api:"deadLetteredFrom" help:"Dead-lettered at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until         *time.Time `api:"deadLetteredUntil" aliases:"to" help:"Dead-lettered before this time." placeholder:"TIME"`
	Redelivered   *bool      `api:"redelivered" help:"Those that were redelivered before, or with --no-redelivered those that were not." negatable:""`
}

type deadletterListCmd struct {
	rest.Flags
	rest.LimitFlag
	letterFilterFlags
}

// Help is shown by deadletter list --help.
func (deadletterListCmd) Help() string {
	return "Examples:\n  postrider deadletter list --topic orders --reason MaxDeliveryAttemptsExceeded\n  postrider " +
		"deadletter list --last-status 503 --no-redelivered --from 1h -o json"
}

var letterColumns = []rest.Column{
	{Title: "ID", Path: "deadLetterId"},
	{Title: "GIVEN UP", Path: "deadLetteredAt"},
	{Title: "TOPIC", Path: "topic"},
	{Title: "SUBSCRIPTION", Path: "subscription"},
	{Title: "EVENT ID", Path: "eventId"},
	{Title: "TYPE", Path: "eventType"},
	{Title: "REASON", Path: "reason"},
	{Title: "ATTEMPTS", Path: "attempts"},
	{Title: "LAST", Text: rest.LastResult},
	{Title: "REDELIVERED", Path: "redeliveredAt"},
}

// Run executes deadletter list.
func (c *deadletterListCmd) Run(ctx context.Context) error {
	if err := rest.CheckSpan(c.From, c.Until); err != nil {
		return err
	}
	return c.List(ctx, "/v1/deadLetters", rest.Given(&c.letterFilterFlags), c.Limit, letterColumns)
}

type deadletterShowCmd struct {
	rest.Flags
	ID string `arg:"" help:"Id of the dead letter."`
}

// Help is shown by deadletter show --help.
func (deadletterShowCmd) Help() string {
	return "Example:\n  postrider deadletter show 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"
}

var letterLines = []rest.Column{
	{Title: "id", Path: "deadLetterId"},
	{Title: "given up", Path: "deadLetteredAt"},
	{Title: "topic", Path: "topic"},
	{Title: "subscription", Path: "subscription"},
	{Title: "reason", Path: "reason"},
	{Title: "attempts", Path: "attempts"},
	{Title: "last", Text: rest.LastResult},
	{Title: "endpoint", Path: "endpointBaseUrl"},
	{Title: "retry policy", Path: "retryPolicy"},
	{Title: "published", Path: "publishedAt"},
	{Title: "event id", Path: "eventId"},
	{Title: "event type", Path: "eventType"},
	{Title: "subject", Path: "subject"},
	{Title: "schema", Path: "schema"},
	{Title: "delivery", Path: "deliveryId"},
}

// Run executes deadletter show.
func (c *deadletterShowCmd) Run(ctx context.Context) error {
	id, err := readID("a dead letter", c.ID)
	if err != nil {
		return err
	}
	return c.Show(ctx, rest.ItemURL("/v1/deadLetters", id), func(w io.Writer, l rest.Object) {
		rest.PrintObject(w, letterLines, l)
		for _, more := range [][2]string{
			{"last error", "lastError"},
			{"source", "source"},
			{"last response", "lastResponse"},
			{"event", "event"},
			{"redelivered", "redeliveredAt"},
		} {
			if value := l[more[1]]; value != nil && value != "" {
				fmt.Fprintf(w, "%s\t%s\n", more[0], terminal.OneLine(terminal.PlainText(value)))
			}
		}
	})
}

// chosenFlags are dead letters by their ids or by a filter, and how many are worked at in a second.
type chosenFlags struct {
	rest.Flags
	letterFilterFlags
	IDs    []string `arg:"" optional:"" name:"id" help:"Ids of dead letters, instead of a filter."`
	All    bool     `help:"All that there are: required without an id and without a filter."`
	Rate   int      `help:"At most so many in a second (default: as fast as it goes)." placeholder:"N"`
	DryRun bool     `help:"Count what matches, and do nothing."`
	NoWait bool     `help:"Start it and print its id; the service goes on."`
}

// check validates how they are chosen.
func (c *chosenFlags) check() error {
	filtered := c.letterFilterFlags != letterFilterFlags{}
	switch {
	case c.Rate < 0:
		return terminal.Usagef("--rate %d: must be 1 or more", c.Rate)
	case len(c.IDs) > 0 && (filtered || c.All):
		return terminal.Usagef("name dead letters or filter them, not both")
	case len(c.IDs) == 0 && !filtered && !c.All:
		return terminal.Usagef("say which: ids, filters such as --topic, or --all")
	case len(c.IDs) > 0 && c.DryRun:
		return terminal.Usagef("--dry-run counts what a filter matches, and here are ids")
	}
	for _, text := range c.IDs {
		if _, err := readID("a dead letter", text); err != nil {
			return err
		}
	}
	return rest.CheckSpan(c.From, c.Until)
}

// inBulk counts what the filter matches, or starts an operation and follows it.
func (c *chosenFlags) inBulk(ctx context.Context, action string, settings rest.Object) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	settings["filter"] = rest.Given(&c.letterFilterFlags)
	if c.Rate > 0 {
		settings["ratePerSecond"] = c.Rate
	}
	return startOrCount(ctx, client, "/v1/deadLetters/"+action, settings, "dead letter", c.DryRun, c.NoWait, c.OutputFlag)
}

// startOrCount starts an operation and follows it; as a dry run it counts instead.
func startOrCount(
	ctx context.Context, client *rest.Client, path string, settings rest.Object, thing string, dryRun, noWait bool,
	out terminal.OutputFlag,
) error {
	if dryRun {
		settings["dryRun"] = true
	}
	var response rest.Object
	if err := client.Call(ctx, http.MethodPost, path, settings, &response); err != nil {
		return err
	}
	if dryRun {
		return printMatched(out, response, thing)
	}
	return follow(ctx, client, rest.TextAt(response, "operationId"), noWait, out)
}

// letterResult is what became of one dead letter that was named.
type letterResult struct {
	DeadLetterID string `json:"deadLetterId"`
	Result       string `json:"result,omitempty"`
	Error        string `json:"error,omitempty"`
}

// eachOf does something with each that was named, also after one that failed; their errors are the verb's.
func (c *chosenFlags) eachOf(do func(client *rest.Client, at string) (string, error)) (failed error) {
	client, err := c.Client()
	if err != nil {
		return err
	}
	results := make([]letterResult, len(c.IDs))
	for i, id := range c.IDs {
		results[i].DeadLetterID = id
		text, err := do(client, rest.ItemURL("/v1/deadLetters", id))
		if err != nil {
			results[i].Error = err.Error()
			failed = errors.Join(failed, err)
			continue
		}
		results[i].Result = text
	}
	if err := c.Print(results, func(w io.Writer) {
		for _, r := range results {
			if r.Error == "" {
				fmt.Fprintf(w, "%s\t%s\n", r.DeadLetterID, r.Result)
			}
		}
	}); err != nil {
		return err
	}
	return failed
}

type deadletterRedeliverCmd struct {
	chosenFlags
	ToSubscription string `api:"subscription" help:"Deliver to this event subscription instead of each one's own." placeholder:"NAME"`
	ToTopic        string `api:"topic" help:"Topic of --to-subscription (default: the dead letter's, or --topic)." placeholder:"NAME"`
	Again          bool   `api:"again" help:"Also those that were redelivered before. With a filter: --redelivered."`
}

// Help is shown by deadletter redeliver --help.
func (deadletterRedeliverCmd) Help() string {
	return `Each becomes a new delivery with a time to live of its own; the dead letter stays. With a filter the ` +
		`service works through all that match and
exist now, those that were redelivered before left out, and this waits until it has; Ctrl-C leaves it to the service.

Examples:
  postrider deadletter redeliver 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60
  postrider deadletter redeliver --topic orders --last-status 503 --dry-run
  postrider deadletter redeliver --topic orders --last-status 503 --from 2h --rate 100`
}

// Run executes deadletter redeliver.
func (c *deadletterRedeliverCmd) Run(ctx context.Context) error {
	err := c.check()
	switch {
	case err != nil:
		return err
	case c.ToTopic != "" && c.ToSubscription == "":
		return terminal.Usagef("--to-topic requires --to-subscription")
	case len(c.IDs) == 0 && c.Again:
		return terminal.Usagef("--again is for dead letters that are named; with a filter, say --redelivered")
	}
	settings := rest.Object{}
	rest.SetText(settings, "subscription", c.ToSubscription)
	rest.SetText(settings, "topic", c.ToTopic)
	if len(c.IDs) == 0 {
		return c.inBulk(ctx, "redeliver", settings)
	}
	settings["again"] = c.Again
	return c.eachOf(func(client *rest.Client, at string) (string, error) {
		var made struct{ DeliveryID int64 }
		err := client.Call(ctx, http.MethodPost, at+"/redeliver", settings, &made)
		if rest.IsConflict(err, api.ConflictCodeDeadLetterRedelivered) {
			err = fmt.Errorf("%w; --again redelivers it once more", err)
		}
		return fmt.Sprintf("redelivered as delivery %d", made.DeliveryID), err
	})
}

type deadletterPurgeCmd struct {
	chosenFlags
	terminal.ConfirmFlag
}

// Help is shown by deadletter purge --help.
func (deadletterPurgeCmd) Help() string {
	return `Nothing brings them back. With a filter the service works through all that match and exist now, and this ` +
		`waits until it has.

Examples:
  postrider deadletter purge 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60
  postrider deadletter purge --topic orders --redelivered --until 30d --dry-run
  postrider deadletter purge --topic orders --redelivered --until 30d --yes`
}

// Run executes deadletter purge.
func (c *deadletterPurgeCmd) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	if !c.DryRun {
		if err := c.Confirm(func() (string, error) { return c.question(ctx) }); err != nil {
			return err
		}
	}
	if len(c.IDs) == 0 {
		return c.inBulk(ctx, "purge", rest.Object{})
	}
	return c.eachOf(func(client *rest.Client, at string) (string, error) {
		return "purged", client.Call(ctx, http.MethodDelete, at, nil, nil)
	})
}

// question says what a purge loses: it counts what the filter matches.
func (c *deadletterPurgeCmd) question(ctx context.Context) (string, error) {
	n, least := int64(len(c.IDs)), ""
	if n == 0 {
		var found rest.Object
		settings := rest.Object{"filter": rest.Given(&c.letterFilterFlags), "dryRun": true}
		if err := c.Call(ctx, http.MethodPost, "/v1/deadLetters/purge", settings, &found); err != nil {
			return "", err
		}
		n, least = integerAt(found, "matched"), terminal.Either(found["atLeast"] == true, "at least ", "")
	}
	return fmt.Sprintf("Purge %s%s? They are lost for good, with their events.", least,
		terminal.Plural(n, "dead letter")), nil
}

type deadletterEventsCmd struct {
	rest.Flags
	Topic        string     `arg:"" help:"Name of the topic."`
	Subscription string     `arg:"" help:"Name of the event subscription that gets them."`
	From         *time.Time `api:"from" required:"" help:"Published at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `api:"until" aliases:"to" help:"Published before this time (default: now)." placeholder:"TIME"`
	Rate         int        `api:"ratePerSecond" help:"At most so many in a second (default: as fast as it goes)." placeholder:"N"`
	DryRun       bool       `help:"Count them, for five seconds at most, and do nothing."`
	NoWait       bool       `help:"Start it and print its id; the service goes on."`
}

// Help is shown by deadletter events --help.
func (deadletterEventsCmd) Help() string {
	return `Those that its filter matches, if they are still kept; each becomes a new delivery with its own time to live.

Examples:
  postrider deadletter events orders billing --from 1h --dry-run
  postrider deadletter events orders billing --from 2026-11-20T09:00:00Z --until 2026-11-20T10:00:00Z --rate 50`
}

// Run executes deadletter events.
func (c *deadletterEventsCmd) Run(ctx context.Context) error {
	if c.Rate < 0 {
		return terminal.Usagef("--rate %d: must be 1 or more", c.Rate)
	}
	if err := rest.CheckSpan(c.From, c.Until); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	path := rest.SubscriptionURL(c.Topic, c.Subscription) + "/redeliverEvents"
	return startOrCount(ctx, client, path, rest.Given(c), "past event", c.DryRun, c.NoWait, c.OutputFlag)
}
