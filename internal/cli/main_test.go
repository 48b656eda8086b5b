package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli"
	"postrider/internal/cli/rest"
	"postrider/internal/node"
	"postrider/internal/terminal"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/server"
)

func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "POSTRIDER_") {
			_ = os.Unsetenv(name)
		}
	}
	os.Exit(testdb.Run(m, testnode.Template()))
}

const (
	adminToken = "admin-token-of-the-tests-7f3b91c2d05e"
	zeroID     = "00000000-0000-0000-0000-000000000000"
)

// result is the exit code of a verb, and what it printed.
type result struct {
	code           int
	stdout, stderr string
}

func runVerb(ctx context.Context, std terminal.Streams, args ...string) int {
	all := cli.NewVerbs()
	return cli.Program{Verbs: &all}.Run(ctx, std, args)
}

// postrider runs a verb in this process, with nothing at standard input.
func postrider(t *testing.T, args ...string) result { return typed(t, strings.NewReader(""), args...) }

// typed is postrider with something at standard input.
func typed(t *testing.T, stdin io.Reader, args ...string) result {
	t.Helper()
	var stdout, stderr strings.Builder
	code := runVerb(t.Context(), terminal.Streams{In: stdin, Out: &stdout, Err: &stderr}, args...)
	return result{code, stdout.String(), stderr.String()}
}

// host is a server with its own node and database.
type host struct {
	*testnode.Node

	t   *testing.T
	url string
}

// newHost is a server without an engine: nothing is delivered.
func newHost(t *testing.T) *host {
	t.Helper()
	return startHost(t, node.Options{Node: "test"})
}

// newDelivering is a server with an engine.
func newDelivering(t *testing.T) *host {
	t.Helper()
	h := startHost(t, node.Options{Node: "test", MaxWorkers: 20})
	h.Start(t, func(o *jobs.Options) { o.HandshakePause = time.Millisecond })
	return h
}

func startHost(t *testing.T, o node.Options) *host {
	t.Helper()
	tn := testnode.Open(t, testdb.New(t), o)
	api, err := server.New(server.Options{
		Parts: tn.System.API(), AdminToken: adminToken, Logger: slog.New(slog.DiscardHandler),
		AllowCIDR: testnode.Loopback,
	})
	require.NoError(t, err)
	listener := httptest.NewServer(api.Handler())
	t.Cleanup(listener.Close)
	return &host{tn, t, listener.URL}
}

// reached returns the arguments with the flags for this server.
func (h *host) reached(args []string) []string {
	args = slices.Clone(args)
	for flag, value := range map[string]string{"--url": h.url, "--api-key": adminToken} {
		if !slices.Contains(args, flag) {
			args = append(args, flag, value)
		}
	}
	return args
}

// run runs a verb on this server and requires its exit code.
func (h *host) run(code int, args ...string) result {
	h.t.Helper()
	r := postrider(h.t, h.reached(args)...)
	require.Equal(h.t, code, r.code, "%q: %s%s", args, r.stdout, r.stderr)
	return r
}

// line is run for a command line of words without spaces, and returns everything that was printed.
func (h *host) line(code int, line string) string {
	h.t.Helper()
	r := h.run(code, strings.Fields(line)...)
	return r.stdout + r.stderr
}

// object is run for an object in JSON.
func (h *host) object(args ...string) (o rest.Object) {
	h.t.Helper()
	require.NoError(h.t, json.Unmarshal([]byte(h.run(0, append(args, "-o", "json")...).stdout), &o))
	return o
}

// output is what a running verb has printed so far.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed and replaced by each write
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(text)
}

