package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// queueMode are the settings of an event subscription for consumers.
const queueMode = `{"deliveryConfiguration":{"deliveryMode":"Queue"}}`

const queuePath = "/topics/shop/eventsubscriptions/billing"

// queue has a namespace topic whose event subscription has delivery mode Queue.
type queue struct {
	*service
	key string
}

func setupQueue(t *testing.T) *queue {
	t.Helper()
	s := setup(t)
	key := s.topic("shop", `{"kind":"namespace"}`)
	s.subscription("shop", "billing", queueMode)
	return &queue{s, key}
}

// publishes stores CloudEvents.
func (q *queue) publishes(events ...string) {
	q.t.Helper()
	q.send(http.MethodPost, "/topics/shop:publish", "["+strings.Join(events, ",")+"]", "Content-Type",
		"application/cloudevents-batch+json", "aeg-sas-key", q.key).json(200)
}

// do sends an operation, such as receive?maxEvents=2.
func (q *queue) do(operation, body string) response {
	q.t.Helper()
	return q.send(http.MethodPost, queuePath+":"+operation, body, "Authorization", "SharedAccessKey "+q.key)
}

// received are the lock tokens and delivery counts of the events of a receive, by the id of the event.
func (q *queue) received(maxEvents int) (tokens map[string]string, counts map[string]int) {
	q.t.Helper()
	tokens, counts = map[string]string{}, map[string]int{}
	found := q.do(fmt.Sprintf("receive?maxEvents=%d", maxEvents), "").json(200)
	for _, one := range found["value"].([]any) {
		broker, event := one.(map[string]any)["brokerProperties"].(map[string]any), one.(map[string]any)["event"]
		id := event.(map[string]any)["id"].(string)
		tokens[id], counts[id] = broker["lockToken"].(string), int(broker["deliveryCount"].(float64))
	}
	return tokens, counts
}

func lockTokens(tokens ...string) string {
	return `{"lockTokens":["` + strings.Join(tokens, `","`) + `"]}`
}

// settled is the response about tokens, with the codes of failed ones.
func settled(a response) (succeeded []any, failed map[string]string) {
	a.t.Helper()
	answer := a.json(200)
	require.Len(a.t, answer, 2)
	failed = map[string]string{}
	for _, one := range answer["failedLockTokens"].([]any) {
		f := one.(map[string]any)
		require.NotEmpty(a.t, f["error"].(map[string]any)["message"])
		failed[f["lockToken"].(string)] = f["error"].(map[string]any)["code"].(string)
	}
	return answer["succeededLockTokens"].([]any), failed
}

// An event arrives byte by byte as it was published, with every extension attribute.
func TestReceive(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	events := []string{
		`{"specversion":"1.0","id":"1","source":"/a","type":"t","ext1":"x","data":{"n":1.50,"html":"<b>&</b>","é":"\u00e9"}}`,
		`{"id":"2","type":"t","source":"/a","specversion":"1.0", "data_base64":"AAH+/w==","time":"2026-11-20T09:30:00.000Z"}`,
		`{"specversion":"1.0","id":"3","source":"/a","type":"t","data":false}`,
	}
	q.publishes(events...)
	a := q.do("receive?api-version=2024-06-01&maxEvents=2", "")
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, "application/json; charset=utf-8", a.header.Get("Content-Type"))
	var tokens []string
	text := regexp.MustCompile(`"lockToken":"([^"]{32})"`).ReplaceAllStringFunc(a.body, func(s string) string {
		tokens = append(tokens, s[len(`"lockToken":"`):len(s)-1])
		return `"lockToken":"T"`
	})
	require.Equal(t, `{"value":[{"brokerProperties":{"lockToken":"T","deliveryCount":1},"event":`+events[0]+
		`},{"brokerProperties":{"lockToken":"T","deliveryCount":1},"event":`+events[1]+`}]}`, text)
	succeeded, failed := settled(q.do("acknowledge?api-version=2024-06-01", lockTokens(tokens...)))
	require.Equal(t, []any{tokens[0], tokens[1]}, succeeded)
	require.Empty(t, failed)
	last, counts := q.received(100)
	require.Equal(t, map[string]int{"3": 1}, counts)
	require.Len(t, last, 1)
	require.Equal(t, []map[string]any{
		{"event_id": "1", "state": "delivered"},
		{"event_id": "2", "state": "delivered"},
		{"event_id": "3", "state": "pending"},
	}, q.rows("SELECT event_id, state FROM postrider.deliveries ORDER BY event_id"))
}

