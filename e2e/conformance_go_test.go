package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/messaging"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/eventgrid/azeventgrid"
	"github.com/cloudevents/sdk-go/v2/client"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/stretchr/testify/require"
)

// azurePublisher is azeventgrid's client, which sends nothing without TLS, with our certificate authority.
func azurePublisher(t *testing.T, r *relay, caFile, topic string, signed bool, key string) *azeventgrid.Client {
	t.Helper()
	options := &azeventgrid.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: trusting(t, caFile)}}
	endpoint := r.url + eventsPath(topic)
	if !signed {
		publisher, err := azeventgrid.NewClientWithSharedKeyCredential(endpoint, azcore.NewKeyCredential(key), options)
		require.NoError(t, err)
		return publisher
	}
	publisher, err := azeventgrid.NewClientWithSAS(endpoint, azcore.NewSASCredential(signature(t, endpoint, key)), options)
	require.NoError(t, err)
	return publisher
}

// signature is made as the tests of azeventgrid make it.
func signature(t *testing.T, endpoint, key string) string {
	t.Helper()
	secret, err := base64.StdEncoding.DecodeString(key)
	require.NoError(t, err)
	text := "r=" + url.QueryEscape(endpoint) + "&e=" +
		url.QueryEscape(time.Now().UTC().Add(time.Hour).Format(time.RFC3339))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "&s=" + url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// Microsoft's client for Go, against a port with TLS. What it sends is stored as it sent it, whichever way it is let
// in.
func TestConformanceAzureEventGridForGo(t *testing.T) {
	t.Parallel()
	files := newTLSFiles(t)
	db := migratedDatabase(t)
	n := startNode(t, db, "--tls-cert", files.cert, "--tls-key", files.key)
	n.client = trusting(t, files.cert)
	to := newCloudEventsReceiver(t, "")
	keys := map[string]string{
		"grid": n.makeTopic("grid", "{}"), "cloud": n.topic("cloud"), "custom": n.makeTopic("custom", conformanceMapping),
	}
	for topic := range keys {
		n.subscribeAs(topic, topic, "CloudEventSchemaV1_0", to.lone, 1)
	}
	sent := map[string][]string{}
	publish := func(topic string, signed bool, send func(context.Context, *azeventgrid.Client) error) {
		t.Helper()
		r := newRelay(t, n.api, n.client, &files)
		require.NoError(t, send(t.Context(), azurePublisher(t, r, files.cert, topic, signed, keys[topic])))
		sent[topic] = append(sent[topic], r.events(t)...)
	}
	for how, signed := range map[string]bool{"key": false, "signature": true} {
		publish("grid", signed, func(ctx context.Context, c *azeventgrid.Client) error {
			_, err := c.PublishEvents(ctx, []azeventgrid.Event{gridEvent(how + "-1"), gridEvent(how + "-2")}, nil)
			return err
		})
		publish("cloud", signed, func(ctx context.Context, c *azeventgrid.Client) error {
			_, err := c.PublishCloudEvents(ctx, azureCloudEvents(t, how), nil)
			return err
		})
		publish("custom", signed, func(ctx context.Context, c *azeventgrid.Client) error {
			_, err := c.PublishCustomEventEvents(ctx,
				[]any{map[string]any{"orderId": how, "action": "Placed", "price": 1.5}}, nil)
			return err
		})
	}
	for topic, events := range sent {
		db.stored(topic, events)
	}
	requireRejections(t, n, files, keys)
	requireRead(t, to, sent)
	db.drained()
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state <> 'delivered'"))
}

func gridEvent(id string) azeventgrid.Event {
	kind, subject, version, at := "Shop.OrderPlaced", "orders/"+id, "1.1", time.Date(2030, 6, 15, 18, 20, 15,
		678e6, time.UTC)
	return azeventgrid.Event{
		ID: &id, EventType: &kind, Subject: &subject, DataVersion: &version, EventTime: &at,
		Data: map[string]any{"text": "Grüße 🚀 <&>", "n": 1.5},
	}
}

func azureCloudEvents(t *testing.T, id string) (events []messaging.CloudEvent) {
	t.Helper()
	picture := "image/png"
	text, err := messaging.NewCloudEvent("/shop", "shop.order.placed", map[string]any{"n": 1.5},
		&messaging.CloudEventOptions{Extensions: map[string]any{"ext1": "one", "ext2": 5}})
	require.NoError(t, err)
	raw, err := messaging.NewCloudEvent("/shop", "shop.picture.taken", []byte{0, 1, 254, 255},
		&messaging.CloudEventOptions{DataContentType: &picture})
	require.NoError(t, err)
	text.ID, raw.ID = id+"-text", id+"-raw"
	return []messaging.CloudEvent{text, raw}
}

// requireRejections: a rejection reaches the program with its status and code, after one request.
func requireRejections(t *testing.T, n *nodeProcess, files tlsFiles, keys map[string]string) {
	t.Helper()
	untyped := gridEvent("untyped")
	untyped.EventType = new(string)
	for name, row := range map[string]struct {
		topic, key, code string
		status           int
		event            azeventgrid.Event
	}{
		"wrong key":     {"grid", keys["cloud"], "Unauthorized", http.StatusUnauthorized, gridEvent("rejected")},
		"no such topic": {"nothing", keys["grid"], "Unauthorized", http.StatusUnauthorized, gridEvent("rejected")},
		"untyped":       {"grid", keys["grid"], "InvalidEvent", http.StatusBadRequest, untyped},
	} {
		r := newRelay(t, n.api, n.client, &files)
		_, err := azurePublisher(t, r, files.cert, row.topic, false, row.key).
			PublishEvents(t.Context(), []azeventgrid.Event{row.event}, nil)
		var rejected *azcore.ResponseError
		require.ErrorAs(t, err, &rejected, name)
		require.Equal(t, []any{row.status, row.code}, []any{rejected.StatusCode, rejected.ErrorCode}, name)
		require.Equal(t, []int{row.status}, r.statuses(), name)
	}
}

// requireRead: the CloudEvents project's receiver for Go reads what was published in any of the three schemas.
func requireRead(t *testing.T, to *cloudEventsReceiver, sent map[string][]string) {
	t.Helper()
	read := to.wait(len(sent["grid"]) + len(sent["cloud"]) + len(sent["custom"]))
	for _, text := range sent["grid"] {
		f := fields(t, text)
		e := read[f["id"].(string)]
		require.Equal(t, []any{"/topics/grid", f["eventType"], f["subject"], "1.1"},
			[]any{e.Source(), e.Type(), e.Subject(), e.Extensions()["dataversion"]})
		require.Equal(t, f["eventTime"], e.Time().Format(time.RFC3339Nano))
		require.Equal(t, f["data"], fields(t, string(e.Data())))
	}
	for _, text := range sent["cloud"] {
		f := fields(t, text)
		e := read[f["id"].(string)]
		require.Equal(t, []any{"/shop", f["type"]}, []any{e.Source(), e.Type()})
		if f["data_base64"] != nil {
			require.Equal(t, []byte{0, 1, 254, 255}, e.Data())
			require.Equal(t, "image/png", e.DataContentType())
			continue
		}
		require.Equal(t, f["data"], fields(t, string(e.Data())))
		require.Equal(t, "one", e.Extensions()["ext1"])
		require.EqualValues(t, 5, e.Extensions()["ext2"])
	}
}

// eventGridOrigin is the origin in handshakes.
const eventGridOrigin = "eventgrid.azure.net"

// cloudEventsReceiver is an endpoint made with cloudevents/sdk-go.
type cloudEventsReceiver struct {
	t             *testing.T
	lone, batched string // URLs

	mu          sync.Mutex
	events      map[string]event.Event // by id
	seenOrigins []string               // the origins of OPTIONS requests
}

// newCloudEventsReceiver lets itself be validated by the origin alone, with the library's own handler of OPTIONS. That
// one calls back where a callback is offered, and trusts no authority of a test; without an origin the receiver permits
// everybody at once instead.
func newCloudEventsReceiver(t *testing.T, origin string) *cloudEventsReceiver {
	t.Helper()
	r := &cloudEventsReceiver{t: t, events: map[string]event.Event{}}
	protocol, err := cehttp.New(cehttp.WithDefaultOptionsHandlerFunc([]string{http.MethodPost}, 100,
		[]string{origin}, true))
	require.NoError(t, err)
	handler, err := client.NewHTTPReceiveHandler(t.Context(), protocol, func(e event.Event) error { return r.take(e) })
	require.NoError(t, err)
	mux := http.NewServeMux()
	// One request at a time: each goroutine of the library can receive the event of another request. If its own request
	// has ended, it may drop the next event, and that request never gets a response.
	var turn sync.Mutex
	mux.HandleFunc("/lone/", func(w http.ResponseWriter, request *http.Request) {
		turn.Lock()
		defer turn.Unlock()
		handler.ServeHTTP(w, request)
	})
	mux.HandleFunc("OPTIONS /batched/", protocol.OptionsHandler)
	mux.HandleFunc("POST /batched/", func(w http.ResponseWriter, request *http.Request) {
		events, err := cehttp.NewEventsFromHTTPRequest(request)
		if err == nil {
			err = r.take(events...)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodOptions {
			r.mu.Lock()
			r.seenOrigins = append(r.seenOrigins, request.Header.Get("WebHook-Request-Origin"))
			r.mu.Unlock()
			if origin == "" {
				w.Header().Set("WebHook-Allowed-Origin", "*")
				return
			}
		}
		mux.ServeHTTP(w, request)
	}))
	t.Cleanup(listener.Close)
	r.lone, r.batched = listener.URL+"/lone", listener.URL+"/batched"
	return r
}

func (r *cloudEventsReceiver) take(events ...event.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if err := e.Validate(); err != nil {
			return err
		}
		r.events[e.ID()] = e
	}
	return nil
}

