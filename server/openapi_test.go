package server_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/policy"
	"postrider/server/openapi"
)

// specification is the OpenAPI document as the tests read it.
type specification struct {
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Parameters map[string]struct{ Name, Example string }
		Responses  map[string]specResponse
		Schemas    map[string]schema
	}
}

type specResponse struct {
	Content map[string]struct{ Example any }
}

// schema is one of the file's, or a property.
type schema struct {
	Ref        string `yaml:"$ref"`
	Enum       []string
	Properties map[string]schema
	Items      *schema
	AllOf      []schema `yaml:"allOf"`
	AnyOf      []schema `yaml:"anyOf"`
}

type operation struct {
	OperationID          string `yaml:"operationId"`
	Access               string `yaml:"x-access"`
	Summary, Description string
	Tags                 []string
	RequestBody          *struct {
		Content map[string]struct {
			Examples map[string]struct{ Value any }
		}
	} `yaml:"requestBody"`
	Responses map[string]specResponse

	method, path, template string
}

func readSpecification(t *testing.T) specification {
	t.Helper()
	spec, err := specificationFile()
	require.NoError(t, err)
	return spec
}

// specificationFile is read once, because every request of the tests is looked up in it.
var specificationFile = sync.OnceValues(func() (spec specification, err error) {
	return spec, yaml.Unmarshal(openapi.Document, &spec)
})

// operations reads openapi.yaml; paths have their parameters' examples filled in.
func operations(t *testing.T) []operation {
	t.Helper()
	spec := readSpecification(t)
	var fill []string
	for _, p := range spec.Components.Parameters {
		fill = append(fill, "{"+p.Name+"}", p.Example)
	}
	var list []operation
	for path, members := range spec.Paths {
		for method, node := range members {
			if method == "parameters" {
				continue
			}
			op := operation{method: strings.ToUpper(method), path: path, template: path}
			require.NoError(t, node.Decode(&op))
			name := "patient" // the built-in ones can only be read
			if method == "get" {
				name = policy.DefaultName
			}
			op.path = strings.NewReplacer(append([]string{"{policy}", name}, fill...)...).Replace(path)
			list = append(list, op)
		}
	}
	require.NotEmpty(t, list)
	return list
}

// exampleEvent is the system id that the examples have.
const exampleEvent = "0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c11"