// Of equal tokens, the first succeeds. A token of another event subscription has no effect. jobs/pull has the rest.
func TestSettle(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	q.subscription("shop", "stock", queueMode)
	q.publishes(cloudEvent("ack"), cloudEvent("again"), cloudEvent("later"), cloudEvent("no"), cloudEvent("renewed"))
	tokens, _ := q.received(100)
	for operation, id := range map[string]string{
		"renewLock": "renewed", "acknowledge": "ack", "release": "again", "reject": "no",
		"release?ReleaseDelayInSeconds=3600": "later",
	} {
		succeeded, failed := settled(q.do(operation, lockTokens(tokens[id])))
		require.Equal(t, []any{tokens[id]}, succeeded, operation)
		require.Empty(t, failed, operation)
	}
	again, counts := q.received(100)
	require.Equal(t, map[string]int{"again": 2}, counts)
	require.NotEqual(t, tokens["again"], again["again"])
	for _, operation := range []string{"acknowledge", "release", "reject", "renewLock"} {
		succeeded, failed := settled(q.do(operation, lockTokens(tokens["ack"], "nonsense", tokens["again"], "")))
		require.Empty(t, succeeded, operation)
		require.Equal(t, map[string]string{
			tokens["ack"]: "TokenLost", tokens["again"]: "TokenLost", "nonsense": "BadToken", "": "BadToken",
		}, failed, operation)
		succeeded, failed = settled(q.do(operation, `{"lockTokens":[]}`))
		require.Empty(t, succeeded, operation)
		require.Empty(t, failed, operation)
	}
	elsewhere := q.send(http.MethodPost, "/topics/shop/eventsubscriptions/stock:acknowledge",
		lockTokens(tokens["renewed"]), "aeg-sas-key", q.key)
	_, failed := settled(elsewhere)
	require.Equal(t, map[string]string{tokens["renewed"]: "TokenLost"}, failed)
	succeeded, failed := settled(q.do("acknowledge", lockTokens(tokens["renewed"], "x", tokens["renewed"])))
	require.Equal(t, []any{tokens["renewed"]}, succeeded)
	require.Equal(t, map[string]string{tokens["renewed"]: "TokenLost", "x": "BadToken"}, failed)
	require.Equal(t, "ack delivered,again pending,later pending,no dead_lettered,renewed delivered",
		q.tn.Text(t, "SELECT string_agg(event_id||' '||state, ',' ORDER BY event_id) FROM postrider.deliveries "+
			"WHERE subscription = 'billing'"))
	require.Equal(t, 1, q.count("SELECT count(*) FROM postrider.deliveries WHERE event_id = 'later' "+
		"AND next_attempt_at > now() + interval '59 minutes'"))
}

