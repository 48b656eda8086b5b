package jobs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs/publish"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for an endpoint or a heartbeat: two at once on two cores would take five times as long.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := testdb.Run(m, testnode.Template())
	// Engines, stores and endpoints must be closed.
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const (
	topicName = "orders"
	tick      = 10 * time.Millisecond
)

// setup creates a database with one topic of the Event Grid schema.
func setup(t *testing.T) *testnode.Node {
	t.Helper()
	return setupTopic(t, event.EventGrid)
}

// setupTopic creates a database with one topic.
func setupTopic(t *testing.T, schema event.Schema) *testnode.Node {
	t.Helper()
	return setupSpec(t, catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: schema})
}

// setupSpec creates a database with one topic.
func setupSpec(t *testing.T, topic catalog.TopicSpec) *testnode.Node {
	t.Helper()
	tn := testnode.New(t)
	putTopic(t, tn, topicName, topic)
	return tn
}

// putTopic creates another topic.
func putTopic(t *testing.T, tn *testnode.Node, name string, topic catalog.TopicSpec) {
	t.Helper()
	_, _, err := tn.System.Topics.Put(t.Context(), name, topic)
	require.NoError(t, err)
}

// useWorkers replaces the parts of the node by some with n workers.
func useWorkers(t *testing.T, tn *testnode.Node, n int) {
	t.Helper()
	tn.System = tn.Beside(t, node.Options{Node: "node-1", MaxWorkers: n}).System // the invariants need the pool
}

// subscribe creates an event subscription for all events of the topic.
func subscribe(
	t *testing.T, tn *testnode.Node, name, url string, change func(*catalog.SubscriptionSpec),
) *catalog.Subscription {
	t.Helper()
	return subscribeTo(t, tn, topicName, name, url, change)
}

// subscribeTo creates an event subscription of another topic.
func subscribeTo(
	t *testing.T, tn *testnode.Node, topic, name, url string, change func(*catalog.SubscriptionSpec),
) *catalog.Subscription {
	t.Helper()
	return tn.Subscribe(t, topic, name, func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = url
		if change != nil {
			change(s)
		}
	})
}

// under sets the retry policy of an event subscription.
func under(retryPolicy string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.RetryPolicy.Policy = retryPolicy }
}

// eventGridBody is an event as a publisher writes it; data is JSON text.
func eventGridBody(id, data string) string {
	return fmt.Sprintf(`{"id":%q,"subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z",`+
		`"dataVersion":"2.1","data":%s}`, id, data)
}

// publish stores one request's body as the server would.
func publishBody(t *testing.T, tn *testnode.Node, contentType, body string) *publish.Receipt {
	t.Helper()
	return publishRequest(t, tn, http.Header{"Content-Type": {contentType}}, body)
}

// publishRequest stores one request as the server would.
func publishRequest(t *testing.T, tn *testnode.Node, header http.Header, body string) *publish.Receipt {
	t.Helper()
	return publishTo(t, tn, topicName, header, body)
}

// publishTo stores one request to another topic.
func publishTo(t *testing.T, tn *testnode.Node, topic string, header http.Header, body string) *publish.Receipt {
	t.Helper()
	receipt, err := tn.System.Publisher.Publish(t.Context(),
		publish.Publication{Topic: topic, Parse: func(topic *catalog.Topic) ([]event.Event, error) {
			in := event.Input{
				Schema: topic.InputSchema, Topic: topic.Name, Mapping: topic.InputSchemaMapping, AnyTopic: topic.Relays(),
				NewID: uuid.NewString, Now: time.Now(),
			}
			return in.ParseRequest(header, []byte(body))
		}})
	require.NoError(t, err)
	return receipt
}

// publishOne stores one Event Grid event.
func publishOne(t *testing.T, tn *testnode.Node, id string) *publish.Receipt {
	t.Helper()
	return publishBody(t, tn, "application/json", "["+eventGridBody(id, "{}")+"]")
}

