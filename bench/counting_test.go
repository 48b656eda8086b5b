package bench

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serveLean serves a sink on a free port until the test ends and returns its URL.
func serveLean(t *testing.T, sink *CountingSink) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- sink.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-served)
	})
	return "http://" + listener.Addr().String()
}

func serveStandard(t *testing.T, sink *CountingSink) string {
	t.Helper()
	server := httptest.NewServer(sink)
	t.Cleanup(server.Close)
	return server.URL
}

func TestCountingSink(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*testing.T, *CountingSink) string{
		"own server": serveLean, "net/http": serveStandard,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "ledger")
			sink, err := NewCountingSink(path)
			require.NoError(t, err)
			base := serve(t, sink)
			a := fmt.Sprintf(`{"id":"a","data":{"sentAt":%d}}`, time.Now().Add(-time.Second).UnixNano())
			for _, post := range []struct{ path, body string }{
				{"/", "[" + a + "]"},
				{"/", "[" + a + "]"},
				{"/one", "[" + a + "]"},
				{"/", `[{"id":"b"},{"id":"c"}]`},
				{"/", `[]`},
				{"/", `no JSON`},
				{"/?code=secret", `{"id":"d","specversion":"1.0"}`},
			} {
				resp, _ := request(t, http.MethodPost, base+post.path, post.body, nil)
				require.Equal(t, http.StatusNoContent, resp.StatusCode)
			}
			_, text := request(t, http.MethodGet, base+"/stats", "", nil)
			var stats SinkStats
			require.NoError(t, json.Unmarshal([]byte(text), &stats))
			require.Equal(t, stats, sink.Stats())
			require.EqualValues(t, 7, stats.Requests)
			require.EqualValues(t, 6, stats.Received)
			require.EqualValues(t, 5, stats.Distinct, "a, one/a, b, c, d")
			require.EqualValues(t, 1, stats.Duplicates)
			require.EqualValues(t, 2, stats.Unreadable)
			require.GreaterOrEqual(t, stats.LastAt, stats.FirstAt)
			require.NoError(t, sink.Close())
			got, err := ReadLedger(path)
			require.NoError(t, err)
			require.Equal(t, []Entry{
				{"a", sha256.Sum256([]byte(a))},
				{"a", sha256.Sum256([]byte(a))},
				{"one/a", sha256.Sum256([]byte(a))},
				entry("b", `{"id":"b"}`), entry("c", `{"id":"c"}`), entry("d", `{"id":"d","specversion":"1.0"}`),
			}, got)
			resp, _ := request(t, http.MethodPost, base, `[{"id":"late"}]`, nil)
			require.Equal(t, http.StatusInternalServerError, resp.StatusCode, "what is not noted is not acknowledged")
		})
	}
}

// TestCountingSinkThatMisbehaves: what a path does not acknowledge is no receipt, but an arrival that says so.
func TestCountingSinkThatMisbehaves(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(*testing.T, *CountingSink) string{
		"own server": serveLean, "net/http": serveStandard,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			sink, err := NewCountingSink(filepath.Join(dir, "ledger"))
			require.NoError(t, err)
			sink.arrivals, err = createArrivals(filepath.Join(dir, "arrivals"))
			require.NoError(t, err)
			base := serve(t, sink)
			for path, status := range map[string]int{
				"/status/503": 503, "/status/soon": 400, "/status/202": 202, "/": 204, "/again": 204,
			} {
				resp, _ := request(t, http.MethodPost, base+path, `[{"id":"a","data":{"sentAt":5}}]`, nil)
				require.Equal(t, status, resp.StatusCode, path)
			}
			request(t, http.MethodPost, base+"/again", `[{"id":"a","data":{"sentAt":5}}]`, nil)
			requireHangs(t, sink, base+"/hang-1")
			require.EqualValues(t, 3, sink.Stats().TurnedAway)
			require.EqualValues(t, 4, sink.Stats().Received)
			require.NoError(t, sink.Close())
			got, err := ReadLedger(filepath.Join(dir, "ledger"))
			require.NoError(t, err)
			require.Len(t, got, 4)
			arrivals, err := ReadArrivals(filepath.Join(dir, "arrivals"))
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
			require.Len(t, arrivals, 6)
		})
	}
}

