package jobs_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
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

// allowing allows a node to write to locations.
func allowing(t *testing.T, urls ...string) func(*jobs.Options) {
	t.Helper()
	var locations endpointconf.ExportLocations
	for _, url := range urls {
		l, err := endpointconf.ParseLocation(url)
		require.NoError(t, err)
		locations.Allowed = append(locations.Allowed, l)
	}
	return func(o *jobs.Options) { o.DeadLetters = locations }
}

// afterDelay makes all dead letters due once there are n.
func (b *bundle) afterDelay(t *testing.T, n int) {
	t.Helper()
	b.become(t, n, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'pending'")
	b.exec(t, `UPDATE postrider_internal.dead_letters SET export_due_at = export_due_at - interval '5 minutes',
		    export_abandon_at = export_abandon_at - interval '5 minutes' WHERE export_state = 'pending'`)
}

// exportAgain makes the next try due.
func (b *bundle) exportAgain(t *testing.T) {
	t.Helper()
	b.exec(t, "UPDATE postrider_internal.river_job SET scheduled_at = now() WHERE kind = 'export' AND state = 'available'")
}

func (b *bundle) exported(t *testing.T, n int) {
	t.Helper()
	b.become(t, n, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'exported'")
}

// files returns all files below a directory, by path.
func files(t *testing.T, directory string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		name, _ := filepath.Rel(directory, path)
		found[filepath.ToSlash(name)] = string(body)
		return err
	}))
	return found
}

// theFile returns the only file below a directory.
func theFile(t *testing.T, directory string) (name, body string) {
	t.Helper()
	found := files(t, directory)
	require.Len(t, found, 1)
	for name, body = range found {
	}
	return name, body
}

// written is the time of a dead letter's column in Event Grid's format.
func (b *bundle) written(t *testing.T, column, subscription, eventID string) string {
	t.Helper()
	var at time.Time
	require.NoError(t,
		b.pool.QueryRow(t.Context(),
			"SELECT "+column+" FROM postrider.dead_letters WHERE subscription = $1 AND event_id = $2", subscription, eventID).
			Scan(&at))
	return at.UTC().Format("2006-01-02T15:04:05.0000000Z")
}

const (
	besideNames = `"deadLetterReason":"UndeliverableDueToHttpBadRequest","deliveryAttempts":1,` +
		`"lastDeliveryOutcome":"BadRequest","lastHttpStatusCode":400,"publishTime":"%s","lastDeliveryAttemptTime":"%s"`
	smallNames = `"deadletterreason":"UndeliverableDueToHttpBadRequest","deliveryattempts":1,` +
		`"lastdeliveryoutcome":"BadRequest","lasthttpstatuscode":400,"publishtime":"%s","lastdeliveryattempttime":"%s"`
	pathOf = `/\d{4}/\d{1,2}/\d{1,2}/\d{1,2}/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.json$`
)

// Event Grid's delay counts from the last attempt; then one file has the due dead letters, byte for byte.
func TestDeadLettersAreExported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	directory := t.TempDir()
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.copyPolicy(t, "ga-2021", "at-once", `{"dead_letter_delay":"0"}`)
	b.subscribe(t, "billing", e.URL, into("file://"+directory+"/late"))
	b.subscribe(t, "hasty", e.URL, func(s *catalog.SubscriptionSpec) {
		into("file://" + directory + "/early")(s)
		s.RetryPolicy.Policy = "at-once"
	})
	b.subscribe(t, "rows", e.URL, nil)
	b.start(t, allowing(t, "file://"+directory))
	b.publish(t, "application/json", "["+eventGridBody("a", `{"n":1.0}`)+","+eventGridBody("b", "null")+"]")

	b.exported(t, 2)
	require.NoDirExists(t, directory+"/late", "not before its time")
	require.Equal(t, 2, b.count(t, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'billing' "+
		"AND export_state = 'pending' AND export_attempts = 0"))
	b.afterDelay(t, 2)
	b.exported(t, 4)

	name, body := theFile(t, directory+"/late")
	require.Regexp(t, "^BILLING"+pathOf, name)
	var want []string
	for _, id := range []string{"a", "b"} {
		data := map[string]string{"a": `{"n":1.0}`, "b": "null"}[id]
		accepted := strings.TrimSuffix(eventGridBody(id, data), "}")
		want = append(want, accepted+`,"topic":"/topics/orders","metadataVersion":"1",`+fmt.Sprintf(besideNames,
			b.written(t, "published_at", "billing", id), b.written(t, "last_attempt_at", "billing", id))+"}")
	}
	if strings.Index(body, `"id":"b"`) < strings.Index(body, `"id":"a"`) { // they were attempted in parallel
		want[0], want[1] = want[1], want[0]
	}
	require.Equal(t, "["+strings.Join(want, ",")+"]", body)
	require.Equal(t, 2,
		b.count(t,
			"SELECT count(*) FROM postrider.dead_letters WHERE export_location = $1 AND exported_at >= export_due_at "+
				"AND export_attempts = 1", "file://"+directory+"/late/"+name))
	require.Equal(t, 2,
		b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'billing' AND state = 'dead_lettered'"),
		"the rows stay")
}