// only selects the events of one type: those of publishOne have the type test.
func only(eventType string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) { s.Filter.IncludedEventTypes = []string{eventType} }
}

// publishOther stores one event of the type other.
func publishOther(t *testing.T, tn *testnode.Node, id string) {
	t.Helper()
	publishBody(t, tn, jsonType, "["+strings.Replace(eventGridBody(id, "{}"), `"test"`, `"other"`, 1)+"]")
}

// dropping has no destination for dead letters.
func dropping(s *catalog.SubscriptionSpec) {
	s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
}

// copyPolicy copies a retry policy with some settings changed, by SQL.
func copyPolicy(t *testing.T, tn *testnode.Node, from, to, changes string) {
	t.Helper()
	tn.Exec(t, `INSERT INTO postrider_internal.retry_policies (name, settings)
		SELECT $2, settings || $3::jsonb || jsonb_build_object('probation',
		           settings -> 'probation' || coalesce($3::jsonb -> 'probation', '{}'))
		  FROM postrider_internal.retry_policies WHERE name = $1`, from, to, changes)
	tn.Exec(t, `INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action, min_delay)
		SELECT $2, endpoint_kind, condition, action, min_delay FROM postrider_internal.retry_policy_cells WHERE policy = $1`,
		from, to)
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
}

// withoutProbation switches probation off, for tests of many failures at one endpoint.
func withoutProbation(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Exec(t, "UPDATE postrider_internal.retry_policies "+
		`SET settings = jsonb_set(settings, '{probation,scope}', '"none"')`)
	require.NoError(t, tn.System.Cache.Reload(t.Context()))
}

// olderBy moves the times of deliveries without attempts into the past.
const olderBy = `UPDATE postrider_internal.deliveries SET time_to_live_since = time_to_live_since - $1::interval,
	next_attempt_at = next_attempt_at - $1::interval`

// travelStatement makes the next attempt of each waiting delivery due now: all its times move into the past by the
// remaining wait, those of recorded attempts too, so that they stay consistent.
const travelStatement = `
WITH waiting AS (
    SELECT o.id, o.job_id, o.next_attempt_at - now() AS wait FROM postrider_internal.deliveries o
      JOIN postrider_internal.river_job j ON j.id = o.job_id AND j.state IN ('scheduled', 'available', 'retryable')
     WHERE o.next_attempt_at > now() FOR UPDATE
), attempts AS (
    UPDATE postrider_internal.delivery_attempts a SET started_at = started_at - wait,
        next_attempt_at = next_attempt_at - wait
      FROM waiting WHERE a.delivery_id = waiting.id
), deliveries AS (
    UPDATE postrider_internal.deliveries d SET time_to_live_since = time_to_live_since - wait,
        first_attempt_at = first_attempt_at - wait, last_attempt_at = last_attempt_at - wait,
        next_attempt_at = next_attempt_at - wait, not_before = not_before - wait
      FROM waiting WHERE d.id = waiting.id
), due AS (
    UPDATE postrider_internal.river_job j SET scheduled_at = now(), state = 'available' FROM waiting
    WHERE j.id = waiting.job_id
)
SELECT count(*) FROM waiting`

// travelBatches is the same for batches with their members. The time at which a batch was cut stays: it is part of its
// message id.
var travelBatches = strings.NewReplacer(
	"postrider_internal.deliveries o", "postrider_internal.batches o", "a.delivery_id", "a.batch_id",
	", not_before = not_before - wait", "", "d.id =", "d.batch_id =",
	"), due AS", `), batches AS (
    UPDATE postrider_internal.batches b SET first_attempt_at = first_attempt_at - wait,
        last_attempt_at = last_attempt_at - wait, next_attempt_at = next_attempt_at - wait,
        not_before = not_before - wait FROM waiting WHERE b.id = waiting.id
), members AS (
    UPDATE postrider_internal.left_members m SET left_at = left_at - wait FROM waiting WHERE m.batch_id = waiting.id
), due AS`).Replace(travelStatement)

