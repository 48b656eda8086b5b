package jobs_test

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// into exports an event subscription's dead letters to a location; its endpoint's 400 ends a delivery.
func into(location string) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.DeadLetterDestination = &catalog.DeadLetterDestination{
			EndpointType: catalog.DeadLetterBlob, Properties: &endpointconf.DeadLetterProperties{URL: location},
		}
	}
}

// allowing allows a node to write to a location.
func allowing(t *testing.T, url string) func(*jobs.Options) {
	t.Helper()
	l, err := endpointconf.ParseLocation(url)
	require.NoError(t, err)
	return func(o *jobs.Options) { o.DeadLetters.Allowed = append(o.DeadLetters.Allowed, l) }
}

// afterDelay makes all dead letters due once there are n.
func afterDelay(t *testing.T, tn *testnode.Node, n int) {
	t.Helper()
	tn.BecomeRows(t, n, "dead_letters", "export_state = 'pending'")
	tn.Exec(t, `UPDATE postrider_internal.dead_letters SET export_due_at = export_due_at - interval '5 minutes',
		    export_abandon_at = export_abandon_at - interval '5 minutes' WHERE export_state = 'pending'`)
}

// onlyFile returns the only file below a directory.
func onlyFile(t *testing.T, directory string) (name, body string) {
	t.Helper()
	require.NoError(t, fs.WalkDir(os.DirFS(directory), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		require.Empty(t, name, "the only one")
		text, err := os.ReadFile(filepath.Join(directory, path))
		name, body = path, string(text)
		return err
	}))
	return name, body
}

// written is the time of a dead letter's column in Event Grid's format.
func written(t *testing.T, tn *testnode.Node, column, subscription, eventID string) string {
	t.Helper()
	var at time.Time
	require.NoError(t, tn.Pool.QueryRow(t.Context(), "SELECT "+column+" FROM postrider.dead_letters "+
		"WHERE subscription = $1 AND event_id = $2", subscription, eventID).Scan(&at))
	return at.UTC().Format("2006-01-02T15:04:05.0000000Z")
}

const (
	besideNames = `"deadLetterReason":"UndeliverableDueToHttpBadRequest","deliveryAttempts":1,` +
		`"lastDeliveryOutcome":"BadRequest","lastHttpStatusCode":400,"publishTime":"%s","lastDeliveryAttemptTime":"%s"`
	pathOf = `/\d{4}/\d{1,2}/\d{1,2}/\d{1,2}/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.json$`
)

// Event Grid's delay counts from the last attempt; then one file has the due dead letters, byte for byte.
func TestDeadLettersAreExported(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	directory := t.TempDir()
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	copyPolicy(t, tn, "ga-2021", "at-once", `{"deadLetterDelayInSeconds": 0}`)
	subscribe(t, tn, "billing", e.URL, into("file://"+directory+"/late"))
	subscribe(t, tn, "hasty", e.URL, func(s *catalog.SubscriptionSpec) {
		into("file://" + directory + "/early")(s)
		s.RetryPolicy.Policy = "at-once"
	})
	subscribe(t, tn, "rows", e.URL, nil)
	tn.Start(t, allowing(t, "file://"+directory))
	publishBody(t, tn, "application/json", "["+eventGridBody("a", `{"n":1.0}`)+","+eventGridBody("b", "null")+"]")

	tn.BecomeRows(t, 2, "dead_letters", "export_state = 'exported'")
	require.NoDirExists(t, directory+"/late", "not before its time")
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "subscription = 'billing' AND export_state = 'pending' "+
		"AND export_attempts = 0"))
	afterDelay(t, tn, 2)
	tn.BecomeRows(t, 4, "dead_letters", "export_state = 'exported'")

	name, body := onlyFile(t, directory+"/late")
	require.Regexp(t, "^BILLING"+pathOf, name)
	var want []string
	for _, id := range []string{"a", "b"} {
		data := map[string]string{"a": `{"n":1.0}`, "b": "null"}[id]
		accepted := strings.TrimSuffix(eventGridBody(id, data), "}")
		want = append(want, accepted+`,"topic":"/topics/orders","metadataVersion":"1",`+fmt.Sprintf(besideNames,
			written(t, tn, "published_at", "billing", id), written(t, tn, "last_attempt_at", "billing", id))+"}")
	}
	if strings.Index(body, `"id":"b"`) < strings.Index(body, `"id":"a"`) { // they were attempted in parallel
		want[0], want[1] = want[1], want[0]
	}
	require.Equal(t, "["+strings.Join(want, ",")+"]", body)
	require.Equal(t, 2, tn.Rows(t, "dead_letters", "export_location = $1 AND exported_at >= export_due_at "+
		"AND export_attempts = 1", "file://"+directory+"/late/"+name))
	require.Equal(t, 2, tn.Rows(t, "deliveries", "subscription = 'billing' AND state = 'dead_lettered'"), "the rows stay")

	// The file of a namespace topic has its own path and format.
	putTopic(t, tn, "spaced", catalog.TopicSpec{
		Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents, EventRetentionInDays: 7,
	})
	subscribeTo(t, tn, "spaced", "all", e.URL,
		both(into("file://"+directory+"/spaced"), under("namespace-2023"), delivering(event.CloudEvents)))
	const cloud = `{"specversion":"1.0","id":"a","source":"s","type":"t"}`
	publishTo(t, tn, "spaced", http.Header{"Content-Type": {structuredType}}, cloud)
	afterDelay(t, tn, 1)
	tn.BecomeRows(t, 5, "dead_letters", "export_state = 'exported'")
	name, body = onlyFile(t, directory+"/spaced")
	require.Regexp(t, "^spaced/all"+pathOf, name)
	require.Equal(t,
		fmt.Sprintf(`[{"deadLetterProperties":{"deadletterreason":"Undeliverable due to HTTP bad request.",`+
			`"deliveryattempts":1,"deliveryresult":"BadRequest","publishutc":"%s","deliveryattemptutc":"%s"},`+
			`"event":`+cloud+`}]`,
			written(t, tn, "published_at", "all", "a"), written(t, tn, "last_attempt_at", "all", "a")), body)
}

