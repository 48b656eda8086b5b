package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"postrider/internal/destination"
	"postrider/policy"
)

func TestResultOfCode(t *testing.T) {
	t.Parallel()
	s := &sender{timeout: 30 * time.Second}
	for condition, codes := range map[string][]int16{
		"400": {2, 17, 32, 43, 44, 87},
		"401": {33, 34, 58},
		"403": {29, 31},
		"404": {3},
		"413": {10, 18},
		"500": {-1, 45, 47, 59, 35, 999},
		"503": {5, 6, 7, 8, 9, 13, 19, 20, 56, 74, 75, 89, 100},
	} {
		for _, code := range codes {
			r := s.result(t.Context(), fmt.Errorf("wrapped: %w", kerr.ErrorForCode(code)))
			require.Equal(t, condition, r.String(), code)
			require.Contains(t, r.Text, "the broker responded ", code)
			require.NoError(t, r.Cause, code)
		}
	}
	require.Equal(t, destination.Result{Result: policy.Result{Status: 200}}, s.result(t.Context(), nil))
}

func TestResultText(t *testing.T) {
	t.Parallel()
	s := &sender{timeout: 30 * time.Second}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{
			kerr.ThrottlingQuotaExceeded,
			"the broker responded THROTTLING_QUOTA_EXCEEDED (89): The throttling quota has been exceeded",
		},
		{
			fmt.Errorf("%w (uncompressed_bytes=9)", kerr.MessageTooLarge),
			"the broker responded MESSAGE_TOO_LARGE (10): The request included a message larger than the max message size " +
				"the server will accept; raise the topic's max.message.bytes, or send smaller events",
		},
		{
			fmt.Errorf("%w: Authentication failed", kerr.SaslAuthenticationFailed),
			"the broker responded SASL_AUTHENTICATION_FAILED (58): Authentication failed; check the credentials and " +
				"saslMechanism",
		},
	} {
		require.Equal(t, tt.want, s.result(t.Context(), tt.err).Text)
	}
}

type rejection struct{ rejected bool }

func (rejection) Error() string    { return "address 10.0.0.1 must not be called: private" }
func (r rejection) Rejected() bool { return r.rejected }

func TestResultWithoutResponse(t *testing.T) {
	t.Parallel()
	s := &sender{timeout: 1500 * time.Millisecond}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancelExpired := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancelExpired()
	dial := func(err error) error {
		return fmt.Errorf("unable to dial: %w", &net.OpError{Op: "dial", Net: "tcp", Err: err})
	}
	for _, tt := range []struct {
		ctx  context.Context //nolint:containedctx // of a case
		err  error
		want policy.ErrorKind // "" = status 503
		text string
	}{
		{
			t.Context(), dial(&net.DNSError{Err: "no such host", Name: "kafka.example"}), policy.ErrorDNS,
			"name kafka.example could not be resolved: no such host",
		},
		{
			t.Context(), &net.OpError{
				Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 3), Port: 9092},
				Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
			}, policy.ErrorSocket, "no connection to 10.0.0.3:9092: connection refused",
		},
		{t.Context(), io.ErrUnexpectedEOF, policy.ErrorSocket, "the broker closed the connection"},
		{t.Context(), dial(os.ErrDeadlineExceeded), policy.ErrorTimeout, "the broker did not respond: i/o timeout"},
		{
			t.Context(), context.DeadlineExceeded, policy.ErrorTimeout,
			"the broker did not respond: context deadline exceeded",
		},
		{
			t.Context(), dial(rejection{true}), policy.ErrorArgument,
			"the broker's address must not be called: address 10.0.0.1 must not be called: private",
		},
		{t.Context(), dial(rejection{false}), policy.ErrorSocket, "address 10.0.0.1 must not be called: private"},
		{
			t.Context(),
			fmt.Errorf("%w: %w", errToken, errors.New("server responded 500")),
			policy.ErrorUnauthorized,
			"no access token: server responded 500",
		},
		{
			t.Context(), fmt.Errorf("%w, last err: %w", kgo.ErrRecordTimeout, io.ErrClosedPipe), policy.ErrorTimeout,
			"the broker did not respond: io: read/write on closed pipe",
		},
		{
			t.Context(), kgo.ErrRecordRetries, "",
			"the broker requires another try, or lost its connection; the record may be stored",
		},
		{
			t.Context(), kgo.ErrMaxBuffered, policy.ErrorSocket,
			"the maximum amount of records are buffered, cannot buffer more",
		},
		{t.Context(), kgo.ErrClientClosed, policy.ErrorCanceled, "the connection was closed by postrider"},
		{expired, context.DeadlineExceeded, policy.ErrorTimeout, "no response within 1.5 s"},
		{canceled, context.Canceled, policy.ErrorCanceled, "the attempt was canceled"},
	} {
		r := s.result(tt.ctx, tt.err)
		want := policy.Result{Err: tt.want}
		if tt.want == "" {
			want.Status = 503
		}
		require.Equal(t, want, r.Result, tt.err)
		require.Equal(t, tt.text, r.Text)
		require.ErrorIs(t, r.Cause, tt.err)
	}
}

func TestOpenRejectsSettings(t *testing.T) {
	t.Parallel()
	for _, p := range []destination.Properties{
		{Topic: "t"},
		{Servers: []string{"a:9092"}},
		{Servers: []string{"a:9092"}, Topic: "t", SASLMechanism: "GSSAPI"},
		{Servers: []string{"a:9092"}, Topic: "t", SASLMechanism: destination.SASLOAuthBearer},
	} {
		_, err := Open(&p, destination.ClientOptions{})
		require.Error(t, err, "%+v", p)
	}
}
