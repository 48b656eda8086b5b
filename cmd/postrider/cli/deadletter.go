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
	List      listVerb[letterFilter] `cmd:"" path:"/v1/deadLetters" help:"List dead letters, the newest first." example:"deadletter list --topic orders --reason MaxDeliveryAttemptsExceeded; deadletter list --last-status 503 --no-redelivered --from 1h -o json"`
	Show      showVerb[letterArg]    `cmd:"" path:"/v1/deadLetters/{id}" help:"Show one dead letter with its event." example:"deadletter show 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"`
	Redeliver deadletterRedeliverCmd `cmd:"" help:"Redeliver dead letters: those named, or all that match." detail:"Each becomes a new delivery with its own time to live; the dead letter stays. With a filter the service redelivers all that match and exist now, except those that were redelivered before, and this waits until it has; Ctrl-C stops only the waiting." example:"deadletter redeliver 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60; deadletter redeliver --topic orders --last-status 503 --dry-run; deadletter redeliver --topic orders --last-status 503 --from 2h --rate 100"`
	Purge     deadletterPurgeCmd     `cmd:"" help:"Remove dead letters for good: those named, or all that match." detail:"You cannot undo it. With a filter the service removes all that match and exist now, and this waits until it has." example:"deadletter purge 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60; deadletter purge --topic orders --redelivered --until 30d --dry-run; deadletter purge --topic orders --redelivered --until 30d --yes"`
	Events    deadletterEventsCmd    `cmd:"" help:"Deliver a topic's past events to one of its event subscriptions." detail:"All that its filter matches, if they are still kept. Each becomes a new delivery with its own time to live. A dry run counts for five seconds at most." example:"deadletter events orders billing --from 1h --dry-run; deadletter events orders billing --from 2026-11-20T09:00:00Z --until 2026-11-20T10:00:00Z --rate 50"`
	Export    deadletterExportCmd    `cmd:"" help:"Write dead letters as JSON, one a line." detail:"The oldest comes first. Dead letters stay as they are; those that are added meanwhile are left out. An incomplete export ends with exit code 1 and leaves no file." example:"deadletter export --topic orders --from 24h > dead.ndjson; deadletter export --format rows -o dead.ndjson; deadletter export -o 's3://backup/dead.ndjson?region=eu-west-1'"`
	Cancel    deadletterCancelCmd    `cmd:"" help:"Stop a redelivery, a purge or an erasure of many." detail:"What is done stays done." example:"deadletter cancel 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"`
}

type letterArg struct {
	ID deadLetterID `arg:"" help:"Id of the dead letter."`
}

