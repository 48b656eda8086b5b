package jetstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"postrider/policy"
)

func TestErrorsOfJetStream(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{
		10059: "404", 10077: "full", 10047: "full", 10028: "full", 10002: "full", 10109: "disabled", 10039: "disabled",
		10076: "disabled", 10054: "413", 10097: "413", 10008: "503", 10023: "503", 10118: "503", 10060: "400", 10071: "500",
	} {
		response := fmt.Appendf(nil, `{"error":{"code":499,"err_code":%d,"description":"words"}}`, code)
		r := resultOf(parseAcknowledgment(response))
		require.Equal(t, want, r.String(), code)
		require.Contains(t, r.Text, fmt.Sprintf("JetStream error %d (499): words", code))
		require.NoError(t, r.Cause, "there was a response")
	}
	for ack, want := range map[string]string{
		`{"stream":"S","seq":1}`: "200", `{"stream":"S","seq":1,"duplicate":true}`: "200", `{}`: "500", `+OK`: "500",
	} {
		require.Equal(t, want, resultOf(parseAcknowledgment([]byte(ack))).String(), ack)
	}
}

type rejection bool

func (r rejection) Error() string  { return "address must not be called" }
func (r rejection) Rejected() bool { return bool(r) }

func TestErrorsOfConnections(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4222},
		Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
	}
	unknown := &net.DNSError{Name: "nats.example", Err: "no such host", IsNotFound: true}
	for _, test := range []struct {
		err              error
		first, lost, say string
	}{
		{refused, "socket", "socket", "no connection to 127.0.0.1:4222: connection refused"},
		{unknown, "dns", "socket", "name nats.example could not be resolved: no such host"},
		{fmt.Errorf("dial: %w", rejection(true)), "argument", "socket", "must not be called"},
		{rejection(false), "socket", "socket", "must not be called"},
		{io.EOF, "socket", "socket", "the server closed the connection"},
		{nats.ErrAuthorization, "401", "401", "correct username, password or credentials"},
		{nats.ErrAuthExpired, "401", "401", "authentication expired"},
		{nats.ErrMaxConnectionsExceeded, "503", "503", "raise the limit"},
		{nats.ErrSecureConnWanted, "socket", "socket", "set tls to false"},
		{context.DeadlineExceeded, "socket", "socket", "no connection to the servers"},
	} {
		r := resultOf(connectFailure(test.err, false))
		require.Equal(t, test.first, r.String(), test.err)
		require.Contains(t, r.Text, test.say)
		require.ErrorIs(t, r.Cause, test.err)
		r = resultOf(connectFailure(test.err, true))
		require.Equal(t, test.lost, r.String(), test.err)
		require.Contains(t, r.Text, test.say)
	}
}

func TestErrorsOfRequests(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]policy.Result{
		nil:                      {Status: 200},
		nats.ErrNoResponders:     {Status: 404},
		nats.ErrMaxPayload:       {Status: 413},
		nats.ErrBadHeaderMsg:     {Err: policy.ErrorArgument},
		nats.ErrBadSubject:       {Err: policy.ErrorArgument},
		context.Canceled:         {Err: policy.ErrorCanceled},
		context.DeadlineExceeded: {Err: policy.ErrorTimeout},
		errors.New("nats: x"):    {Err: policy.ErrorSocket},
	} {
		r := resultOf(err)
		require.Equal(t, want, r.Result, err)
		require.Equal(t, err == nil, r.Text == "", err)
		require.NotContains(t, r.Text, "nats: ")
	}
}

func TestMessageSize(t *testing.T) {
	t.Parallel()
	msg := &nats.Msg{Data: []byte("body")}
	require.Equal(t, len("body"), messageSize(msg))
	msg.Header = nats.Header{"a": {"b", " c "}, "name": {"é"}}
	require.Equal(t, len("NATS/1.0\r\na: b\r\na: c\r\nname: é\r\n\r\nbody"), messageSize(msg))
}
