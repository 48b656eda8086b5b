package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/server"
	"postrider/store"
)

type deadletterCmd struct {
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
	Topic         *string    `help:"Of this topic." placeholder:"NAME"`
	Subscription  *string    `help:"Of this event subscription." placeholder:"NAME"`
	Reason        *string    `help:"Given up for this reason, such as MaxDeliveryAttemptsExceeded." placeholder:"REASON"`
	LastOutcome   *string    `help:"Whose last attempt came to this, such as Busy." placeholder:"OUTCOME"`
	LastStatus    *int       `help:"Whose last attempt met this HTTP status." placeholder:"CODE"`
	EventID       *string    `name:"event-id" help:"With this id, the publisher's." placeholder:"ID"`
	EventType     *string    `help:"Of this event type." placeholder:"TYPE"`
	Subject       *string    `help:"With this subject." placeholder:"SUBJECT"`
	SubjectPrefix *string    `help:"Whose subject begins so." placeholder:"PREFIX"`
	Source        *string    `help:"With this CloudEvents source." placeholder:"SOURCE"`
	From          *time.Time `help:"Given up at this time or later, such as 2026-11-20T09:30:00Z." placeholder:"TIME"`
	Until         *time.Time `help:"Given up before this time." placeholder:"TIME"`
	Redelivered   *bool      `help:"Those that were redelivered before, or with --no-redelivered those that were not." negatable:""`
}

func (f *letterFilterFlags) filter() *store.DeadLetterFilter {
	return &store.DeadLetterFilter{
		Topic: f.Topic, Subscription: f.Subscription, Reason: f.Reason, LastOutcome: f.LastOutcome, LastStatus: f.LastStatus, EventID: f.EventID, EventType: f.EventType,
		Subject: f.Subject, SubjectPrefix: f.SubjectPrefix, Source: f.Source, DeadLetteredFrom: f.From, DeadLetteredUntil: f.Until, Redelivered: f.Redelivered,
	}
}

// chosenFlags are dead letters by their ids or by a filter, and how many are worked at in a second.
type chosenFlags struct {
	databaseFlags
	outputFlag
	letterFilterFlags
	IDs    []string `arg:"" optional:"" name:"id" help:"Ids of dead letters, instead of a filter."`
	All    bool     `help:"All that there are: without an id and without a filter, this must be said."`
	Rate   int      `help:"At most so many in a second (default: as fast as it goes)." placeholder:"N"`
	DryRun bool     `help:"Count what matches, and do nothing."`
	NoWait bool     `help:"Start it and print its id; the service goes on."`
}

// chosen reads them; ids is nil where a filter chooses.
func (c *chosenFlags) chosen() (ids []uuid.UUID, filter *store.DeadLetterFilter, err error) {
	filter = c.filter()
	filtered := c.letterFilterFlags != letterFilterFlags{}
	switch {
	case c.Rate < 0:
		return nil, nil, usagef("--rate %d: must be 1 or more", c.Rate)
	case len(c.IDs) > 0 && (filtered || c.All):
		return nil, nil, usagef("name dead letters or filter them, not both")
	case len(c.IDs) == 0 && !filtered && !c.All:
		return nil, nil, usagef("say which: ids, filters such as --topic, or --all")
	}
	for _, text := range c.IDs {
		id, err := readID("dead letter", text)
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, id)
	}
	return ids, filter, nil
}

func readID(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, usagef("%q is no id of %s %s", text, either(what == "operation", "an", "a"), what)
	}
	return id, nil
}

type deadletterListCmd struct {
	databaseFlags
	outputFlag
	letterFilterFlags
	Limit int `help:"How many to list at most: 1 to 10000." default:"50" placeholder:"N"`
}

// Help is shown by deadletter list --help.
func (deadletterListCmd) Help() string {
	return "Examples:\n  postrider deadletter list --topic orders --reason MaxDeliveryAttemptsExceeded\n  postrider deadletter list --last-status 503 --no-redelivered -o json"
}

