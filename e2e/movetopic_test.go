package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// movePage describes how a topic moves to another service.
const movePage = "docs/operate/scale.md"

// A topic moves to another service with the commands of the page, while publishers use it through a proxy. Every event
// is delivered once, acknowledged once from a queue, and one dead letter of the event subscription that fails.
func TestTopicMovesWhilePublishersUseIt(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bash", "curl", "jq"} {
		tool(t, name, name)
	}
	databases := []*database{migratedDatabase(t), migratedDatabase(t)}
	a, b := startNode(t, databases[0]), startNode(t, databases[1])
	billing, key := newGate(t), a.topic("orders")
	a.subscribe("orders", "billing", billing.url)
	a.subscribe("orders", "rejected", endpointWith(t, http.StatusBadRequest))
	a.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/ledger",
		`{"deliveryConfiguration":{"deliveryMode":"Queue"}}`)
	proxy := startRoute(t, a.api)
	publishing := startPublishers(t, &service{api: proxy.url}, "orders", key, 4)
	eventually(t, "A has a backlog", func() bool { return proxy.acceptedBy(a.api) >= 100 && billing.held() > 0 })

	var received atomic.Int64
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/switch_publishers":
			proxy.routeTo(b.api)
			billing.open()
		case "/consumers_finish":
			n, err := acknowledgeAll(t, databases[0])
			if received.Add(int64(n)); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	}))
	t.Cleanup(hooks.Close)
	dir := pageFolder(t)
	for _, name := range []string{"switch_publishers", "consumers_finish"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", name),
			[]byte("#!/bin/sh\nexec curl --silent --show-error --fail-with-body "+hooks.URL+"/"+name+"\n"), 0o755))
	}
	env := slices.DeleteFunc(ownEnvironment(), func(pair string) bool {
		return strings.HasPrefix(pair, "PATH=") || strings.HasPrefix(pair, "HOME=")
	})
	before, err := os.ReadFile("testdata/docsrun.sh")
	require.NoError(t, err)
	typeScript(t, movePage, append(env, "HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"),
		"PROGRAM="+program, "A="+a.api, "B="+b.api, "A_KEY="+testAdminToken, "B_KEY="+testAdminToken), dir,
		string(before)+pageScript(movePage, fromRoot(t, movePage), dir))

	eventually(t, "publishers use B", func() bool { return proxy.acceptedBy(b.api) >= 20 })
	proxy.routeTo("")
	publishing.working.Wait()
	require.Empty(t, proxy.failures(), "publishers noticed nothing")
	accepted := proxy.acceptedBy(a.api) + proxy.acceptedBy(b.api)
	const openDeadLetters = "SELECT count(*) FROM postrider.dead_letters WHERE topic = 'orders' AND state = 'open'"
	eventually(t, "every event is a dead letter at B", databases[1].atLeast(accepted, openDeadLetters))
	// The endpoint also gets the event about the deletion of its event subscription at A, which no one published.
	eventually(t, "every event has arrived", func() bool { return len(billing.arrivalsSoFar()) == accepted+1 })
	verdict := publishing.compare(billing)
	require.Empty(t, verdict.Lost)
	require.Zero(t, verdict.Duplicates)
	require.Equal(t, []int{accepted, accepted + 1}, []int{verdict.Published, verdict.Received})
	require.Len(t, verdict.Unacknowledged, 1)
	require.Equal(t, accepted, one[int](databases[1], openDeadLetters))
	require.EqualValues(t, proxy.acceptedBy(a.api), received.Load())
	n, err := acknowledgeAll(t, databases[1])
	require.NoError(t, err)
	require.Equal(t, proxy.acceptedBy(b.api), n)
	require.Zero(t, one[int](databases[0], openDeadLetters))
	a.manage(http.StatusNotFound, http.MethodGet, "/v1/topics/orders", "")
}

// acknowledgeAll receives and acknowledges the events of queue ledger until there are none.
func acknowledgeAll(t *testing.T, db *database) (int, error) {
	t.Helper()
	for n := 0; ; {
		var tokens []string
		err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
			rows, _ := tx.Query(t.Context(), "SELECT lock_token FROM postrider.receive('orders', 'ledger', 1000)")
			var err error
			if tokens, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(tokens) == 0 {
				return err
			}
			_, err = tx.Exec(t.Context(), "SELECT postrider.acknowledge($1)", tokens)
			return err
		})
		if err != nil || len(tokens) == 0 {
			return n, err
		}
		n += len(tokens)
	}
}

// route is a proxy before services. It routes every request to one of them.
type route struct {
	url string

	mu       sync.Mutex
	to       *url.URL // nil: it rejects requests
	running  *sync.WaitGroup
	accepted map[string]int // by the service's URL: responses 200
	failed   []string       // others
}

func startRoute(t *testing.T, to string) *route {
	t.Helper()
	r := &route{accepted: map[string]int{}}
	r.routeTo(to)
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// ServeHTTP implements http.Handler.
func (r *route) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	to, done := r.enter()
	defer done()
	if to == nil {
		http.Error(w, "closed", http.StatusServiceUnavailable)
		return
	}
	(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) },
		ModifyResponse: func(response *http.Response) error {
			r.note(to.String(), response.StatusCode)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			r.note(to.String()+": "+err.Error(), http.StatusBadGateway)
			w.WriteHeader(http.StatusBadGateway)
		},
	}).ServeHTTP(w, request)
}

func (r *route) enter() (to *url.URL, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running.Add(1)
	return r.to, r.running.Done
}

func (r *route) note(service string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if status == http.StatusOK {
		r.accepted[service]++
		return
	}
	r.failed = append(r.failed, fmt.Sprintf("%d from %s", status, service))
}

// routeTo routes further requests to a service, or rejects them, and waits for the others.
func (r *route) routeTo(service string) {
	to, _ := url.Parse(service)
	if service == "" {
		to = nil
	}
	r.mu.Lock()
	running := r.running
	r.to, r.running = to, &sync.WaitGroup{}
	r.mu.Unlock()
	if running != nil {
		running.Wait()
	}
}

func (r *route) acceptedBy(service string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accepted[service]
}

func (r *route) failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