func TestConsumerRejections(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	q.subscription("shop", "push", `{"endpointUrl":"https://example.com"}`)
	for _, row := range []struct{ operation, body, target, message string }{
		{"receive?maxEvents=0", "", "maxEvents", `maxEvents must be an integer between 1 and 100, not "0"`},
		{"receive?maxevents=101", "", "maxEvents", `between 1 and 100, not "101"`},
		{"receive?maxWaitTime=9", "", "maxWaitTime", `maxWaitTime must be an integer between 10 and 120, not "9"`},
		{"receive?MAXWAITTIME=", "", "maxWaitTime", `not ""`},
		{"receive?api-version=2018-01-01", "", "api-version", `must be 2023-11-01 or 2024-06-01, or absent`},
		{
			"release?releaseDelayInSeconds=5", lockTokens("a"), "releaseDelayInSeconds",
			`must be one of 0, 10, 60, 600, 3600, not "5"`,
		},
		{"acknowledge", `{}`, "lockTokens", "is required"},
		{"reject", `{"lockTokens":"a"}`, "lockTokens", "must be an array of strings, not of string"},
		{"renewLock", `{"lockTokens":[1]}`, "lockTokens", "must be an array of strings, not of number"},
		{
			"release", lockTokens(strings.Split(strings.Repeat("a", 1001), "")...), "lockTokens",
			"must have at most 1000 tokens, not 1001",
		},
	} {
		rejected := q.do(row.operation, row.body).rejected(400, "InvalidRequest")
		require.Equal(t, []string{row.target}, targets(rejected), row.operation)
		require.Contains(t, rejected.Message, row.message, row.operation)
	}
	for _, body := range []string{"", "[]", "{", `"a"`} {
		q.do("acknowledge", body).rejected(400, "InvalidRequest")
	}
	q.do("acknowledge", `{"lockTokens":["`+strings.Repeat("a", 1<<20)+`"]}`).rejected(413, "PayloadTooLarge")
	q.do("peek", "").rejected(404, "NotFound")
	q.do("Receive", "").rejected(404, "NotFound")
	q.send(http.MethodPost, queuePath, "", "aeg-sas-key", q.key).rejected(404, "NotFound")
	q.send(http.MethodGet, queuePath+":receive", "").rejected(405, "MethodNotAllowed")

	admin := func(path string) response { return q.post(path+":receive", "") }
	require.Contains(t, admin("/topics/shop/eventsubscriptions/never").rejected(404, "NotFound").Message,
		`topic "shop" has no event subscription "never"`)
	require.Contains(t, admin("/topics/never/eventsubscriptions/billing").rejected(404, "NotFound").Message,
		`topic "never" does not exist`)
	require.Contains(t, admin("/topics/shop/eventsubscriptions/push").rejected(400, "InvalidRequest").Message,
		`event subscription "push" of topic "shop" has deliveryMode Push`)
}

// What clients send besides the operation is ignored, and names may be encoded more than necessary.
func TestTolerantRequestsOfConsumers(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	for i, path := range []string{
		queuePath + ":receive?API-VERSION=2023-11-01&MaxEvents=1&MAXWAITTIME=10&unknown=1",
		"/topics/sho%70/eventsubscriptions/%62illing%3Areceive",
		"/topics/shop/eventsubscriptions/billing:%72eceive?releaseDelayInSeconds=5",
	} {
		q.publishes(cloudEvent(fmt.Sprint(i)))
		require.Len(t, q.post(path, `{"any":"body"}`).json(200)["value"], 1, path)
	}
	succeeded, failed := settled(q.do("acknowledge?releaseDelayInSeconds=5", `{"LOCKTOKENS":["a"],"more":1}`))
	require.Empty(t, succeeded)
	require.Equal(t, map[string]string{"a": "BadToken"}, failed)
}

func TestConsumerCredentials(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	other := q.topic("other", `{"kind":"namespace"}`)
	q.subscription("shop", "stock", queueMode)
	future := time.Now().Add(time.Hour).UTC().Format(isoPlain)
	signed := func(key, path string) string {
		return "SharedAccessSignature " + token(t, key, "https://localhost"+path, future, python)
	}
	keyOf := func(name string) string { // of one event subscription
		body := fmt.Sprintf(`{"name":%q,"scope":"receive","topic":"shop","subscription":%[1]q}`, name)
		return q.post("/v1/apiKeys", body).json(201)["key"].(string)
	}
	one := keyOf("billing")
	for i, row := range []struct {
		value  string // of Authorization
		status int
	}{
		{"SharedAccessKey " + q.key, 200},
		{"Bearer " + q.key, 200},
		{signed(q.key, ""), 200},
		{signed(q.key, "/topics/shop"), 200},
		{signed(q.key, queuePath), 200},
		{signed(q.key, queuePath+":receive"), 200},
		{signed(q.key, queuePath+":release"), 401},
		{signed(q.key, "/topics/shop/eventsubscriptions/bill"), 401},
		{signed(q.key, "/topics/shop:publish"), 401},
		{signed(other, queuePath), 401},
		{"SharedAccessKey " + other, 401},
		{"Bearer " + one, 200},
		{"Bearer " + keyOf("stock"), 403},
		{"Bearer " + q.apiKey("all", "receive", ""), 200},
		{"Bearer " + q.apiKey("shop", "receive", "shop"), 200},
		{"Bearer " + q.apiKey("other", "receive", "other"), 403},
		{"Bearer " + q.apiKey("publisher", "publish", "shop"), 403},
		{"Bearer " + q.apiKey("operator", "operate", ""), 403},
		{"Bearer " + q.apiKey("root", "admin", ""), 200},
		{"Bearer " + adminToken, 200},
	} {
		q.publishes(cloudEvent(fmt.Sprint(i)))
		a := q.send(http.MethodPost, queuePath+":receive", "", "Authorization", row.value)
		require.Equal(t, row.status, a.status, "%d %s: %s", i, row.value, a.body)
	}
	for _, credential := range []string{q.key, one} {
		q.publishes(cloudEvent("x"))
		q.send(http.MethodPost, queuePath+":receive", "", "aeg-sas-key", credential).is(200)
	}
	const consumers = `SELECT string_agg(DISTINCT replace(args ->> 'c', ' 127.0.0.1', ''), ' ') AS names
		FROM postrider_internal.river_job WHERE kind = 'lock'`
	require.Equal(t, "accessKey admin key:all key:billing key:root key:shop", q.rows(consumers)[0]["names"])
	q.send(http.MethodPost, "/topics/shop:publish", cloudEvent("x"), "Content-Type", "application/cloudevents+json",
		"aeg-sas-key", one).is(403) // it only receives
}

