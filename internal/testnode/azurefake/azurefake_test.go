package azurefake

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	primary   = "cG9zdHJpZGVyLXRlc3Qta2V5LW9mLXRoZS1mYWtlISE="
	now       = 1767323045
	batchType = "application/vnd.microsoft.servicebus.json"
)

// right is a correct request; a case of a test makes it wrong.
type right struct {
	method, path, token, body string
	header                    http.Header
}

func newServer(t *testing.T) *Server {
	s := New(t, Options{
		Keys: []Keys{{Name: "sender", Primary: primary}}, Now: func() time.Time { return time.Unix(now, 0) },
	})
	s.AddQueue("orders", Entity{})
	s.AddQueue("sessions", Entity{RequiresSession: true, DetectDuplicates: true})
	s.AddTopic("a/topic", Entity{MaxBytes: 100})
	s.AddHub("hub", Entity{})
	return s
}

func token(resource string, expiry int64, name, key string) string {
	encoded := url.QueryEscape(resource)
	mac := hmac.New(sha256.New, []byte(key))
	_, _ = fmt.Fprintf(mac, "%s\n%d", encoded, expiry)
	signature := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", encoded, signature, expiry, name)
}

func newRight(s *Server, entity, body string) *right {
	return &right{
		method: http.MethodPost, path: "/" + entity + "/messages", body: body,
		token: token(s.URL()+"/"+entity, now+300, "sender", primary), header: http.Header{"Content-Type": {batchType}},
	}
}

