// Command ci is a test against `postrider dev`, with the standard library alone. It publishes an event that is
// delivered and one that becomes a dead letter, reads what became of them, and resets postrider for the next test.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"time"
)

var (
	url = cmp.Or(os.Getenv("POSTRIDER_URL"), "http://127.0.0.1:7480")
	key = cmp.Or(os.Getenv("POSTRIDER_API_KEY"), "postrider-dev-admin")
)

func main() {
	if err := test(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("ok")
}

func test() error {
	if err := call(http.MethodDelete, "/v1/dev/state", nil, nil); err != nil {
		return err
	}
	if err := publish("1807", "orders/1807"); err != nil {
		return err
	}
	if err := publish("1808", "orders/broken/1808"); err != nil {
		return err
	}
	states, err := ended(3)
	if err != nil {
		return err
	}
	want := []string{"1807 billing delivered", "1808 billing delivered", "1808 broken dead_lettered"}
	if !slices.Equal(states, want) {
		return fmt.Errorf("the deliveries are %q, not %q", states, want)
	}
	return call(http.MethodDelete, "/v1/dev/state", nil, nil)
}

// ended waits until that many deliveries have ended, and returns the state of each.
func ended(count int) (states []string, err error) {
	for len(states) < count {
		time.Sleep(20 * time.Millisecond)
		var page struct {
			Value []struct{ EventID, Subscription, State string }
		}
		if err := call(http.MethodGet, "/v1/deliveries?topic=orders", nil, &page); err != nil {
			return nil, err
		}
		states = states[:0]
		for _, d := range page.Value {
			if d.State != "pending" {
				states = append(states, d.EventID+" "+d.Subscription+" "+d.State)
			}
		}
	}
	slices.Sort(states)
	return states, nil
}

func publish(id, subject string) error {
	return call(http.MethodPost, "/topics/orders/api/events?api-version=2018-01-01", []map[string]any{{
		"id": id, "subject": subject, "eventType": "Shop.OrderPlaced", "eventTime": time.Now(), "dataVersion": "1",
		"data": struct{}{},
	}}, nil)
}

// call makes a request with the admin token, which also publishes; answer gets the response, unless it is nil.
func call(method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(context.Background(), method, url+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, got)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(got, answer)
}