// Run executes deadletter list.
func (c *deadletterListCmd) Run(ctx context.Context) error {
	const most = 10_000
	if c.Limit < 1 || c.Limit > most {
		return usagef("--limit %d: must be 1 to %d", c.Limit, most)
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		list, err := letters.List(ctx, c.filter(), store.DeadLetterPlace{}, c.Limit)
		if err != nil {
			return err
		}
		described := make([]server.DeadLetter, len(list))
		for i := range list {
			described[i] = server.DescribeDeadLetter(&list[i])
		}
		return c.print(described, func(w io.Writer) { printLetters(w, list) })
	})
}

func printLetters(w io.Writer, list []store.DeadLetter) {
	fmt.Fprintln(w, "ID\tGIVEN UP\tTOPIC\tSUBSCRIPTION\tEVENT ID\tTYPE\tREASON\tATTEMPTS\tLAST\tREDELIVERED")
	for i := range list {
		l := &list[i]
		redelivered := ""
		if l.RedeliveredAt != nil {
			redelivered = moment(*l.RedeliveredAt)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", l.DeadLetterID, moment(l.DeadLetteredAt), cell(l.Topic), cell(l.Subscription), cell(l.EventID), cell(l.EventType),
			l.Reason, l.Attempts, lastAnswer(l), redelivered)
	}
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// lastAnswer is the status that the last attempt met, or what it came to where there was none.
func lastAnswer(l *store.DeadLetter) string {
	switch {
	case l.LastStatus != nil:
		return fmt.Sprint(*l.LastStatus)
	case l.LastOutcome != nil:
		return *l.LastOutcome
	default:
		return ""
	}
}

type deadletterShowCmd struct {
	databaseFlags
	outputFlag
	ID string `arg:"" help:"Id of the dead letter."`
}

// Help is shown by deadletter show --help.
func (deadletterShowCmd) Help() string {
	return "Example:\n  postrider deadletter show 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"
}

// Run executes deadletter show.
func (c *deadletterShowCmd) Run(ctx context.Context) error {
	id, err := readID("dead letter", c.ID)
	if err != nil {
		return err
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		l, err := letters.Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return usagef("dead letter %s does not exist", id)
		}
		if err != nil {
			return err
		}
		return c.print(server.DescribeDeadLetter(l), func(w io.Writer) { printLetter(w, l) })
	})
}

func printLetter(w io.Writer, l *store.DeadLetter) {
	rows := [][2]string{
		{"id", l.DeadLetterID.String()},
		{"given up", moment(l.DeadLetteredAt)},
		{"topic", l.Topic},
		{"subscription", l.Subscription},
		{"reason", l.Reason},
		{"attempts", fmt.Sprint(l.Attempts)},
		{"last", lastAnswer(l)},
		{"endpoint", l.EndpointBaseURL},
		{"retry policy", l.RetryPolicy},
		{"published", moment(l.PublishedAt)},
		{"event id", l.EventID},
		{"event type", l.EventType},
		{"subject", l.Subject},
		{"schema", l.Schema},
		{"delivery", fmt.Sprint(l.DeliveryID)},
	}
	for _, more := range []struct {
		name string
		text *string
	}{{"last error", l.LastError}, {"source", l.Source}, {"last response", l.LastResponse}, {"event", l.BodyText}} {
		if more.text != nil {
			rows = append(rows, [2]string{more.name, *more.text})
		}
	}
	if l.RedeliveredAt != nil {
		rows = append(rows, [2]string{"redelivered", moment(*l.RedeliveredAt)})
	}
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t%s\n", row[0], oneLine(row[1]))
	}
}

type deadletterRedeliverCmd struct {
	chosenFlags
	ToSubscription string `help:"Deliver to this event subscription instead of each one's own." placeholder:"NAME"`
	ToTopic        string `help:"Topic of --to-subscription (default: the dead letter's, or --topic)." placeholder:"NAME"`
	Again          bool   `help:"Also those that were redelivered before. With a filter: --redelivered."`
}

// Help is shown by deadletter redeliver --help.
func (deadletterRedeliverCmd) Help() string {
	return `Each becomes a new delivery with a time to live of its own; the dead letter stays. With a filter the service works through all that match and
exist now, those that were redelivered before left out, and this waits until it has; Ctrl-C leaves it to the service.

Examples:
  postrider deadletter redeliver 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60
  postrider deadletter redeliver --topic orders --last-status 503 --dry-run
  postrider deadletter redeliver --topic orders --last-status 503 --rate 100`
}

