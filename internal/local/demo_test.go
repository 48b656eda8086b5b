package local

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
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
	for name, tc := range map[string]struct {
		path   string
		header map[string]string
		status int
		says   string
	}{
		"ok":                               {"/ok", nil, 200, ""},
		"flaky, first attempt":             {"/flaky", count("0"), 500, "flaky"},
		"flaky, second attempt":            {"/flaky", count("1"), 500, "flaky"},
		"flaky, third attempt":             {"/flaky", count("2"), 204, ""},
		"flaky, tenth attempt":             {"/flaky", count("9"), 204, ""},
		"flaky, not by postrider":          {"/flaky", nil, 500, "flaky"},
		"flaky, a count that is no number": {"/flaky", count("x"), 500, "flaky"},
		"slow, for a given time":           {"/slow?ms=1", nil, 200, ""},
		"slow, not a number":               {"/slow?ms=soon", nil, 400, "milliseconds"},
		"slow, negative":                   {"/slow?ms=-1", nil, 400, "milliseconds"},
		"a status":                         {"/status/503", nil, 503, ""},
		"the lowest status":                {"/status/200", nil, 200, ""},
		"the highest status":               {"/status/599", nil, 599, ""},
		"a status without a body":          {"/status/204", nil, 204, ""},
		"a redirect":                       {"/status/307", nil, 307, ""},
		"a status below 200":               {"/status/102", nil, 400, "200 to 599"},
		"a status above 599":               {"/status/600", nil, 400, "200 to 599"},
		"a status that is no number":       {"/status/busy", nil, 400, "200 to 599"},
		"no status":                        {"/status/", nil, 400, "200 to 599"},
		"an unknown path lists the paths":  {"/", nil, 404, "/status/{code}"},
		"a path below a known path":        {"/ok/then", nil, 404, "/flaky"},
		"validation at a path that differs": {
			"/status/503", map[string]string{"aeg-event-type": "SubscriptionValidation"}, 503, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, text := request(t, http.MethodPost, sink.URL+tc.path, `[{"id":"a"}]`, tc.header)
			require.Equal(t, tc.status, resp.StatusCode)
			require.Contains(t, text, tc.says)
		})
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
	for name, base := range map[string]string{
		"ok": demo.URL + "/ok", "flaky": demo.URL + "/flaky", "slow responds at once": demo.URL + "/slow",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, text := request(t, http.MethodPost, base, validation, validates)
			require.Equal(t, http.StatusOK, resp.StatusCode, "202 would not count")
			require.JSONEq(t, `{"validationResponse":"512d38b6"}`, text)
			resp, _ = request(t, http.MethodPost, base, `[{"id":"v","data":{}}]`, validates)
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, "without a validation code")
			resp, _ = request(t, http.MethodOptions, base, "",
				map[string]string{"WebHook-Request-Origin": "eventgrid.azure.net"})
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "eventgrid.azure.net", resp.Header.Get("WebHook-Allowed-Origin"))
		})
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