func (r *right) do(t *testing.T, s *Server) (*http.Response, string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), r.method, s.URL()+r.path, strings.NewReader(r.body))
	require.NoError(t, err)
	request.Header = r.header.Clone()
	if r.token != "" {
		request.Header.Set("Authorization", r.token)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

func (r *right) status(t *testing.T, s *Server) int {
	response, _, err := r.do(t, s)
	require.NoError(t, err)
	return response.StatusCode
}

// The signature is the output of
// printf 'http%%3A%%2F%%2F127.0.0.1%%2Forders\n1767323345' | openssl dgst -sha256 -hmac "$primary" -binary | base64
func TestSignatureOfOpenSSLIsAccepted(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := newRight(s, "orders", `[{"Body":"x"}]`)
	r.token = "SharedAccessSignature sr=http%3A%2F%2F127.0.0.1%2Forders&se=1767323345&skn=sender&" +
		"sig=R0wpaoHRqHPh819nvy74kWeXv0QAKrt39mmyet9vUVs%3D"
	require.Equal(t, 201, r.status(t, s))
	r.token = strings.Replace(r.token, "1767323345", "1767323346", 1)
	require.Equal(t, 401, r.status(t, s))
}

func TestWrongRequestsAreRejected(t *testing.T) {
	t.Parallel()
	rw := func(wrong func(*right)) func(*Server, *right) { return func(_ *Server, r *right) { wrong(r) } }
	item := func(more string) func(*Server, *right) {
		return func(_ *Server, r *right) { r.body = `[{"Body":"first"},{"Body":"x",` + more + `}]` }
	}
	broker := func(more string) func(*Server, *right) { return item(`"BrokerProperties":{` + more + `}`) }
	user := func(more string) func(*Server, *right) { return item(`"UserProperties":{` + more + `}`) }
	signed := func(path string, ahead int64, name, key string) func(*Server, *right) {
		return func(s *Server, r *right) { r.token = token(s.URL()+path, now+ahead, name, key) }
	}
	header := func(name, value string) func(*Server, *right) {
		return func(_ *Server, r *right) { r.header.Set(name, value) }
	}
	large := func(name string, n int) string { return fmt.Sprintf("%q:%q", name, strings.Repeat("x", n)) }
	otherHost := rw(func(r *right) { r.token = token("https://a", now+9, "sender", primary) })
	slashes := rw(func(r *right) { r.token = strings.Replace(r.token, "%2F", "/", 1) })
	noExpiry := rw(func(r *right) { r.token, _, _ = strings.Cut(r.token, "&se") })
	three := large("a", 30<<10) + "," + large("b", 30<<10) + "," + large("c", 30<<10)
	decoded, err := base64.StdEncoding.DecodeString(primary)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		entity    string
		wrong     func(*Server, *right)
		status    int
		text      string
		violation bool
	}{
		"no token":          {"orders", rw(func(r *right) { r.token = "" }), 401, "MissingToken", true},
		"unknown policy":    {"orders", signed("/orders", 300, "other", primary), 401, "SubCode=40103. InvalidSig", false},
		"wrong key":         {"orders", signed("/orders", 300, "sender", "x"), 401, "SubCode=40103. InvalidSig", false},
		"decoded key":       {"orders", signed("/orders", 300, "sender", string(decoded)), 401, "base64-decoded", true},
		"expired":           {"orders", signed("/orders", 0, "sender", primary), 401, "SubCode=40103. Expired", false},
		"too long":          {"orders", signed("/orders", 3601, "sender", primary), 401, "is valid for 1h0m1s", true},
		"other entity":      {"orders", signed("/order", 300, "sender", primary), 401, "InvalidAudience", true},
		"below the entity":  {"orders", signed("/orders/x", 300, "sender", primary), 401, "InvalidAudience", true},
		"other host":        {"orders", otherHost, 401, "InvalidAudience", true},
		"not encoded":       {"orders", slashes, 401, "URL-enc", true},
		"field twice":       {"orders", rw(func(r *right) { r.token += "&se=1" }), 401, "twice", true},
		"no se":             {"orders", noExpiry, 401, "must have", true},
		"unknown bearer":    {"orders", rw(func(r *right) { r.token = "Bearer x" }), 401, "SubCode=40103", false},
		"header of Relay":   {"orders", header("ServiceBusAuthorization", "x"), 401, "only Relay", true},
		"unknown entity":    {"nothing", func(*Server, *right) {}, 404, "could not be found", false},
		"GET":               {"orders", rw(func(r *right) { r.method = "GET" }), 400, "must be POST", true},
		"other path":        {"orders", rw(func(r *right) { r.path = "/orders/message" }), 400, "must be POST", true},
		"query":             {"orders", rw(func(r *right) { r.path += "?timeout=1m" }), 400, "only timeout", true},
		"parameter":         {"orders", rw(func(r *right) { r.path += "?partition=1" }), 400, "only timeout", true},
		"charset":           {"orders", header("Content-Type", batchType+"; charset=utf-8"), 400, "must be exactly", true},
		"single message":    {"orders", header("Content-Type", "application/json"), 400, "must be exactly", true},
		"property header":   {"orders", header("BrokerProperties", "{}"), 400, "no effect", true},
		"aeg header":        {"orders", header("aeg-event-type", "x"), 400, "no effect", true},
		"object":            {"orders", rw(func(r *right) { r.body = `{"Body":"x"}` }), 400, "JSON array", true},
		"empty":             {"orders", rw(func(r *right) { r.body = `[]` }), 400, "at least one", true},
		"body is an object": {"orders", rw(func(r *right) { r.body = `[{"Body":{}}]` }), 400, "Body is a string", true},
		"lower-case body":   {"orders", rw(func(r *right) { r.body = `[{"body":"x"}]` }), 400, "Body is a string", true},
		"unknown member":    {"orders", item(`"Properties":{}`), 400, "Properties is unknown", true},
		"member twice":      {"orders", item(`"Body":"y"`), 400, "twice", true},
		"null properties":   {"orders", item(`"UserProperties":null`), 400, "must be a JSON object", true},
		"unknown property":  {"orders", broker(`"messageId":"x"`), 400, "is unknown", true},
		"number as id":      {"orders", broker(`"MessageId":1`), 400, "1 to 128 characters", true},
		"long id":           {"orders", broker(large("MessageId", 129)), 400, "1 to 128 characters", true},
		"long session":      {"orders", broker(large("SessionId", 129)), 400, "1 to 128 characters", true},
		"two keys":          {"orders", broker(`"SessionId":"a","PartitionKey":"b"`), 400, "must equal SessionId", true},
		"label":             {"orders", broker(`"Label":true`), 400, "must be a string", true},
		"time to live":      {"orders", broker(`"TimeToLiveTimeSpan":"40"`), 400, "time span", true},
		"seconds to live":   {"orders", broker(`"TimeToLive":40`), 400, "unknown in a batch", true},
		"null property":     {"orders", user(`"a":null`), 400, "must be a string, a number", true},
		"object property":   {"orders", user(`"a":{}`), 400, "must be a string, a number", true},
		"large property":    {"orders", user(large("a", 32<<10)), 400, "of 32768", true},
		"large properties":  {"orders", user(three), 400, "of 65536", true},
		"large batch":       {"a/topic", user(large("a", 100)), 403, "MessageSizeExceeded", false},
		"no session":        {"sessions", broker(`"MessageId":"m"`), 400, "SessionId was not set", false},
		"mixed keys":        {"hub", broker(`"PartitionKey":"p"`), 400, "PartitionKey", true},
		"session in a hub":  {"hub", broker(`"SessionId":"p"`), 400, "only PartitionKey", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			r := newRight(s, c.entity, `[{"Body":"x","BrokerProperties":{"MessageId":"m"}}]`)
			c.wrong(s, r)
			response, body, err := r.do(t, s)
			require.NoError(t, err)
			require.Equal(t, c.status, response.StatusCode, body)
			require.Contains(t, body, c.text)
			require.Equal(t, c.violation, len(s.Violations()) == 1, s.Violations())
			if c.entity != "nothing" {
				require.Empty(t, s.Messages(c.entity))
				require.Equal(t, 1, s.Requests(c.entity))
			}
		})
	}
}
