package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

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
	Sample  bool     `help:"Instead: a made-up order, in the topic's input schema." xor:"made"`
	Type    string   `help:"Instead: one event of this type." xor:"made" placeholder:"TYPE"`
	Subject string   `help:"Its subject." placeholder:"TEXT"`
	Data    string   `help:"Its data, JSON." placeholder:"JSON"`
	Source  string   `help:"Its source, where the topic takes CloudEvents." default:"/postrider/cli" placeholder:"URI"`
	Count   int      `help:"How many of such made events." default:"1" placeholder:"N"`

	Rate      float64       `help:"At most so many events a second (default: as fast as it goes)." placeholder:"N"`
	Batch     int           `help:"At most so many events in a request, 1 to 5000; a request never has more than 1 MiB." default:"100" placeholder:"N"`
	RetryFor  time.Duration `help:"How long a request is sent again where the server is busy or away. It is never stored twice." default:"2m" placeholder:"SPAN"`
	KeepGoing bool          `help:"Go on after a request that was refused."`
}

// Help is shown by publish --help.
func (PublishCmd) Help() string {
	return `Each request is all or none. One that is answered 429, 502, 503 or 504, or not at all, is sent again under ` +
		`the same Idempotency-Key, when Retry-After says so:
nothing is lost or doubled in silence. What is not accepted in the end is told with its place, and the exit code is 1.
A key that only publishes may not read the topic: then events that are made have Event Grid's schema, and those of a ` +
		`file go as what the first one looks like.

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
	target, err := c.target(ctx, client)
	if err != nil {
		return err
	}
	p := &publisher{
		client: client, target: target, batch: c.Batch, rate: c.Rate, retryFor: c.RetryFor, keepGoing: c.KeepGoing,
		run: newRunID(), progress: *terminal.NewProgressLine(),
	}
	if c.made() {
		p.all = c.Count
	}
	err = p.publish(ctx, c.events(target))
	if err != nil && p.tally.sent == 0 {
		return err // what there is to say is why nothing was sent
	}
	if wrong := (*terminal.UsageError)(nil); errors.As(err, &wrong) {
		err = errors.New(err.Error()) // no wrong usage any more: something was done
	}
	summary := p.tally.summary(c.Topic)
	if printed := c.Print(summary, func(w io.Writer) { fmt.Fprintln(w, summary.String()) }); err == nil {
		err = printed
	}
	return err
}

func (c *PublishCmd) made() bool { return c.Sample || c.Type != "" }

func (c *PublishCmd) check() error {
	switch {
	case c.Batch < 1 || c.Batch > maxBatchEvents:
		return terminal.Usagef("--batch %d: must be 1 to %d", c.Batch, maxBatchEvents)
	case c.Rate < 0:
		return terminal.Usagef("--rate %g: must not be negative", c.Rate)
	case c.Count < 1:
		return terminal.Usagef("--count %d: must be 1 or more", c.Count)
	case c.made() && len(c.Files) > 0:
		return terminal.Usagef("--sample and --type make events; leave the files out")
	case !c.made() && c.Count != 1:
		return terminal.Usagef("--count is for events that are made: --sample, or --type")
	case c.Type == "" && (c.Subject != "" || c.Data != ""):
		return terminal.Usagef("--subject and --data belong to --type")
	case c.Data != "" && !isJSON(c.Data):
		return terminal.Usagef("--data: not JSON; a text has quotation marks, too: '\"hello\"'")
	case !c.made() && len(c.Files) == 0 && terminal.IsTerminal(os.Stdin):
		return terminal.Usagef("no events: name a file, pipe them in, or make some with --sample or --type")
	}
	return c.readable()
}

// readable opens each file, so that none is missed after the events of others were sent.
func (c *PublishCmd) readable() error {
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

// publishTarget is where events go and in which form.
type publishTarget struct {
	topic  rest.Object // as the API shows it; nil where only the access key is known
	name   string
	schema string // "" where it is not known: the first event tells
	path   string
	key    string // the topic's access key; "" where the API key, or the admin token, publishes
}

// credential is the header that lets events in, for client's key or the topic's own.
func (t *publishTarget) credential(client *rest.Client) (header, value string) {
	if t.key == "" {
		return "Authorization", "Bearer " + client.Key
	}
	return "Aeg-Sas-Key", t.key
}

// target asks the server about the topic. Whoever may publish and nothing else is not told: then the events tell their
// schema, and those that are made have Event Grid's.
func (c *PublishCmd) target(ctx context.Context, client *rest.Client) (*publishTarget, error) {
	t := &publishTarget{name: c.Topic, key: c.Key, path: "/topics/" +
		strings.TrimPrefix(rest.TopicURL(c.Topic), "/v1/topics/") + "/api/events"}
	if client.Key == "" && !c.made() {
		return t, nil
	}
	err := client.Call(ctx, http.MethodGet, rest.TopicURL(c.Topic), nil, &t.topic)
	switch wrong := rest.IsStatus(err, http.StatusUnauthorized); {
	case rest.IsStatus(err, http.StatusForbidden) && c.made():
		t.schema = "EventGridSchema"
		return t, nil
	case rest.IsStatus(err, http.StatusForbidden), wrong && c.Key != "" && !c.made():
		return t, nil
	case wrong && c.made():
		return nil, fmt.Errorf("the topic's input schema must be known to make an event: %w", err)
	case err != nil:
		return nil, err
	}
	t.schema, t.path = fmt.Sprint(t.topic["inputSchema"]), fmt.Sprint(t.topic["endpoint"])
	return t, nil
}

// events are those of the command line.
func (c *PublishCmd) events(t *publishTarget) eventSource {
	if c.made() {
		return &madeEvents{left: c.Count, make: c.maker(t)}
	}
	return newFileEvents(c.Files)
}

func (c *PublishCmd) maker(t *publishTarget) func() ([]byte, error) {
	switch {
	case c.Sample && t.schema == "CustomEventSchema":
		return func() ([]byte, error) { return sampleCustom(t.topic) }
	case c.Sample:
		return func() ([]byte, error) {
			order := newSampleOrder()
			return madeEvent(t.schema, order.Type, order.Subject, "/shop", order.Data)
		}
	default:
		return func() ([]byte, error) {
			data := any(nil)
			if c.Data != "" {
				data = rawJSON(c.Data)
			}
			return madeEvent(t.schema, c.Type, c.Subject, c.Source, data)
		}
	}
}

// publishSummary is how a publish came out.
type publishSummary struct {
	Topic    string  `json:"topic"`
	Sent     int     `json:"sent"`
	Accepted int     `json:"accepted"`
	Failed   int     `json:"failed"`
	Requests int     `json:"requests"`
	Retries  int     `json:"retries"`
	Seconds  float64 `json:"seconds"`
	P50Ms    float64 `json:"p50Ms"`
	P99Ms    float64 `json:"p99Ms"`
}

// String is it in a sentence.
func (s publishSummary) String() string {
	text := fmt.Sprintf("%s to topic %s in %.1f s: %d accepted, %d failed.", terminal.Plural(s.Sent, "event"), s.Topic,
		s.Seconds, s.Accepted, s.Failed)
	if s.Accepted > 0 {
		text += fmt.Sprintf(" A request took %.1f ms (median), %.1f ms (99th percentile).", s.P50Ms, s.P99Ms)
	}
	if s.Retries > 0 {
		text += fmt.Sprintf(" %d were sent again.", s.Retries)
	}
	return text
}

// refusedEventsError tells which events were not accepted.
type refusedEventsError struct {
	first, last int
	cause       error
}

// Error names them by their place in the input, the first being 1, also where the server counts within its request.
// Without an answer that refuses, they may have been stored.
func (e *refusedEventsError) Error() string {
	which := fmt.Sprintf("events %d to %d were", e.first, e.last)
	if e.first == e.last {
		which = fmt.Sprintf("event %d was", e.first)
	}
	var answer *rest.Error
	if !errors.As(e.cause, &answer) || answer.Status >= http.StatusInternalServerError {
		return fmt.Sprintf("it is not known whether %s accepted: %v", which, e.cause)
	}
	why := placeInRequest.ReplaceAllStringFunc(e.cause.Error(), func(place string) string {
		n, _ := strconv.Atoi(placeInRequest.FindStringSubmatch(place)[1])
		return fmt.Sprintf("event %d", e.first+n)
	})
	return fmt.Sprintf("%s not accepted: %s", which, why)
}

var placeInRequest = regexp.MustCompile(`\bevents\[(\d+)\]`)

// Unwrap returns the response of the API, or the error of a request without one.
func (e *refusedEventsError) Unwrap() error { return e.cause }

// retryable is an answer, or the want of one, after which the same request may be sent again.
func retryable(err error) bool {
	var answer *rest.Error
	if errors.As(err, &answer) {
		switch answer.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return !errors.Is(err, context.Canceled)
}
