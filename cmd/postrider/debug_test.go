package main

import (
	"io"
	"log/slog"
	"net"
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
