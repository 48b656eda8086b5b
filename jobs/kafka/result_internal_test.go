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
	s := &sender{producer: &producer{timeout: 30 * time.Second}}
	for condition, codes := range map[string][]int16{
		"400": {2, 17, 32, 43, 44, 87},
		"401": {33, 34, 58},
		"403": {29, 31},
		"404": {3, 100},
		"408": {7},
		"413": {10, 18},
		"500": {-1, 45, 47, 59, 35, 999},
		"503": {5, 6, 8, 9, 13, 19, 20, 56, 74, 75, 89},
	} {
		for _, code := range codes {
			for _, err := range []error{kerr.ErrorForCode(code), &produceError{error: kerr.ErrorForCode(code)}} {
				r := s.result(t.Context(), err)
				require.Equal(t, condition, r.String(), code)
				require.Contains(t, r.Text, "the broker responded ", code)
				require.NoError(t, r.Cause, code)
			}
		}
	}
	require.Equal(t, destination.Result{Result: policy.Result{Status: 200}}, s.result(t.Context(), nil))
}

func TestResultText(t *testing.T) {
	t.Parallel()
	s := &sender{producer: &producer{timeout: 30 * time.Second}}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{
			&produceError{error: kerr.ThrottlingQuotaExceeded, throttle: 3 * time.Second},
			"the broker responded THROTTLING_QUOTA_EXCEEDED (89): The throttling quota has been exceeded",
		},
		{
			&produceError{error: kerr.InvalidRecord, message: "Null key.", throttle: time.Second},
			"the broker responded INVALID_RECORD (87): Null key; a compacted topic needs messageKey",
		},
		{
			fmt.Errorf("%w: Authentication failed", kerr.SaslAuthenticationFailed),
			"the broker responded SASL_AUTHENTICATION_FAILED (58): Authentication failed; check the credentials and " +
				"saslMechanism",
		},
	} {
		r := s.result(t.Context(), tt.err)
		require.Equal(t, tt.want, r.Text)
		require.Equal(t, errors.Is(tt.err, kerr.ThrottlingQuotaExceeded), r.RetryAfter == 3*time.Second)
	}
}

type rejection struct{ rejected bool }

func (rejection) Error() string    { return "address 10.0.0.1 must not be called: private" }
func (r rejection) Rejected() bool { return r.rejected }

func TestResultWithoutResponse(t *testing.T) {
	t.Parallel()
	s := &sender{producer: &producer{timeout: 1500 * time.Millisecond}}
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
		want policy.ErrorKind
		text string
	}{
		{
			t.Context(), dial(&net.DNSError{Err: "no such host", Name: "kafka.example"}), policy.ErrorDNS,
			"lookup kafka.example: no such host",
		},
		{
			t.Context(), dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), policy.ErrorSocket,
			"connect: connection refused",
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
			tokenError{errors.New("server responded 500")},
			policy.ErrorUnauthorized,
			"no access token: server responded 500",
		},
		{t.Context(), kgo.ErrClientClosed, policy.ErrorCanceled, "the connection was closed by postrider"},
		{expired, context.DeadlineExceeded, policy.ErrorTimeout, "no response within 1.5 s"},
		{canceled, context.Canceled, policy.ErrorCanceled, "the attempt was canceled"},
	} {
		r := s.result(tt.ctx, tt.err)
		require.Equal(t, policy.Result{Err: tt.want}, r.Result, tt.err)
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
