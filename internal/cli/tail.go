package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// TailCmd is tail.
type TailCmd struct {
	rest.Flags
	Topic        string   `api:"topic" help:"Only what happens on this topic." placeholder:"NAME"`
	Subscription string   `api:"subscription" help:"Only attempts for this event subscription; requires --topic." placeholder:"NAME"`
	State        []string `help:"Only attempts after which a delivery is pending, delivered, dead_lettered or dropped." enum:"pending,delivered,dead_lettered,dropped" placeholder:"STATE"`
}

// tailInterval is between two requests. Users do not notice a shorter one.
const tailInterval = time.Second

// Run executes tail until ctx ends.
func (c *TailCmd) Run(ctx context.Context, std terminal.Streams, client *rest.Client) error {
	if c.Subscription != "" && c.Topic == "" {
		return terminal.Usagef("--subscription %s requires --topic", c.Subscription)
	}
	next, shown := rest.QueryURL("/v1/activity", rest.Given(c)), map[string]bool{}
	for first := true; ; first = false {
		var page struct {
			Value    []rest.Object
			NextLink string
		}
		switch err := client.Call(ctx, http.MethodGet, next, nil, &page); {
		case ctx.Err() != nil:
			return nil
		case err != nil && !first && retryable(err):
			fmt.Fprintln(std.Err, "postrider:", terminal.PlainLines(err.Error()))
		case err != nil:
			return err
		default:
			next = page.NextLink
			shown = c.show(std.Out, page.Value, shown)
		}
		if first {
			fmt.Fprintln(std.Err, "Following. Press Ctrl-C to stop.")
		}
		if pause(ctx, tailInterval) != nil {
			return nil
		}
	}
}

// show prints the new entries, because the API may repeat entries, and returns all that were shown.
func (c *TailCmd) show(out io.Writer, list []rest.Object, before map[string]bool) (shown map[string]bool) {
	const most = 20_000 // far more than two pages can have in common
	if shown = before; len(before) > most {
		shown = map[string]bool{}
	}
	for _, entry := range list {
		place, state := fmt.Sprint(entry["place"]), fmt.Sprint(entry["state"])
		if !before[place] && (len(c.State) == 0 || slices.Contains(c.State, state)) {
			_ = c.PrintOne(out, entry, activityText(entry)) // the reader of a pipe may have ended
		}
		shown[place] = true
	}
	return shown
}

func activityText(entry rest.Object) string {
	cell := func(name string) string { return terminal.Cell(entry[name]) }
	moment, _ := time.Parse(time.RFC3339Nano, cell("at"))
	at := moment.Local().Format("15:04:05.000")
	if entry["kind"] == "published" {
		return fmt.Sprintf("%s --> %s  %s (%s) %s", at, cell("topic"), cell("eventId"), cell("eventType"), cell("subject"))
	}
	what, result := cell("eventId"), cell("outcome")
	if entry["batchId"] != nil {
		what = "batch " + cell("batchId")
	}
	if entry["status"] != nil {
		result = cell("status") + " " + result
	}
	took, _ := strconv.ParseFloat(cell("durationMs"), 64)
	return fmt.Sprintf("%s <-- %s/%s  %s attempt %s: %s in %.1f ms, %s", at, cell("topic"), cell("subscription"), what,
		cell("number"), result, took, strings.ReplaceAll(cell("verdict"), "_", "-"))
}
