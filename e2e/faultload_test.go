package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/ledger"
)

// faultDestination is one event subscription under fault, and what its endpoint does. Together they take an event along
// every way that there is: delivered, delivered after retries of both kinds, in batches, after a hold, and
// dead-lettered.
type faultDestination struct {
	name string
	// types are the event types that it matches.
	types []string
	batch int
	// policy of retriesAfter; failures are the attempts with response 503 before one succeeds.
	policy   string
	failures int
	// rejects responds 400: never retried, a dead letter.
	rejects bool
	// takes is the response time, so that many requests are in progress when a node dies.
	takes time.Duration
}

const pausedLane = "paused" // is paused and resumed

var faultDestinations = []faultDestination{
	{name: "plain", types: []string{"plain", "both"}, policy: "soon"},
	{name: "slow", types: []string{"slow"}, policy: "soon", takes: 100 * time.Millisecond},
	{name: "batch", types: []string{"batch", "both"}, policy: "soon", batch: 20, takes: 5 * time.Millisecond},
	{name: "soon", types: []string{"soon"}, policy: "soon", failures: 2},
	{name: "later", types: []string{"later"}, policy: "later", failures: 1}, // waits long enough to need a promotion
	{name: "rejected", types: []string{"rejected"}, policy: "soon", rejects: true},
	{name: pausedLane, types: []string{pausedLane}, policy: "soon"},
}

// faultMix are the types of the events that are published, in turn.
var faultMix = strings.Fields(`plain batch plain slow plain both later plain batch plain soon plain batch paused ` +
	`plain both plain batch plain plain
	plain batch plain slow plain both later plain batch plain later plain batch paused plain both plain batch ` +
	`rejected plain`)

func matching(eventType string) (destinations []string) {
	for _, destination := range faultDestinations {
		for _, t := range destination.types {
			if t == eventType {
				destinations = append(destinations, destination.name)
			}
		}
	}
	return destinations
}

// faultEvent is a CloudEvent with what a careless program would change, see cloudEvent.
func faultEvent(id, eventType string) string {
	return fmt.Sprintf(`{ "specversion":"1.0","id":%q,"source":"/shop", "type":%q,"data":{"n":1.50e2,`+
		`"text":"\u00e9\u0000/\/"} }`, id, eventType)
}

// faultSQLEvent is one as PostgreSQL's jsonb writes it.
func faultSQLEvent(id, eventType string) string {
	return fmt.Sprintf(`{"id": %q, "data": {"n": 1.50, "text": "é"}, "type": %q, "source": "/shop", "specversion": "1.0"}`,
		id, eventType)
}

// faultSink is the endpoint of all destinations. It notes an event when it is about to acknowledge it; what the
// rejecting destination rejects, too.
type faultSink struct {
	url    string
	ledger *book
	latest atomic.Int64 // arrival, nanoseconds

	mu     sync.Mutex
	seen   map[string]bool
	twice  []string
	failed error
}

