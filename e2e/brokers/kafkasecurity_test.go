package brokers

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"postrider/internal/destination"
	"postrider/policy"
)

// rejectWrongPasswords responds to PLAIN with the password wrong, as Kafka's brokers do since version 1.0. kfake closes
// the connection.
func rejectWrongPasswords(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !bytes.HasSuffix(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes, []byte("\x00wrong")) {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, kmsg.StringPtr("Invalid password.")
		return resp, nil, true
	})
}

func TestKafkaSASL(t *testing.T) {
	t.Parallel()
	options := []kfake.Opt{kfake.EnableSASL()}
	mechanisms := []destination.SASLMechanism{destination.SASLPlain, destination.SASLScram256, destination.SASLScram512}
	for _, m := range mechanisms {
		options = append(options, kfake.Superuser(string(m), "u"+string(m), "right"))
	}
	c := cluster(t, options...)
	rejectWrongPasswords(c)
	with := func(m destination.SASLMechanism, password string) destination.Sender {
		return open(t, c, func(p *destination.Properties, _ *destination.ClientOptions) {
			p.SASLMechanism, p.Username, p.Password = m, "u"+string(m), password
		})
	}
	for _, m := range mechanisms {
		s := with(m, "wrong")
		r, look := s.Send(t.Context(), event("", "a")), s.Check(t.Context())
		require.Equal(t, r.Result, look.Result)
		if m == destination.SASLPlain {
			requireStatus(t, 401, r)
			require.Equal(t, "the broker responded SASL_AUTHENTICATION_FAILED (58): Invalid password; check the "+
				"credentials and saslMechanism", r.Text)
		} else {
			require.Equal(t, policy.Result{Err: policy.ErrorSocket}, r.Result)
		}
		s = with(m, "right")
		requireStatus(t, 200, s.Check(t.Context()))
		requireStatus(t, 200, s.Send(t.Context(), event("", "a")))
	}
	r := open(t, c, nil).Check(t.Context())
	require.Equal(t, policy.Result{Err: policy.ErrorSocket}, r.Result, "the broker closes the connection")
	require.Contains(t, r.Text, "SASL")
}

func TestKafkaToken(t *testing.T) {
	t.Parallel()
	c := cluster(t) // kfake has no OAUTHBEARER: the controls accept it
	handshake := &kmsg.SASLHandshakeResponse{ErrorCode: kerr.UnsupportedSaslMechanism.Code}
	c.ControlKey(int16(kmsg.SASLHandshake), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		handshake.SetVersion(r.GetVersion())
		return handshake, nil, true
	})
	sent := make(chan string, 8)
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		sent <- string(r.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)
		return r.ResponseKind(), nil, true
	})
	var failed error
	s := open(t, c, func(p *destination.Properties, o *destination.ClientOptions) {
		p.SASLMechanism = destination.SASLOAuthBearer
		o.Token = func(context.Context) (string, error) { return "secret", failed }
	})
	r := s.Send(t.Context(), event("", "a"))
	requireStatus(t, 401, r)
	require.Contains(t, r.Text, "UNSUPPORTED_SASL_MECHANISM (33)")
	handshake.ErrorCode, failed = 0, errors.New("the token server responded 500")
	r = s.Send(t.Context(), event("", "a"))
	require.Equal(t, policy.Result{Err: policy.ErrorUnauthorized}, r.Result)
	require.Equal(t, "no access token: the token server responded 500", r.Text)
	require.ErrorIs(t, r.Cause, failed)
	failed = nil
	requireStatus(t, 200, s.Send(t.Context(), event("", "a")))
	require.Contains(t, <-sent, "auth=Bearer secret\x01")
}

func TestKafkaTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c := cluster(t, kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates, MinVersion: tls.VersionTLS12}))
	for _, tt := range []struct {
		roots *x509.CertPool
		text  string
	}{
		{roots, ""},
		{x509.NewCertPool(), "certificate signed by unknown authority"},
	} {
		r := open(t, c, func(_ *destination.Properties, o *destination.ClientOptions) {
			o.TLS = &tls.Config{RootCAs: tt.roots, MinVersion: tls.VersionTLS12}
		}).Send(t.Context(), event("", "a"))
		require.Contains(t, r.Text, tt.text)
		if tt.text == "" {
			requireStatus(t, 200, r)
		} else {
			require.Equal(t, policy.Result{Err: policy.ErrorSocket}, r.Result)
		}
	}
	r := open(t, c, nil).Send(t.Context(), event("", "a"))
	require.Equal(t, policy.Result{Err: policy.ErrorSocket}, r.Result, "without TLS")
}

type rejectedError struct{ address string }

func (e rejectedError) Error() string { return e.address + " is not public" }
func (rejectedError) Rejected() bool  { return true }

func TestKafkaRejectedAddress(t *testing.T) {
	t.Parallel()
	c := cluster(t, kfake.NumBrokers(2), kfake.SeedTopics(2, topic))
	require.NoError(t, c.MoveTopicPartition(topic, 0, 0))
	require.NoError(t, c.MoveTopicPartition(topic, 1, 1))
	s := open(t, c, func(p *destination.Properties, o *destination.ClientOptions) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != p.Servers[0] { // the other broker is advertised
				return nil, &net.OpError{Op: "dial", Net: network, Err: rejectedError{address}}
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	requireStatus(t, 200, s.Send(t.Context(), event(keyOf(0), "a")))
	r := s.Send(t.Context(), event(keyOf(1), "b"))
	require.Equal(t, policy.Result{Err: policy.ErrorArgument}, r.Result)
	require.Contains(t, r.Text, "must not be called")
	var rejection destination.AddressRejection
	require.ErrorAs(t, r.Cause, &rejection)
	requireStatus(t, 200, s.Send(t.Context(), event(keyOf(0), "c")))
}
