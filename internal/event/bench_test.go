package event

import (
	"fmt"
	"strings"
	"testing"
)

// oneKilobyte is an event of 1,024 bytes with the data that business events have: short members, some nesting, some
// text.
func oneKilobyte() string {
	var data strings.Builder
	data.WriteString(`{"order":{"number":4711,"total":129.95,"currency":"EUR","paid":true,"coupon":null},"lines":[`)
	for i := range 8 {
		if i > 0 {
			data.WriteByte(',')
		}
		fmt.Fprintf(&data, `{"sku":"SKU-%06d","quantity":%d,"price":%d.50}`, i*7919, i+1, i*3)
	}
	data.WriteString(`],"note":"`)
	event :=
		`{"id":"b68529f3-68cd-4744-baa4-3c0498ec19e2","subject":"/shops/berlin/orders/4711","eventType":"Shop.OrderPlaced",` +
			`"eventTime":"2026-06-26T18:41:00.9584103Z","dataVersion":"1.0","data":` + data.String()
	const tail = `"}}`
	return event + strings.Repeat("n", 1024-len(event)-len(tail)) + tail
}

func benchmarkParse(b *testing.B, in Input, contentType string, n int) {
	b.Helper()
	body := []byte("[" + strings.Repeat(oneKilobyte()+",", n-1) + oneKilobyte() + "]")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.Parse(contentType, body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse1KB(b *testing.B) {
	benchmarkParse(b, Input{Schema: EventGrid, Topic: "orders"}, "application/json; charset=utf-8", 1)
}

func BenchmarkParse100x1KB(b *testing.B) {
	benchmarkParse(b, Input{Schema: EventGrid, Topic: "orders"}, "application/json", 100)
}

func BenchmarkParseCustom1KB(b *testing.B) {
	benchmarkParse(b, custom(b,
		`{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"id"},"eventTime":{"sourceField":"eventTime"},`+
			`"eventType":{"sourceField":"eventType"},"subject":{"sourceField":"subject"},`+
			`"dataVersion":{"sourceField":"dataVersion","defaultValue":"1"}}}`), "application/json", 1)
}

func benchmarkBody(b *testing.B, e *Event) {
	b.Helper()
	for _, delivery := range Deliveries(e.Schema) {
		b.Run(string(delivery), func(b *testing.B) {
			var body []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if body, err = Body(body[:0], []*Event{e}, "orders", delivery, false); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(body)))
		})
	}
}

func BenchmarkBody1KB(b *testing.B) {
	benchmarkBody(b, &Event{Schema: EventGrid, Body: []byte(oneKilobyte())})
}

func BenchmarkBodyCustom1KB(b *testing.B) {
	benchmarkBody(b, &Event{
		Schema: Custom, ID: "1", Type: "Shop.OrderPlaced", Subject: "/shops/berlin/orders/4711", Time: arrival,
		Body: []byte(oneKilobyte()),
	})
}

func BenchmarkParseBinary1KB(b *testing.B) {
	body := []byte(oneKilobyte())
	header := ceHeaders("ce-subject", "/shops/berlin/orders/4711", "ce-time", "2026-06-26T18:41:00.9584103Z",
		"user-agent", "bench")
	in := Input{Schema: CloudEvents, Topic: "orders"}
	for _, contentType := range []string{"application/json", "text/plain", "application/octet-stream"} {
		header.Set("Content-Type", contentType)
		b.Run(contentType, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := in.ParseRequest(header, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
