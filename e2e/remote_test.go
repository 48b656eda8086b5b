package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
	"postrider/internal/local"
)

// remote is a service that the tests of the verbs of the REST API share: each has topics of its own.
type remote struct {
	*nodeProcess
	db  *database
	env []string
}

func newRemote(t *testing.T) *remote {
	t.Helper()
	db := migratedDatabase(t)
	n := startNode(t, db)
	return &remote{nodeProcess: n, db: db, env: n.cliEnv()}
}

// of is the same service for a test that runs beside others: what fails there fails that one.
func (r *remote) of(t *testing.T) *remote {
	t.Helper()
	n := &nodeProcess{service{process: &process{t: t}, api: r.api, token: r.token}, r.name}
	return &remote{nodeProcess: n, db: &database{t: t, url: r.db.url, pool: r.db.pool}, env: r.env}
}

// run runs a verb and requires its exit code.
func (r *remote) run(t *testing.T, code int, args ...string) result {
	t.Helper()
	done := postrider(t, r.env, args...)
	require.Equal(t, code, done.code, "%s %s", done.stdout, done.stderr)
	return done
}

func (r *remote) object(t *testing.T, args ...string) (o rest.Object) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.run(t, 0, append(args, "-o", "json")...).stdout), &o))
	return o
}

func TestVerbsOfTheAPI(t *testing.T) {
	t.Parallel()
	r := newRemote(t)
	t.Run("verbs", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, *remote){
			"topics": topicVerbs, "subscriptions": subscriptionVerbs, "actions": actionVerbs, "rejections": rejectedVerbs,
			"publish": publishVerb, "listen": listenVerb,
			"tail": tailVerb, "apply": applyVerb, "apply that comes too late": applyTooLate, "pull delivery": pullVerbs,
			"receive":                    receiveVerbs,
			"apply of a list of Azure's": applyAzure, "doctor": doctorVerb, "prune": pruneVerb,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, r.of(t))
			})
		}
	})
}

func topicVerbs(t *testing.T, r *remote) {
	t.Helper()
	made := r.object(t, "topic", "create", "topics-a", "--input-schema", "cloudeventschemav1_0",
		"--duplicate-detection-window-in-minutes", "5")
	require.NotEmpty(t, made["key1"])
	require.Nil(t,
		r.object(t, "topic", "create", "topics-a", "--input-schema", "CloudEventSchemaV1_0",
			"--duplicate-detection-window-in-minutes", "5")["key1"], "keys are shown once")
	shown := r.object(t, "topic", "show", "topics-a")
	require.JSONEq(t, r.manage(http.StatusOK, http.MethodGet, "/v1/topics/topics-a", ""), mustJSON(t, shown),
		"JSON is the API's")
	require.Regexp(t, `(?m)^topics-a +basic +CloudEventSchemaV1_0 +/topics/topics-a/api/events `,
		r.run(t, 0, "topic", "list").stdout)

	keys := r.object(t, "topic", "keys", "topics-a")
	require.Equal(t, made["key1"], keys["key1"])
	renewed := r.object(t, "topic", "keys", "topics-a", "--renew", "key2")
	require.Equal(t, keys["key1"], renewed["key1"])
	require.NotEqual(t, keys["key2"], renewed["key2"])

	r.run(t, 0, "topic", "create", "topics-b", "--input-schema", "customeventschema", "--input-mapping-fields",
		"eventType=kind,id=nr", "--input-mapping-default-values", "subject=all")
	require.JSONEq(t, `{"eventType":{"sourceField":"kind"},"id":{"sourceField":"nr"},"subject":{"defaultValue":"all"}}`,
		mustJSON(t, rest.ValueAt(r.object(t, "topic", "show", "topics-b"), "inputSchemaMapping.properties")))
	stale := rest.TextAt(r.object(t, "topic", "show", "topics-b"), "etag")
	r.run(t, 0, "topic", "create", "topics-b", "--input-schema", "customeventschema", "--input-mapping-fields",
		"eventType=kind,id=nr", "--input-mapping-default-values", "subject=all",
		"--duplicate-detection-window-in-minutes", "5", "--if-match", stale)
	require.Contains(t, r.run(t, 1, "topic", "delete", "topics-b", "--yes", "--if-match", stale).stderr,
		`"topics-b" is in none of the versions that If-Match names`)
	require.Equal(t, "Topic topics-b was deleted.\n",
		r.run(t, 0, "topic", "delete", "topics-b", "--yes", "--if-match", "*").stdout)
	r.topic("topics-c")
	require.Equal(t, rest.Object{"name": "topics-c", "deleted": true}, r.object(t, "topic", "delete", "topics-c", "--yes"))
	require.Equal(t, "postrider: topic \"topics-b\" does not exist\n", r.run(t, 1, "topic", "show", "topics-b").stderr)
}

