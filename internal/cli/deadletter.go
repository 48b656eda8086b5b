package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/internal/cli/rest"
	"postrider/internal/query"
	"postrider/internal/terminal"
	"postrider/server/api"
)

// DeadletterCmd is deadletter with its verbs.
type DeadletterCmd struct {
	List      listVerb[query.DeadLetterFilter, query.DeadLetter] `cmd:"" help:"List dead letters, the newest first." example:"deadletter list --topic orders --reason MaxDeliveryAttemptsExceeded; deadletter list --last-status 503 --state all --from 1h -o json; deadletter list --search 'data.order.id = 42'"`
	Show      showVerb[query.DeadLetter]                         `cmd:"" help:"Show one dead letter with its event." example:"deadletter show 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"`
	Redeliver deadletterRedeliverCmd                             `cmd:"" help:"Redeliver dead letters: those named, or all that match."`
	Edit      deadletterEditCmd                                  `cmd:"" help:"Edit the event of a dead letter and redeliver it."`
	Patch     deadletterPatchCmd                                 `cmd:"" help:"Change the events of many dead letters by a JSON merge patch and redeliver them."`
	Resolve   deadletterResolveCmd                               `cmd:"" help:"Resolve dead letters without a redelivery: those named, or all that match." detail:"They are no longer counted as open, and can still be redelivered. With a filter the service resolves all matching dead letters that exist now, and the command waits for the end." example:"deadletter resolve 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60 --note 'refunded by hand'; deadletter resolve --topic orders --last-status 404 --dry-run"`
	Reopen    rest.ActVerb[rowArg[query.DeadLetter]]             `cmd:"" done:"Dead letter {deadLetterId} is {state}." help:"Take the resolution of a dead letter back." example:"deadletter reopen 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"`
	Purge     deadletterPurgeCmd                                 `cmd:"" help:"Delete dead letters permanently: those named, or all that match." detail:"You cannot undo it. With a filter the service deletes all matching dead letters that exist now, and the command waits for the end." example:"deadletter purge 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60; deadletter purge --topic orders --state redelivered --until 30d --dry-run; deadletter purge --topic orders --state resolved --until 30d --yes"`
	Export    deadletterExportCmd                                `cmd:"" help:"Export dead letters as JSON, one per line, the oldest first." detail:"The dead letters do not change. Dead letters added during the export are not included. An incomplete export leaves no file, and the exit code is 1." example:"deadletter export --topic orders --from 24h > dead.ndjson; deadletter export --format rows -o dead.ndjson; deadletter export -o 's3://backup/dead.ndjson?region=eu-west-1'"`
	Import    deadletterImportCmd                                `cmd:"" help:"Import dead letters of Azure Event Grid from files or a container."`
}

// deadLetterFlags choose dead letters by a filter, or by the ids of a file.
type deadLetterFlags struct {
	manyFlags
	query.DeadLetterFilter
	All bool `help:"All dead letters: required without an id and without a filter."`
}

// filter validates the flags and returns the filter of a request.
func (f *deadLetterFlags) filter(stdin io.Reader) (rest.Object, error) {
	filter, err := rest.Filter(&f.DeadLetterFilter)
	if err != nil {
		return nil, err
	}
	filtered := len(filter) > 1 || len(filter) == 1 && filter["state"] != "all"
	switch {
	case f.IDsFrom != "" && (filtered || f.All):
		return nil, terminal.Usagef("use either ids or filters, not both")
	case f.IDsFrom == "" && !filtered && !f.All:
		return nil, terminal.Usagef("choose dead letters with ids, filters such as --topic, --ids-from or --all")
	}
	if f.All && filter["state"] == nil { // all that the request may change
		filter["state"] = "all"
	}
	rest.Shown(&f.DeadLetterFilter, filter)
	if f.IDsFrom != "" {
		delete(filter, "state")
		ids, err := readIDs(stdin, f.IDsFrom, func(text string) (id rowID[query.DeadLetter], err error) {
			return id, id.UnmarshalText([]byte(text))
		})
		if err != nil {
			return nil, err
		}
		filter["deadLetterIds"] = ids
	}
	return filter, f.checkRate()
}

// chosenFlags choose dead letters by arguments too.
type chosenFlags struct {
	deadLetterFlags
	IDs []rowID[query.DeadLetter] `arg:"" optional:"" name:"id" help:"Ids of dead letters, instead of a filter."`
}

// filter validates the flags and returns the filter of a request; nil with ids as arguments.
func (c *chosenFlags) filter(stdin io.Reader) (rest.Object, error) {
	switch {
	case len(c.IDs) == 0:
		return c.deadLetterFlags.filter(stdin)
	case len(rest.Given(&c.DeadLetterFilter)) > 0 || c.All || c.IDsFrom != "":
		return nil, terminal.Usagef("use either ids or filters, not both")
	case c.DryRun || c.ExpectedCount != nil:
		return nil, terminal.Usagef("--dry-run and --expected-count require a filter or --ids-from: they count")
	}
	return nil, c.checkRate()
}

// targetFlags name the destination of redeliveries and repairs.
type targetFlags struct {
	ToSubscription string `help:"Deliver to this event subscription instead of the original one." placeholder:"NAME"`
	ToTopic        string `help:"Topic of --to-subscription (default: that of the dead letter, or the filter's)." placeholder:"NAME"`
	Again          bool   `help:"Also those that were redelivered before."`
}

