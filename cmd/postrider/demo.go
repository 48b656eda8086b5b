package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"postrider/catalog"
	"postrider/cmd/postrider/cli/rest"
	"postrider/event"
	"postrider/policy"
)

const demoTopic = "demo"

// setUpDemo creates the topic that dev starts with: one endpoint that works, one that works at the third attempt, one
// that never will.
func (d *dev) setUpDemo(ctx context.Context) error {
	topics, subscriptions := d.app.store.Topics, d.app.store.Subscriptions
	keys := &catalog.AccessKeys{Key1: d.ready.TopicKey, Key2: newSecret()}
	spec := catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: keys}
	_, made, err := topics.Put(ctx, demoTopic, spec)
	if err != nil {
		return err
	}
	if made == nil { // kept from an earlier run, with that run's keys
		if err := topics.SetKeys(ctx, demoTopic, *keys); err != nil {
			return err
		}
	}
	for name, path := range map[string]string{"ok": "/ok", "flaky": "/flaky", "refused": "/status/400"} {
		url := d.ready.Sink + path
		_, _, err := subscriptions.Put(ctx, demoTopic, name, catalog.SubscriptionSpec{
			EndpointURL: url, EndpointKind: policy.KindWebhook, EventDeliverySchema: event.EventGrid,
			RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// publishFirst publishes the first event over HTTP.
func (d *dev) publishFirst(ctx context.Context) error {
	client, err := rest.ServerFlags{Server: d.ready.API}.Connect()
	if err == nil {
		now := time.Now().UTC()
		event := json.RawMessage(demoEvent("hello-"+now.Format("150405"), now.Format(time.RFC3339)))
		err = client.Call(ctx, http.MethodPost, "/topics/"+demoTopic+"/api/events?api-version=2018-01-01",
			[]json.RawMessage{event}, nil, "Aeg-Sas-Key", d.ready.TopicKey)
	}
	if err != nil {
		return fmt.Errorf("publish the first event: %w", err)
	}
	return nil
}

func demoEvent(id, at string) string {
	return fmt.Sprintf(`{"id":%q,"eventType":"demo.hello","subject":"demo/greetings","eventTime":%q,"dataVersion":"1",`+
		`"data":{"text":"hello"}}`, id, at)
}