func mustJSON(t *testing.T, value any) string {
	t.Helper()
	encoded, err := json.Marshal(value)
	require.NoError(t, err)
	return string(encoded)
}

// The flags of the Azure CLI, as a script for it has them.
func subscriptionVerbs(t *testing.T, r *remote) {
	t.Helper()
	r.topic("subscribed")
	endpoint := r.api + "/healthz?code=secret"
	r.run(t, 0, "subscription", "create", "subscribed", "all-flags", "--endpoint", endpoint, "--endpoint-type", "webhook",
		"--endpoint-validation", "skip",
		"--event-delivery-schema", "cloudeventschemav1_0", "--included-event-types", "A,B", "--subject-begins-with", "x/",
		"--subject-ends-with", ".jpg", "--subject-case-sensitive", "true",
		"--enable-advanced-filtering-on-arrays", "--advanced-filter", "data.total numbergreaterthan 9007199254740993",
		"--advanced-filter", `data.city StringIn "New York" 'Paris, Texas'`,
		"--max-delivery-attempts", "7", "--event-ttl", "60", "--max-events-per-batch", "10",
		"--preferred-batch-size-in-kilobytes", "32", "--deadletter-endpoint", "none",
		"--expiration-date", "2099-01-31", "--labels", "a,b", "--delivery-attribute-mapping", "X-Secret static s3cret true",
		"--delivery-attribute-mapping", "X-Path dynamic data.path",
		"--policy", "ga-2021", "--behavior", "documented", "--max-concurrent-deliveries", "3", "--honor-retry-after", "false",
		"--signing", "true")
	shown := r.object(t, "subscription", "show", "subscribed", "all-flags")
	for path, want := range map[string]string{
		"endpointBaseUrl": `"` + r.api + `/healthz"`, "filter.includedEventTypes": `["A","B"]`,
		"filter.isSubjectCaseSensitive": `true`, "filter.enableAdvancedFilteringOnArrays": `true`,
		"filter.subjectBeginsWith": `"x/"`, "filter.subjectEndsWith": `".jpg"`,
		"retryPolicy":           `{"policy":"ga-2021","maxDeliveryAttempts":7,"eventTimeToLiveInMinutes":60}`,
		"deadLetterDestination": `{"endpointType":"None"}`, "expirationTimeUtc": `"2099-01-31T00:00:00Z"`,
		"labels": `["a","b"]`, "maxEventsPerBatch": `10`, "preferredBatchSizeInKilobytes": `32`,
		"behavior": `"documented"`, "maxConcurrentDeliveries": `3`, "honorRetryAfter": `false`, "signing.enabled": `true`,
	} {
		require.JSONEq(t, want, mustJSON(t, rest.ValueAt(shown, path)), path)
	}
	raw := r.run(t, 0, "subscription", "show", "subscribed", "all-flags", "-o", "json").stdout
	require.Contains(t, raw, "9007199254740993", "numbers keep their digits")
	require.Contains(t, raw, "Paris, Texas")
	require.NotContains(t, raw, "s3cret")

	require.Contains(t, r.run(t, 1, "subscription", "create", "subscribed", "all-flags", "--endpoint", endpoint).stderr,
		"event subscription all-flags of topic subscribed exists already")
	changed := r.object(t, "subscription", "update", "subscribed", "all-flags", "--event-ttl", "30", "--unset", "labels",
		"--unset", "filter.advancedFilters")
	require.JSONEq(t, `{"policy":"ga-2021","maxDeliveryAttempts":7,"eventTimeToLiveInMinutes":30}`,
		mustJSON(t, changed["retryPolicy"]))
	require.Empty(t, changed["labels"])
	require.Empty(t, rest.ValueAt(changed, "filter.advancedFilters"))
	require.Equal(t, []any{"A", "B"}, rest.ValueAt(changed, "filter.includedEventTypes"), "what is not named stays")
	replaced := r.object(t, "subscription", "create", "subscribed", "all-flags", "--replace", "--endpoint", endpoint,
		"--endpoint-validation", "skip")
	require.Equal(t, []any{"All"}, rest.ValueAt(replaced, "filter.includedEventTypes"))

	stale := []string{"subscribed", "all-flags", "--if-match", strings.Trim(rest.TextAt(shown, "etag"), `"`)}
	for _, args := range [][]string{
		{"create", "--endpoint", endpoint, "--endpoint-validation", "skip"}, {"update", "--labels", "c"}, {"delete", "--yes"},
	} {
		require.Contains(t, r.run(t, 1, append(append([]string{"subscription", args[0]}, stale...), args[1:]...)...).stderr,
			"is in none of the versions that If-Match names")
	}
	latest := r.object(t, "subscription", "update", "subscribed", "all-flags", "--labels", "c", "--if-match",
		rest.TextAt(replaced, "etag"))
	r.run(t, 0, "subscription", "create", "subscribed", "all-flags", "--endpoint", endpoint, "--endpoint-validation",
		"skip", "--if-match", rest.TextAt(latest, "etag"))

	for name, limit := range map[string][]string{
		"limited": {"--rate-limit", "5"}, "slower": {"--rate-limit", "1", "--rate-period", "60"},
	} {
		r.run(t, 0, append([]string{
			"subscription", "create", "subscribed", name, "--endpoint", r.api + "/" + name, "--endpoint-validation", "skip",
			"--rate-scope", "endpoint",
		}, limit...)...)
	}
	const lower = "lower limit of its host 1 request/min"
	require.Contains(t, words(r.run(t, 0, "subscription", "show", "subscribed", "limited").stdout), lower)
	require.NotContains(t, words(r.run(t, 0, "subscription", "show", "subscribed", "slower").stdout), lower)
	require.Contains(t,
		r.run(t, 1, "subscription", "update", "subscribed", "limited", "--unset", "deliveryRate.limit").stderr,
		"deliveryRate.limit must be 1 to 100000")

	require.Regexp(t, `(?m)^subscribed +all-flags +http`, r.run(t, 0, "subscription", "list", "subscribed").stdout)
	require.Contains(t, r.run(t, 0, "subscription", "list").stdout, "all-flags")
	require.Equal(t, "Event subscription all-flags of topic subscribed was deleted.\n",
		r.run(t, 0, "subscription", "delete", "subscribed", "all-flags", "--yes").stdout)
	r.run(t, 1, "subscription", "show", "subscribed", "all-flags")
}

