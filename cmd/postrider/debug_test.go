package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDebugListenAddress(t *testing.T) {
	t.Parallel()
	off, err := debugFlags{}.listenDebug(t.Context())
	require.NoError(t, err)
	require.Nil(t, off)
	for _, address := range []string{"6060", "localhost", "127.0.0.1:6060:1"} {
		_, err = debugFlags{address}.listenDebug(t.Context())
		require.ErrorContains(t, err, "--debug-listen", address)
	}
	for address, ip := range map[string]string{":0": "127.0.0.1", "127.0.0.2:0": "127.0.0.2"} {
		listener, err := debugFlags{address}.listenDebug(t.Context())
		require.NoError(t, err)
		require.Equal(t, ip, listener.Addr().(*net.TCPAddr).IP.String())
		server := serveDebug(listener, slog.New(slog.DiscardHandler))
		require.Zero(t, server.WriteTimeout, "pprof rejects a profile that takes longer")
		require.NoError(t, server.Close())
	}
}

// A wrong or taken address ends dev before it starts PostgreSQL.
func TestDevOpensTheDebugListenerFirst(t *testing.T) {
	t.Parallel()
	taken, err := debugFlags{":0"}.listenDebug(t.Context())
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	for _, address := range []string{"6060", taken.Addr().String()} {
		d := &dev{options: &devCmd{debugFlags: debugFlags{address}}, out: io.Discard}
		require.ErrorContains(t, d.start(t.Context()), "--debug-listen")
		require.Nil(t, d.postgres)
	}
}

func TestDebugListener(t *testing.T) {
	t.Parallel()
	listener, err := debugFlags{":0"}.listenDebug(t.Context())
	require.NoError(t, err)
	server := serveDebug(listener, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = server.Close() })
	for path, content := range map[string]string{
		"/debug/pprof/":                    "full goroutine stack dump",
		"/debug/pprof/goroutine?debug=1":   "TestDebugListener",
		"/debug/pprof/heap":                "\x1f\x8b", // a compressed profile
		"/debug/pprof/profile?seconds=1":   "\x1f\x8b",
		"/debug/pprof/trace?seconds=0.001": "go 1.",
		"/metrics":                         "\ngo_memory_classes_total_bytes ",
		"/debug/pprof/cmdline":             "", // flags may have secrets
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+listener.Addr().String()+path, nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, content == "", response.StatusCode == http.StatusNotFound, path)
		require.Contains(t, string(text), content, path)
		require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"), path)
	}
}
