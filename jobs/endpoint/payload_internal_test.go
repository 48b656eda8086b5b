package endpoint

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/policy"
)

func TestPayloadIsSentAgainUntilItWasWritten(t *testing.T) {
	t.Parallel()
	released := 0
	p := NewPayload([]byte("hello"), func() { released++ })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com", nil)
	require.NoError(t, err)
	p.attach(req)
	require.EqualValues(t, 5, req.ContentLength)
	for range 2 {
		body, err := req.GetBody()
		require.NoError(t, err)
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, "hello", string(text))
	}
	p.wrote(httptrace.WroteRequestInfo{Err: errors.New("connection found closed")})
	require.Zero(t, released)
	p.wrote(httptrace.WroteRequestInfo{})
	p.Drop()
	require.Equal(t, 1, released, "its memory is released once")
	_, err = req.GetBody()
	require.ErrorIs(t, err, errWritten)
}

// An endpoint that accepts and never speaks TLS must not keep the connection for longer than the handshake may take.
func TestTLSHandshakeWithoutResponseIsAbandoned(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
		close(closed)
	}()
	t.Cleanup(func() { _ = listener.Close() })
	options := Options{AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	client := NewClient(context.Background(), options)
	require.Equal(t, handshakeTimeout, client.transports.secure.TLSHandshakeTimeout)
	client.transports.secure.TLSHandshakeTimeout = 200 * time.Millisecond

	resp, _, err := client.post(testCall("https://"+listener.Addr().String(), 50*time.Millisecond))

	require.NoError(t, err)
	require.Equal(t, policy.ErrorTimeout, resp.Result.Err)
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("the connection is still open")
	}
}