func rejectedVerbs(t *testing.T, r *remote) {
	t.Helper()
	r.topic("refusing")
	said := r.run(t, 1, "subscription", "create", "refusing", "abc", "--endpoint", r.api, "--max-delivery-attempts", "900",
		"--event-ttl", "0").stderr
	require.Equal(t, `postrider: the server found 2 mistakes
  retryPolicy.maxDeliveryAttempts: must be between 1 and 30 under retry policy ga-2021, not 900
  retryPolicy.eventTimeToLiveInMinutes: must be between 1 and 1440 minutes under retry policy ga-2021, not 0
`, said)
	require.Contains(t, r.run(t, 1, "topic", "list", "--api-key", "wrong").stderr,
		"set POSTRIDER_API_KEY or pass --api-key")
	require.Contains(t, r.run(t, 1, "topic", "list", "--url", "http://127.0.0.1:1").stderr,
		"check that the service is running")
	require.Contains(t, r.run(t, 1, "topic", "list", "--url", strings.Replace(r.api, "http:", "https:", 1)).stderr,
		"does not use TLS: use http://")
	for _, args := range [][]string{
		{"topic", "list", "--url", "ftp://x"},
		{"topic", "list", "--url", "https://events.example.com", "--api-key", ""},
		{"topic", "list", "--ca-file", "/none"},
		{"topic", "create", "abc", "--input-mapping-fields", "kind"},
		{"subscription", "create", "refusing", "abc", "--endpoint-type", "eventhub"},
		{"subscription", "create", "refusing", "abc", "--advanced-filter", "data.total"},
		{"subscription", "create", "refusing", "abc", "--expiration-date", "tomorrow"},
		{"subscription", "create", "refusing", "abc", "--delivery-attribute-mapping", "X-A static"},
		{"subscription", "create", "refusing", "abc", "--subject-case-sensitive=perhaps"},
		{"subscription", "update", "refusing", "abc"},
		{"subscription", "update", "refusing", "abc", "--unset", "labels", "--labels", "a"},
		{"publish", "refusing", "--count", "2"},
		{"publish", "refusing", "--sample", "file"},
		{"publish", "refusing", "--type", "A", "--data", "{"},
		{"publish", "refusing", "/none"},
		{"listen", "--respond", "99"},
		{"listen", "--forward-to", "here"},
		{"listen", "--listen", "127.0.0.1:0", "--policy", "ga-2019"},
		{"tail", "--subscription", "abc"},
		{"apply", "-f", "/none"},
		{"doctor"},
	} {
		require.NotEmpty(t, r.run(t, 2, args...).stderr, args)
	}
}

