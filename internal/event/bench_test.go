package event

import (
	"encoding/json"
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

func BenchmarkParse1KB(b *testing.B) {
	body := []byte("[" + oneKilobyte() + "]")
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseBody(EventGrid, "application/json; charset=utf-8", body, "orders", Limits{}); err != nil {
			b.Fatal(err)
		}
	}
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
	for _, delivery := range []Schema{EventGrid, CloudEvents} {
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

// BenchmarkValid1KB is json.Valid, for comparison.
func BenchmarkValid1KB(b *testing.B) {
	body := []byte("[" + oneKilobyte() + "]")
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if !json.Valid(body) {
			b.Fatal("not JSON")
		}
	}
}

func BenchmarkParseCustom1KB(b *testing.B) {
	body := []byte("[" + oneKilobyte() + "]")
	in := custom(b,
		`{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"id"},"eventTime":{"sourceField":"eventTime"},`+
			`"eventType":{"sourceField":"eventType"},"subject":{"sourceField":"subject"},`+
			`"dataVersion":{"sourceField":"dataVersion","defaultValue":"1"}}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.Parse("application/json", body); err != nil {
			b.Fatal(err)
		}
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

func BenchmarkBodyCustom1KB(b *testing.B) {
	events := []*Event{
		{Schema: Custom, ID: "1", Type: "Shop.OrderPlaced", Subject: "/shops/berlin/orders/4711", Time: arrival, Body: []byte(
			oneKilobyte())},
	}
	for _, delivery := range Deliveries(Custom) {
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
