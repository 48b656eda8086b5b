// Package cli has the verbs that are clients of the REST API. Package config has those for topics, event
// subscriptions and retry policies.
package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/alecthomas/kong"

	"postrider/internal/cli/rest"
	"postrider/internal/query"
	"postrider/internal/terminal"
)

// DeliveryCmd is delivery with its verbs.
type DeliveryCmd struct {
	List          listVerb[query.DeliveryFilter, query.DeliveryLine] `cmd:"" help:"List pending and finished deliveries, the newest first." detail:"With --from or --until they are sorted by the time of their events, otherwise by the time of their creation." example:"delivery list --topic orders --subscription billing --state pending; delivery list --event-id o-42; delivery list --hold probation --from 1h -o json"`
	Show          showVerb[query.DeliveryLine]                       `cmd:"" help:"Show a delivery and its attempts." example:"delivery show 4711; delivery show 4711 -o json"`
	Cancel        deliveryCancelCmd                                  `cmd:"" done:"Delivery {deliveryId} was canceled." help:"Cancel pending deliveries: one, or all that match." detail:"You cannot undo it. An attempt in progress may still reach the endpoint; its result is not recorded. For many, the command waits for the end; Ctrl-C stops only the waiting." example:"delivery cancel 4711; delivery cancel --topic orders --hold probation --dry-run; delivery cancel --ids-from ids.txt --yes"`
	RetryNow      deliveryActCmd                                     `cmd:"" done:"The next attempt of delivery {deliveryId} is due now." help:"Make the next attempt of pending deliveries due now: one, or all that match." detail:"Attempts and time to live do not change. The service rejects this during an attempt, and during a hold. For many, the command waits for the end; Ctrl-C stops only the waiting." example:"delivery retry-now 4711; delivery retry-now --topic orders --state pending --rate 50"`
	DeadLetterNow rest.ActVerb[rowArg[query.DeliveryLine]]           `cmd:"" done:"Delivery {deliveryId} became dead letter {deadLetterId}." help:"Turn a pending delivery into a dead letter." detail:"This works even if the event subscription keeps no dead letters." example:"delivery dead-letter-now 4711"`
}

// BatchCmd is batch with its verbs.
type BatchCmd struct {
	List listVerb[query.BatchFilter, query.BatchLine] `cmd:"" help:"List batches, the newest first." example:"batch list --topic orders --subscription audit; batch list --state pending -o json"`
	Show showVerb[query.BatchLine]                    `cmd:"" help:"Show a batch, its attempts and its deliveries." example:"batch show 4711; batch show 4711 -o json"`
}

// EventCmd is event with its verbs.
type EventCmd struct {
	List      listVerb[query.EventFilter, query.EventRow] `cmd:"" help:"List events, the newest first." example:"event list --topic orders --limit 20; event list --event-id o-42; event list --unmatched --from 1h --to 10m -o json"`
	Show      showVerb[query.EventRow]                    `cmd:"" help:"Show an event as it was accepted, and its deliveries." detail:"Shows the newest 200 deliveries; delivery list --event-id has all." example:"event show 0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11"`
	Redeliver eventRedeliverCmd                           `cmd:"" help:"Deliver an event once more, or a topic's past events, to an event subscription."`
	Erase     eventEraseCmd                               `cmd:"" help:"Erase the content of an event, or of all events of a subject, everywhere."`
}

// OperationCmd is operation with its verbs.
type OperationCmd struct {
	List   listVerb[struct{}, query.Operation] `cmd:"" help:"List bulk operations (redeliveries, purges, retries, cancellations, erasures), the newest first." detail:"Finished operations are kept for 30 days. operation cancel stops one." example:"operation list"`
	Show   showVerb[query.Operation]           `cmd:"" help:"Show a bulk operation and its progress." example:"operation show 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"`
	Cancel operationCancelCmd                  `cmd:"" help:"Cancel a bulk operation, such as a redelivery." detail:"Completed work is not undone." example:"operation cancel 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"`
}

// RelayCmd is relay with its verbs.
type RelayCmd struct {
	List         listVerb[query.RelayFeedFilter, query.RelayFeed] `cmd:"" help:"List the event subscriptions of Azure that deliver into relay topics, the newest first." example:"relay list; relay list --topic orders -o json"`
	Show         showVerb[query.RelayFeed]                        `cmd:"" help:"Show an event subscription of Azure, and what it has delivered." example:"relay show 17"`
	OpenCallback rest.ActVerb[rowArg[query.RelayFeed]]            `cmd:"" done:"The callback of feed {id} is requested; relay show has the result." help:"Open the callback of a CloudEvents handshake." detail:"Azure offers it if the response to the handshake is not enough. It can be opened once, within 10 minutes." example:"relay open-callback 17"`
}

// ProblemCmd is problem.
type ProblemCmd struct {
	List        problemListCmd                  `cmd:"" help:"List failed attempts by event subscription and outcome, the newest failure first." example:"problem list; problem list --topic orders --within 24h -o json; problem list --state failing"`
	Show        showVerb[query.Problem]         `cmd:"" help:"Show a problem with its counts of the last 24 hours." example:"problem show 3f0c6c9e-5b1d-8a54-8e2f-6f0c1d2b3a45"`
	Acknowledge problemAcknowledgeCmd           `cmd:"" done:"Problem {id} is acknowledged until {acknowledgedUntil}." help:"Acknowledge a problem: alerts and notices leave it out until a time." example:"problem acknowledge 3f0c6c9e-5b1d-8a54-8e2f-6f0c1d2b3a45 --for 4h --note 'endpoint is being moved'"`
	Resolve     rest.ActVerb[problemResolveArg] `cmd:"" done:"Problem {id} is resolved." help:"Resolve a problem: lists hide it until it fails again." example:"problem resolve 3f0c6c9e-5b1d-8a54-8e2f-6f0c1d2b3a45 --note 'certificate renewed'"`
}