// makeDue makes the next attempt of every waiting delivery and batch due, and returns their number.
func makeDue(t *testing.T, tn *testnode.Node) int {
	t.Helper()
	n := tn.Count(t, travelStatement) + tn.Count(t, travelBatches)
	tn.Exec(t, `SELECT pg_notify('postrider_internal.river_insert', '{"queue":"deliveries"}')`)
	return n
}

// settle waits until nothing is due or waits at the gate: every possible attempt was recorded.
func settle(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Become(t, 0, `SELECT (SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running'
		    OR (state IN ('available', 'scheduled', 'retryable') AND scheduled_at <= now()))
		+ (SELECT count(*) FROM postrider_internal.deliveries WHERE hold = 'admission')
		+ (SELECT count(*) FROM postrider_internal.batches WHERE hold = 'admission')`)
}

// endpoint is an HTTP server that records its requests.
type endpoint struct {
	*httptest.Server
	mu   sync.Mutex
	seen []request
}

type request struct {
	method, uri string
	header      http.Header
	body        string
}

// eventID is the id of the event in the body, alone or in an array of one.
func (r request) eventID() string {
	var e struct{ ID string }
	_ = json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(r.body, "["), "]")), &e)
	return e.ID
}

// newEndpoint serves until the test ends. It calls respond once the request was read and recorded.
func newEndpoint(t *testing.T, respond func(http.ResponseWriter, request)) *endpoint {
	t.Helper()
	e := &endpoint{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // cut by the client
		}
		got := request{method: r.Method, uri: r.RequestURI, header: r.Header.Clone(), body: string(body)}
		e.mu.Lock()
		e.seen = append(e.seen, got)
		e.mu.Unlock()
		respond(w, got)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) requests() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

// delivered returns the requests with events, without validation and deletion events.
func (e *endpoint) delivered() []request {
	return slices.DeleteFunc(e.requests(),
		func(r request) bool { return r.header.Get("Aeg-Event-Type") != "Notification" })
}

// respondWith responds with one status.
func respondWith(status int) func(http.ResponseWriter, request) {
	return func(w http.ResponseWriter, _ request) { w.WriteHeader(status) }
}

// statusOfPath responds to /503 with 503.
func statusOfPath(w http.ResponseWriter, r request) {
	status, err := strconv.Atoi(strings.TrimPrefix(r.uri, "/"))
	if err != nil {
		status = http.StatusTeapot
	}
	w.WriteHeader(status)
}

// hanging keeps requests waiting until unblock; begun gets each of them.
type hanging struct {
	begun   chan request
	release chan struct{}
	once    sync.Once
}

// newHanging returns an endpoint that responds only after unblock, which runs before the server closes and waits for
// its handlers.
func newHanging(t *testing.T, respond func(http.ResponseWriter, request)) (*endpoint, *hanging) {
	t.Helper()
	h := &hanging{begun: make(chan request, 1000), release: make(chan struct{})}
	e := newEndpoint(t, func(w http.ResponseWriter, r request) {
		h.begun <- r
		<-h.release
		respond(w, r)
	})
	t.Cleanup(h.unblock)
	return e, h
}

// await waits for an event of the test.
func await[T any](t *testing.T, events <-chan T) T {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(testnode.Timeout):
		require.FailNow(t, "it did not happen")
		panic("unreachable")
	}
}

func (h *hanging) unblock() { h.once.Do(func() { close(h.release) }) }

// eventIDs returns the ids of the events that the endpoint got, sorted.
func (e *endpoint) eventIDs() []string {
	var ids []string
	for _, r := range e.requests() {
		ids = append(ids, r.eventID())
	}
	slices.Sort(ids)
	return ids
}

func requireOneRequest(t *testing.T, e *endpoint) request {
	t.Helper()
	seen := e.requests()
	require.Len(t, seen, 1)
	return seen[0]
}