// waits sends a receive that waits.
func (q *queue) waits() *rawRequest {
	q.t.Helper()
	waiting := q.store.Receiver.Waiting()
	r := q.sendRaw(http.MethodPost, queuePath+":receive?maxWaitTime=120", "", "aeg-sas-key", q.key)
	require.Eventually(q.t, func() bool { return q.store.Receiver.Waiting() > waiting }, time.Minute, time.Millisecond)
	return r
}

func (q *queue) requireNoneWaiting() {
	q.t.Helper()
	require.Eventually(q.t, func() bool { return q.store.Receiver.Waiting() == 0 }, time.Minute, time.Millisecond)
}

// A receive waits longer than the limits of a connection, and gets the event at once.
func TestReceiveWaits(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	limited := *q.service
	limited.url = "http://" + q.listen(func(s *http.Server) {
		s.ReadTimeout, s.WriteTimeout = time.Second, time.Second
	})
	r := (&queue{&limited, q.key}).waits()
	slow, err := net.Dial("tcp", strings.TrimPrefix(limited.url, "http://"))
	require.NoError(t, err)
	defer slow.Close()
	_, err = io.WriteString(slow, "POST /topics/shop:publish HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\naeg-sas-key: "+
		q.key+"\r\n\r\n")
	require.NoError(t, err)
	_, _ = io.ReadAll(slow) // ends when the limits have cut this request off, which began later
	q.publishes(cloudEvent("1"))
	a := r.response()
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.NotZero(t, a.ContentLength)
	require.Equal(t, 1, q.count("SELECT count(*) FROM postrider.deliveries WHERE waits_for = 'lock'"))
}

// A change of the delivery mode, and a deletion, end receives that wait. Until its lock ends, a token outlives the
// delivery mode: jobs/pull has what becomes of it. It does not outlive its event subscription.
func TestConsumersOfAChangedSubscription(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	const path = "/v1/topics/shop/subscriptions/billing"
	q.publishes(cloudEvent("1"))
	tokens, _ := q.received(1)
	waiting := q.waits()
	q.put(path, `{"endpointUrl":"https://example.com"}`).json(200)
	require.Equal(t, http.StatusBadRequest, waiting.response().StatusCode)
	succeeded, _ := settled(q.do("acknowledge", lockTokens(tokens["1"])))
	require.Equal(t, []any{tokens["1"]}, succeeded)
	q.put(path, queueMode).json(200)
	q.publishes(cloudEvent("2"))
	tokens, _ = q.received(1)
	waiting = q.waits()
	q.delete(path).is(204)
	require.Equal(t, http.StatusNotFound, waiting.response().StatusCode)
	for _, operation := range []string{"acknowledge", "release", "reject", "renewLock"} {
		rejected := q.do(operation, lockTokens(tokens["2"])).rejected(404, "NotFound")
		require.Equal(t, `topic "shop" has no event subscription "billing"`, rejected.Message, operation)
	}
}