func publishVerb(t *testing.T, r *remote) {
	t.Helper()
	key := r.topic("published")
	file := writtenFile(t, cloudEvent("p1")+"\n[]\n["+cloudEvent("p2")+",\n"+cloudEvent("p3")+"]")
	var summary struct{ Sent, Accepted, Failed, Requests int }
	require.NoError(t,
		json.Unmarshal([]byte(r.run(t, 0, "publish", "published", file, "--batch", "2", "-o", "json").stdout), &summary))
	require.Equal(t, []int{3, 3, 0, 2}, []int{summary.Sent, summary.Accepted, summary.Failed, summary.Requests})
	body := one[string](r.db, "SELECT body_text FROM postrider.events WHERE topic = 'published' AND event_id = 'p2'")
	require.Equal(t, cloudEvent("p2"), body, "to the last byte")

	r.run(t, 0, "publish", "published", "--sample", "--count", "30", "--rate", "200")
	r.run(t, 0, "publish", "published", "--type", "Shop.Opened", "--subject", "shops/1", "--data",
		`{"n": 12345678901234567890}`)
	require.Contains(t,
		one[string](r.db, "SELECT body_text FROM postrider.events WHERE topic = 'published' AND event_type = 'Shop.Opened'"),
		"12345678901234567890")
	require.Equal(t, 34, one[int](r.db, "SELECT count(*)::int FROM postrider.events WHERE topic = 'published'"))

	wrong := writtenFile(t,
		cloudEvent("p4")+cloudEvent("p5")+`{"specversion":"1.0","id":"p6","source":"/s"}`+cloudEvent("p7"))
	require.Contains(t, r.run(t, 1, "publish", "published", wrong, "--batch", "1").stderr,
		"event 3 was not accepted: event 3.type: is required")
	require.Equal(t, 2,
		one[int](r.db, "SELECT count(*)::int FROM postrider.events WHERE topic = 'published' "+
			"AND event_id IN ('p4', 'p5', 'p7')"), "it stops there")
	require.Contains(t, r.run(t, 1, "publish", "published", wrong, "--batch", "1", "--keep-going").stdout,
		"4 events to topic published")
	require.Equal(t, 1,
		one[int](r.db, "SELECT count(*)::int FROM postrider.events WHERE topic = 'published' AND event_id = 'p7'"))
	broken := r.run(t, 1, "publish", "published", writtenFile(t, cloudEvent("p8")+`{"id":`))
	require.Contains(t, broken.stderr, "the file ends within an event")
	require.Contains(t, broken.stdout, "1 accepted", "something was done: that is no wrong usage")
	for _, second := range []string{"/none", "/"} {
		rejected := r.run(t, 2, "publish", "published", writtenFile(t, cloudEvent("p10")), second)
		require.Empty(t, rejected.stdout)
	}
	require.Empty(t, r.run(t, 2, "publish", "published", writtenFile(t, "no event")).stdout)
	require.Zero(t, one[int](r.db, "SELECT count(*)::int FROM postrider.events WHERE event_id = 'p10'"),
		"files are opened before anything is sent")

	onlyTheKey := postrider(t,
		[]string{"POSTRIDER_URL=" + r.api, "POSTRIDER_API_KEY=none", "POSTRIDER_TOPIC_KEY=" + key}, "publish", "published",
		writtenFile(t, cloudEvent("p9")))
	require.Zero(t, onlyTheKey.code, onlyTheKey.stderr)
	r.run(t, 1, "publish", "published", file, "--key", "wrong")
	require.Zero(t,
		one[int](r.db, "SELECT count(*)::int FROM postrider.audit WHERE action = 'topic_keys_shown' AND topic = 'published'"),
		"the API key publishes by itself")
	publishByAPIKey(t, r)
}

