package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/google/uuid"

	"postrider/internal/cli/rest"
	"postrider/internal/terminal"
)

// PublishCmd is publish.
type PublishCmd struct {
	rest.Flags
	Topic   string     `arg:"" predictor:"topic" help:"Name of the topic."`
	Files   []string   `arg:"" optional:"" name:"file" help:"Files of events: one object, an array, or one object after another (NDJSON). None, or -: standard input."`
	Key     string     `help:"Access key of the topic; without one the API key publishes: its scope must be publish, or admin." env:"POSTRIDER_TOPIC_KEY" placeholder:"KEY"`
	Sample  sampleFlag `help:"Instead of files: a sample order in the topic's input schema, or with a TYPE the event of an Azure service, such as Microsoft.Storage.BlobCreated. --sample list lists the types." xor:"made"`
	Type    string     `help:"Instead of files: one event of this type." xor:"made" placeholder:"TYPE"`
	Subject string     `help:"Its subject." placeholder:"TEXT"`
	Data    string     `help:"Its data, JSON." placeholder:"JSON"`
	Source  string     `help:"Its source, if the topic takes CloudEvents." default:"/postrider/cli" placeholder:"URI"`
	Count   int        `help:"Number of events that --sample or --type creates." default:"1" range:"1.." placeholder:"N"`

	Rate      float64       `help:"Limit of events per second (default: as fast as possible)." range:"0.." placeholder:"N"`
	Batch     int           `help:"Limit of events in a request, 1 to 5000; a request never has more than 1 MiB." default:"100" range:"1..5000" placeholder:"N"`
	RetryFor  time.Duration `help:"Time for which a request is repeated if the server is busy or unavailable. Its events are never stored twice." default:"2m" placeholder:"SPAN"`
	KeepGoing bool          `help:"Continue after a rejected request."`
}

// Help is shown by publish --help.
func (PublishCmd) Help() string {
	return `The server accepts or rejects each request as a whole. After a response 429, 502, 503 or 504, or without a
response, the request is repeated with the same Idempotency-Key after the time in Retry-After: no event is stored twice.
Events that are not accepted are reported with their position, and the exit code is 1. A key that may only publish
cannot read the topic's schema. Then generated events have Event Grid's schema, and events of a file the schema of the
first one.

Examples:
  postrider publish orders events.ndjson
  postrider publish orders --type Shop.OrderPlaced --subject orders/42 --data '{"total": 9.5}'
  postrider publish orders --sample --count 10000 --rate 200
  postrider publish files --sample Microsoft.Storage.BlobCreated
  jq -c '.[]' export.json | postrider publish orders --batch 500`
}

// Run executes publish.
func (c *PublishCmd) Run(ctx context.Context, std terminal.Streams) error {
	if err := c.check(std.In); err != nil {
		return err
	}
	client, err := c.ClientForTopic(c.Key)
	if err != nil {
		return err
	}
	p := &publisher{
		PublishCmd: c, client: client, path: "/topics/" + url.PathEscape(c.Topic) + "/api/events",
		run: uuid.NewString(), idMember: "id", progress: terminal.NewProgressLine(std.Err),
	}
	topic, err := p.readTopic(ctx)
	if err != nil {
		return err
	}
	events := fileEvents(std.In, c.Files)
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
		return err // nothing was sent
	}
	if terminal.IsUsage(err) {
		err = errors.New(err.Error()) // exit code 1: some events were sent
	}
	summary := p.summary()
	return errors.Join(c.Print(std.Out, summary, func(w io.Writer) {
		fmt.Fprintln(w, summary)
		p.printIDs(w)
	}), err)
}

// creates reports whether the events come from flags, not from files.
func (c *PublishCmd) creates() bool { return c.Sample.on || c.Type != "" }