// The format of dead letters of CloudEvents, custom events and namespace topics.
func TestExportedDeadLettersOfEverySchema(t *testing.T) {
	t.Parallel()
	subject := "a"
	for name, c := range map[string]struct {
		topic                         catalog.TopicSpec
		change                        func(*catalog.SubscriptionSpec)
		contentType, body, path, want string
	}{
		"cloudevents": {
			catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.CloudEvents},
			func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents },
			"application/cloudevents+json",
			`{"specversion":"1.0","id":"a","source":"s","type":"t","deadletterreason":"an older one"}`, "ALL",
			`[{"specversion":"1.0","id":"a","source":"s","type":"t",` + smallNames + `}]`,
		},
		"custom": {
			catalog.TopicSpec{
				Kind: catalog.TopicBasic, InputSchema: event.Custom,
				InputSchemaMapping: &event.Mapping{Type: "Json", Properties: event.MappingProperties{
					ID: &event.MappedField{SourceField: "key"}, EventTime: &event.MappedField{SourceField: "at"},
					EventType: &event.MappedFieldWithDefault{SourceField: "kind"},
					Subject:   &event.MappedFieldWithDefault{DefaultValue: &subject},
				}},
			},
			func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CustomInput },
			"application/json", `[{"key":"a","kind":"t","at":"2026-01-01T00:00:00Z"}]`, "ALL",
			`[{"id":"a","eventTime":"2026-01-01T00:00:00Z","eventType":"t","dataVersion":"","metadataVersion":"1",` +
				`"topic":"/topics/orders","subject":"a","data":{"key":"a","kind":"t","at":"2026-01-01T00:00:00Z"},` +
				besideNames + `}]`,
		},
		"namespace": {
			catalog.TopicSpec{Kind: catalog.TopicNamespace, InputSchema: event.CloudEvents, EventRetentionInDays: 7},
			func(s *catalog.SubscriptionSpec) {
				s.EventDeliverySchema, s.RetryPolicy.Policy = event.CloudEvents, "namespace-2023"
			},
			"application/cloudevents+json", `{"specversion":"1.0","id":"a","source":"s","type":"t"}`, "orders/all",
			`[{"deadLetterProperties":{"deadletterreason":"Undeliverable due to HTTP bad request.","deliveryattempts":1,` +
				`"deliveryresult":"BadRequest","publishutc":"%s","deliveryattemptutc":"%s"},"event":{"specversion":"1.0",` +
				`"id":"a","source":"s","type":"t"}}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupSpec(t, c.topic)
			directory := t.TempDir()
			e := newEndpoint(t, respondWith(http.StatusBadRequest))
			b.subscribe(t, "all", e.URL, func(s *catalog.SubscriptionSpec) { into("file://" + directory)(s); c.change(s) })
			b.start(t, allowing(t, "file://"+directory))
			b.publish(t, c.contentType, c.body)
			b.afterDelay(t, 1)
			b.exported(t, 1)
			file, body := theFile(t, directory)
			require.Regexp(t, "^"+c.path+pathOf, file)
			require.Equal(t,
				fmt.Sprintf(c.want, b.written(t, "published_at", "all", "a"), b.written(t, "last_attempt_at", "all", "a")), body)
		})
	}
}

// A failing location is tried again; once it works, no dead letter is missing.
func TestExportIsRetried(t *testing.T) {
	t.Parallel()
	b := setup(t)
	directory := filepath.Join(t.TempDir(), "mount")
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "all", e.URL, into("file://"+directory))
	b.start(t, allowing(t, "file://"+directory))
	b.publishOne(t, "a")
	b.afterDelay(t, 1)
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'pending' AND export_attempts = 1 "+
		"AND export_error LIKE '%no such file%'")
	b.exportAgain(t)
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'pending' AND export_attempts = 2")
	require.NoDirExists(t, directory, "it may be a disk that is not mounted")
	require.NoError(t, os.Mkdir(directory, 0o750))
	b.exportAgain(t)
	b.exported(t, 1)
	theFile(t, directory)
}

// Event Grid drops the dead letter; here the row stays, under either behavior.
func TestExportIsAbandoned(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	missing := "file://" + filepath.Join(t.TempDir(), "missing")
	b.subscribe(t, "safe", e.URL, into(missing))
	b.subscribe(t, "documented", e.URL,
		func(s *catalog.SubscriptionSpec) { into(missing)(s); s.Behavior = policy.BehaviorDocumented })
	b.subscribe(t, "forbidden", e.URL, into("file:///etc"))
	b.start(t, allowing(t, missing))
	b.publishOne(t, "a")
	b.afterDelay(t, 3)
	b.become(t, 3, "SELECT count(*) FROM postrider.dead_letters WHERE export_attempts = 1 AND export_state = 'pending'")
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'forbidden' "+
			"AND export_error LIKE '%not allowed%--dead-letter-location%'"), "the node checks the location when it writes, too")
	b.exec(t, "UPDATE postrider_internal.dead_letters SET export_abandon_at = now()")
	b.exportAgain(t)
	b.become(t, 3, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'abandoned' AND exported_at IS NULL "+
		"AND body IS NOT NULL")
	require.Equal(t, 3, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE state = 'dead_lettered'"))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.exports"))
}

// A policy with zero times has one try, at once.
func TestExportOfAPolicyWithoutTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	missing := "file://" + filepath.Join(t.TempDir(), "missing")
	b.subscribe(t, "all", e.URL, func(s *catalog.SubscriptionSpec) { into(missing)(s); s.RetryPolicy.Policy = "ga-2018" })
	b.start(t, allowing(t, missing))
	b.publishOne(t, "a")
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'abandoned' AND export_attempts = 1")
}

// A changed setting applies to dead letters that are not exported yet.
func TestExportFollowsTheSetting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	directory := t.TempDir()
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "moves", e.URL, into("file://"+directory+"/missing/../wrong"))
	b.subscribe(t, "stays", e.URL, into("file://"+directory))
	b.start(t, allowing(t, "file://"+directory))
	b.publishOne(t, "a")
	b.become(t, 2, "SELECT count(*) FROM postrider.dead_letters")
	b.subscribe(t, "moves", e.URL, into("file://"+directory+"/right"))
	b.subscribe(t, "stays", e.URL, nil)
	b.afterDelay(t, 2)
	b.exported(t, 1)
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'stays' "+
		"AND export_state = 'abandoned' AND export_error LIKE '%names no external location%'")
	name, _ := theFile(t, directory)
	require.True(t, strings.HasPrefix(name, "right/MOVES/"))
}

// No name and no symbolic link leads out of the directory that the operator allowed.
func TestExportStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	directory, outside := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(directory, "ALL")))
	require.NoError(t, os.Symlink(outside, filepath.Join(directory, "linked")))
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "all", e.URL, into("file://"+directory))
	b.subscribe(t, "other", e.URL, into("file://"+directory+"/linked"))
	b.start(t, allowing(t, "file://"+directory))
	b.publishOne(t, "a")
	b.afterDelay(t, 2)
	b.become(t, 2, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'pending' AND export_attempts >= 1 "+
		"AND export_error LIKE '%escapes%'")
	require.Empty(t, files(t, outside))
}

// bucket is a server with S3's protocol. after is called for each request once it was read.
func bucket(t *testing.T, after func(r *http.Request)) (url string, backend *s3mem.Backend) {
	t.Helper()
	backend = s3mem.New()
	require.NoError(t, backend.CreateBucket("dead"))
	handler := gofakes3.New(backend).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		record := httptest.NewRecorder()
		handler.ServeHTTP(record, r)
		if after != nil {
			after(r)
		}
		for name, values := range record.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(record.Code)
		_, _ = w.Write(record.Body.Bytes())
	}))
	t.Cleanup(server.Close)
	return "s3://dead/letters?region=us-east-1&anonymous=true&use_path_style=true&endpoint=" + server.URL, backend
}

func objects(t *testing.T, backend *s3mem.Backend) map[string]string {
	t.Helper()
	list, err := backend.ListBucket("dead", nil, gofakes3.ListBucketPage{})
	require.NoError(t, err)
	found := map[string]string{}
	for _, content := range list.Contents {
		object, err := backend.GetObject("dead", content.Key, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(object.Contents)
		require.NoError(t, err)
		require.Equal(t, "application/json", object.Metadata["Content-Type"])
		found[content.Key] = string(body)
	}
	return found
}

func TestDeadLettersAreExportedToS3(t *testing.T) {
	t.Parallel()
	b := setup(t)
	url, backend := bucket(t, nil)
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "all", e.URL, into("s3://dead/letters/of-mine"))
	b.start(t, allowing(t, url))
	b.publishOne(t, "a")
	b.afterDelay(t, 1)
	b.exported(t, 1)
	found := objects(t, backend)
	require.Len(t, found, 1)
	for key, body := range found {
		require.Regexp(t, "^letters/of-mine/ALL"+pathOf, key)
		var records []map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &records))
		require.Len(t, records, 1)
		require.Equal(t, "UndeliverableDueToHttpBadRequest", records[0]["deadLetterReason"])
		require.Equal(t, 1,
			b.count(t, "SELECT count(*) FROM postrider.dead_letters WHERE export_location = $1", "s3://dead/"+key))
	}
}

// A node that ends after it wrote the file and before it recorded that leaves the file to be written again, under the
// same name.
func TestCrashBetweenTheFileAndItsMark(t *testing.T) {
	t.Parallel()
	b := setup(t)
	stored, release := make(chan string, 10), make(chan struct{})
	var once sync.Once
	letGo := func() { once.Do(func() { close(release) }) }
	url, backend := bucket(t, func(r *http.Request) { stored <- r.URL.Path; <-release })
	t.Cleanup(letGo)
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "all", e.URL, into("s3://dead/letters"))
	first := b.newEngine(t, b.store, func(o *jobs.Options) { allowing(t, url)(o); o.StopTimeout = 100 * time.Millisecond })
	require.NoError(t, first.Start(t.Context()))
	b.publishOne(t, "a")
	b.afterDelay(t, 1)
	<-stored
	before := objects(t, backend)
	require.Len(t, before, 1)
	requireStops(t, first)
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'pending' AND export_attempts = 0 "+
			"AND export_error IS NULL"), "our own stop is no failure")

	letGo()
	other, _ := newStore(t, b.url, "node-2")
	second := b.newEngine(t, other, allowing(t, url))
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { requireStops(t, second) })
	b.exported(t, 1)
	require.Equal(t, before, objects(t, backend), "the same object with the same bytes")
	require.NotEmpty(t, stored, "it was written once more")
}

// The job of a dead node is reclaimed, and its unfinished file does not appear.
func TestExportOfADeadNodeIsRepeated(t *testing.T) {
	t.Parallel()
	b := setup(t)
	directory := t.TempDir()
	e := newEndpoint(t, respondWith(http.StatusBadRequest))
	b.subscribe(t, "all", e.URL, into("file://"+directory))
	first := b.newEngine(t, b.store, nil) // no location is allowed
	require.NoError(t, first.Start(t.Context()))
	b.publishOne(t, "a")
	b.become(t, 1, "SELECT count(*) FROM postrider.dead_letters")
	requireStops(t, first)
	b.afterDelay(t, 1)
	_, err := b.store.Exports.ClaimExports(t.Context())
	require.NoError(t, err)
	b.exec(t, "UPDATE postrider_internal.river_job SET state = 'running', attempt = 1, attempted_at = now(), "+
		"attempted_by = '{dead}' WHERE kind = 'export'")
	b.start(t, allowing(t, "file://"+directory))
	b.exported(t, 1)
	name, _ := theFile(t, directory)
	require.Equal(t, 1,
		b.count(t, "SELECT count(*) FROM postrider.dead_letters WHERE export_location = $1 AND export_attempts = 1",
			"file://"+directory+"/"+name))
}
