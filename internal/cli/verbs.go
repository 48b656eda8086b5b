package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// listVerb lists the newest objects at the path in the verb's tag. F has the flags that filter them.
type listVerb[F any] struct {
	rest.Flags
	Limit  int `help:"How many to list at most: 1 to 10000." default:"50" range:"1..10000" placeholder:"N"`
	Filter F   `embed:""`
}

func (c *listVerb[F]) Run(ctx context.Context, std terminal.Streams, k *kong.Context, client *rest.Client) error {
	filter, err := rest.Filter(&c.Filter)
	if err != nil {
		return err
	}
	at := k.Selected().Tag.Get("path")
	list, err := client.First(ctx, at, filter, c.Limit)
	if err != nil {
		return err
	}
	return c.Print(std.Out, list, func(w io.Writer) { rest.PrintColumns(w, resources[at].columns, list) })
}

// showVerb shows the object at the path in the verb's tag. A has the argument that names it.
type showVerb[A any] struct {
	rest.Flags
	Argument A `embed:""`
}

// Run executes the verb. In JSON, the object includes the lists that belong to it.
func (c *showVerb[A]) Run(ctx context.Context, std terminal.Streams, k *kong.Context, client *rest.Client) error {
	at, kind := rest.ArgumentPath(k), resources[path.Dir(k.Selected().Tag.Get("path"))]
	var o rest.Object
	if err := client.Call(ctx, http.MethodGet, at, nil, &o); err != nil {
		return err
	}
	for _, part := range kind.parts {
		if part.path == "" {
			continue
		}
		list, err := client.All(ctx, at+part.path)
		if err != nil {
			return err
		}
		o[part.member] = list
	}
	return c.Print(std.Out, o, func(w io.Writer) { kind.print(w, o) })
}

// deadLetterID, operationID and systemID are ids that are checked before a request is sent.
type (
	deadLetterID string
	operationID  string
	systemID     string
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *deadLetterID) UnmarshalText(text []byte) (err error) {
	*id, err = readID[deadLetterID](text, "id of a dead letter, which is a UUID")
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *operationID) UnmarshalText(text []byte) (err error) {
	*id, err = readID[operationID](text, "id of an operation, which is a UUID")
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *systemID) UnmarshalText(text []byte) (err error) {
	*id, err = readID[systemID](text, "system id of an event, which is a UUID; find it with event list --event-id")
	return err
}

func readID[T ~string](text []byte, what string) (T, error) {
	id, err := uuid.ParseBytes(text)
	if err != nil {
		return "", terminal.Usagef("%q: not the %s", text, what)
	}
	return T(id.String()), nil
}

// resource has the columns and lines that list and show print of the objects at a path.
type resource struct {
	columns []rest.Column // of list
	lines   []rest.Column // of show
	whole   []string      // further lines of show, see rest.PrintLines
	parts   []part        // tables of show
}

// part is a list that belongs to an object.
type part struct {
	member  string // of the object
	path    string // of the REST API, after the object's; "" if the object has the list
	columns []rest.Column
}

func (r *resource) print(w io.Writer, o rest.Object) {
	for _, line := range r.lines {
		fmt.Fprintf(w, "%s\t%s\n", line.Title, line.Cell(o))
	}
	rest.PrintLines(w, o, r.whole...)
	for _, part := range r.parts {
		if list := rest.Objects(o, part.member); len(list) > 0 {
			fmt.Fprintln(w)
			rest.PrintColumns(w, part.columns, list)
		}
	}
}

// columns is rest.Columns. A path may be a name in computed.
func columns(texts ...string) []rest.Column {
	list := rest.Columns(texts...)
	for i := range list {
		list[i].Text = computed[list[i].Path]
	}
	return list
}

// computed are values that depend on several members.
var computed = map[string]func(rest.Object) string{
	"stateAndHold()": stateAndHold, "lastResult()": lastResult, "matchedBy()": matchedBy, "progress()": progressText,
}

var deliveryColumns = columns("DELIVERY deliveryId", "TOPIC topic", "SUBSCRIPTION subscription", "EVENT ID eventId",
	"TYPE eventType", "STATE stateAndHold()", "ATTEMPTS attempts", "LAST lastResult()", "NEXT nextAttemptAt",
	"ENDED finishedAt", "REASON reason")