func (c *PublishCmd) check(stdin io.Reader) error {
	switch {
	case c.creates() && len(c.Files) > 0:
		return terminal.Usagef("--sample and --type create events; omit the file %s, or see --sample list", c.Files[0])
	case !c.creates() && c.Count != 1:
		return terminal.Usagef("--count requires --sample or --type")
	case c.Type == "" && (c.Subject != "" || c.Data != ""):
		return terminal.Usagef("--subject and --data require --type")
	case c.Data != "" && !json.Valid([]byte(c.Data)):
		return terminal.Usagef("--data: not JSON; a text needs quotation marks: '\"hello\"'")
	case !c.creates() && len(c.Files) == 0 && terminal.IsTerminal(stdin):
		return terminal.Usagef("no events: name a file, pipe them in, or create some with --sample or --type")
	}
	// A wrong name is reported before events of other files are sent.
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

// readTopic reads the schema and the path of the topic, unless the key may only publish.
func (p *publisher) readTopic(ctx context.Context) (rest.Object, error) {
	creates := p.creates()
	if p.client.Key == "" && !creates {
		return nil, nil
	}
	var topic rest.Object
	err := p.client.Call(ctx, http.MethodGet, rest.TopicURL(p.Topic), nil, &topic)
	unauthorized := rest.IsStatus(err, http.StatusUnauthorized)
	switch {
	case rest.IsStatus(err, http.StatusForbidden):
		p.schema = terminal.Either(creates, "EventGridSchema", "")
		return nil, nil
	case unauthorized && creates:
		return nil, fmt.Errorf("read the topic's input schema to create an event: %w", err)
	case unauthorized && p.Key != "":
		return nil, nil
	case err != nil:
		return nil, err
	}
	p.schema, p.path = fmt.Sprint(topic["inputSchema"]), fmt.Sprint(topic["endpoint"])
	if p.schema == "CustomEventSchema" {
		p.idMember, _ = rest.ValueAt(topic, "inputSchemaMapping.properties.id.sourceField").(string)
	}
	return topic, nil
}

// fileEvents reads the events of files, or of standard input, one at a time and unchanged. Files may be larger than
// memory.
func fileEvents(stdin io.Reader, names []string) iter.Seq2[[]byte, error] {
	if len(names) == 0 {
		names = []string{"-"}
	}
	return func(yield func([]byte, error) bool) {
		for _, name := range names {
			file := io.NopCloser(stdin)
			if name != "-" {
				var err error
				if file, err = os.Open(name); err != nil {
					yield(nil, terminal.Usagef("%v", err))
					return
				}
			}
			r := eventReader{name: name, decoder: json.NewDecoder(bufio.NewReaderSize(file, 1<<16))}
			event, err := r.next()
			for ; err == nil && yield(event, nil); event, err = r.next() {
			}
			_ = file.Close()
			if err == nil { // no more are read
				return
			}
			if !errors.Is(err, io.EOF) {
				yield(nil, err)
				return
			}
		}
	}
}

// eventReader reads JSON objects that follow each other, in arrays or without.
type eventReader struct {
	name    string
	decoder *json.Decoder
	inArray bool
}

// next returns io.EOF after the last event.
func (r *eventReader) next() ([]byte, error) {
	for {
		more := r.decoder.More()
		first, _ := bufio.NewReader(r.decoder.Buffered()).ReadByte() // More has skipped spaces
		if more && (r.inArray || first != '[') {
			break
		}
		if _, err := r.decoder.Token(); err != nil { // [, ] or the end
			return nil, r.broken(err)
		}
		r.inArray = more
	}
	var event json.RawMessage
	if err := r.decoder.Decode(&event); err != nil {
		return nil, r.broken(err)
	}
	if event[0] != '{' {
		return nil, terminal.Usagef("%s: an event must be a JSON object, not %s", r.name, terminal.Cell(string(event)))
	}
	return event, nil
}

func (r *eventReader) broken(err error) error {
	switch {
	case errors.Is(err, io.EOF) && !r.inArray:
		return io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return terminal.Usagef("%s: the file ends within an event", r.name)
	}
	return terminal.Usagef("%s, at byte %d: %v", r.name, r.decoder.InputOffset(), err)
}

// create creates an event for --sample or --type.
func (c *PublishCmd) create(schema string, topic rest.Object) ([]byte, error) {
	if c.Sample.eventType != "" {
		return azureEvent(schema, c.Sample.eventType)
	}
	if !c.Sample.on {
		data := any(nil)
		if c.Data != "" {
			data = json.RawMessage(c.Data)
		}
		return newEvent(schema, c.Type, c.Subject, c.Source, data)
	}
	eventType, subject, order := sampleOrder()
	if schema != "CustomEventSchema" {
		return newEvent(schema, eventType, subject, "/shop", order)
	}
	for name, value := range map[string]any{
		"id": uuid.NewString(), "eventType": eventType, "subject": subject,
		"eventTime": time.Now().UTC().Format(time.RFC3339Nano), "dataVersion": "1.0",
	} { // the members that the topic's mapping reads
		if member, ok := rest.ValueAt(topic, "inputSchemaMapping.properties."+name+".sourceField").(string); ok {
			order[member] = value
		}
	}
	return terminal.EncodePlainly(order)
}

// newEvent creates an event of this schema with a new id and the current time. Its members have a readable order.
func newEvent(schema, eventType, subject, source string, data any) ([]byte, error) {
	id, now := uuid.NewString(), time.Now().UTC().Format(time.RFC3339Nano)
	switch schema {
	case "CloudEventSchemaV1_0":
		return terminal.EncodePlainly(struct {
			SpecVersion string `json:"specversion"`
			ID          string `json:"id"`
			Source      string `json:"source"`
			Type        string `json:"type"`
			Subject     string `json:"subject,omitempty"`
			Time        string `json:"time"`
			Data        any    `json:"data,omitempty"`
		}{"1.0", id, source, eventType, subject, now, data})
	case "EventGridSchema":
		if data == nil {
			data = rest.Object{}
		}
		return terminal.EncodePlainly(struct {
			ID          string `json:"id"`
			EventType   string `json:"eventType"`
			Subject     string `json:"subject"`
			EventTime   string `json:"eventTime"`
			DataVersion string `json:"dataVersion"`
			Data        any    `json:"data"`
		}{id, eventType, subject, now, "1.0", data})
	default:
		return nil, terminal.Usagef("--type: the topic has a custom schema; use a file or --sample")
	}
}

// sampleOrder creates an event of a shop. Each one differs, so that filters match some.
func sampleOrder() (eventType, subject string, data rest.Object) {
	number, cents := 1000+rand.IntN(9000), 500+rand.IntN(50_000) //nolint:gosec // samples
	return oneOf("Shop.OrderPlaced", "Shop.OrderPlaced", "Shop.OrderPaid", "Shop.OrderShipped", "Shop.OrderCanceled"),
		fmt.Sprintf("orders/%d", number), rest.Object{
			"orderId": number, "total": json.Number(fmt.Sprintf("%d.%02d", cents/100, cents%100)), "currency": "EUR",
			"customer": rest.Object{
				"id":   "c-" + uuid.NewString()[:8],
				"city": oneOf("Berlin", "Lisbon", "New York", "Oslo", "Seattle", "Tokyo"),
			},
			"items": []rest.Object{{
				"sku": oneOf("bicycle", "helmet", "lamp", "lock", "pump"), "quantity": oneOf(1, 2, 3, 4),
			}},
		}
}

func oneOf[T any](values ...T) T { return values[rand.IntN(len(values))] } //nolint:gosec // samples
