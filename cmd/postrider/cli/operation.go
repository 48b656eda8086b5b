package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/api"
)

// OperationCmd is operation with its verbs.
type OperationCmd struct {
	List operationListCmd `cmd:"" help:"List redeliveries, purges and erasures of many, the newest first."`
	Show operationShowCmd `cmd:"" help:"Show how far one of them has come."`
}

type operationListCmd struct {
	rest.Flags
	rest.LimitFlag
}

// Help is shown by operation list --help.
func (operationListCmd) Help() string {
	return "Those that are over are kept for 30 days. deadletter cancel stops one.\n\nExample:\n  postrider operation list"
}

var operationColumns = []rest.Column{
	{Title: "OPERATION", Path: "operationId"},
	{Title: "KIND", Path: "kind"},
	{Title: "STATE", Path: "state"},
	{Title: "HOW FAR", Text: howFar},
	{Title: "STARTED", Path: "createdAt"},
	{Title: "BY", Path: "startedBy"},
	{Title: "ENDED", Path: "finishedAt"},
}

// Run executes operation list.
func (c *operationListCmd) Run(ctx context.Context) error {
	return c.List(ctx, "/v1/operations", nil, c.Limit, operationColumns)
}

type operationShowCmd struct {
	rest.Flags
	ID string `arg:"" name:"id" help:"Id of the operation."`
}

// Help is shown by operation show --help.
func (operationShowCmd) Help() string {
	return "Example:\n  postrider operation show 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"
}

var operationLines = []rest.Column{
	{Title: "operation", Path: "operationId"},
	{Title: "kind", Path: "kind"},
	{Title: "state", Path: "state"},
	{Title: "how far", Text: howFar},
	{Title: "topic", Path: "topic"},
	{Title: "subscription", Path: "subscription"},
	{Title: "started", Path: "createdAt"},
	{Title: "by", Path: "startedBy"},
	{Title: "ended", Path: "finishedAt"},
	{Title: "last error", Path: "lastError"},
}

// Run executes operation show.
func (c *operationShowCmd) Run(ctx context.Context) error {
	id, err := readID("an operation", c.ID)
	if err != nil {
		return err
	}
	return c.Show(ctx, rest.ItemURL("/v1/operations", id),
		func(w io.Writer, o rest.Object) { rest.PrintObject(w, operationLines, o) })
}

// readID reads the id of what, such as "a dead letter".
func readID(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, terminal.Usagef("%q is no id of %s: it is a UUID", text, what)
	}
	return id, nil
}

type deadletterCancelCmd struct {
	rest.Flags
	Operation string `arg:"" help:"Id of the operation; operation list shows them."`
}

// Help is shown by deadletter cancel --help.
func (deadletterCancelCmd) Help() string {
	return "What is done stays done.\n\nExample:\n  postrider deadletter cancel 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"
}

// Run executes deadletter cancel.
func (c *deadletterCancelCmd) Run(ctx context.Context) error {
	id, err := readID("an operation", c.Operation)
	if err != nil {
		return err
	}
	at := rest.ItemURL("/v1/operations", id)
	var before rest.Object
	if err := c.Call(ctx, http.MethodGet, at, nil, &before); err != nil {
		return err
	}
	done := terminal.Either(before["state"] == running, "was canceled", "was over already")
	return c.Act(ctx, at+"/cancel", nil, "Operation %s %s.", id, done)
}

const (
	running        = string(api.OperationStateRunning)
	followInterval = 250 * time.Millisecond
	// idlePatience is how long nothing may happen before a hint says that a service must run.
	idlePatience = 5 * time.Second
)

// follow waits until an operation is over and prints how it ended. On a terminal a line shows how far it is.
func follow(ctx context.Context, client *rest.Client, id string, noWait bool, out terminal.OutputFlag) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	hinted, line := false, terminal.NewProgressLine()
	defer line.End()
	for began := time.Now(); ; {
		var o rest.Object
		if err := client.Call(ctx, http.MethodGet, rest.ItemURL("/v1/operations", id), nil, &o); err != nil {
			return err
		}
		if noWait || o["state"] != running {
			line.End()
			return printEnded(o, out)
		}
		line.Show(func() string { return progress(o) })
		if !hinted && worked(o) == 0 && o["reachedAt"] == nil && time.Since(began) > idlePatience {
			hinted = true
			line.End()
			fmt.Fprintln(os.Stderr,
				"postrider: nothing was done yet: does a node run that delivers (serve --role all or worker)?")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("operation %s continues in the service; stop it with: postrider deadletter cancel %s", id, id)
		}
	}
}

// printEnded prints an operation; one that did not do all of its work is an error.
func printEnded(o rest.Object, out terminal.OutputFlag) error {
	if err := out.Print(o, func(w io.Writer) {
		fmt.Fprintf(w, "Operation %s: %s, %s.\n", rest.TextAt(o, "operationId"), rest.TextAt(o, "state"), howFar(o))
	}); err != nil {
		return err
	}
	switch {
	case o["state"] == string(api.OperationStateFailed) || integerAt(o, "failed") > 0:
		return errors.New(rest.TextAt(o, "lastError"))
	case o["state"] == string(api.OperationStateCanceled):
		return errors.New("the operation was canceled")
	default:
		return nil
	}
}

// integerAt is a whole number of an object; 0 for none.
func integerAt(o rest.Object, name string) (n int64) {
	_, _ = fmt.Sscan(fmt.Sprint(o[name]), &n)
	return n
}

// worked is how many an operation has looked at.
func worked(o rest.Object) int64 {
	return integerAt(o, "done") + integerAt(o, "skipped") + integerAt(o, "failed")
}

func howFar(o rest.Object) string {
	of := ""
	if o["matched"] != nil {
		of = fmt.Sprintf(" of %s%v", terminal.Either(o["matchedAtLeast"] == true, "more than ", ""), o["matched"])
	}
	verb := "redelivered"
	switch o["kind"] {
	case "purge":
		verb = "purged"
	case "erase_subject":
		verb = "erased"
	}
	return fmt.Sprintf("%v%s %s, %v skipped, %v failed", o["done"], of, verb, o["skipped"], o["failed"])
}

// progress is a line that shows how far an operation is.
func progress(o rest.Object) string {
	var line strings.Builder
	if o["matched"] != nil && o["matchedAtLeast"] != true {
		line.WriteString(terminal.Bar(worked(o), integerAt(o, "matched")))
	}
	fmt.Fprintf(&line, "%v: %s", o["state"], howFar(o))
	if o["reachedAt"] != nil {
		fmt.Fprintf(&line, ", searched until %s", rest.Column{Path: "reachedAt"}.Cell(o))
	}
	return line.String()
}

// printMatched prints what a dry run found; thing is one of them.
func printMatched(f terminal.OutputFlag, found rest.Object, thing string) error {
	return f.Print(found, func(w io.Writer) {
		n, stopped := integerAt(found, "matched"), found["atLeast"] == true
		text := terminal.Plural(n, thing) + terminal.Either(n == 1, " matches", " match")
		fmt.Fprintf(w, "%s%s%s.\n", terminal.Either(stopped, "At least ", ""), text,
			terminal.Either(stopped, "; counting was stopped", ""))
	})
}
