package bench

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkSink is what one event of 1 KB costs a sink's process in CPU: the reason for a server of our own.
func BenchmarkSink(b *testing.B) {
	for _, role := range []string{"sink", "net/http sink"} {
		b.Run(role, func(b *testing.B) {
			sink, base := startSinkChild(b, role)
			template := testTemplate(b, base+"/topics/bench/api/events")
			before, _ := cpuSeconds(sink.pid())
			drive(b, template.request, leanSender(template.request, base))
			after, _ := cpuSeconds(sink.pid())
			b.ReportMetric((after-before)*1e6/float64(b.N), "sink-cpu-us/op")
		})
	}
}

// BenchmarkPublisher is what publishing one event costs the publisher's process: the reason for a client of our own.
func BenchmarkPublisher(b *testing.B) {
	for name, sender := range map[string]func([]byte, string) func() error{
		"lean": leanSender, "net/http": standardSender,
	} {
		b.Run(name, func(b *testing.B) {
			_, base := startSinkChild(b, "sink")
			template := testTemplate(b, base+"/topics/bench/api/events")
			before, _ := cpuSeconds(os.Getpid())
			drive(b, template.request, sender(template.request, base))
			after, _ := cpuSeconds(os.Getpid())
			b.ReportMetric((after-before)*1e6/float64(b.N), "publisher-cpu-us/op")
		})
	}
}

// BenchmarkScan is the sink's look into an event of 1 KB.
func BenchmarkScan(b *testing.B) {
	body := testTemplate(b, "http://127.0.0.1:1/topics/bench/api/events").body()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if eachEvent(body, func(*receivedEvent) {}) != 1 {
			b.Fatal("no event")
		}
	}
}

const benchConnections = 64

func drive(b *testing.B, request []byte, send func() error) {
	b.SetBytes(int64(len(request)))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range benchConnections {
		wg.Go(func() {
			for n := i; n < b.N; n += benchConnections {
				if err := send(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// leanSender shares its connections through a pool, which costs as little as a lock.
func leanSender(request []byte, base string) func() error {
	pool := make(chan *wireClient, benchConnections)
	for range benchConnections {
		pool <- &wireClient{address: base[len("http://"):]}
	}
	return func() error {
		client := <-pool
		defer func() { pool <- client }()
		_, err := client.do(request)
		return err
	}
}

func standardSender(request []byte, base string) func() error {
	_, body, _ := bytes.Cut(request, []byte("\r\n\r\n"))
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchConnections}}
	return func() error {
		resp, err := client.Post(base+"/topics/bench/api/events", "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return err
	}
}

func startSinkChild(tb testing.TB, role string) (sink *child, base string) {
	ready := filepath.Join(tb.TempDir(), "ready")
	sink, err := startChild(tb.TempDir(), "sink", os.Args[0], []string{roleVariable + "=" + role}, ready)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, sink.stop()) })
	base, err = sink.ready(tb.Context(), ready, "sink")
	require.NoError(tb, err)
	return sink, base
}

func testTemplate(tb testing.TB, endpoint string) *template {
	parsed, err := url.Parse(endpoint)
	require.NoError(tb, err)
	template, err := newTemplate(parsed, "key", defaultSubject, newRun(), 1, defaultEventBytes, plainEvent)
	require.NoError(tb, err)
	return template
}
