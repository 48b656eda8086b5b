// A client that oapi-codegen makes of openapi.yaml: topic, event subscription, event, dead letter, redelivery.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

// as adds a header to every request of a client.
func as(name, value string) ClientOption {
	return WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set(name, value)
		return nil
	})
}

// must ends the program unless a request was answered as it should be.
func must(what string, err error, status int, wanted ...int) {
	for _, code := range wanted {
		if err == nil && status == code {
			return
		}
	}
	log.Fatalf("%s: status %d, error %v", what, status, err)
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url, topic := os.Getenv("URL"), "from-go"
	admin, err := NewClientWithResponses(url, as("Authorization", "Bearer "+os.Getenv("TOKEN")))
	must("client", err, 0, 0)

	made, err := admin.PutTopicWithResponse(ctx, topic, nil, TopicSettings{})
	must("topic", err, made.StatusCode(), 201)
	validation := EndpointValidation("skip")
	subscription, err := admin.PutSubscriptionWithResponse(ctx, topic, "all", nil, SubscriptionSettings{EndpointUrl: os.Getenv("ENDPOINT") + "/go", EndpointValidation: &validation})
	must("event subscription", err, subscription.StatusCode(), 201)
	if subscription.JSON201.Hold != nil || subscription.JSON201.RetryPolicy.Policy != "ga-2021" {
		log.Fatalf("event subscription: %+v", subscription.JSON201)
	}

	publisher, err := NewClientWithResponses(url, as("aeg-sas-key", *made.JSON201.Key1))
	must("client", err, 0, 0)
	events := PublishEventsJSONRequestBody{{
		"id": "1", "subject": "orders/1", "eventType": "Shop.OrderPlaced", "eventTime": "2026-11-20T09:30:00Z", "dataVersion": "1", "data": map[string]any{"total": 1.5},
	}}
	published, err := publisher.PublishEventsWithResponse(ctx, topic, nil, events)
	must("publish", err, published.StatusCode(), 200)

	for {
		letters, err := admin.ListDeadLettersWithResponse(ctx, &ListDeadLettersParams{Topic: &topic})
		must("dead letters", err, letters.StatusCode(), 200)
		if len(letters.JSON200.Value) == 1 {
			again, err := admin.RedeliverDeadLetterWithResponse(ctx, letters.JSON200.Value[0].DeadLetterId, RedeliverSettings{})
			must("redeliver", err, again.StatusCode(), 200)
			twice, err := admin.RedeliverDeadLetterWithResponse(ctx, letters.JSON200.Value[0].DeadLetterId, RedeliverSettings{})
			must("redeliver twice", err, twice.StatusCode(), 409)
			fmt.Println(twice.JSON409.Error.Code, again.JSON200.DeliveryId > 0)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
