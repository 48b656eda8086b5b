package local

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

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