// The document, and its page, have every operation.
func TestSpecificationHasEveryRoute(t *testing.T) {
	t.Parallel()
	s := setup(t)
	var routes, specified []string
	for _, r := range s.server.Echo().Routes() {
		routes = append(routes, r.Method+" "+regexp.MustCompile(`:(\w+)`).ReplaceAllString(r.Path, "{$1}"))
	}
	for _, op := range operations(t) {
		path, _, _ := strings.Cut(op.template, ":") // which the router has not
		if line := op.method + " " + path; !slices.Contains(specified, line) {
			specified = append(specified, line)
		}
	}
	require.ElementsMatch(t, specified, routes)

	response := s.send(http.MethodGet, "/openapi.yaml", "").is(200)
	require.Equal(t, string(openapi.Document), response.body)
	require.NotContains(t, response.body, "- =\n", "reserved in YAML 1.1")
	require.Equal(t, "application/yaml", response.header.Get("Content-Type"))

	page := s.send(http.MethodGet, "/openapi", "").is(200)
	require.Equal(t, "text/html; charset=UTF-8", page.header.Get("Content-Type"))
	require.Contains(t, page.header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
	shown := html.UnescapeString(page.body)
	for _, op := range operations(t) {
		const row = "<tr id=\"%s\">\n<td><a href=\"#%[1]s\"><b>%s</b> <code>%s</code></a></td><td>%s</td>"
		require.Contains(t, shown, fmt.Sprintf(row, op.OperationID, op.method, op.template, op.Summary))
	}
	require.NotContains(t, page.body, "ZgotmplZ")
}

// recordedFile has the requests and responses of TestExamples. internal/gendocs writes them into the document.
const recordedFile = "openapi/examples.json"

// recorded has the examples of an operation: of requests by content type and name, and of responses by status and
// content type.
type recorded struct {
	Requests  map[string]map[string]json.RawMessage `json:"requests,omitempty"`
	Responses map[string]map[string]json.RawMessage `json:"responses,omitempty"`
}

// TestExamples sends requests to all operations. They and the responses are the examples of the document.
func TestExamples(t *testing.T) {
	t.Parallel()
	s := setup(t)
	stored, err := os.ReadFile(recordedFile)
	require.NoError(t, err)
	examples := map[string]recorded{}
	require.NoError(t, json.Unmarshal(stored, &examples))
	byID := map[string]operation{}
	for _, op := range operations(t) {
		byID[op.OperationID] = op
	}
	publishing, activity := byID["publishCloudEvents"], ""
	// Topics with other input schemas.
	s.topic("notes", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	s.topic("parcels", `{"kind":"namespace"}`)
	// The published event is held by a probation, as in the examples.
	before := map[string]func(){
		"publishEvents": func() { s.probation("orders", "billing") },
		"listTopics": func() {
			for _, name := range []string{"notes", "parcels"} {
				s.delete("/v1/topics/" + name).is(204)
			}
		},
		"listDeadLetters": func() {
			s.change("WITH others AS (DELETE FROM postrider_internal.dead_letters) SELECT 1")
			s.exampleDeadLetter()
		},
		"getOperation": func() {
			s.change("UPDATE postrider_internal.operations SET id = $1, job_id = NULL WHERE id = (SELECT id "+
				"FROM postrider_internal.operations ORDER BY id LIMIT 1)", exampleOperation)
		},
		"getDelivery": func() {
			s.change("UPDATE postrider_internal.events SET id = $1 WHERE topic_id = (SELECT topic_id "+
				"FROM postrider_internal.deliveries)", exampleEvent)
			s.change("UPDATE postrider_internal.deliveries SET event_uuid = $1", exampleEvent)
		},
		"getSubscription": func() {
			s.change("UPDATE postrider_internal.deliveries SET hold = last_hold, last_hold = NULL, batch_id = NULL WHERE id = 1")
		},
		// After a resume, an engine creates a job for the delivery.
		"retryDelivery": func() {
			id := s.count("SELECT subscription_id FROM postrider.event_subscriptions WHERE subscription = 'billing'")
			released, err := s.store.Releaser.Refill(t.Context(), int64(id), false, 1)
			require.NoError(t, err)
			require.Equal(t, 1, released)
		},
		"listEvents": func() {
			require.Equal(t, 6, s.count("SELECT count(*) FROM postrider.events WHERE topic IN ('notes', 'parcels')"),
				"three of each topic")
			s.change("WITH gone AS (DELETE FROM postrider_internal.events WHERE id <> $1) SELECT 1", exampleEvent)
		},
		"listBatches": func() {
			s.change(`WITH moment AS (SELECT '2026-11-20T09:31:00Z'::timestamptz AS at)
				INSERT INTO postrider_internal.batches (id, subscription_id, state, members, delivery_ids, bytes,
				    attempts, last_outcome, last_status, first_attempt_at, last_attempt_at, finished_at)
				SELECT 1, id, 'delivered', 2, '{1}', 367, 1, 'Delivered', 200, at, at, at
				FROM moment, postrider_internal.event_subscriptions WHERE name = 'billing'`)
			s.change("UPDATE postrider_internal.deliveries SET last_hold = hold, hold = NULL, batch_id = 1 WHERE id = 1")
			s.change(`INSERT INTO postrider_internal.delivery_attempts (day, batch_id, subscription_id, job_id, number, due_at,
				    started_at, duration_us, first_byte_us, status, outcome, verdict, rule, node)
				SELECT (now() AT TIME ZONE 'UTC')::date, 1, id, 1, 1, '2026-11-20T09:31:00Z', '2026-11-20T09:31:00Z', 12500, 12250,
				       200, 'Delivered', 'deliver', 'delivered', 'node-1' FROM postrider_internal.event_subscriptions
				WHERE name = 'billing'`)
		},
		// A first page is empty.
		"listActivity": func() {
			_, activity, _ = strings.Cut(s.get("/v1/activity").json(200)["nextLink"].(string), "/v1/activity")
			s.change(`INSERT INTO postrider_internal.delivery_attempts (day, delivery_id, subscription_id, job_id, number,
				    due_at, started_at, duration_us, status, outcome, response_excerpt, verdict, rule, node)
				SELECT (now() AT TIME ZONE 'UTC')::date, 1, id, 2, 1, now(), now(), 12500, 503, 'Busy', 'try later', 'retry',
				       '503', 'node-1' FROM postrider_internal.event_subscriptions WHERE name = 'billing'`)
		},
		"putQuery": func() { s.queryLogins() },
		"listAudit": func() {
			s.change("WITH gone AS (DELETE FROM postrider_internal.audit) SELECT 1")
			s.change("SELECT setval('postrider_internal.audit_id_seq', 1, false)")
			s.change(`SELECT postrider_internal.note_audit('user:anna', '192.0.2.1', 'subscription_paused', 'orders', 'billing',
				    '{"stopTimeToLive": true}')`)
			s.change("UPDATE postrider_internal.audit SET at = '2026-11-20T09:31:00Z'")
		},
		// A delivery ends once.
		"deadLetterDelivery": func() {
			s.change(`WITH gone AS (DELETE FROM postrider_internal.delivery_history RETURNING *)
				INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day, event_bytes,
				    time_to_live_since, next_attempt_at, hold)
				SELECT id, subscription_id, topic_id, event_uuid, event_day, 100, time_to_live_since, now(), 'admission' FROM gone`)
		},
		// More than are erased at once.
		"eraseSubject": func() {
			letters := make([]string, 1001)
			for i := range letters {
				letters[i] = fmt.Sprintf(`{"id":"n-%d","subject":"newsletters/november","eventType":"Shop.Newsletter",`+
					`"eventTime":"2026-11-20T09:30:00Z","dataVersion":"1"}`, i)
			}
			s.post("/topics/orders/api/events", "["+strings.Join(letters, ",")+"]").is(200)
		},
		"receiveEvents": func() {
			s.topic("parcels", `{"kind":"namespace"}`)
			s.subscription("parcels", "billing", queueMode)
			one := requests(publishing)[0]
			s.send(http.MethodPost, one.path, one.body, "Authorization", "Bearer "+adminToken, "Content-Type",
				one.contentType).json(200)
		},
		"renewLocks": s.exampleLock,
		"acknowledgeEvents": func() {
			s.post("/topics/parcels/eventsubscriptions/billing:receive", "").json(200)
			s.exampleLock()
		},
		"eraseEvent": func() {
			s.change("UPDATE postrider_internal.events SET erased_at = NULL WHERE id = $1", exampleEvent)
		},
		"listProblems": func() {
			s.change(`UPDATE postrider_internal.deliveries SET last_outcome = 'Busy', attempts = 1
				WHERE id = (SELECT max(id) FROM postrider_internal.deliveries WHERE NOT pulled)`)
			s.change("INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail, count) " +
				"SELECT date_trunc('minute', now()), topic_id, id, 'attempt', 'Busy', 3 " +
				"FROM postrider_internal.event_subscriptions WHERE name = 'billing'")
		},
		"getProblem": func() {
			s.change(`INSERT INTO postrider_internal.problems (id, subscription_id, outcome, since, last_failed_at, last_status)
				SELECT $1, id, 'Busy', now(), now(), 503 FROM postrider_internal.event_subscriptions WHERE name = 'billing'`,
				exampleProblem)
		},
		"allowRelay": func() {
			s.delete("/v1/topics/orders/subscriptions/audit").is(204)
			s.delete("/v1/topics/orders").is(204)
			s.topic("orders", `{"relay":"azure","inputSchema":"CloudEventSchemaV1_0"}`)
		},
		"getRelayFeed": func() { s.change("UPDATE postrider_internal.relay_feeds SET id = 17") },
		"openValidationUrl": func() {
			sealer, err := postgres.NewSealer(testnode.Key)
			require.NoError(t, err)
			s.change("UPDATE postrider_internal.handshakes SET code_hash = $1, callback = true",
				sealer.Mac("handshake "+exampleCode))
		},
	}
	queries := map[string]func() string{ // of requests
		"listActivity":      func() string { return activity },
		"openValidationUrl": func() string { return "?id=" + exampleCode },
		"postValidationUrl": func() string { return "?id=" + exampleCode },
	}
	for _, id := range []string{
		"health", "readiness", "metrics", "specification", "reference", "putTopic", "getTopic", "listTopicKeys",
		"regenerateTopicKey", "putSubscription", "publishEvents", "publishCloudEvents", "listTopics",
		"getDelivery", "listDeliveryAttempts", "listDeliveries", "listEvents", "getEvent", "listBatches", "getBatch",
		"listBatchMembers", "listBatchAttempts", "listActivity",
		"getSubscription", "listSubscriptions", "probeSubscription", "releaseSubscription", "pauseSubscription",
		"resumeSubscription",
		"retryDelivery", "cancelDelivery", "deadLetterDelivery",
		"testSubscriptionFilter", "testFilter", "revealSubscriptionEndpoint", "revealSubscriptionHeaders",
		"patchSubscription",
		"getSigningSecrets", "rotateSigningSecret",
		"listDeadLetters", "getDeadLetter", "putQuery", "getQuery", "listQueries", "runQuery", "runSQL", "deleteQuery",
		"exportDeadLetters", "redeliverDeadLetters", "getOperation",
		"redeliverDeadLetter", "redeliverEvents", "resolveDeadLetter", "reopenDeadLetter", "resolveDeadLetters",
		"purgeDeadLetters", "listOperations", "cancelOperation",
		"repairDeadLetters", "retryDeliveries", "cancelDeliveries", "redeliverEvent", "purgeDeadLetter", "importDeadLetters",
		"listAudit", "createAPIKey", "listAPIKeys", "getAPIKey", "revokeAPIKey", "putUser", "getUser", "listUsers",
		"whoAmI", "deleteUser",
		"listPolicies", "getPolicy", "putPolicy", "deletePolicy", "eraseSubject", "eraseEvent", "testDelivery",
		"listProblems", "getProblem", "acknowledgeProblem", "resolveProblem", "validateSubscription",
		"openValidationUrl", "postValidationUrl", "deleteSubscription", "deleteTopic",
		"receiveEvents", "renewLocks", "releaseEvents", "acknowledgeEvents", "rejectEvents", "applyConfiguration",
		"allowRelay", "listRelayFeeds", "getRelayFeed", "openRelayCallback",
	} {
		if prepare := before[id]; prepare != nil {
			prepare()
		}
		op, known := byID[id]
		require.True(t, known, id)
		delete(byID, id)
		if query := queries[id]; query != nil {
			op.path += query()
		}
		now := s.recordExample(op)
		if *testdb.Update && comparable(t, now) != comparable(t, examples[id]) {
			examples[id] = now
		}
		require.Equal(t, comparable(t, examples[id]), comparable(t, now), "%s: record the examples with "+
			"go test ./server -run TestExamples -update, then run go run ./internal/gendocs", id)
	}
	if *testdb.Update {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		require.NoError(t, encoder.Encode(examples))
		require.NoError(t, os.WriteFile(recordedFile, text.Bytes(), 0o600))
	}
	require.Empty(t, slices.Collect(maps.Keys(byID)), "operations that this test does not order")
	require.Equal(t, 3,
		s.count("SELECT count(*) FROM postrider.events WHERE topic = 'orders' AND event_type IS DISTINCT "+
			"FROM 'Shop.Newsletter'"), "the one that was published, the sample of testDelivery, and the edited one")
}

// The ids in openapi.yaml.
const (
	exampleDeadLetter = "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60"
	exampleOperation  = "0198c5a2-11aa-7d20-8e31-0c9f6b7a5e42"
	exampleProblem    = "3f0c6c9e-5b1d-8a54-8e2f-6f0c1d2b3a45"
	exampleCode       = "6b1f0d52-8f0e-4b35-9c47-2a5d7e1c3f90"
)

// exampleDeadLetter stores the dead letter of the examples.
func (s *service) exampleDeadLetter() {
	s.t.Helper()
	s.change(`INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id,
		    topic, subscription, endpoint_base_url, reason, attempts, last_outcome,
		last_status, last_response, first_attempt_at, last_attempt_at, time_to_live_since, published_at, event_time,
		    event_uuid,
		    event_id, event_type, subject, source, data_version, schema, retry_policy, body)
		SELECT $1, '2024-11-20T09:40:00Z', 4711, s.id, s.topic_id, 'orders', 'billing', s.endpoint_base_url,
		       'MaxDeliveryAttemptsExceeded', 10, 'Busy', 503, 'try later', '2024-11-20T09:32:00Z',
		'2024-11-20T09:40:00Z', '2024-11-20T09:32:00Z', '2024-11-20T09:32:00Z', '2024-11-20T09:32:00Z',
		    '0198c5a0-0000-7000-8000-000000000042', 'o-42', 'Shop.OrderPlaced', 'orders/42', '', '1',
		'EventGridSchema', 'ga-2021',
		    '{"id":"o-42","eventType":"Shop.OrderPlaced","subject":"orders/42","eventTime":"2024-11-20T09:32:00Z",'
		    '"dataVersion":"1","data":{"total":9.50}}'
		FROM postrider_internal.event_subscriptions s WHERE s.name = 'billing'`, exampleDeadLetter)
}

// exampleLock gives the only lock the token of the examples.
func (s *service) exampleLock() {
	s.t.Helper()
	s.change("UPDATE postrider_internal.deliveries SET id = 4711 WHERE pulled")
	s.change(`UPDATE postrider_internal.river_job
		SET args = args || '{"d":4711,"l":"3f0c2a9e-5d41-4b7a-9c1e-8f6d2b7a4c11"}' WHERE kind = 'lock'`)
}

// recordExample sends the requests of an operation, and returns them with the first response of each status.
func (s *service) recordExample(op operation) recorded {
	s.t.Helper()
	r := recorded{Responses: map[string]map[string]json.RawMessage{}}
	for _, request := range requests(op) {
		headers := []string{"Authorization", "Bearer " + adminToken, "Content-Type", request.contentType}
		if op.OperationID == "allowRelay" {
			headers = append(headers, "WebHook-Request-Origin", "eventgrid.azure.net", "WebHook-Request-Callback",
				azureCallback)
		}
		response := s.send(op.method, request.path, request.body, headers...)
		require.Equal(s.t, 2, response.status/100, "%s: %s: %s", op.OperationID, request, response.body)
		status := strconv.Itoa(response.status)
		require.Contains(s.t, op.Responses, status, op.OperationID)
		if request.name != "" {
			if r.Requests == nil {
				r.Requests = map[string]map[string]json.RawMessage{}
			}
			if r.Requests[request.contentType] == nil {
				r.Requests[request.contentType] = map[string]json.RawMessage{}
			}
			r.Requests[request.contentType][request.name] = json.RawMessage(request.body)
		}
		contentType, _, _ := strings.Cut(response.header.Get("Content-Type"), ";")
		if r.Responses[status] != nil || response.body == "" || slices.Contains(withoutExample, op.OperationID) {
			continue
		}
		body := json.RawMessage(response.body)
		if !json.Valid(body) {
			body, _ = json.Marshal(response.body) // a text
		}
		if op.OperationID == "listPolicies" || op.OperationID == "listQueries" { // the first one that is no template
			var page struct {
				Value    []json.RawMessage `json:"value"`
				NextLink *string           `json:"nextLink"`
			}
			require.NoError(s.t, json.Unmarshal(body, &page))
			page.Value = slices.DeleteFunc(page.Value, func(entry json.RawMessage) bool {
				return bytes.Contains(entry, []byte(`"template":true`))
			})[:1]
			body, _ = json.Marshal(page)
		}
		r.Responses[status] = map[string]json.RawMessage{contentType: body}
	}
	for status, specified := range op.Responses {
		if status < "300" && len(specified.Content) > 0 && !slices.Contains(withoutExample, op.OperationID) {
			require.NotEmpty(s.t, r.Responses, "%s has no example of a response", op.OperationID)
		}
	}
	return r
}

// withoutExample are the operations whose response is a page or a file.
var withoutExample = []string{"metrics", "specification", "reference"}

// exampleRequest is a request to an operation.
type exampleRequest struct{ path, name, contentType, body string }

// requests are the requests to send: exampleRequests, or one without a body.
func requests(op operation) []exampleRequest {
	if op.Access == "receive" || op.OperationID == "publishCloudEvents" {
		op.path = strings.Replace(op.path, "orders", "parcels", 1)
	}
	if op.RequestBody == nil {
		return []exampleRequest{{path: op.path}}
	}
	list := slices.Clone(exampleRequests[op.OperationID])
	for i := range list {
		r := &list[i]
		var body bytes.Buffer // sizes in responses do not depend on white space
		if err := json.Compact(&body, []byte(r.body)); err != nil {
			panic(err)
		}
		r.path, r.contentType, r.body = op.path, cmp.Or(r.contentType, "application/json"), body.String()
		if op.OperationID == "publishEvents" && strings.HasPrefix(r.contentType, "application/cloudevents") {
			r.path = strings.Replace(op.path, "orders", "notes", 1)
		}
	}
	return list
}

// value is the body: JSON, or text.
func (a response) value() any {
	var v any
	if json.Unmarshal([]byte(a.body), &v) != nil {
		return a.body
	}
	return v
}