// Run executes deadletter redeliver.
func (c *deadletterRedeliverCmd) Run(ctx context.Context) error {
	ids, filter, err := c.chosen()
	switch {
	case err != nil:
		return err
	case c.ToTopic != "" && c.ToSubscription == "":
		return usagef("--to-topic wants --to-subscription")
	case ids == nil && c.Again:
		return usagef("--again is for dead letters that are named; with a filter, say --redelivered")
	}
	to := store.Target{Subscription: c.ToSubscription, Topic: c.ToTopic}
	if filter.Redelivered == nil {
		filter.Redelivered = new(false)
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		if ids != nil {
			return c.eachOf(ids, func(id uuid.UUID) (string, error) {
				delivery, err := letters.Redeliver(ctx, id, to, c.Again)
				return fmt.Sprintf("redelivered as delivery %d", delivery), err
			})
		}
		return c.inBulk(ctx, letters, filter, func() (uuid.UUID, error) { return letters.RedeliverAll(ctx, filter, to, c.Rate) })
	})
}

type deadletterPurgeCmd struct{ chosenFlags }

// Help is shown by deadletter purge --help.
func (deadletterPurgeCmd) Help() string {
	return `Nothing brings them back. With a filter the service works through all that match and exist now, and this waits until it has.

Examples:
  postrider deadletter purge 0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60
  postrider deadletter purge --topic orders --redelivered --until 2026-11-01T00:00:00Z --dry-run`
}

// Run executes deadletter purge.
func (c *deadletterPurgeCmd) Run(ctx context.Context) error {
	ids, filter, err := c.chosen()
	if err != nil {
		return err
	}
	return c.withLetters(ctx, func(ctx context.Context, letters *store.DeadLetters) error {
		if ids != nil {
			return c.eachOf(ids, func(id uuid.UUID) (string, error) {
				purged, err := letters.Purge(ctx, id)
				if err == nil && !purged {
					err = usagef("dead letter %s does not exist", id)
				}
				return "purged", err
			})
		}
		return c.inBulk(ctx, letters, filter, func() (uuid.UUID, error) { return letters.PurgeAll(ctx, filter, c.Rate) })
	})
}

// done is what became of one dead letter that was named.
type done struct {
	DeadLetterID string `json:"deadLetterId"`
	Result       string `json:"result,omitempty"`
	Error        string `json:"error,omitempty"`
}

// eachOf does something with each that was named, also after one that could not be done; the first error is the verb's.
func (c *chosenFlags) eachOf(ids []uuid.UUID, do func(uuid.UUID) (string, error)) (first error) {
	if c.DryRun {
		return usagef("--dry-run counts what a filter matches, and here are ids")
	}
	results := make([]done, len(ids))
	for i, id := range ids {
		results[i].DeadLetterID = id.String()
		text, err := do(id)
		if err != nil {
			results[i].Error = verbError(err).Error()
			first = errors.Join(first, verbError(err))
			continue
		}
		results[i].Result = text
	}
	if err := c.print(results, func(w io.Writer) {
		for _, r := range results {
			if r.Error == "" {
				fmt.Fprintf(w, "%s\t%s\n", r.DeadLetterID, r.Result)
			}
		}
	}); err != nil {
		return err
	}
	return first
}

// verbError adds to what was refused what to do about it, in the words of a command line.
func verbError(err error) error {
	var refusal *store.FunctionError
	switch {
	case !errors.As(err, &refusal):
		return err
	case errors.Is(err, store.ErrConflict):
		hint := strings.NewReplacer("again => true", "--again", "as subscription", "with --to-subscription", "postrider.purge()", "deadletter purge").Replace(refusal.Hint)
		return errors.New(strings.TrimSuffix(refusal.Message+". "+hint, ". "))
	default:
		return usagef("%s", refusal.Message)
	}
}

// withLetters does something with the database's dead letters, as this verb.
func (f databaseFlags) withLetters(ctx context.Context, do func(context.Context, *store.DeadLetters) error) error {
	return verbError(f.withPool(ctx, func(pool *pgxpool.Pool) error { return do(asVerb(ctx), store.DeadLettersOf(pool)) }))
}