// settings are those of a request.
func (f *targetFlags) settings() (rest.Object, error) {
	if f.ToTopic != "" && f.ToSubscription == "" {
		return nil, terminal.Usagef("--to-topic requires --to-subscription")
	}
	settings := rest.Object{"again": f.Again}
	rest.SetText(settings, "subscription", f.ToSubscription)
	rest.SetText(settings, "topic", f.ToTopic)
	return settings, nil
}

// again makes the filter of a redelivery or repair one of dead letters in any state, if --again is set.
func (f *deadLetterFlags) again(filter rest.Object, target *targetFlags) error {
	if target.Again && f.State == nil {
		delete(filter, "state")
	}
	return f.rejectAllStates(target.Again, "--again, or --state redelivered or resolved")
}

// rejectAllStates rejects --state all for an operation that would take the open dead letters only, unless again. others
// is what to use instead.
func (f *deadLetterFlags) rejectAllStates(again bool, others string) error {
	if again || f.State == nil || *f.State != "all" {
		return nil
	}
	return terminal.Usagef("--state all is not supported here: leave it out for open dead letters; for others use %s",
		others)
}

// eachOf calls do for each id, also after an error, and returns all errors.
func (c *chosenFlags) eachOf(std terminal.Streams, do func(at string) (string, error)) (failed error) {
	results := make([]rest.Object, len(c.IDs))
	for i, id := range c.IDs {
		done, err := do(rest.ItemURL("/v1/deadLetters", id))
		if results[i] = (rest.Object{"deadLetterId": id, "result": done}); err != nil {
			results[i] = rest.Object{"deadLetterId": id, "error": err.Error()}
			failed = errors.Join(failed, err)
		}
	}
	if err := c.Print(std.Out, results, func(w io.Writer) {
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
	targetFlags
}

// Help is shown by deadletter redeliver --help.
func (deadletterRedeliverCmd) Help() string {
	return `Each becomes a new delivery with its own time to live; the dead letter stays. With a filter the service
redelivers all matching dead letters that exist now and were not redelivered before. The command waits for the end;
Ctrl-C stops only the waiting.

Examples:
  postrider deadletter redeliver 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60
  postrider deadletter redeliver --ids-from ids.txt --rate 100
  postrider deadletter redeliver --topic orders --last-status 503 --dry-run
  postrider deadletter redeliver --topic orders --last-status 503 --until 2026-11-20T10:00:00Z --expected-count 1200`
}

func (c *deadletterRedeliverCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	filter, err := c.filter(std.In)
	if err == nil {
		err = c.again(filter, &c.targetFlags)
	}
	if err != nil {
		return err
	}
	settings, err := c.settings()
	if err != nil {
		return err
	}
	if filter != nil {
		return c.inBulk(ctx, std, client, "/v1/deadLetters/redeliver", filter, settings, "dead letter")
	}
	return c.eachOf(std, func(at string) (string, error) {
		var created rest.Object
		err := client.Call(ctx, http.MethodPost, at+"/redeliver", settings, &created)
		if rest.IsConflict(err, api.ConflictCodeDeadLetterRedelivered) {
			err = fmt.Errorf("%w; --again redelivers it once more", err)
		}
		return fmt.Sprintf("redelivered as delivery %v", created["deliveryId"]), err
	})
}

type deadletterResolveCmd struct {
	chosenFlags
	Note string `help:"Why, for others; up to 1000 characters." placeholder:"TEXT"`
}

func (c *deadletterResolveCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if err := c.rejectAllStates(false, "--state redelivered"); err != nil {
		return err
	}
	filter, err := c.filter(std.In)
	if err != nil {
		return err
	}
	settings := rest.Object{}
	rest.SetText(settings, "note", c.Note)
	if filter != nil {
		return c.inBulk(ctx, std, client, "/v1/deadLetters/resolve", filter, settings, "dead letter")
	}
	return c.eachOf(std, func(at string) (string, error) {
		return "resolved", client.Call(ctx, http.MethodPost, at+"/resolve", settings, nil)
	})
}

type deadletterPurgeCmd struct {
	chosenFlags
	terminal.ConfirmFlag
}

func (c *deadletterPurgeCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	filter, err := c.filter(std.In)
	if err != nil {
		return err
	}
	if !c.DryRun {
		if err := c.Confirm(std, func() (string, error) {
			n, atLeast := int64(len(c.IDs)), false
			if filter != nil {
				// It deletes only what it counts here: more can become dead letters until the user replies.
				if now := time.Now(); c.DeadLetteredUntil == nil || now.Before(*c.DeadLetteredUntil) {
					filter["deadLetteredUntil"] = now.UTC()
				}
				var err error
				if n, atLeast, err = count(ctx, client, "/v1/deadLetters/purge", filter); err != nil {
					return "", err
				}
				if !atLeast && c.ExpectedCount == nil {
					c.ExpectedCount = &n
				}
			}
			return fmt.Sprintf("Purge %s%s? They and their events are lost for good.",
				terminal.Either(atLeast, "at least ", ""), terminal.Plural(n, "dead letter")), nil
		}); err != nil {
			return err
		}
	}
	if filter != nil {
		return c.inBulk(ctx, std, client, "/v1/deadLetters/purge", filter, rest.Object{}, "dead letter")
	}
	return c.eachOf(std, func(at string) (string, error) {
		return "purged", client.Call(ctx, http.MethodDelete, at, nil, nil)
	})
}
