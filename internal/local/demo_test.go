package local

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const validation = `[{"id":"v","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent",` +
	`"data":{"validationCode":"512d38b6"}}]`

// request sends a request and returns the response and its body.
func request(t *testing.T, method, url, body string, header map[string]string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func TestDemoSink(t *testing.T) {
	t.Parallel()
	sink := httptest.NewServer(NewDemoSink(nil))
	t.Cleanup(sink.Close)
	count := func(n string) map[string]string { return map[string]string{"aeg-delivery-count": n} }
	for _, row := range []struct {
		path   string
		header map[string]string
		status int
		says   string
	}{
		{"/ok", nil, 200, ""},
		{"/flaky", count("1"), 500, "flaky"},
		{"/flaky", count("2"), 204, ""},
		{"/flaky", nil, 500, "flaky"}, // not by postrider
		{"/flaky", count("x"), 500, "flaky"},
		{"/slow?ms=1", nil, 200, ""},
		{"/slow?ms=soon", nil, 400, "milliseconds"},
		{"/status/599", nil, 599, ""},
		{"/status/307", nil, 307, ""},
		{"/status/102", nil, 400, "200 to 599"},
		{"/status/600", nil, 400, "200 to 599"},
		{"/status/busy", nil, 400, "200 to 599"},
		{"/", nil, 404, "/status/{code}"}, // it lists the paths
		{"/status/503", map[string]string{"aeg-event-type": "SubscriptionValidation"}, 503, ""},
	} {
		resp, text := request(t, http.MethodPost, sink.URL+row.path, `[{"id":"a"}]`, row.header)
		require.Equal(t, row.status, resp.StatusCode, row.path)
		require.Contains(t, text, row.says, row.path)
	}
	resp, _ := request(t, http.MethodPost, sink.URL+"/ok", strings.Repeat("x", maxBody+1), nil)
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
}

func TestSlowReply(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2*time.Second, slowReply("").after)
	require.Equal(t, 1500*time.Millisecond, slowReply("1500").after)
	require.Equal(t, 10*time.Minute, slowReply("99999999").after, "the cap")
}

func TestHandshakes(t *testing.T) {
	t.Parallel()
	demo := httptest.NewServer(NewDemoSink(nil))
	t.Cleanup(demo.Close)
	validates := map[string]string{"aeg-event-type": "SubscriptionValidation"}
	for _, path := range []string{"/ok", "/flaky", "/slow"} {
		resp, text := request(t, http.MethodPost, demo.URL+path, validation, validates)
		require.Equal(t, http.StatusOK, resp.StatusCode, "202 would not count")
		require.JSONEq(t, `{"validationResponse":"512d38b6"}`, text)
		resp, _ = request(t, http.MethodPost, demo.URL+path, `[{"id":"v","data":{}}]`, validates)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, "without a validation code")
		resp, _ = request(t, http.MethodOptions, demo.URL+path, "",
			map[string]string{"WebHook-Request-Origin": "eventgrid.azure.net"})
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "eventgrid.azure.net", resp.Header.Get("WebHook-Allowed-Origin"))
	}
}

func TestHangEndsWithItsClient(t *testing.T) {
	t.Parallel()
	arrived := make(chan SinkRequest, 1)
	sink := httptest.NewServer(NewDemoSink(func(r SinkRequest) { arrived <- r }))
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sink.URL+"/hang", strings.NewReader(`[{"id":"a"}]`))
	require.NoError(t, err)
	status := make(chan int, 1)
	go func() {
		status <- (<-arrived).Status
		leave()
	}()
	_, err = http.DefaultTransport.RoundTrip(req)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, <-status)
	sink.Close() // returns once the handler has
}

func TestDemoSinkReportsRequests(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reported []SinkRequest
	sink := httptest.NewServer(NewDemoSink(func(r SinkRequest) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, r)
	}))
	t.Cleanup(sink.Close)
	request(t, http.MethodPost, sink.URL+"/flaky", `[{"id":"a"},{"id":"b"}]`,
		map[string]string{"aeg-event-type": "Notification", "aeg-delivery-count": "2"})
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t,
		[]SinkRequest{{Path: "/flaky", DeliveryCount: 2, EventIDs: []string{"a", "b"}, Status: 204}}, reported)
}

func TestLimitAddresses(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	base, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listener := LimitAddresses(base, 4, []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")})
	defer listener.Close()
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", base.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	closed := func(conn net.Conn) {
		t.Helper()
		_, err := conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	}
	dial("127.0.0.1")
	first := <-accepted
	dial("127.0.0.1")
	<-accepted
	closed(dial("127.0.0.1"))
	dial("127.0.0.2")
	second := <-accepted

	require.NoError(t, first.Close())
	_ = first.Close() // counts once
	dial("127.0.0.1")
	first = <-accepted
	closed(dial("127.0.0.1"))

	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	for range 3 { // a trusted proxy has no share
		dial("127.0.0.9")
		<-accepted
	}
}