// Event Grid drops the dead letter; here the row stays, under either behavior.
func TestExportIsAbandoned(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	missing := "file://" + filepath.Join(t.TempDir(), "missing")
	subscribe(t, tn, "safe", e.URL, into(missing))
	subscribe(t, tn, "documented", e.URL,
		func(s *catalog.SubscriptionSpec) { into(missing)(s); s.Behavior = policy.BehaviorDocumented })
	subscribe(t, tn, "forbidden", e.URL, into("file:///etc"))
	subscribe(t, tn, "stays", e.URL, into(missing))
	tn.Start(t, allowing(t, missing))
	publishOne(t, tn, "a")
	tn.BecomeRows(t, 4, "dead_letters", "")
	subscribe(t, tn, "stays", e.URL, nil)
	afterDelay(t, tn, 4)
	tn.BecomeRows(t, 1, "dead_letters", "subscription = 'stays' AND export_state = 'abandoned' "+
		"AND export_error LIKE '%names no external location%'")
	tn.BecomeRows(t, 3, "dead_letters", "export_attempts = 1 AND export_state = 'pending'")
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "subscription = 'forbidden' "+
		"AND export_error LIKE '%not allowed%--dead-letter-location%'"), "the node checks the location when it writes, too")
	require.NoDirExists(t, strings.TrimPrefix(missing, "file://"), "it may be a disk that is not mounted")
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET export_abandon_at = now()")
	tn.Exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() WHERE kind = 'export' "+
		"AND state = 'available'")
	tn.BecomeRows(t, 4, "dead_letters", "export_state = 'abandoned' AND exported_at IS NULL AND body IS NOT NULL")
	require.Equal(t, 4, tn.Rows(t, "deliveries", "state = 'dead_lettered'"))
	require.Zero(t, tn.Exports(t, ""))
}

// No name and no symbolic link leads out of the directory that the operator allowed.
func TestExportStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	directory, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(directory, "ALL")))
	require.NoError(t, os.Symlink(outside, filepath.Join(directory, "linked")))
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	subscribe(t, tn, "all", e.URL, into("file://"+directory))
	subscribe(t, tn, "other", e.URL, into("file://"+directory+"/linked"))
	tn.Start(t, allowing(t, "file://"+directory))
	publishOne(t, tn, "a")
	afterDelay(t, tn, 2)
	tn.BecomeRows(t, 2, "dead_letters", "export_state = 'pending' AND export_attempts >= 1 "+
		"AND export_error LIKE '%escapes%'")
	found, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, found)
}

const deadLetters = "SELECT count(*) FROM postrider.dead_letters"

// A redelivered dead letter has the same bytes, even if the partition of its event is gone.
func TestRedeliveryHasTheSameBytes(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusBadRequest)
	subscribe(t, tn, "billing", e.URL, nil)
	tn.Start(t)
	publishRequest(t, tn, http.Header{
		"Content-Type": {"application/json"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	},
		`[ {"id":"e-1", "subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z","dataVersion":"2.1",`+
			` "data": {"a" : 1.50, "a":"\u0000"} } ]`)
	tn.Become(t, 1, deadLetters)
	redeliver := func() {
		tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id) FROM postrider.dead_letters "+
			"ORDER BY dead_letter_id DESC LIMIT 1")
	}
	redeliver()
	tn.Become(t, 2, deadLetters)
	tn.Exec(t, "DELETE FROM postrider_internal.events")
	e.status.Store(http.StatusOK)
	redeliver()
	tn.BecomeRows(t, 1, "deliveries d JOIN postrider.dead_letters l ON d.redelivered_from = l.dead_letter_id",
		"d.state = 'delivered' AND d.attempts = 1")
	seen := e.requests()
	require.Len(t, seen, 3)
	for _, r := range seen[1:] {
		require.Equal(t, seen[0].body, r.body)
		for _, name := range []string{
			"Aeg-Output-Event-Id", "Aeg-Delivery-Count", "Aeg-Data-Version", "Traceparent", "Content-Type",
		} {
			require.NotEmpty(t, r.header.Get(name), name)
			require.Equal(t, seen[0].header.Get(name), r.header.Get(name), name)
		}
	}
}

