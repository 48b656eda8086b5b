// Command receiver receives deliveries of postrider. It responds to both validation handshakes, verifies signatures and
// processes each event once.
//
//	PORT=3000 WEBHOOK_SECRET=whsec_… go run ./deploy/examples/receivers/go
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

// event has the members of both schemas that this example uses.
type event struct {
	ID        string          `json:"id"`
	EventType string          `json:"eventType"` // Event Grid schema
	Type      string          `json:"type"`      // CloudEvents
	Source    string          `json:"source"`    // CloudEvents
	Topic     string          `json:"topic"`     // Event Grid schema
	Data      json.RawMessage `json:"data"`
}

// receiver remembers the events that it has processed, because delivery is at least once. A real receiver stores that
// in the transaction of its own data.
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
	http.HandleFunc("POST /events", r.receive)
	address := "127.0.0.1:" + cmp.Or(os.Getenv("PORT"), "3000")
	fmt.Println("listening on", address)
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// allow responds to the CloudEvents handshake.
func allow(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, 8<<20))
	if err != nil {
		http.Error(w, "the body could not be read", http.StatusServiceUnavailable)
		return
	}
	events, err := read(body)
	switch kind := request.Header.Get("aeg-event-type"); {
	case err != nil:
		http.Error(w, "the body has no events", http.StatusBadRequest)
	case kind == "SubscriptionValidation": // the Event Grid handshake, which is not signed
		validate(w, events[0])
	case kind == "SubscriptionDeletion": // no more deliveries follow
	case r.verify != nil && r.verify.Verify(body, request.Header) != nil:
		// Not 401, which is never retried: with a wrong secret, every event would become a dead letter.
		http.Error(w, "invalid signature", http.StatusServiceUnavailable)
	default:
		systemID := request.Header.Get("aeg-output-event-id")
		for _, e := range events {
			r.once(e, cmp.Or(systemID, cmp.Or(e.Source, e.Topic)+" "+e.ID))
		}
	}
}

// read parses one event, or an array of events.
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

// once processes an event, unless it was processed before. The key is postrider's own id of the event. A batch has
// none, so the key is the event's source, or its topic, and its id: two publishers can choose the same id.
func (r *receiver) once(e event, key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done[key] {
		return
	}
	r.done[key] = true
	fmt.Printf("received %s %s\n", cmp.Or(e.EventType, e.Type), e.ID)
}
