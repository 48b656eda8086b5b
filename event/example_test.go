package event_test

import (
	"errors"
	"fmt"

	"postrider/event"
)

func ExampleParse() {
	body := []byte(`[{"id":"1","subject":"/orders/7","eventType":"OrderPlaced","eventTime":"2026-06-26T18:41:00Z","data":{"total":9.5}}]`)
	events, err := event.Parse(event.EventGrid, "application/json", body, "orders", event.DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range events {
		fmt.Println(e.ID, e.Type, e.Subject, e.Time.Year())
	}
	// Output: 1 OrderPlaced /orders/7 2026
}

func ExampleError() {
	body := []byte(`[{"id":"1","subject":"/orders/7","eventType":"OrderPlaced","eventTime":"yesterday"}]`)
	_, err := event.Parse(event.EventGrid, "application/json", body, "orders", event.DefaultLimits())
	var refusal *event.Error
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Status, refusal.Code, refusal.Index, refusal.Field)
		fmt.Println(refusal)
	}
	// Output:
	// 400 InvalidEvent 0 eventTime
	// events[0].eventTime: not an RFC 3339 time
}

func ExampleBody() {
	stored := &event.Event{
		Schema: event.EventGrid,
		Body:   []byte(`{"id":"1","subject":"","eventType":"OrderPlaced","eventTime":"2026-06-26T18:41:00Z","data":{"total":9.50}}`),
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
	// [{"id":"1","subject":"","eventType":"OrderPlaced","eventTime":"2026-06-26T18:41:00Z","data":{"total":9.50},"topic":"/topics/orders","metadataVersion":"1"}]
	// application/cloudevents+json; charset=utf-8
	// {"specversion":"1.0","source":"/topics/orders","id":"1","type":"OrderPlaced","time":"2026-06-26T18:41:00Z","datacontenttype":"application/json","data":{"total":9.50}}
}
