package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// PublishCmd is publish.
type PublishCmd struct {
	rest.ServerFlags
	terminal.OutputFlag
	Topic   string   `arg:"" help:"Name of the topic."`
	Files   []string `arg:"" optional:"" name:"file" help:"Files of events: one object, an array, or one object after another (NDJSON). None, or -: standard input."`
	Key     string   `help:"Access key of the topic; without one the API key publishes: its scope must be publish, or admin." env:"POSTRIDER_TOPIC_KEY" placeholder:"KEY"`
	Sample  bool     `help:"Instead: a sample order, in the topic's input schema." xor:"made"`
	Type    string   `help:"Instead: one event of this type." xor:"made" placeholder:"TYPE"`
	Subject string   `help:"Its subject." placeholder:"TEXT"`
	Data    string   `help:"Its data, JSON." placeholder:"JSON"`
	Source  string   `help:"Its source, if the topic takes CloudEvents." default:"/postrider/cli" placeholder:"URI"`
	Count   int      `help:"How many events --sample or --type creates." default:"1" range:"1.." placeholder:"N"`

	Rate      float64       `help:"At most so many events a second (default: as fast as possible)." range:"0.." placeholder:"N"`
	Batch     int           `help:"At most so many events in a request, 1 to 5000; a request never has more than 1 MiB." default:"100" range:"1..5000" placeholder:"N"`
	RetryFor  time.Duration `help:"How long a request is repeated if the server is busy or unavailable. It is never stored twice." default:"2m" placeholder:"SPAN"`
	KeepGoing bool          `help:"Continue after a rejected request."`
}

// Help is shown by publish --help.
func (PublishCmd) Help() string {
	return `The server accepts each request as a whole, or rejects it. A request with the response 429, 502, 503 or 504, or
without a response, is repeated under the same Idempotency-Key, after the time in Retry-After: no event is lost or
stored twice without a message. Events that are not accepted in the end are reported with their position, and the exit
code is 1. A key that may only publish cannot read the topic. Then created events have Event Grid's schema, and events
of a file the schema that the first one has.

Examples:
  postrider publish orders events.ndjson
  postrider publish orders --type Shop.OrderPlaced --subject orders/42 --data '{"total": 9.5}'
  postrider publish orders --sample --count 10000 --rate 200
  jq -c '.[]' export.json | postrider publish orders --batch 500`
}

// Run executes publish.
func (c *PublishCmd) Run(ctx context.Context) error {
	if err := c.check(); err != nil {
		return err
	}
	client, err := c.ClientForTopic(c.Key)
	if err != nil {
		return err
	}
	p := &publisher{
		PublishCmd: c, client: client, path: "/topics/" + url.PathEscape(c.Topic) + "/api/events",
		run: uuid.NewString(), progress: terminal.NewProgressLine(),
	}
	topic, err := p.readTopic(ctx)
	if err != nil {
		return err
	}
	events := fileEvents(c.Files)
	if c.creates() {
		events = func(yield func([]byte, error) bool) {
			for range c.Count {
				event, err := c.create(p.schema, topic)
				if !yield(event, err) || err != nil {
					return
				}
			}
		}
	}
	err = p.publish(ctx, events)
	if err != nil && p.done.Sent == 0 {
		return err // there is nothing to summarize
	}
	if wrong := (*terminal.UsageError)(nil); errors.As(err, &wrong) {
		err = errors.New(err.Error()) // exit code 1: something was done
	}
	summary := p.summary()
	return errors.Join(c.Print(summary, func(w io.Writer) { fmt.Fprintln(w, summary) }), err)
}

// creates reports whether the events come from flags, not from files.
func (c *PublishCmd) creates() bool { return c.Sample || c.Type != "" }

func (c *PublishCmd) check() error {
	switch {
	case c.creates() && len(c.Files) > 0:
		return terminal.Usagef("--sample and --type create events; leave the files out")
	case !c.creates() && c.Count != 1:
		return terminal.Usagef("--count requires --sample or --type")
	case c.Type == "" && (c.Subject != "" || c.Data != ""):
		return terminal.Usagef("--subject and --data require --type")
	case c.Data != "" && !json.Valid([]byte(c.Data)):
		return terminal.Usagef("--data: not JSON; a text has quotation marks, too: '\"hello\"'")
	case !c.creates() && len(c.Files) == 0 && terminal.IsTerminal(os.Stdin):
		return terminal.Usagef("no events: name a file, pipe them in, or create some with --sample or --type")
	}
	return c.checkFiles()
}

// checkFiles opens each file, so that a wrong name is found before the events of other files are sent.
func (c *PublishCmd) checkFiles() error {
	for _, name := range c.Files {
		if name == "-" {
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return terminal.Usagef("%v", err)
		}
		info, err := file.Stat()
		_ = file.Close()
		if err == nil && info.IsDir() {
			return terminal.Usagef("%s is a directory", name)
		}
	}
	return nil
}

// readTopic reads the schema and the path of the topic. A key that may only publish cannot: created events have Event
// Grid's schema then, and the schema of others is that of the first.
func (p *publisher) readTopic(ctx context.Context) (topic rest.Object, err error) {
	creates := p.creates()
	if p.client.Key == "" && !creates {
		return nil, nil
	}
	err = p.client.Call(ctx, http.MethodGet, rest.TopicURL(p.Topic), nil, &topic)
	unauthorized := rest.IsStatus(err, http.StatusUnauthorized)
	switch {
	case rest.IsStatus(err, http.StatusForbidden):
		p.schema = terminal.Either(creates, "EventGridSchema", "")
		return nil, nil
	case unauthorized && creates:
		return nil, fmt.Errorf("the topic's input schema must be known to create an event: %w", err)
	case unauthorized && p.Key != "":
		return nil, nil
	case err != nil:
		return nil, err
	}
	p.schema, p.path = fmt.Sprint(topic["inputSchema"]), fmt.Sprint(topic["endpoint"])
	return topic, nil
}