func (o *output) read() (text string, changed <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

// await waits for n lines that contain a text, and returns them.
func (o *output) await(t *testing.T, n int, part string) []string {
	t.Helper()
	timeout := time.After(testnode.Timeout)
	for {
		text, changed := o.read()
		var lines []string
		for line := range strings.Lines(text) {
			if strings.Contains(line, part) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		if len(lines) >= n {
			return lines
		}
		select {
		case <-changed:
		case <-timeout:
			require.FailNow(t, "not printed", "%d times %q in %s", n, part, text)
		}
	}
}

// running is a verb that runs until it is stopped.
type running struct {
	stdout, stderr output
	stop           func() (code int)
}

// start runs a verb on this server until stop, or the end of the test.
func (h *host) start(args ...string) *running {
	ctx, cancel := context.WithCancel(h.t.Context())
	r := &running{stdout: output{changed: make(chan struct{})}, stderr: output{changed: make(chan struct{})}}
	ended := make(chan int, 1)
	go func() {
		ended <- runVerb(ctx, terminal.Streams{In: strings.NewReader(""), Out: &r.stdout, Err: &r.stderr}, h.reached(args)...)
	}()
	r.stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	h.t.Cleanup(func() { r.stop() })
	return r
}

// one reads a row of one column.
func one[T any](h *host, query string, args ...any) (value T) {
	h.t.Helper()
	require.NoError(h.t, h.Pool.QueryRow(h.t.Context(), query, args...).Scan(&value), query)
	return value
}

// manage makes a management request and requires its status.
func (h *host) manage(status int, method, path, body string) string {
	h.t.Helper()
	return h.request(status, method, path, body, "Authorization", "Bearer "+adminToken)
}

// request makes a request; headers are pairs of name and value.
func (h *host) request(status int, method, path, body string, headers ...string) string {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	require.NoError(h.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := testClient.Do(r)
	require.NoError(h.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(h.t, err)
	require.Equal(h.t, status, response.StatusCode, "%s %s: %s", method, path, text)
	return string(text)
}

// testClient has its own connections: the end of any httptest.Server closes those of http.DefaultTransport.
var testClient = &http.Client{Transport: &http.Transport{}}

// topic creates a topic for CloudEvents and returns its access key.
func (h *host) topic(name string) string {
	h.t.Helper()
	var created struct{ Key1 string }
	text := h.manage(http.StatusCreated, http.MethodPut, "/v1/topics/"+name, `{"inputSchema":"CloudEventSchemaV1_0"}`)
	require.NoError(h.t, json.Unmarshal([]byte(text), &created))
	return created.Key1
}

// subscribe creates an event subscription without a handshake. settings are further members of the request.
func (h *host) subscribe(topic, name, endpoint string, settings ...string) {
	h.t.Helper()
	h.manage(http.StatusCreated, http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+name, fmt.Sprintf(
		`{"endpointUrl":%q,"endpointValidation":"skip"%s}`, cmp.Or(endpoint, "http://127.0.0.1:1/"),
		strings.Join(settings, "")))
}

// billing is a server with the event subscription billing of topic orders, whose access key it returns.
func billing(t *testing.T, settings ...string) (h *host, key string) {
	t.Helper()
	h = newHost(t)
	key = h.topic("orders")
	h.subscribe("orders", "billing", "", settings...)
	return h, key
}

// pause has the deliveries of billing wait: times that pass would differ from response to response.
func (h *host) pause() {
	h.t.Helper()
	h.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/billing/pause", "")
}

// publish publishes CloudEvents.
func (h *host) publish(topic, key string, events ...string) {
	h.t.Helper()
	for _, event := range events {
		h.request(http.StatusOK, http.MethodPost, "/topics/"+topic+"/api/events", event, "Aeg-Sas-Key", key, "Content-Type",
			"application/cloudevents+json")
	}
}

// cloudEvent has what a careless program would change: spaces, an exponent and escapes.
func cloudEvent(id string) string {
	return fmt.Sprintf(`{ "specversion":"1.0","id":%q,"source":"/shop", "type":"shop.order.placed","data":{"n":1.50e2,`+
		`"text":"\u00e9\u0000/\/"} }`, id)
}

// order is a CloudEvent with what a terminal interprets: a color in its subject, a C1 control character in its id.
func order(id string, total int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s\u009b","source":"/shop","type":"shop.order",`+
		`"subject":"\u001b[31morders/%s","data":{"total":%d}}`, id, id, total)
}

// deadLetters stores n dead letters of each event subscription.
func (h *host) deadLetters(n int) (ids []string) {
	h.t.Helper()
	for i := range n {
		id := fmt.Sprintf("0198c5a0-7b1e-7c3a-9d52-%012d", i)
		h.Exec(h.t, `INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id,
			    topic_id, topic, subscription, endpoint_base_url, reason, attempts, last_status, time_to_live_since,
			    published_at, event_uuid, event_id, event_type, subject, source, data_version, schema, retry_policy, body)
			SELECT $1::uuid, now() - interval '1 hour' + $2::int * interval '1 second', $2::int, s.id, s.topic_id,
			    'orders', 'billing', 'https://example.com', 'MaxDeliveryAttemptsExceeded', 30, 503, now(),
			    now(), gen_random_uuid(), 'e-' || $2::int,
			    'Shop.OrderPlaced', 'orders/' || $2::int, '', '1', 'EventGridSchema', 'ga-2021', convert_to($3::text, 'UTF8')
			FROM postrider_internal.event_subscriptions s`, id, i, fmt.Sprintf(`{"id":"e-%d"}`, i))
		ids = append(ids, id)
	}
	return ids
}

func writtenFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.json")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	encoded, err := json.Marshal(value)
	require.NoError(t, err)
	return string(encoded)
}

// words are the lines of a text with one space between their words.
func words(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}
