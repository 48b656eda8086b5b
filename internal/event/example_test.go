package event_test

import (
	"fmt"

	"postrider/internal/event"
)

func ExampleInput_Parse() {
	body := []byte(`[{"id":"1","subject":"/orders/7","eventType":"OrderPlaced","eventTime":"2026-06-26T18:41:00Z",` +
		`"data":{"total":9.5}}]`)
	in := event.Input{Schema: event.EventGrid, Topic: "orders", Limits: event.DefaultLimits()}
	events, err := in.Parse("application/json", body)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range events {
		fmt.Println(e.ID, e.Type, e.Subject, e.Time.Year())
	}
	// Output: 1 OrderPlaced /orders/7 2026
}

func ExampleBody() {
	stored := &event.Event{
		Schema: event.EventGrid,
		Body: []byte(`{"id":"1","subject":"","eventType":"OrderPlaced","eventTime":"2026-06-26T18:41:00Z",` +
			`"data":{"total":9.50}}`),
	}
	for _, delivery := range []event.Schema{event.EventGrid, event.CloudEvents} {
		body, err := event.Body(nil, []*event.Event{stored}, "orders", delivery, false)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.ContentType(delivery, false))
		fmt.Printf("%s\n", body)
	}
	// Output:
	// application/json; charset=utf-8
	// [{"id":"1","subject":"","eventType":"OrderPlaced","eventTime":"2026-06-26T18:41:00Z","data":{"total":9.50},"topic":"/topics/orders","metadataVersion":"1","dataVersion":""}]
	// application/cloudevents+json; charset=utf-8
	// {"specversion":"1.0","source":"/topics/orders","id":"1","type":"OrderPlaced","time":"2026-06-26T18:41:00Z","datacontenttype":"application/json","data":{"total":9.50}}
}
