package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"

	"postrider/cmd/postrider/cli/rest"
	"postrider/cmd/postrider/terminal"
)

// eventSource gives one event after the other, each as it was written; io.EOF after the last.
type eventSource interface{ next() ([]byte, error) }

// madeEvents are made on the spot.
type madeEvents struct {
	left int
	make func() ([]byte, error)
}

func (m *madeEvents) next() ([]byte, error) {
	if m.left == 0 {
		return nil, io.EOF
	}
	m.left--
	return m.make()
}

// fileEvents reads files one after the other, an event at a time: they may be larger than memory.
type fileEvents struct {
	names   []string
	name    string
	file    *os.File
	decoder *json.Decoder
	inArray bool
}

func newFileEvents(names []string) *fileEvents {
	if len(names) == 0 {
		names = []string{"-"}
	}
	return &fileEvents{names: names}
}

func (f *fileEvents) next() ([]byte, error) {
	for {
		if f.decoder == nil {
			if len(f.names) == 0 {
				return nil, io.EOF
			}
			if err := f.open(); err != nil {
				return nil, err
			}
		}
		event, err := f.read()
		if errors.Is(err, io.EOF) {
			_ = f.file.Close()
			f.decoder = nil
			continue
		}
		return event, err
	}
}

func (f *fileEvents) open() (err error) {
	f.name, f.names = f.names[0], f.names[1:]
	f.file = os.Stdin
	if f.name != "-" {
		if f.file, err = os.Open(f.name); err != nil {
			return terminal.Usagef("%v", err)
		}
	}
	f.decoder, f.inArray = json.NewDecoder(bufio.NewReaderSize(f.file, 1<<16)), false
	return nil
}

// read is the next event of the file. An array is entered; its members are events like those that stand one after
// another.
func (f *fileEvents) read() ([]byte, error) {
	for {
		if f.inArray && !f.decoder.More() {
			if _, err := f.decoder.Token(); err != nil { // its end
				return nil, f.broken(err)
			}
			f.inArray = false
		}
		if !f.inArray && f.startsArray() {
			f.inArray = true
			continue
		}
		var event json.RawMessage
		if err := f.decoder.Decode(&event); err != nil {
			return nil, f.broken(err)
		}
		if event[0] != '{' {
			return nil, terminal.Usagef("%s: an event is a JSON object, and this is none: %s", f.name,
				terminal.Cell(string(event)))
		}
		return event, nil
	}
}

// startsArray reports whether an array comes next, and steps into it.
func (f *fileEvents) startsArray() bool {
	// More peeks at the next byte that is no space; what it says of the top level is whether there is one.
	if !f.decoder.More() {
		return false
	}
	if b, err := io.ReadAll(io.LimitReader(f.decoder.Buffered(), 64)); err != nil || firstByte(b) != '[' {
		return false
	}
	_, err := f.decoder.Token()
	return err == nil
}

func firstByte(b []byte) byte {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c
		}
	}
	return 0
}

func (f *fileEvents) broken(err error) error {
	if errors.Is(err, io.EOF) && !f.inArray {
		return io.EOF
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return terminal.Usagef("%s: it ends in the middle of an event", f.name)
	}
	return terminal.Usagef("%s, at byte %d: %v", f.name, f.decoder.InputOffset(), err)
}

// rawJSON is JSON that is written as it is.
type rawJSON = json.RawMessage

func isJSON(text string) bool { return json.Valid([]byte(text)) }

// madeEvent is an event of this schema, with an id and a time of its own.
func madeEvent(schema, eventType, subject, source string, data any) ([]byte, error) {
	id, now := uuid.NewString(), time.Now().UTC().Format(time.RFC3339Nano)
	switch schema {
	case "CloudEventSchemaV1_0":
		e := cloudEventMade{
			SpecVersion: "1.0", ID: id, Source: source, Type: eventType, Subject: subject, Time: now, Data: data,
		}
		return terminal.EncodePlainly(e)
	case "EventGridSchema":
		if data == nil {
			data = rest.Object{}
		}
		return terminal.EncodePlainly(eventGridMade{
			ID: id, EventType: eventType, Subject: subject, EventTime: now, DataVersion: "1.0", Data: data,
		})
	default:
		return nil, terminal.Usagef("--type: the topic takes events of your own form, which postrider cannot make; bring " +
			"them in a file, or use --sample")
	}
}

// In structs, for a person reads such events: the members keep their order.
type cloudEventMade struct {
	SpecVersion string `json:"specversion"`
	ID          string `json:"id"`
	Source      string `json:"source"`
	Type        string `json:"type"`
	Subject     string `json:"subject,omitempty"`
	Time        string `json:"time"`
	Data        any    `json:"data,omitempty"`
}

type eventGridMade struct {
	ID          string `json:"id"`
	EventType   string `json:"eventType"`
	Subject     string `json:"subject"`
	EventTime   string `json:"eventTime"`
	DataVersion string `json:"dataVersion"`
	Data        any    `json:"data"`
}

// sampleOrder is what a shop would publish. Each one differs, so that filters have something to decide.
type sampleOrder struct {
	Type, Subject string
	Data          rest.Object
}

func newSampleOrder() sampleOrder {
	kinds := []string{"Shop.OrderPlaced", "Shop.OrderPlaced", "Shop.OrderPaid", "Shop.OrderShipped", "Shop.OrderCanceled"}
	cities := []string{"Berlin", "Lisbon", "New York", "Oslo", "Seattle", "Tokyo"}
	items := []string{"bicycle", "helmet", "lamp", "lock", "pump"}
	number, quantity, cents := 1000+rand.IntN(9000), 1+rand.IntN(4), 500+rand.IntN(50_000) //nolint:gosec // samples
	city := cities[rand.IntN(len(cities))]                                                 //nolint:gosec // samples
	return sampleOrder{
		Type: kinds[rand.IntN(len(kinds))], Subject: fmt.Sprintf("orders/%d", number), //nolint:gosec // samples
		Data: rest.Object{
			"orderId": number, "total": json.Number(fmt.Sprintf("%d.%02d", cents/100, cents%100)), "currency": "EUR",
			"customer": rest.Object{"id": "c-" + uuid.NewString()[:8], "city": city},
			"items":    []rest.Object{{"sku": items[rand.IntN(len(items))], "quantity": quantity}}, //nolint:gosec // samples
		},
	}
}

// sampleCustom has the members that the topic's mapping reads.
func sampleCustom(topic rest.Object) ([]byte, error) {
	order := newSampleOrder()
	event := order.Data
	for name, value := range map[string]any{
		"id": uuid.NewString(), "eventType": order.Type, "subject": order.Subject,
		"eventTime": time.Now().UTC().Format(time.RFC3339Nano), "dataVersion": "1.0",
	} {
		if member, ok := rest.ValueAt(topic, "inputSchemaMapping.properties."+name+".sourceField").(string); ok {
			event[member] = value
		}
	}
	return terminal.EncodePlainly(event)
}