func newFaultSink(t *testing.T) *faultSink {
	t.Helper()
	s := &faultSink{ledger: newBook(t), seen: map[string]bool{}}
	mux := http.NewServeMux()
	for _, destination := range faultDestinations {
		mux.HandleFunc("POST /"+destination.name, func(w http.ResponseWriter, r *http.Request) {
			s.serve(w, r, &destination)
		})
	}
	server := httptest.NewServer(mux)
	s.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

func (s *faultSink) serve(w http.ResponseWriter, r *http.Request, destination *faultDestination) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // a request that was cut
	}
	events, err := faultEvents(body)
	if err != nil {
		s.fail(fmt.Errorf("destination %s: %w: %q", destination.name, err, body))
		return
	}
	if made, _ := strconv.Atoi(r.Header.Get("Aeg-Delivery-Count")); made < destination.failures {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if destination.takes > 0 {
		select {
		case <-time.After(destination.takes):
		case <-r.Context().Done():
			return // canceled: no client would get the response
		}
	}
	for _, event := range events {
		s.note(destination.name, event)
	}
	if destination.rejects {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// faultEvents are the events of a body, byte for byte.
func faultEvents(body []byte) (events []json.RawMessage, err error) {
	if bytes.HasPrefix(body, []byte("[")) {
		return events, json.Unmarshal(body, &events)
	}
	return []json.RawMessage{body}, nil
}

func (s *faultSink) note(destination string, event []byte) {
	var named struct{ ID string }
	if err := json.Unmarshal(event, &named); err != nil {
		s.fail(err)
		return
	}
	name := destination + "/" + named.ID
	if err := s.ledger.Note(name, sha256.Sum256(event)); err != nil {
		s.fail(err)
	}
	s.latest.Store(time.Now().UnixNano())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[name] {
		s.twice = append(s.twice, name)
	}
	s.seen[name] = true
}

func (s *faultSink) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[name]
}

func (s *faultSink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

// faultLoad publishes to the running nodes, and notes each event after its response 200: once for each expected
// delivery.
type faultLoad struct {
	key    string
	db     *database
	ledger *book
	apis   func() []string // of the nodes that are ready
	period *atomic.Int32
	full   func() bool  // too many deliveries are pending: pause publishing
	acked  atomic.Int64 // events

	over    context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup

	mu     sync.Mutex
	failed error
}

// faultShape is the amount of published events.
type faultShape struct {
	clients, events int           // events of a request; half of the clients publish one at a time
	pause           time.Duration // of a client between two requests
	routed          int           // events of the requests that are routed
	every           int           // requests of a client between two of those
	backlog         int64         // unfinished deliveries above which nothing is published
}

func startFaultLoad(t *testing.T, l *faultLoad, shape faultShape) *faultLoad {
	t.Helper()
	l.ledger = newBook(t)
	ctx, cancel := context.WithCancel(t.Context())
	l.over, l.cancel = ctx, cancel
	for client := range shape.clients {
		l.working.Go(func() { l.publish(ctx, client, shape) })
	}
	t.Cleanup(l.stop)
	return l
}

func (l *faultLoad) stop() {
	l.cancel()
	l.working.Wait()
}

func (l *faultLoad) ended() bool { return l.over.Err() != nil }

func (l *faultLoad) publish(ctx context.Context, client int, shape faultShape) {
	for request, n := 0, 0; ctx.Err() == nil; request++ {
		events := shape.events
		switch {
		case request%shape.every == shape.every-1:
			events = shape.routed
		case client%2 == 1:
			events = 1
		}
		text, send := faultEvent, l.send
		if request%shape.every == shape.every/2 {
			text, send = faultSQLEvent, l.sendBySQL
		}
		batch := make([]faultSent, events)
		for i := range batch {
			batch[i] = newFaultSent(fmt.Sprintf("k%d-c%d-%d", l.period.Load(), client, n), faultMix[n%len(faultMix)], text)
			n++
		}
		apis := l.apis()
		pause := shape.pause
		if l.full() || len(apis) == 0 || !send(ctx, apis[request%len(apis)], batch) {
			pause = max(pause, 20*time.Millisecond)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// faultSent is one event on its way to a node.
type faultSent struct {
	id, eventType, text string
	hash                ledger.Hash
}

func newFaultSent(id, eventType string, write func(id, eventType string) string) faultSent {
	text := write(id, eventType)
	return faultSent{id: id, eventType: eventType, text: text, hash: sha256.Sum256([]byte(text))}
}

func arrayOf(batch []faultSent) string {
	texts := make([]string, len(batch))
	for i := range batch {
		texts[i] = batch[i].text
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// send reports whether the events were accepted. Those of a request without a response may be stored: they are noted
// nowhere.
func (l *faultLoad) send(ctx context.Context, api string, batch []faultSent) bool {
	body := batch[0].text
	if len(batch) > 1 {
		body = arrayOf(batch)
	}
	status, text, err := postEvents(ctx, api, "orders", l.key, body)
	switch {
	case err != nil || status == http.StatusServiceUnavailable:
		return false
	case status != http.StatusOK:
		l.fail(fmt.Errorf("the response to a publish was %d %s", status, text))
		return false
	}
	l.note(batch)
	return true
}

// sendBySQL publishes without any node, in a transaction of its own.
func (l *faultLoad) sendBySQL(ctx context.Context, _ string, batch []faultSent) bool {
	if _, err := l.db.pool.Exec(ctx, "SELECT postrider.publish_batch('orders', $1::jsonb)", arrayOf(batch)); err != nil {
		if ctx.Err() == nil {
			l.fail(fmt.Errorf("publishing by SQL: %w", err))
		}
		return false
	}
	l.note(batch)
	return true
}

func (l *faultLoad) note(batch []faultSent) {
	for i := range batch {
		for _, destination := range matching(batch[i].eventType) {
			if err := l.ledger.Note(destination+"/"+batch[i].id, batch[i].hash); err != nil {
				l.fail(err)
			}
		}
	}
	l.acked.Add(int64(len(batch)))
}

func (l *faultLoad) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
}

// compare holds the two ledgers against each other, once nothing is published and delivered any more.
func (l *faultLoad) compare(t *testing.T, s *faultSink) ledger.Verdict {
	t.Helper()
	require.NoError(t, l.failed)
	require.NoError(t, s.failed)
	return compareBooks(t, l.ledger, s.ledger)
}
