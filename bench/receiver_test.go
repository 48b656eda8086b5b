package bench

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func newReceiver(t *testing.T) (r *receiver, ledger, arrivals string) {
	t.Helper()
	ledger, arrivals = filepath.Join(t.TempDir(), "ledger"), filepath.Join(t.TempDir(), "arrivals")
	r = &receiver{ctx: t.Context(), seen: map[string]struct{}{}}
	var err error
	r.ledger, err = openBufferedLedger(ledger)
	require.NoError(t, err)
	r.arrivals, err = createBuffered(arrivals)
	require.NoError(t, err)
	return r, ledger, arrivals
}

// post has a receiver handle a request, without a network.
func post(r *receiver, path, body string) *fasthttp.RequestCtx {
	var request fasthttp.Request
	request.Header.SetMethod(fasthttp.MethodPost)
	request.SetRequestURI(path)
	request.SetBodyString(body)
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, nil, nil)
	r.handle(&ctx)
	return &ctx
}

func TestReceiverCounts(t *testing.T) {
	t.Parallel()
	r, ledger, _ := newReceiver(t)
	const a = `{"id":"a","data":{"sentAt":5}}`
	for _, p := range []struct{ path, body string }{
		{"/x", "[" + a + "]"},
		{"/x", "[" + a + "]"},
		{"/one", "[" + a + "]"},
		{"/x", `[{"id":"b"},{"id":"c"}]`},
		{"/x", `[]`},
		{"/x", `no JSON`},
		{"/x?code=secret", `{"id":"d","specversion":"1.0"}`},
	} {
		require.Equal(t, fasthttp.StatusNoContent, post(r, p.path, p.body).Response.StatusCode())
	}
	var stats receiverStats
	require.NoError(t, json.Unmarshal(post(r, "/stats", "").Response.Body(), &stats))
	require.Positive(t, stats.LastAt)
	stats.LastAt = 0
	require.Equal(t, receiverStats{Requests: 7, Received: 6, Distinct: 5}, stats, "x/a, one/a, x/b, x/c, x/d")
	require.NoError(t, r.close())
	got, err := ReadLedger(ledger)
	require.NoError(t, err)
	require.Equal(t, []Entry{
		entry("x/a", a), entry("x/a", a), entry("one/a", a),
		entry("x/b", `{"id":"b"}`), entry("x/c", `{"id":"c"}`), entry("x/d", `{"id":"d","specversion":"1.0"}`),
	}, got)
	late := post(r, "/x", `[{"id":"late"}]`).Response.StatusCode()
	require.Equal(t, fasthttp.StatusInternalServerError, late, "what is not noted is not acknowledged")
}

// TestReceiverThatMisbehaves: a request without acknowledgment is no receipt, but an unacknowledged arrival.
func TestReceiverThatMisbehaves(t *testing.T) {
	t.Parallel()
	r, ledger, path := newReceiver(t)
	const body = `[{"id":"a","data":{"sentAt":5}}]`
	for path, status := range map[string]int{"/failing/100": 503, "/failing/0": 200, "/x": 204, "/again": 204} {
		require.Equal(t, status, post(r, path, body).Response.StatusCode(), path)
	}
	post(r, "/again", body)
	require.True(t, post(r, "/hang-1", body).Hijacked(), "no response")
	require.EqualValues(t, 2, r.stats.NotAcknowledged)
	require.EqualValues(t, 4, r.stats.Received)
	require.NoError(t, r.close())
	got, err := ReadLedger(ledger)
	require.NoError(t, err)
	require.Len(t, got, 4)
	arrivals, err := readArrivals(path)
	require.NoError(t, err)
	acknowledged := 0
	for _, a := range arrivals {
		require.EqualValues(t, 5, a.SentAt)
		require.Positive(t, a.At)
		if a.Acknowledged {
			acknowledged++
		}
	}
	require.Equal(t, 3, acknowledged, "each name once")
	require.Len(t, arrivals, 5)
}

func TestReceiverWithAQuota(t *testing.T) {
	t.Parallel()
	r, _, _ := newReceiver(t)
	statuses := map[int]int{}
	began := time.Now()
	var retryAfter []byte
	for range 30 {
		response := &post(r, "/quota?perSecond=10&retryAfter=3", `[{"id":"a"}]`).Response
		statuses[response.StatusCode()]++
		retryAfter = response.Header.Peek("Retry-After")
	}
	require.Equal(t, "3", string(retryAfter))
	require.GreaterOrEqual(t, statuses[204], quotaBurst)
	require.LessOrEqual(t, statuses[204], quotaBurst+int(10*time.Since(began).Seconds()))
	r.quota.inProgress = 2
	require.Equal(t, 429, post(r, "/quota?atOnce=2", `[{"id":"a"}]`).Response.StatusCode())
	r.quota.inProgress = 1
	require.Equal(t, 204, post(r, "/quota?atOnce=2", `[{"id":"a"}]`).Response.StatusCode())
	require.Equal(t, 1, r.quota.inProgress, "a request leaves")
}

func TestReceiverThatFails(t *testing.T) {
	t.Parallel()
	r, _, _ := newReceiver(t)
	statuses := map[int]int{}
	for range 50 {
		statuses[post(r, "/failing/20", `[{"id":"a"}]`).Response.StatusCode()]++
	}
	require.Equal(t, map[int]int{200: 40, 503: 10}, statuses)
	require.EqualValues(t, 40, r.stats.Received, "a rejected request is no receipt")
	require.Equal(t, 200, post(r, "/failing/0", `[{"id":"a"}]`).Response.StatusCode())
	require.NoError(t, r.close())
}

func TestReceiverThatIsSlow(t *testing.T) {
	t.Parallel()
	r, _, _ := newReceiver(t)
	for _, path := range []string{"/slow/70", "/slow/70/sink-1"} {
		status, delay := r.behavior(path)
		require.Equal(t, fasthttp.StatusNoContent, status)
		require.Equal(t, 70*time.Millisecond, delay)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.ctx = ctx
	post(r, "/slow/60000", `[{"id":"a"}]`)
	require.EqualValues(t, 1, r.stats.Received, "it has arrived; a receiver that ends does not wait")
	require.NoError(t, r.close())
}

func TestRunSink(t *testing.T) {
	t.Parallel()
	listen := func() net.Listener {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		return listener
	}
	ledger := filepath.Join(t.TempDir(), "ledger")
	ctx, stop := context.WithCancel(t.Context())
	listener, ended := listen(), make(chan error, 1)
	go func() { ended <- RunSink(ctx, listener, ledger, "") }()
	api := newAdmin("http://"+listener.Addr().String(), "")
	defer api.client.CloseIdleConnections()
	require.NoError(t, api.call(t.Context(), "POST", "/", settings{"id": "a"}, nil))
	// The response may be lost: the connection is closed while the client still writes.
	require.Error(t, api.call(t.Context(), "POST", "/", strings.Repeat("x", maxBody), nil))
	stop()
	require.NoError(t, <-ended)
	_, err := net.Dial("tcp", listener.Addr().String())
	require.Error(t, err, "nothing listens any more")
	got, err := ReadLedger(ledger)
	require.NoError(t, err)
	require.Equal(t, []Entry{entry("/a", `{"id":"a"}`)}, got)

	require.Error(t, RunSink(t.Context(), nil, t.TempDir(), ""), "a folder")
	require.Error(t, RunSink(t.Context(), nil, "", t.TempDir()), "a folder")
	_, err = readArrivals(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