// wait returns the events once there are so many.
func (r *cloudEventsReceiver) wait(count int) (events map[string]event.Event) {
	r.t.Helper()
	eventually(r.t, "the receiver has read every event", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		events = maps.Clone(r.events)
		return len(events) >= count
	})
	require.Len(r.t, events, count)
	return events
}

// The CloudEvents project's receiver for Go reads single events by its handler, and batches by
// NewEventsFromHTTPRequest.
func TestConformanceCloudEventsForGo(t *testing.T) {
	t.Parallel()
	n := startNode(t, migratedDatabase(t))
	lone, batched := newCloudEventsReceiver(t, eventGridOrigin), newCloudEventsReceiver(t, eventGridOrigin)
	key := n.topic("orders")
	n.subscribeAs("orders", "lone", "CloudEventSchemaV1_0", lone.lone, 1)
	n.subscribeAs("orders", "batched", "CloudEventSchemaV1_0", batched.batched, 10)
	published := map[string]string{
		"spaced": cloudEvent("spaced"),
		"full": `{"specversion":"1.0","id":"full","source":"https://example.com/a?b#c","type":"t","subject":"Grüße 🚀",` +
			`"time":"2030-06-15T18:20:15.678901234+02:00",` +
			`"dataschema":"https://example.com/schema","datacontenttype":"application/json","dataversion":"2","number":-7,` +
			`"flag":true,"data":[1,{"a":null}]}`,
		"xml": `{"specversion":"1.0","id":"xml","source":"/s","type":"t","datacontenttype":"application/xml","data":"<a ` +
			`b=\"c\"/>"}`,
		"bytes": `{"specversion":"1.0","id":"bytes","source":"/s","type":"t","datacontenttype":"image/png",` +
			`"data_base64":"AAH+/w=="}`,
		"none": `{"specversion":"1.0","id":"none","source":"/s","type":"t"}`,
	}
	for _, text := range published {
		n.publish("orders", key, text)
	}
	for _, r := range []*cloudEventsReceiver{lone, batched} {
		for id, read := range r.wait(len(published)) {
			var sent event.Event
			require.NoError(t, json.Unmarshal([]byte(published[id]), &sent))
			require.Equal(t, sent.Context, read.Context, id)
			require.Equal(t, sent.Data(), read.Data(), id)
		}
	}
}
