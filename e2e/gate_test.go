package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/ledger"
)

// gate is an endpoint in the test's own process. It holds every request until it is opened, then responds 200,
// and keeps a ledger of the acknowledged events.
type gate struct {
	t      *testing.T
	url    string
	ledger *book
	opened chan struct{}
	passes chan struct{} // lets one request through each

	mu       sync.Mutex
	holding  int
	arrivals map[string][]time.Time
	cut      []string // events whose request ended while it was held
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{
		t: t, ledger: newBook(t), opened: make(chan struct{}), passes: make(chan struct{}, 1000),
		arrivals: map[string][]time.Time{},
	}
	server := httptest.NewServer(g)
	g.url = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return g
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var event struct{ ID string }
	if err != nil || json.Unmarshal(body, &event) != nil {
		http.Error(w, "not one event", http.StatusBadRequest)
		return
	}
	g.arrived(event.ID)
	select {
	case <-g.opened:
	case <-g.passes:
	case <-r.Context().Done():
	}
	if g.left(event.ID, r.Context().Err() != nil) {
		return
	}
	if err := g.ledger.Note(event.ID, sha256.Sum256(body)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (g *gate) arrived(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding++
	g.arrivals[id] = append(g.arrivals[id], time.Now())
}

func (g *gate) left(id string, cut bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holding--
	if cut {
		g.cut = append(g.cut, id)
	}
	return cut
}

func (g *gate) open() { close(g.opened) }

// letPass responds to n of the held requests.
func (g *gate) letPass(n int) {
	for range n {
		g.passes <- struct{}{}
	}
}

func (g *gate) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.holding
}

// cutIDs are the events whose request was cut so far.
func (g *gate) cutIDs() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string{}, g.cut...)
}

// arrivalsSoFar are the events that arrived, in no order.
func (g *gate) arrivalsSoFar() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.arrivals))
}

// again is when the event arrived for the second time; zero before.
func (g *gate) again(id string) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if times := g.arrivals[id]; len(times) > 1 {
		return times[1]
	}
	return time.Time{}
}

// publishers post events one by one until they are rejected, and note each after its 200.
type publishers struct {
	t       *testing.T
	ledger  *book
	working sync.WaitGroup
}

// publishPause is a publisher's between two events: some 400 events/s of four are enough to meet a kill.
const publishPause = 8 * time.Millisecond

func startPublishers(t *testing.T, s *service, topic, key string, clients int) *publishers {
	t.Helper()
	p := &publishers{t: t, ledger: newBook(t)}
	ctx, cancel := context.WithCancel(t.Context())
	for client := range clients {
		p.working.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("c%d-%d", client, n)
				event := cloudEvent(id)
				status, _, err := postEvents(ctx, s.api, topic, key, event)
				if err != nil || status != http.StatusOK || p.ledger.Note(id, sha256.Sum256([]byte(event))) != nil {
					return
				}
				<-time.After(publishPause)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		p.working.Wait()
	})
	return p
}

// compare waits for the publishers.
func (p *publishers) compare(g *gate) ledger.Verdict {
	p.t.Helper()
	p.working.Wait()
	return compareBooks(p.t, p.ledger, g.ledger)
}

// book is a ledger and its file.
type book struct {
	*ledger.Ledger
	file string
}

func newBook(t *testing.T) *book {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ledger")
	l, err := ledger.Open(file)
	require.NoError(t, err)
	return &book{l, file}
}

// compareBooks closes both ledgers and holds them against each other.
func compareBooks(t *testing.T, published, received *book) ledger.Verdict {
	t.Helper()
	require.NoError(t, published.Close())
	require.NoError(t, received.Close())
	verdict, err := ledger.CompareFiles(published.file, received.file)
	require.NoError(t, err)
	return verdict
}
