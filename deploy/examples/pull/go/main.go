// Command pull receives events of an event subscription with delivery mode Queue, processes and acknowledges them.
//
//	POSTRIDER_URL=http://127.0.0.1:7480 TOPIC_KEY=… go run ./deploy/examples/pull/go orders ledger
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// delivery is an event that this program has locked.
type delivery struct {
	BrokerProperties struct {
		LockToken     string
		DeliveryCount int
	}
	Event struct {
		ID, Source, Type string
		Data             json.RawMessage
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: pull TOPIC SUBSCRIPTION")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	queue := fmt.Sprintf("%s/topics/%s/eventsubscriptions/%s", os.Getenv("POSTRIDER_URL"), url.PathEscape(os.Args[1]),
		url.PathEscape(os.Args[2]))
	for ctx.Err() == nil {
		if err := consume(ctx, queue); err != nil && ctx.Err() == nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
}

// consume waits up to a minute for events. Those that cannot be processed are available again after 10 s.
func consume(ctx context.Context, queue string) error {
	var received struct{ Value []delivery }
	if err := post(ctx, queue+":receive?api-version=2024-06-01&maxEvents=100&maxWaitTime=60", nil, &received); err != nil {
		return err
	}
	var done, failed []string
	for _, d := range received.Value {
		if err := process(&d); err != nil {
			log.Printf("%s: %v", d.Event.ID, err)
			failed = append(failed, d.BrokerProperties.LockToken)
		} else {
			done = append(done, d.BrokerProperties.LockToken)
		}
	}
	// Also after Ctrl-C: the events are processed.
	ctx = context.WithoutCancel(ctx)
	if err := settle(ctx, queue+":acknowledge?api-version=2024-06-01", done); err != nil {
		return err
	}
	return settle(ctx, queue+":release?api-version=2024-06-01&releaseDelayInSeconds=10", failed)
}

// process may be called again for the same event: if the acknowledgment is lost, or comes after the end of the lock.
func process(d *delivery) error {
	var data any
	if err := json.Unmarshal(d.Event.Data, &data); err != nil {
		return err
	}
	fmt.Println("received", d.Event.Type, d.Event.ID, string(d.Event.Data))
	return nil
}

// settle reports tokens whose locks had ended. Another consumer receives these events.
func settle(ctx context.Context, url string, tokens []string) error {
	if len(tokens) == 0 {
		return nil
	}
	var settled struct {
		FailedLockTokens []struct{ Error struct{ Code string } }
	}
	err := post(ctx, url, map[string]any{"lockTokens": tokens}, &settled)
	if n := len(settled.FailedLockTokens); n > 0 {
		log.Printf("%d locks had ended: %s", n, settled.FailedLockTokens[0].Error.Code)
	}
	return err
}

func post(ctx context.Context, url string, body, into any) error {
	encoded := []byte{}
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(encoded)) //nolint:gosec // yours
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("aeg-sas-key", os.Getenv("TOPIC_KEY"))
	response, err := http.DefaultClient.Do(request) //nolint:gosec // your server
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return json.NewDecoder(response.Body).Decode(into)
}