// letterFilter chooses dead letters.
type letterFilter struct {
	Topic         *string    `api:"topic" help:"Of this topic." placeholder:"NAME"`
	Subscription  *string    `api:"subscription" help:"Of this event subscription." placeholder:"NAME"`
	Reason        *string    `api:"reason" help:"Dead-lettered for this reason, such as MaxDeliveryAttemptsExceeded." placeholder:"REASON"`
	LastOutcome   *string    `api:"lastOutcome" help:"With this outcome of the last attempt, such as Busy." placeholder:"OUTCOME"`
	LastStatus    *int       `api:"lastStatus" help:"With this HTTP status of the last attempt." placeholder:"CODE"`
	EventID       *string    `api:"eventId" name:"event-id" help:"With this id, the publisher's." placeholder:"ID"`
	EventType     *string    `api:"eventType" help:"Of this event type." placeholder:"TYPE"`
	Subject       *string    `api:"subject" help:"With this subject." placeholder:"SUBJECT"`
	SubjectPrefix *string    `api:"subjectPrefix" help:"With a subject that begins with this." placeholder:"PREFIX"`
	Source        *string    `api:"source" help:"With this CloudEvents source." placeholder:"SOURCE"`
	From          *time.Time `api:"deadLetteredFrom" help:"Dead-lettered at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until         *time.Time `api:"deadLetteredUntil" aliases:"to" help:"Dead-lettered before this time." placeholder:"TIME"`
	Redelivered   *bool      `api:"redelivered" help:"Those that were redelivered before, or with --no-redelivered those that were not." negatable:""`
}

// chosenFlags choose dead letters by their ids or by a filter.
type chosenFlags struct {
	bulkFlags
	letterFilter
	IDs []deadLetterID `arg:"" optional:"" name:"id" help:"Ids of dead letters, instead of a filter."`
	All bool           `help:"All dead letters: required without an id and without a filter."`
}

// check validates how they are chosen.
func (c *chosenFlags) check() error {
	filtered := c.letterFilter != letterFilter{}
	switch {
	case len(c.IDs) > 0 && (filtered || c.All):
		return terminal.Usagef("name dead letters or filter them, not both")
	case len(c.IDs) == 0 && !filtered && !c.All:
		return terminal.Usagef("say which: ids, filters such as --topic, or --all")
	case len(c.IDs) > 0 && c.DryRun:
		return terminal.Usagef("--dry-run counts what a filter matches, and here are ids")
	}
	if _, err := rest.Filter(&c.letterFilter); err != nil {
		return err
	}
	return c.checkRate()
}

// inBulk has the service do something with all that match.
func (c *chosenFlags) inBulk(ctx context.Context, action string, settings rest.Object) error {
	settings["filter"] = rest.Given(&c.letterFilter)
	return c.start(ctx, "/v1/deadLetters/"+action, settings, "dead letter")
}

// eachOf does something with each that was named, also after one that failed; their errors are the verb's.
func (c *chosenFlags) eachOf(do func(client *rest.Client, at string) (string, error)) (failed error) {
	client, err := c.Client()
	if err != nil {
		return err
	}
	results := make([]rest.Object, len(c.IDs))
	for i, id := range c.IDs {
		done, err := do(client, rest.ItemURL("/v1/deadLetters", id))
		if results[i] = (rest.Object{"deadLetterId": id, "result": done}); err != nil {
			results[i] = rest.Object{"deadLetterId": id, "error": err.Error()}
			failed = errors.Join(failed, err)
		}
	}
	if err := c.Print(results, func(w io.Writer) {
		for _, r := range results {
			if r["error"] == nil {
				fmt.Fprintf(w, "%s\t%s\n", r["deadLetterId"], r["result"])
			}
		}
	}); err != nil {
		return err
	}
	return failed
}

type deadletterRedeliverCmd struct {
	chosenFlags
	ToSubscription string `help:"Deliver to this event subscription instead of each one's own." placeholder:"NAME"`
	ToTopic        string `help:"Topic of --to-subscription (default: the dead letter's, or --topic)." placeholder:"NAME"`
	Again          bool   `help:"Also those that were redelivered before. With a filter: --redelivered."`
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
		var made rest.Object
		err := client.Call(ctx, http.MethodPost, at+"/redeliver", settings, &made)
		if rest.IsConflict(err, api.ConflictCodeDeadLetterRedelivered) {
			err = fmt.Errorf("%w; --again redelivers it once more", err)
		}
		return fmt.Sprintf("redelivered as delivery %v", made["deliveryId"]), err
	})
}

type deadletterPurgeCmd struct {
	chosenFlags
	terminal.ConfirmFlag
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
		settings := rest.Object{"filter": rest.Given(&c.letterFilter), "dryRun": true}
		if err := c.Call(ctx, http.MethodPost, "/v1/deadLetters/purge", settings, &found); err != nil {
			return "", err
		}
		n, least = integerAt(found, "matched"), terminal.Either(found["atLeast"] == true, "at least ", "")
	}
	return fmt.Sprintf("Purge %s%s? They are lost for good, with their events.", least,
		terminal.Plural(n, "dead letter")), nil
}

type deadletterEventsCmd struct {
	bulkFlags
	Topic        string     `arg:"" help:"Name of the topic."`
	Subscription string     `arg:"" help:"Name of the event subscription that gets them."`
	From         *time.Time `api:"from" required:"" help:"Published at this time or later: 1h (an hour ago), 2026-11-20 or 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until        *time.Time `api:"until" aliases:"to" help:"Published before this time (default: now)." placeholder:"TIME"`
}

// Run executes deadletter events.
func (c *deadletterEventsCmd) Run(ctx context.Context) error {
	if err := c.checkRate(); err != nil {
		return err
	}
	settings, err := rest.Filter(c)
	if err != nil {
		return err
	}
	return c.start(ctx, rest.SubscriptionURL(c.Topic, c.Subscription)+"/redeliverEvents", settings, "past event")
}