type problemAcknowledgeCmd struct {
	rest.Flags
	rowArg[query.Problem]
	For  time.Duration `help:"For how long: 1m to 30d." default:"4h" range:"60..2592000" placeholder:"SPAN"`
	Note string        `help:"Note for others, up to 1000 characters." placeholder:"TEXT"`
}

func (c *problemAcknowledgeCmd) Run(
	ctx context.Context, std terminal.Streams, client *rest.Client, k *kong.Context,
) error {
	body := rest.Object{"forMinutes": int(c.For / time.Minute)}
	rest.SetText(body, "note", c.Note)
	return c.Act(ctx, std, client, k, c.Path(), body)
}

type problemResolveArg struct {
	rowArg[query.Problem]
	Note string `api:"note" help:"Note for others, up to 1000 characters." placeholder:"TEXT"`
}

type problemListCmd struct {
	rest.Flags
	Topic  string        `help:"Of this topic." placeholder:"NAME"`
	State  string        `help:"unresolved (all but resolved ones), failing, acknowledged, recovered, resolved or all." enum:"unresolved,failing,acknowledged,recovered,resolved,all" default:"unresolved" placeholder:"STATE"`
	Within time.Duration `help:"Length of the time span before now: 1m to 7d." default:"1h" range:"60..604800" placeholder:"SPAN"`
}

func (c *problemListCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	span := rest.Object{"withinInMinutes": int(c.Within / time.Minute), "state": c.State}
	rest.SetText(span, "topic", c.Topic)
	return c.All(ctx, std, client, rest.QueryURL(rest.ListURL[query.Problem](), span), rest.ColumnsOf[query.Problem]())
}

// AuditCmd is audit.
type AuditCmd struct {
	List listVerb[query.AuditFilter, query.AuditLine] `cmd:"" help:"List the actions of users and programs, the newest first." example:"audit list --actor key:ci; audit list --topic orders --from 24h -o json"`
}

type eventEraseCmd struct {
	rest.Flags
	terminal.ConfirmFlag
	SystemID rowID[query.EventRow] `arg:"" optional:"" name:"system-id" help:"postrider's own id of the event, as event list shows it."`
	Topic    string                `help:"Instead of an event: all events of this topic with --subject." placeholder:"NAME"`
	Subject  string                `help:"Exactly this subject." placeholder:"SUBJECT"`
	NoWait   bool                  `help:"For many events: print the operation's id without waiting for its end."`
}

// Help is shown by event erase --help.
func (eventEraseCmd) Help() string {
	return `Erases body and subject of the event and of its dead letters, and the responses of endpoints. Pending
deliveries are canceled first. Ids, types, times, attempts and states stay. Exported copies and copies at endpoints
are not erased. You cannot undo it. If a subject has more than a thousand events, the service erases them in steps,
and the command waits for the end; Ctrl-C stops only the waiting.

Examples:
  postrider event erase 0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11
  postrider event erase --topic orders --subject customers/4711 --yes`
}

func (c *eventEraseCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	one, at, body := c.SystemID != "", rest.ItemURL("/v1/events", c.SystemID), any(nil)
	switch {
	case one && c.Topic == "" && c.Subject == "":
		at += "/erase"
	case !one && c.Topic != "" && c.Subject != "":
		at, body = rest.TopicURL(c.Topic)+"/eraseSubject", rest.Object{"subject": c.Subject}
	default:
		return terminal.Usagef("name either an event, or --topic and --subject")
	}
	if err := c.Confirm(std, func() (string, error) {
		if c.SystemID == "" {
			return fmt.Sprintf("Erase all events of topic %s with subject %s? "+
				"Their bodies and subjects are lost for good, and pending deliveries are canceled.", c.Topic, c.Subject), nil
		}
		var e rest.Object
		if err := client.Call(ctx, http.MethodGet, rest.ItemURL("/v1/events", c.SystemID), nil, &e); err != nil {
			return "", err
		}
		pending := 0
		for _, d := range rest.Objects(e, "deliveries") {
			pending += terminal.Either(d["state"] == "pending", 1, 0)
		}
		return fmt.Sprintf("Erase event %s of topic %s (type %s)? Its body and subject are lost for good, "+
			"and %s %s canceled.",
			rest.TextAt(e, "eventId"), rest.TextAt(e, "topic"), rest.TextAt(e, "eventType"),
			terminal.Plural(pending, "pending delivery"), terminal.Either(pending == 1, "is", "are")), nil
	}); err != nil {
		return err
	}
	var erased rest.Object
	if err := client.Call(ctx, http.MethodPost, at, body, &erased); err != nil {
		return err
	}
	if operation := erased["operationId"]; operation != nil {
		return follow(ctx, std, client, operation, c.NoWait, c.OutputFlag)
	}
	return c.Print(std.Out, erased, func(w io.Writer) { fmt.Fprintf(w, "Events erased: %v\n", erased["events"]) })
}

// WhoamiCmd is whoami.
type WhoamiCmd struct{ rest.Flags }

// Run executes whoami.
func (c *WhoamiCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	var me rest.Object
	if err := client.Call(ctx, http.MethodGet, "/v1/me", nil, &me); err != nil {
		return err
	}
	me["server"] = client.Base
	return c.Print(std.Out, me, func(w io.Writer) {
		rest.PrintLines(w, me, "name name", "role role", "server server", "API key apiKey", "expires expiresAt")
	})
}
