package event_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

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

func ExampleError() {
	body := []byte(`[{"id":"1","subject":"/orders/7","eventType":"OrderPlaced","eventTime":"yesterday"}]`)
	in := event.Input{Schema: event.EventGrid, Topic: "orders", Limits: event.DefaultLimits()}
	_, err := in.Parse("application/json", body)
	var rejection *event.Error
	if errors.As(err, &rejection) {
		fmt.Println(rejection.Status, rejection.Code, rejection.Index, rejection.Field)
		fmt.Println(rejection)
	}
	// Output:
	// 400 InvalidEvent 0 eventTime
	// events[0].eventTime: not an RFC 3339 time
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

func ExampleInput_ParseRequest() {
	in := event.Input{Schema: event.CloudEvents, Topic: "orders", Limits: event.DefaultLimits()}
	header := map[string][]string{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/shop"}, "Ce-Type": {"OrderPlaced"},
		"Ce-Subject":   {"orders%207"},
		"Content-Type": {"application/json"},
	}
	events, err := in.ParseRequest(header, []byte(`{"total":9.50}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", events[0].Body)
	// Output:
	// {"id":"1","source":"/shop","specversion":"1.0","subject":"orders 7","type":"OrderPlaced","datacontenttype":"application/json","data":{"total":9.50}}
}

func ExampleMapping() {
	mapping := new(event.Mapping)
	err := json.Unmarshal(
		[]byte(`{"inputSchemaMappingType":"Json","properties":{"eventType":{"sourceField":"kind"},`+
			`"subject":{"defaultValue":"shop"}}}`), mapping)
	if err != nil || mapping.Validate() != nil {
		return
	}
	in := event.Input{
		Schema: event.Custom, Topic: "orders", Mapping: mapping,
		NewID: func() string { return "4f1c" }, Now: time.Date(2026, 6, 26, 18, 41, 0, 0, time.UTC),
	}
	events, err := in.Parse("application/json", []byte(`{"kind":"OrderPlaced","total":9.50}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, delivery := range event.Deliveries(event.Custom) {
		body, _ := event.Body(nil, []*event.Event{&events[0]}, "orders", delivery, false)
		fmt.Printf("%s\n", body)
	}
	// Output:
	// [{"id":"4f1c","eventTime":"2026-06-26T18:41:00Z","eventType":"OrderPlaced","dataVersion":"","metadataVersion":"1","topic":"/topics/orders","subject":"shop","data":{"kind":"OrderPlaced","total":9.50}}]
	// {"specversion":"1.0","source":"/topics/orders","id":"4f1c","type":"OrderPlaced","subject":"shop","time":"2026-06-26T18:41:00Z","datacontenttype":"application/json","data":{"kind":"OrderPlaced","total":9.50}}
	// [{"kind":"OrderPlaced","total":9.50}]
}