// A key of scope publish may not read the topic it publishes to.
func publishByAPIKey(t *testing.T, r *remote) {
	t.Helper()
	r.manage(http.StatusCreated, http.MethodPut, "/v1/topics/by-key", "{}")
	with := func(name, scope string, args ...string) result {
		made := r.manage(http.StatusCreated, http.MethodPost, "/v1/apiKeys", `{"name":"`+name+`","scope":"`+scope+`"}`)
		var shown struct{ Key string }
		require.NoError(t, json.Unmarshal([]byte(made), &shown))
		return postrider(t, []string{"POSTRIDER_URL=" + r.api, "POSTRIDER_API_KEY=" + shown.Key},
			append([]string{"publish"}, args...)...)
	}
	for name, args := range map[string][]string{
		"cli-sample": {"by-key", "--sample", "--count", "2"},
		"cli-type":   {"by-key", "--type", "Shop.Opened", "--subject", "shops/1"},
		"cli-file":   {"published", writtenFile(t, cloudEvent("by-key"))},
	} {
		done := with(name, "publish", args...)
		require.Zero(t, done.code, "%s: %s", name, done.stderr)
	}
	require.Equal(t, 3, one[int](r.db, "SELECT count(*)::int FROM postrider.events WHERE topic = 'by-key'"))
	require.Equal(t, 1,
		one[int](r.db, "SELECT count(*)::int FROM postrider.events WHERE topic = 'published' AND event_id = 'by-key'"))
	rejected := with("cli-operator", "operate", "by-key", "--sample")
	require.Equal(t, 1, rejected.code)
	require.Contains(t, rejected.stderr, "publishing needs scope publish, or admin")
}

