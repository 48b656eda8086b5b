package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
	"postrider/server/api"
)

// TailCmd is tail.
type TailCmd struct {
	rest.Flags
	Topic        string   `api:"topic" help:"Only what happens on this topic." placeholder:"NAME"`
	Subscription string   `api:"subscription" help:"Only attempts for this event subscription; say its --topic, too." placeholder:"NAME"`
	State        []string `help:"Only attempts after which a delivery is pending, delivered, dead_lettered or dropped." enum:"pending,delivered,dead_lettered,dropped" placeholder:"STATE"`
}

// Help is shown by tail --help.
func (TailCmd) Help() string {
	return `Published events (-->) and attempts (<--), within about a second. If more than 200 of either happen in a ` +
		`second, the newest 200 are shown. Ctrl-C ends it.

Examples:
  postrider tail
  postrider tail --topic orders --state pending,dead_lettered
  postrider tail --topic orders --subscription billing -o json`
}

// tailInterval is between two requests; a person does not notice less.
const tailInterval = time.Second

// Run executes tail until ctx ends.
func (c *TailCmd) Run(ctx context.Context) error {
	if c.Subscription != "" && c.Topic == "" {
		return terminal.Usagef("--subscription %s: of which topic? say --topic", c.Subscription)
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range rest.Given(c) {
		query.Set(name, fmt.Sprint(value))
	}
	var p activityPage
	if err := client.Call(ctx, http.MethodGet, "/v1/activity?"+query.Encode(), nil, &p); err != nil {
		return terminal.Either(ctx.Err() != nil, nil, err)
	}
	fmt.Fprintln(os.Stderr, "Following. Ctrl-C ends it.")
	shown := shownPlaces{}
	for pause(ctx, tailInterval) == nil {
		next := activityPage{NextLink: p.NextLink}
		err := client.Call(ctx, http.MethodGet, p.NextLink, nil, &next)
		switch {
		case ctx.Err() != nil:
			return nil
		case passes(err):
			fmt.Fprintln(os.Stderr, "postrider:", terminal.PlainLines(err.Error()))
			continue
		case err != nil:
			return err
		}
		p = next
		if err := c.show(shown.fresh(p.Value)); err != nil {
			return err
		}
	}
	return nil
}

// activityPage is one page of GET /v1/activity.
type activityPage struct {
	Value    []api.Activity `json:"value"`
	NextLink string         `json:"nextLink"`
}

// passes reports whether a request that failed so may succeed in a moment: a restart, a failover of the database, a
// limit of requests.
func passes(err error) bool {
	var response *rest.Error
	return err != nil &&
		(!errors.As(err, &response) || response.Status >= 500 || response.Status == http.StatusTooManyRequests)
}

// shownPlaces are what was shown: the API may repeat it.
type shownPlaces map[string]bool

// fresh are the lines that were not shown yet.
func (s *shownPlaces) fresh(lines []api.Activity) (fresh []api.Activity) {
	const most = 20_000 // far more than what two pages have in common
	next := *s
	if len(next) > most {
		next = shownPlaces{}
	}
	for i := range lines {
		if !(*s)[lines[i].Place] {
			fresh = append(fresh, lines[i])
		}
		next[lines[i].Place] = true
	}
	*s = next
	return fresh
}

// show prints what happened.
func (c *TailCmd) show(lines []api.Activity) error {
	for i := range lines {
		if !c.wanted(&lines[i]) {
			continue
		}
		if c.Output == "table" {
			fmt.Println(tailText(&lines[i]))
			continue
		}
		text, err := terminal.EncodeLine(c.Output, &lines[i])
		if err == nil {
			_, err = fmt.Print(text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *TailCmd) wanted(l *api.Activity) bool {
	return len(c.State) == 0 || l.State != nil && slices.Contains(c.State, *l.State)
}

func tailText(l *api.Activity) string {
	at := l.At.Local().Format("15:04:05.000")
	if l.Kind == "published" {
		return fmt.Sprintf("%s --> %s  %s (%s) %s", at, terminal.Cell(l.Topic), terminal.Cell(l.EventId),
			terminal.Cell(l.EventType), terminal.Cell(l.Subject))
	}
	what := terminal.Cell(l.EventId)
	if l.BatchId != nil {
		what = fmt.Sprintf("batch %d", *l.BatchId)
	}
	met := terminal.Cell(*l.Outcome)
	if l.Status != nil {
		met = fmt.Sprintf("%d %s", *l.Status, met)
	}
	return fmt.Sprintf("%s <-- %s/%s  %s attempt %d: %s in %.1f ms, %s", at, terminal.Cell(l.Topic),
		terminal.Cell(*l.Subscription), what, *l.Number,
		met, *l.DurationMs, strings.ReplaceAll(terminal.Cell(*l.Verdict), "_", "-"))
}