// requireHangs sends a request, leaves once it has arrived, and had no answer until then.
func requireHangs(t *testing.T, sink *CountingSink, url string) {
	t.Helper()
	before := sink.Stats().TurnedAway
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader(`[{"id":"h","data":{"sentAt":5}}]`))
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	require.Eventually(t, func() bool { return sink.Stats().TurnedAway > before }, 30*time.Second, time.Millisecond)
	leave()
	require.ErrorIs(t, <-failed, context.Canceled)
}

func TestReadArrivals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "arrivals")
	log, err := createArrivals(path)
	require.NoError(t, err)
	want := []Arrival{{SentAt: 1, At: 2, Acknowledged: true}, {At: time.Now().UnixNano()}}
	for _, a := range want {
		require.NoError(t, log.note(a))
	}
	require.NoError(t, log.close())
	require.ErrorIs(t, log.note(Arrival{}), os.ErrClosed)
	got, err := ReadArrivals(path)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, os.Truncate(path, arrivalBytes+1))
	_, err = ReadArrivals(path)
	require.ErrorContains(t, err, "not complete")
	_, err = ReadArrivals(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Error(t, RunSink(t.Context(), SinkOptions{Listen: "127.0.0.1:0", Arrivals: t.TempDir()}), "a folder")
}

func TestRunSink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ready, ledger := filepath.Join(dir, "ready"), filepath.Join(dir, "ledger")
	sink, err := startChild(dir, "sink", os.Args[0], []string{roleVariable + "=sink"}, ready)
	require.NoError(t, err)
	base, err := sink.ready(t.Context(), ready, "sink")
	require.NoError(t, err)
	resp, _ := request(t, http.MethodPost, base, `[{"id":"a"}]`, nil)
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.NoError(t, sink.stop())
	_, err = net.Dial("tcp", base[len("http://"):])
	require.Error(t, err, "nothing listens any more")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	err = RunSink(t.Context(), SinkOptions{Listen: taken.Addr().String(), Ledger: ledger})
	require.ErrorContains(t, err, "address already in use")
	require.Error(t,
		RunSink(t.Context(), SinkOptions{Listen: "127.0.0.1:0", ReadyFile: filepath.Join(dir, "none", "ready")}))
	require.Error(t, RunSink(t.Context(), SinkOptions{Listen: "127.0.0.1:0", Ledger: dir}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_ = RunSink(ended, SinkOptions{Listen: "127.0.0.1:0"}) // returns
}

func TestSinkThatFails(t *testing.T) {
	t.Parallel()
	sink, err := NewCountingSink("")
	require.NoError(t, err)
	body := []byte(`[{"id":"a"}]`)
	statuses := map[int]int{}
	for range 50 {
		statuses[sink.answer(http.MethodPost, "/failing/20", &head{}, body).status]++
	}
	require.Equal(t, map[int]int{200: 40, 503: 10}, statuses)
	require.EqualValues(t, 40, sink.Stats().Received, "what it turns away is no receipt")
	require.EqualValues(t, 10, sink.Stats().TurnedAway)
	for _, share := range []string{"101", "-1", "x", ""} {
		require.Equal(t, 400, sink.answer(http.MethodPost, "/failing/"+share, &head{}, body).status, share)
	}
	require.Equal(t, 200, sink.answer(http.MethodPost, "/failing/0", &head{}, body).status)
}

func TestSinkThatIsSlow(t *testing.T) {
	t.Parallel()
	sink, err := NewCountingSink("")
	require.NoError(t, err)
	require.Equal(t, reply{status: 204, after: 70 * time.Millisecond},
		sink.answer(http.MethodPost, "/slow/70", &head{}, []byte(`{"id":"a"}`)))
	require.EqualValues(t, 1, sink.Stats().Received, "it has arrived, though it is not answered yet")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	conn := &scriptedConn{in: strings.NewReader("POST /slow/60000 HTTP/1.1\r\nContent-Length: 12\r\n\r\n[{\"id\":\"b\"}]")}
	serveConn(ctx, conn, sink.answer)
	require.Empty(t, conn.out.String(), "a sink that ends does not wait")
	conn = &scriptedConn{in: strings.NewReader("POST /slow/1 HTTP/1.1\r\nContent-Length: 12\r\n\r\n[{\"id\":\"c\"}]")}
	serveConn(t.Context(), conn, sink.answer)
	require.Equal(t, noContent, conn.out.String())
}