// lines are those of a process's standard output that hold text.
func (p *process) linesWith(text string) (lines []string) {
	for line := range strings.Lines(p.stdout.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func listenVerb(t *testing.T, r *remote) {
	t.Helper()
	key := r.topic("heard")
	const exists = "SELECT count(*)::int FROM postrider.event_subscriptions WHERE topic = 'heard' AND subscription LIKE $1"
	start := func(flags ...string) (*process, string) {
		file := filepath.Join(t.TempDir(), "ready.json")
		p := startProcess(t, r.env, program,
			append([]string{"listen", "--listen", "127.0.0.1:0", "--ready-file", file}, flags...)...)
		return p, p.ready(file).Sink
	}
	last, lastURL := start("-o", "json", "--respond", "503,200")
	first, _ := start("--topic", "heard", "--name", "first", "--event-delivery-schema", "CloudEventSchemaV1_0",
		"--forward-to", lastURL+"/hook", "-v")
	require.Contains(t, first.stdout.String(), "responded to the validation handshake")
	require.Equal(t, 1, one[int](r.db, exists, "first"))
	r.publish("heard", key, cloudEvent("h1"))
	eventually(t, "the event is forwarded and the response returned",
		func() bool { return len(first.linesWith("<-- 503")) == 1 })
	eventually(t, "the attempt is recorded", r.db.atLeast(1,
		"SELECT count(*)::int FROM postrider.deliveries WHERE topic = 'heard' AND state = 'pending' AND attempts = 1"))
	r.db.exec("SELECT postrider.retry_now(delivery_id) FROM postrider.deliveries WHERE topic = 'heard' " +
		"AND state = 'pending'")
	eventually(t, "the next attempt gets the next response", func() bool { return len(first.linesWith("<-- 200")) == 1 })
	require.Regexp(t, `--> shop\.order\.placed - h1 \(\S+, attempt 1\)`, first.stdout.String())
	require.Contains(t, first.stdout.String(), `"specversion": "1.0"`)
	var heard struct {
		EventID         string `json:"eventId"`
		Attempt, Status int
	}
	require.NoError(t, json.Unmarshal([]byte(last.linesWith("h1")[1]), &heard))
	require.Equal(t, []any{"h1", 2, 200}, []any{heard.EventID, heard.Attempt, heard.Status})

	code, _ := first.stop()
	require.Zero(t, code, first.stderr.String())
	require.Zero(t, one[int](r.db, exists, "first"), "it goes with the program")
	code, _ = last.stop()
	require.Zero(t, code)
}

// busyEndpoint responds to handshakes, and 503 to all other requests.
func busyEndpoint(t *testing.T) string {
	t.Helper()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !local.RespondToHandshake(w, r, body) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(endpoint.Close)
	return endpoint.URL + "/"
}

func tailVerb(t *testing.T, r *remote) {
	t.Helper()
	key := r.topic("followed")
	r.subscribe("followed", "refusing", busyEndpoint(t))
	tail := startProcess(t, r.env, program, "tail", "--topic", "followed")
	filtered := startProcess(t, r.env, program, "tail", "--state", "dead_lettered,dropped", "-o", "json")
	for _, p := range []*process{tail, filtered} {
		eventually(t, "it follows", func() bool { return strings.Contains(p.stderr.String(), "Following") })
	}
	r.publish("followed", key, cloudEvent("f1"))
	eventually(t, "event and attempt are shown", func() bool {
		return len(tail.linesWith("--> followed")) == 1 && len(tail.linesWith("<-- followed/refusing")) == 1
	})
	require.Regexp(t, `f1 attempt 1: 503 Busy in \d`, tail.linesWith("<--")[0])
	require.Empty(t, filtered.linesWith("followed"), "a retry is no end")
	r.db.exec("SELECT postrider.dead_letter_now(delivery_id) FROM postrider.deliveries WHERE topic = 'followed'")
	for _, p := range []*process{tail, filtered} {
		code, _ := p.stop()
		require.Zero(t, code, p.stderr.String())
	}
}

func doctorVerb(t *testing.T, r *remote) {
	t.Helper()
	env := append(r.db.env(), "POSTRIDER_ENCRYPTION_KEY="+testEncryptionKey)
	seen := postrider(t, env, "doctor", "-o", "json")
	require.Equal(t, 1, seen.code, "the tests' PostgreSQL is not durable")
	var found []finding
	require.NoError(t, json.Unmarshal([]byte(seen.stdout), &found))
	checks := map[string]string{}
	for _, f := range found {
		checks[f.Check] = f.Level
		require.Equal(t, f.Level == "ok", f.Remedy == "", f.Message)
	}
	require.Equal(t, "fail", checks["durability"])
	for _, check := range []string{
		"pooler", "version", "clock", "schema", "rights", "vacuum horizon", "partitions", "nodes", "sweeper",
		"encryption key",
	} {
		require.Equal(t, "ok", checks[check], "%s: %s", check, seen.stdout)
	}
	unwell := postrider(t, append(r.db.env(), "POSTRIDER_ENCRYPTION_KEY="+anotherEncryptionKey), "doctor", "--endpoint",
		"http://10.1.2.3/?code=secret")
	require.Equal(t, 1, unwell.code)
	require.Regexp(t, `(?m)^fail +encryption key +.*sealed with key`, unwell.stdout)
	require.Regexp(t, `(?m)^fail +egress +.*10\.1\.2\.3: private`, unwell.stdout)
	require.NotContains(t, unwell.stdout, "code=secret")
}
