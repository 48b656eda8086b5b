package main

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

	"postrider/server"
)

type operationCmd struct {
	List operationListCmd `cmd:"" help:"List redeliveries, purges and erasures of many, the newest first."`
	Show operationShowCmd `cmd:"" help:"Show how far one of them has come."`
}

type operationListCmd struct {
	restFlags
	limitFlag
}

// Help is shown by operation list --help.
func (operationListCmd) Help() string {
	return "Those that are over are kept for 30 days. deadletter cancel stops one.\n\nExample:\n  postrider operation list"
}

var operationColumns = []column{
	{title: "OPERATION", path: "operationId"},
	{title: "KIND", path: "kind"},
	{title: "STATE", path: "state"},
	{title: "HOW FAR", text: howFar},
	{title: "STARTED", path: "createdAt"},
	{title: "BY", path: "startedBy"},
	{title: "ENDED", path: "finishedAt"},
}

// Run executes operation list.
func (c *operationListCmd) Run(ctx context.Context) error {
	return c.list(ctx, "/v1/operations", nil, c.Limit, operationColumns)
}

type operationShowCmd struct {
	restFlags
	ID string `arg:"" name:"id" help:"Id of the operation."`
}

// Help is shown by operation show --help.
func (operationShowCmd) Help() string {
	return "Example:\n  postrider operation show 0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"
}

var operationLines = []column{
	{title: "operation", path: "operationId"},
	{title: "kind", path: "kind"},
	{title: "state", path: "state"},
	{title: "how far", text: howFar},
	{title: "topic", path: "topic"},
	{title: "subscription", path: "subscription"},
	{title: "started", path: "createdAt"},
	{title: "by", path: "startedBy"},
	{title: "ended", path: "finishedAt"},
	{title: "last error", path: "lastError"},
}

// Run executes operation show.
func (c *operationShowCmd) Run(ctx context.Context) error {
	id, err := readID("an operation", c.ID)
	if err != nil {
		return err
	}
	return c.show(ctx, idURL("/v1/operations", id), func(w io.Writer, o object) { printObject(w, operationLines, o) })
}

// readID reads the id of what, such as "a dead letter".
func readID(what, text string) (uuid.UUID, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return id, usagef("%q is no id of %s: it is a UUID", text, what)
	}
	return id, nil
}

type deadletterCancelCmd struct {
	restFlags
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
	at := idURL("/v1/operations", id)
	var before object
	if err := c.call(ctx, http.MethodGet, at, nil, &before); err != nil {
		return err
	}
	done := either(before["state"] == running, "was canceled", "was over already")
	return c.act(ctx, at+"/cancel", nil, "Operation %s %s.", id, done)
}

const (
	running        = string(server.OperationStateRunning)
	followInterval = 250 * time.Millisecond
	// idlePatience is how long nothing may happen before a hint says that a service must run.
	idlePatience = 5 * time.Second
)

// follow waits until an operation is over and prints how it ended. On a terminal a line shows how far it is.
func follow(ctx context.Context, client *apiClient, id string, noWait bool, out outputFlag) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	hinted, line := false, newProgressLine()
	defer line.end()
	for began := time.Now(); ; {
		var o object
		if err := client.call(ctx, http.MethodGet, idURL("/v1/operations", id), nil, &o); err != nil {
			return err
		}
		if noWait || o["state"] != running {
			line.end()
			return printEnded(o, out)
		}
		line.show(func() string { return progress(o) })
		if !hinted && worked(o) == 0 && o["reachedAt"] == nil && time.Since(began) > idlePatience {
			hinted = true
			line.end()
			fmt.Fprintln(os.Stderr, "postrider: nothing was done yet: does a node run that delivers (serve --role all or worker)?")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("operation %s continues in the service; stop it with: postrider deadletter cancel %s", id, id)
		}
	}
}

// printEnded prints an operation; one that did not do all of its work is an error.
func printEnded(o object, out outputFlag) error {
	if err := out.print(o, func(w io.Writer) {
		fmt.Fprintf(w, "Operation %s: %s, %s.\n", textAt(o, "operationId"), textAt(o, "state"), howFar(o))
	}); err != nil {
		return err
	}
	switch {
	case o["state"] == string(server.OperationStateFailed) || integerAt(o, "failed") > 0:
		return errors.New(textAt(o, "lastError"))
	case o["state"] == string(server.OperationStateCanceled):
		return errors.New("the operation was canceled")
	default:
		return nil
	}
}

// integerAt is a whole number of an object; 0 for none.
func integerAt(o object, name string) (n int64) {
	_, _ = fmt.Sscan(fmt.Sprint(o[name]), &n)
	return n
}

// worked is how many an operation has looked at.
func worked(o object) int64 {
	return integerAt(o, "done") + integerAt(o, "skipped") + integerAt(o, "failed")
}

func howFar(o object) string {
	of := ""
	if o["matched"] != nil {
		of = fmt.Sprintf(" of %s%v", either(o["matchedAtLeast"] == true, "more than ", ""), o["matched"])
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
func progress(o object) string {
	var line strings.Builder
	if o["matched"] != nil && o["matchedAtLeast"] != true {
		line.WriteString(bar(worked(o), integerAt(o, "matched")))
	}
	fmt.Fprintf(&line, "%v: %s", o["state"], howFar(o))
	if o["reachedAt"] != nil {
		fmt.Fprintf(&line, ", searched until %s", column{path: "reachedAt"}.cell(o))
	}
	return line.String()
}

// printMatched prints what a dry run found; thing is one of them.
func (f outputFlag) printMatched(found object, thing string) error {
	return f.print(found, func(w io.Writer) {
		n, stopped := integerAt(found, "matched"), found["atLeast"] == true
		text := plural(n, thing) + either(n == 1, " matches", " match")
		fmt.Fprintf(w, "%s%s%s.\n", either(stopped, "At least ", ""), text, either(stopped, "; counting was stopped", ""))
	})
}
