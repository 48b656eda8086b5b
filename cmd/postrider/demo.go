package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"postrider/catalog"
	"postrider/cmd/postrider/app"
	"postrider/event"
	"postrider/policy"
)

const demoTopic = "demo"

// demo is the topic that dev starts with: one endpoint that works, one that works at the third attempt, one that never
// will.
type demo struct {
	api, sink, token, key string
	store                 *app.System
}

func (d *demo) setUp(ctx context.Context) error {
	keys := &catalog.AccessKeys{Key1: d.key, Key2: newSecret()}
	spec := catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid, Keys: keys}
	_, made, err := d.store.Topics.Put(ctx, demoTopic, spec)
	if err != nil {
		return err
	}
	if made == nil { // kept from an earlier run, with that run's keys
		if err := d.store.Topics.SetKeys(ctx, demoTopic, *keys); err != nil {
			return err
		}
	}
	for name, path := range map[string]string{"ok": "/ok", "flaky": "/flaky", "refused": "/status/400"} {
		url := d.sink + path
		_, _, err := d.store.Subscriptions.Put(ctx, demoTopic, name, catalog.SubscriptionSpec{
			EndpointURL: url, EndpointKind: policy.KindWebhook, EventDeliverySchema: event.EventGrid,
			RetryPolicy: catalog.RetryPolicySpec{Policy: policy.DefaultName},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// publishOne publishes the first event through the front door, as anybody would.
func (d *demo) publishOne(ctx context.Context) error {
	now := time.Now().UTC()
	body := fmt.Appendf(nil, "[%s]", demoEvent("hello-"+now.Format("150405"), now.Format(time.RFC3339)))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		d.api+"/topics/"+demoTopic+"/api/events?api-version=2018-01-01", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("publish the first event: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Aeg-Sas-Key", d.key)
	client := &http.Client{Timeout: 10 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("publish the first event: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("publish the first event: %s: %s", resp.Status, text)
	}
	return nil
}

func demoEvent(id, at string) string {
	return fmt.Sprintf(`{"id":%q,"eventType":"demo.hello","subject":"demo/greetings","eventTime":%q,"dataVersion":"1",`+
		`"data":{"text":"hello"}}`, id, at)
}
