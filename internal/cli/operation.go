package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"postrider/internal/cli/rest"
	"postrider/internal/query"
	"postrider/internal/terminal"
)

// manyFlags are the flags of verbs that act on what a filter matches, or on up to 10,000 ids.
type manyFlags struct {
	bulkFlags
	IDsFrom       string `name:"ids-from" help:"Those whose ids this file has, one per line or separated by spaces, up to 10,000; - is standard input." placeholder:"FILE"`
	ExpectedCount *int64 `help:"Change nothing unless exactly so many match." placeholder:"N"`
}

// readIDs reads the ids of --ids-from.
func readIDs[T any](stdin io.Reader, file string, parse func(string) (T, error)) (ids []T, err error) {
	text, err := terminal.ReadFileOrInput(stdin, file)
	if err != nil {
		return nil, err
	}
	for text := range strings.FieldsSeq(string(text)) {
		id, err := parse(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s has no ids", file)
	}
	return ids, nil
}

// inBulk starts an operation on what a filter matches.
func (f *manyFlags) inBulk(
	ctx context.Context, std terminal.Streams, client *rest.Client, path string, filter, settings rest.Object,
	thing string,
) error {
	f.complete(filter, settings)
	return f.start(ctx, std, client, path, settings, thing)
}

// complete adds the filter and the flags of a request.
func (f *manyFlags) complete(filter, settings rest.Object) {
	settings["filter"] = filter
	if f.ExpectedCount != nil {
		settings["expectedCount"] = *f.ExpectedCount
	}
	f.bulkFlags.complete(settings)
}

// count counts what the filter of an operation matches; atLeast: there may be more.
func count(
	ctx context.Context, client *rest.Client, path string, filter rest.Object,
) (n int64, atLeast bool, err error) {
	var found rest.Object
	err = client.Call(ctx, http.MethodPost, path, rest.Object{"filter": filter, "dryRun": true}, &found)
	return integerAt(found, "matched"), found["atLeast"] == true, err
}

// bulkFlags are the flags of verbs that start a bulk operation.
type bulkFlags struct {
	rest.Flags
	Rate   int  `help:"Limit per second (default: as fast as possible)." placeholder:"N"`
	DryRun bool `help:"Only count what matches."`
	NoWait bool `help:"Start the operation and print its id without waiting for its end."`
}

// complete adds the flags of a request.
func (f *bulkFlags) complete(settings rest.Object) {
	if f.Rate > 0 {
		settings["ratePerSecond"] = f.Rate
	}
	if f.DryRun {
		settings["dryRun"] = true
	}
}

// start starts an operation and follows it; with --dry-run it counts the things instead.
func (f *bulkFlags) start(
	ctx context.Context, std terminal.Streams, client *rest.Client, path string, settings rest.Object, thing string,
) error {
	f.complete(settings)
	var response rest.Object
	if err := client.Call(ctx, http.MethodPost, path, settings, &response); err != nil {
		return err
	}
	if !f.DryRun {
		return follow(ctx, std, client, response["operationId"], f.NoWait, f.OutputFlag)
	}
	return f.Print(std.Out, response, func(w io.Writer) {
		n, partly := integerAt(response, "matched"), response["atLeast"] == true
		fmt.Fprintf(w, "%s%s %s%s.\n", terminal.Either(partly, "At least ", ""), terminal.Plural(n, thing),
			terminal.Either(n == 1, "matches", "match"), terminal.Either(partly, "; counting was stopped", ""))
	})
}

func (f *bulkFlags) checkRate() error {
	if f.Rate < 0 {
		return terminal.Usagef("--rate %d: must be 1 or more", f.Rate)
	}
	return nil
}

type operationCancelCmd struct {
	rest.Flags
	rowArg[query.Operation]
}

func (c *operationCancelCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	at := c.Path()
	var before, now rest.Object
	if err := client.Call(ctx, http.MethodGet, at, nil, &before); err != nil {
		return err
	}
	if err := client.Call(ctx, http.MethodPost, at+"/cancel", nil, &now); err != nil {
		return err
	}
	return c.Print(std.Out, now, func(w io.Writer) {
		fmt.Fprintf(w, "Operation %s %s.\n", c.ID,
			terminal.Either(before["state"] == running, "was canceled", "had already ended"))
	})
}

const (
	running        = "running"
	followInterval = 250 * time.Millisecond
	idleTimeout    = 5 * time.Second // without progress, a hint is printed
)

// follow waits until an operation has ended and prints its result. On a terminal it shows the progress.
func follow(
	ctx context.Context, std terminal.Streams, client *rest.Client, id any, noWait bool, out terminal.OutputFlag,
) error {
	hinted, line := false, terminal.NewProgressLine(std.Err)
	defer line.End()
	for began := time.Now(); ; {
		var o rest.Object
		err := client.Call(ctx, http.MethodGet, rest.ItemURL("/v1/operations", id), nil, &o)
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("operation %s continues in the service; stop it with: postrider operation cancel %[1]s", id)
		}
		if err != nil {
			return err
		}
		if noWait || o["state"] != running {
			line.End()
			return printEnded(std.Out, o, out)
		}
		line.Show(func() string {
			line := fmt.Sprintf("%v: %s", o["state"], progressText(o))
			if o["matched"] != nil && o["counting"] != true {
				line = terminal.Bar(processed(o), integerAt(o, "matched")) + line
			}
			if o["reachedAt"] != nil {
				line += ", searched until " + rest.Column{Path: "reachedAt"}.Cell(o)
			}
			return line
		})
		idle := processed(o)+integerAt(o, "matched") == 0 && o["reachedAt"] == nil
		if idle && !hinted && time.Since(began) > idleTimeout {
			hinted = true
			line.End()
			fmt.Fprintln(std.Err,
				"postrider: no progress yet; check that a node that delivers is running (serve --role all or worker)")
		}
		_ = pause(ctx, followInterval)
	}
}

// printEnded prints an operation. It returns an error if the operation failed or was canceled.
func printEnded(stdout io.Writer, o rest.Object, out terminal.OutputFlag) error {
	if err := out.Print(stdout, o, func(w io.Writer) {
		fmt.Fprintf(w, "Operation %s: %s, %s.\n", rest.TextAt(o, "operationId"), rest.TextAt(o, "state"), progressText(o))
	}); err != nil {
		return err
	}
	if o["state"] == "failed" || integerAt(o, "failed") > 0 {
		return errors.New(rest.TextAt(o, "lastError"))
	}
	if o["state"] == "canceled" {
		return errors.New("the operation was canceled")
	}
	return nil
}

// integerAt returns an integer member of an object; 0 if there is none.
func integerAt(o rest.Object, name string) (n int64) {
	_, _ = fmt.Sscan(fmt.Sprint(o[name]), &n)
	return n
}

// processed is the number of objects that an operation has processed.
func processed(o rest.Object) int64 {
	return integerAt(o, "done") + integerAt(o, "skipped") + integerAt(o, "failed")
}

func progressText(o rest.Object) string {
	if o["counting"] == true {
		return fmt.Sprintf("counting, %v so far", o["matched"])
	}
	of := ""
	if o["matched"] != nil {
		of = fmt.Sprintf(" of %v", o["matched"])
	}
	verb := cmp.Or(map[any]string{
		"purge": "purged", "repair": "repaired", "resolve": "resolved", "retry": "retried", "cancel": "canceled",
		"erase_subject": "erased",
	}[o["kind"]], "redelivered")
	return fmt.Sprintf("%v%s %s, %v skipped, %v failed", o["done"], of, verb, o["skipped"], o["failed"])
}
