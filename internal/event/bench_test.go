package event

import (
	"strings"
	"testing"
)

// oneKilobyte is an event of 1,024 bytes with the data that business events have: short members, some nesting, some
// text.
func oneKilobyte() string {
	const head, tail = `{"id":"b68529f3","subject":"/shops/berlin/orders/4711","eventType":"Shop.OrderPlaced",` +
		`"eventTime":"2026-06-26T18:41:00.9584103Z","dataVersion":"1.0","data":` +
		`{"order":{"number":4711,"total":129.95,"currency":"EUR","paid":true,"coupon":null},"lines":[`, `"}}`
	event := head + strings.Repeat(`{"sku":"SKU-007919","quantity":2,"price":3.50},`, 8) + `{}],"note":"`
	return event + strings.Repeat("n", 1024-len(event)-len(tail)) + tail
}

func BenchmarkParse100x1KB(b *testing.B) {
	body := []byte("[" + strings.Repeat(oneKilobyte()+",", 99) + oneKilobyte() + "]")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseBody(EventGrid, "application/json", body, "orders", Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBody1KB(b *testing.B) {
	events := []*Event{{Schema: EventGrid, Body: []byte(oneKilobyte())}}
	for _, delivery := range Deliveries(EventGrid) {
		b.Run(string(delivery), func(b *testing.B) {
			var body []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if body, err = Body(body[:0], events, "orders", delivery, false); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(body)))
		})
	}
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