var attempts = part{"attemptsMade", "/attempts", columns("ATTEMPT number", "STARTED startedAt", "STATUS status",
	"OUTCOME outcome", "VERDICT verdict", "WHY why")}

// resources are by the path of their list.
var resources = map[string]resource{
	"/v1/deliveries": {
		columns: deliveryColumns,
		lines: columns("delivery deliveryId", "topic topic", "subscription subscription", "event eventId",
			"type eventType", "subject subject", "system id systemId", "state state", "hold hold", "reason reason",
			"attempts attempts", "pending since timeToLiveSince", "expires expiresAt", "next attempt nextAttemptAt",
			"hold until holdUntil", "finished finishedAt", "dead letter deadLetterId"),
		parts: []part{attempts},
	},
	"/v1/batches": {
		columns: columns("BATCH batchId", "TOPIC topic", "SUBSCRIPTION subscription", "EVENTS members", "BYTES bytes",
			"STATE stateAndHold()", "ATTEMPTS attempts", "LAST lastResult()", "NEXT nextAttemptAt", "ENDED finishedAt"),
		lines: columns("batch batchId", "topic topic", "subscription subscription", "state stateAndHold()",
			"events members", "bytes bytes", "attempts attempts", "cut createdAt", "next attempt nextAttemptAt",
			"hold until holdUntil", "finished finishedAt"),
		parts: []part{attempts, {"membersCut", "/members?limit=1000", columns("POSITION position", "DELIVERY deliveryId",
			"EVENT ID eventId", "LEFT leftAt", "WHY leftReason")}},
	},
	"/v1/events": {
		columns: columns("PUBLISHED publishedAt", "TOPIC topic", "EVENT ID eventId", "TYPE eventType",
			"SUBJECT subject", "MATCHED BY matchedBy()", "SYSTEM ID systemId"),
		lines: columns("system id systemId", "topic topic", "event eventId", "type eventType", "subject subject",
			"source source", "published publishedAt", "schema schema", "matched by matchedBy()", "bytes bodyBytes",
			"erased erasedAt"),
		whole: []string{"event event"},
		parts: []part{{"deliveries", "", deliveryColumns}},
	},
	"/v1/deadLetters": {
		columns: columns("ID deadLetterId", "CREATED deadLetteredAt", "TOPIC topic", "SUBSCRIPTION subscription",
			"EVENT ID eventId", "TYPE eventType", "REASON reason", "ATTEMPTS attempts", "LAST lastResult()",
			"REDELIVERED redeliveredAt"),
		lines: columns("id deadLetterId", "created deadLetteredAt", "topic topic", "subscription subscription",
			"reason reason", "attempts attempts", "last lastResult()", "endpoint endpointBaseUrl",
			"retry policy retryPolicy", "published publishedAt", "event id eventId", "event type eventType",
			"subject subject", "schema schema", "delivery deliveryId"),
		whole: []string{
			"last error lastError", "source source", "last response lastResponse", "event event", "redelivered redeliveredAt",
		},
	},
	"/v1/operations": {
		columns: columns("OPERATION operationId", "KIND kind", "STATE state", "PROGRESS progress()", "STARTED createdAt",
			"BY startedBy", "ENDED finishedAt"),
		lines: columns("operation operationId", "kind kind", "state state", "progress progress()", "topic topic",
			"subscription subscription", "started createdAt", "by startedBy", "ended finishedAt",
			"last error lastError"),
	},
	"/v1/audit": {
		columns: columns("AT at", "ACTOR actor", "FROM address", "ACTION action", "TOPIC topic", "SUBSCRIPTION subscription",
			"DETAILS details"),
	},
}

// stateAndHold is a state with the hold that keeps it.
func stateAndHold(o rest.Object) string {
	if o["hold"] != nil {
		return fmt.Sprintf("%v, %v", o["state"], o["hold"])
	}
	return fmt.Sprint(o["state"])
}

// lastResult is the status of the last attempt, or its outcome without a response.
func lastResult(o rest.Object) string {
	if o["lastStatus"] != nil {
		return fmt.Sprint(o["lastStatus"])
	}
	return rest.TextAt(o, "lastOutcome")
}

// matchedBy is the number of event subscriptions that matched an event.
func matchedBy(event rest.Object) string {
	if event["matched"] == nil {
		return "not routed yet"
	}
	return fmt.Sprint(event["matched"])
}