// An operation keeps its rate, continues after its node has stopped, and redelivers each dead letter once.
func TestOperationSurvivesItsNode(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e := newSwitchable(t, http.StatusBadRequest)
	withoutProbation(t, tn)
	subscribe(t, tn, "billing", e.URL, nil)
	first := tn.Engine(t)
	require.NoError(t, first.Start(t.Context()))
	for i := range 25 {
		publishOne(t, tn, fmt.Sprintf("e-%d", i))
	}
	tn.Become(t, 25, deadLetters)
	e.status.Store(http.StatusOK)
	began := time.Now()
	id, err := tn.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{},
		&operator.Action{Kind: operator.Redeliver, Rate: 10})
	require.NoError(t, err)
	tn.BecomeRows(t, 1, "operations", "done >= 10")
	testnode.RequireStops(t, first)
	require.Equal(t, 1, tn.Rows(t, "operations", "state = 'running'"))
	startNode(t, tn, "node-2", nil)
	tn.BecomeRows(t, 1, "operations", "operation_id = $1 AND state = 'done' AND done = 25", id)
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second, "ten a second")
	tn.BecomeRows(t, 25, "deliveries", "state = 'delivered'")
	require.Equal(t, 25,
		tn.Count(t, "SELECT count(DISTINCT redelivered_from) FROM postrider.deliveries WHERE state = 'delivered'"))
	require.Len(t, e.requests(), 50)
}

const pendingDelivery = "SELECT delivery_id FROM postrider.deliveries WHERE state = 'pending'"

// The request of a canceled delivery arrives, alone or in a batch, and nothing of it is recorded.
func TestCancelDuringTheRequest(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	x := newManualEndpoint(t)
	subscribe(t, tn, "alone", x.URL, nil)
	subscribe(t, tn, "batched", x.URL, batching(10, 64))
	tn.Start(t)
	publishOne(t, tn, "e")
	requests := []*manualRequest{x.next(t), x.next(t)}
	for _, name := range kinds {
		id := int64(tn.Count(t, pendingDelivery+" AND subscription = $1", name))
		require.ErrorContains(t, tn.System.Operator.RetryNow(t.Context(), id), "is in progress")
		require.NoError(t, tn.System.Operator.Cancel(t.Context(), id))
	}
	for _, r := range requests {
		r.respond(http.StatusOK)
	}
	publishOne(t, tn, "another")
	x.next(t).respond(http.StatusOK)
	x.next(t).respond(http.StatusOK)
	tn.BecomeRows(t, 2, "deliveries", "state = 'delivered'")
	require.Equal(t, 2, tn.Rows(t, "deliveries", "event_id = 'e' AND state = 'canceled' AND attempts = 0"))
	require.Equal(t, 2, tn.Recorded(t, ""), "the other ones'")
	tn.Become(t, 0, "SELECT count(*) FROM postrider_internal.river_job")
}

// bucket stores objects as S3 does, and calls after before it responds.
type bucket struct {
	after func()

	mu      sync.Mutex
	objects map[string]string
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPut {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	b.mu.Lock()
	b.objects[r.URL.Path] = string(body)
	b.mu.Unlock()
	b.after()
	w.Header().Set("ETag", `"x"`)
}

func (b *bucket) stored() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.objects)
}

// A node that ends after it wrote the file and before it recorded that leaves the file to be written again, under the
// same name.
func TestCrashBetweenTheExportAndItsRecord(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	stored, release := make(chan struct{}, 10), make(chan struct{})
	var once sync.Once
	unblock := func() { once.Do(func() { close(release) }) }
	dead := &bucket{after: func() { stored <- struct{}{}; <-release }, objects: map[string]string{}}
	server := httptest.NewServer(dead)
	t.Cleanup(server.Close)
	t.Cleanup(unblock)
	url := "s3://dead/letters?region=us-east-1&anonymous=true&use_path_style=true&endpoint=" + server.URL
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	subscribe(t, tn, "all", e.URL, into("s3://dead/letters"))
	first := tn.Engine(t, func(o *jobs.Options) { allowing(t, url)(o); o.StopTimeout = 100 * time.Millisecond })
	require.NoError(t, first.Start(t.Context()))
	publishOne(t, tn, "a")
	afterDelay(t, tn, 1)
	await(t, stored)
	before := dead.stored()
	require.Len(t, before, 1)
	testnode.RequireStops(t, first)
	require.Equal(t, 1,
		tn.Count(t, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'pending' AND export_attempts = 0 "+
			"AND export_error IS NULL"), "our own stop is no failure")

	unblock()
	other := tn.Beside(t, node.Options{Node: "node-2"})
	second := other.Engine(t, allowing(t, url))
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, second) })
	tn.BecomeRows(t, 1, "dead_letters", "export_state = 'exported'")
	require.Equal(t, before, dead.stored(), "the same object with the same bytes")
	require.NotEmpty(t, stored, "it was written once more")
}