// HTTP/2 has the limits of the server for each stream.
func TestReceiveWaitsOverHTTP2(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	srv := httptest.NewUnstartedServer(q.server.Handler())
	srv.EnableHTTP2, srv.Config.WriteTimeout = true, time.Second
	srv.StartTLS()
	t.Cleanup(srv.Close)
	client := srv.Client()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	type result struct {
		body  []byte
		major int
		err   error
	}
	results := make(chan result, 1)
	receive := func() (r result) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+queuePath+":receive", nil)
		if err != nil {
			return result{err: err}
		}
		request.Header.Set("aeg-sas-key", q.key)
		response, err := client.Do(request)
		if err != nil {
			return result{err: err}
		}
		defer response.Body.Close()
		r.body, r.err = io.ReadAll(response.Body)
		r.major = response.ProtoMajor
		return r
	}
	go func() { results <- receive() }()
	require.Eventually(t, func() bool { return q.store.Receiver.Waiting() == 1 }, time.Minute, time.Millisecond)
	blocker, _ := q.lockTables("postrider_internal.topics, postrider_internal.audit")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/v1/topics/shop/listKeys", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+adminToken)
	_, err = client.Do(request)
	require.Error(t, err, "the limit has cut this request off, which began later")
	require.NoError(t, blocker.Rollback(t.Context()))
	q.publishes(cloudEvent("1"))
	got := <-results
	require.NoError(t, got.err)
	require.Equal(t, 2, got.major)
	require.Contains(t, string(got.body), cloudEvent("1"))
}

// A consumer that closes its connection while it waits locks nothing.
func TestDisconnectedConsumersLockNothing(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	q.waits().reset()
	q.requireNoneWaiting()
	a := q.waits().halfClose().response()
	require.Equal(t, http.StatusOK, a.StatusCode)
	q.publishes(cloudEvent("1"))
	require.Equal(t, 1, q.count("SELECT count(*) FROM postrider.deliveries WHERE waits_for = 'consumer'"))
	_, counts := q.received(1)
	require.Equal(t, map[string]int{"1": 1}, counts)
}

// brokenWriter fails when the body is written, as if the client were gone.
type brokenWriter struct{ http.ResponseWriter }

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// unflushedWriter fails when the connection is written to.
type unflushedWriter struct{ http.ResponseWriter }

func (unflushedWriter) FlushError() error { return errors.New("broken pipe") }

// Events that could not be sent are available again, and the receive does not count.
func TestFailedWriteReturnsEvents(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	q.publishes(cloudEvent("1"), cloudEvent("2"))
	for _, w := range []http.ResponseWriter{
		brokenWriter{httptest.NewRecorder()}, unflushedWriter{httptest.NewRecorder()},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, queuePath+":receive?maxEvents=100", nil)
		r.Header.Set("aeg-sas-key", q.key)
		q.server.Handler().ServeHTTP(w, r)
		require.Equal(t, []map[string]any{{"waits_for": "consumer", "attempts": int32(0)}},
			q.rows("SELECT DISTINCT waits_for, attempts FROM postrider.deliveries"))
	}
	require.Zero(t, q.count("SELECT count(*) FROM postrider.delivery_attempts"))
	_, counts := q.received(100)
	require.Equal(t, map[string]int{"1": 1, "2": 1}, counts)
}

// A change of the configuration on another node is found at once.
func TestConsumersOfAnotherNode(t *testing.T) {
	t.Parallel()
	q := setupQueue(t)
	elsewhere := q.node(q.tn.URL, 0)
	q.subscription("shop", "changed", `{"endpointUrl":"https://example.com"}`)
	q.put("/v1/topics/shop/subscriptions/changed", queueMode).json(200)
	q.publishes(cloudEvent("1"))
	a := elsewhere.send(http.MethodPost, "/topics/shop/eventsubscriptions/changed:receive", "", "aeg-sas-key", q.key)
	require.Len(t, a.json(200)["value"], 1)
}
