// Command receiver takes postrider's deliveries: it answers both validation handshakes, checks signatures, and does its
// work once for each event.
//
//	PORT=3000 WEBHOOK_SECRET=whsec_… go run ./examples/receivers/go
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// event has the members of both schemas that are looked at here.
type event struct {
	ID        string          `json:"id"`
	EventType string          `json:"eventType"` // Event Grid schema
	Type      string          `json:"type"`      // CloudEvents
	Subject   string          `json:"subject"`
	Data      json.RawMessage `json:"data"`
}

// receiver remembers what it has worked off: delivery is at least once. A real one keeps that beside its own data, in
// the same transaction.
type receiver struct {
	verify *standardwebhooks.Webhook // nil: deliveries are not signed
	mu     sync.Mutex
	done   map[string]bool
}

func main() {
	r := &receiver{done: map[string]bool{}}
	if secret := os.Getenv("WEBHOOK_SECRET"); secret != "" {
		verify, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			log.Fatal("WEBHOOK_SECRET: ", err)
		}
		r.verify = verify
	}
	http.HandleFunc("OPTIONS /events", allow)
	http.HandleFunc("POST /events", r.take)
	address := "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "3000")
	fmt.Println("listening on", address)
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// allow answers the handshake of CloudEvents.
func allow(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
}

func (r *receiver) take(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, 8<<20))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusServiceUnavailable)
		return
	}
	events, err := read(body)
	switch kind := request.Header.Get("aeg-event-type"); {
	case err != nil:
		http.Error(w, "no events", http.StatusBadRequest)
	case kind == "SubscriptionValidation": // the handshake of the Event Grid schema, which is not signed
		validate(w, events[0])
	case kind == "SubscriptionDeletion": // nothing will come any more
	case r.verify != nil && r.verify.Verify(body, request.Header) != nil:
		// Not 401: that is never retried, and a wrong secret here would make a dead letter of every event.
		http.Error(w, "the signature is not right", http.StatusServiceUnavailable)
	default:
		for _, e := range events {
			r.once(e)
		}
	}
}

// read takes one event, or an array of them.
func read(body []byte) (events []event, err error) {
	if body = bytes.TrimSpace(body); !bytes.HasPrefix(body, []byte("[")) {
		body = bytes.Join([][]byte{[]byte("["), body, []byte("]")}, nil)
	}
	if err = json.Unmarshal(body, &events); err == nil && len(events) == 0 {
		err = io.ErrUnexpectedEOF
	}
	return events, err
}

func validate(w http.ResponseWriter, e event) {
	var data struct{ ValidationCode string }
	if err := json.Unmarshal(e.Data, &data); err != nil {
		http.Error(w, "no validation code", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"validationResponse": data.ValidationCode})
}

// once works an event off, unless it was before.
func (r *receiver) once(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[e.ID] {
		return
	}
	r.done[e.ID] = true
	fmt.Printf("received %s %s\n", cmp.Or(e.EventType, e.Type), e.ID)
}
