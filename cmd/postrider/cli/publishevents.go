package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// fileEvents reads the events of files, or of standard input, one at a time and exactly as they were written: files may
// be larger than memory.
func fileEvents(names []string) iter.Seq2[[]byte, error] {
	if len(names) == 0 {
		names = []string{"-"}
	}
	return func(yield func([]byte, error) bool) {
		for _, name := range names {
			file := os.Stdin
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
		return nil, terminal.Usagef("%s: an event is a JSON object, and this is none: %s", r.name,
			terminal.Cell(string(event)))
	}
	return event, nil
}

func (r *eventReader) broken(err error) error {
	switch {
	case errors.Is(err, io.EOF) && !r.inArray:
		return io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return terminal.Usagef("%s: it ends in the middle of an event", r.name)
	}
	return terminal.Usagef("%s, at byte %d: %v", r.name, r.decoder.InputOffset(), err)
}

// create is the next event of --sample or --type.
func (c *PublishCmd) create(schema string, topic rest.Object) ([]byte, error) {
	if !c.Sample {
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

// newEvent is an event of this schema with a new id and the time of now. People read it, so the members have an order.
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
		return nil, terminal.Usagef("--type: the topic takes events of your own form, which postrider cannot create; use a " +
			"file or --sample")
	}
}

// sampleOrder is an event of a shop. Each one differs, so that filters match some.
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
