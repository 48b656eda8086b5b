// Package kafka delivers events to a topic of Apache Kafka, or of a service with its protocol such as Azure Event Hubs.
//
// It uses franz-go's connections, requests and metadata, but not its producer. That reports a lost connection and the
// broker's errors 7 and 20 as "too many retries" only, and one record that fails takes the others of its partition with
// it. Here each record has its own result and deadline, and is sent once.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"postrider/internal/destination"
	"postrider/policy"
)

const (
	// Event Hubs closes connections that are idle for 240 s, and clients with older metadata get errors. franz-go may
	// keep a connection for twice the time.
	idleTimeout    = 100 * time.Second
	metadataMaxAge = 180 * time.Second
	// metadataPause is the pause between requests to the servers in turn.
	metadataPause = 50 * time.Millisecond
	// dialTimeout bounds a connection with its TLS handshake: it is not made for one attempt.
	dialTimeout = 10 * time.Second
	// timeoutOverhead is how long a broker may exceed the ack timeout before the connection is closed.
	timeoutOverhead = 5 * time.Second
	// defaultMaxBytes is the broker's default of max.message.bytes.
	defaultMaxBytes = 1_048_588
)

// sender delivers to one topic.
type sender struct {
	*producer

	maxBytes int
	binary   bool
}

// Open returns a Sender for the topic of the properties. It opens no connection. An error is a setting that cannot be
// used: no servers, or an unknown mechanism.
func Open(p *destination.Properties, o destination.ClientOptions) (destination.Sender, error) {
	if len(p.Servers) == 0 || p.Topic == "" {
		return nil, errors.New("must have servers and topic")
	}
	mechanism, err := mechanismOf(p, o.Token)
	if err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(p.Servers...),
		kgo.ClientID(o.Name),
		kgo.Dialer(dialer(o)),
		kgo.MinVersions(kversion.V0_11_0()), // the first with headers
		kgo.ConnIdleTimeout(idleTimeout),
		kgo.MetadataMaxAge(metadataMaxAge),
		kgo.RequestTimeoutOverhead(timeoutOverhead),
		// Of metadata: each server is requested once, and one of them twice. Produce requests are not repeated.
		kgo.RequestRetries(len(p.Servers)),
		kgo.RetryBackoffFn(func(int) time.Duration { return metadataPause }),
		kgo.DisableClientMetrics(),
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("cannot use the settings: %w", err)
	}
	s := &sender{
		producer: newProducer(client, p.Topic, o.AckTimeout),
		maxBytes: defaultMaxBytes, binary: p.ContentMode == destination.Binary,
	}
	if p.MaxMessageSizeInKilobytes != nil {
		s.maxBytes = *p.MaxMessageSizeInKilobytes * 1024
	}
	return s, nil
}

// dialer returns what opens every connection, to the servers and to the brokers that they name.
func dialer(o destination.ClientOptions) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := o.Dial(ctx, network, address)
		if err != nil || o.TLS == nil {
			return conn, err
		}
		config := o.TLS.Clone()
		if config.ServerName, _, err = net.SplitHostPort(address); err == nil {
			secure := tls.Client(conn, config)
			if err = secure.HandshakeContext(ctx); err == nil {
				return secure, nil
			}
		}
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
	}
}

// tokenError is the error of an access token: there are no credentials to send.
type tokenError struct{ error }

func (e tokenError) Unwrap() error { return e.error }

func mechanismOf(
	p *destination.Properties, token func(context.Context) (string, error),
) (sasl.Mechanism, error) {
	switch mechanism := cmp.Or(p.SASLMechanism, destination.SASLNone); mechanism {
	case destination.SASLNone:
		return nil, nil //nolint:nilnil // no mechanism is a setting
	case destination.SASLPlain:
		return plain.Auth{User: p.Username, Pass: p.Password}.AsMechanism(), nil
	case destination.SASLScram256:
		return scram.Auth{User: p.Username, Pass: p.Password}.AsSha256Mechanism(), nil
	case destination.SASLScram512:
		return scram.Auth{User: p.Username, Pass: p.Password}.AsSha512Mechanism(), nil
	case destination.SASLOAuthBearer:
		if token == nil {
			return nil, errors.New("saslMechanism OAUTHBEARER must have oauth2")
		}
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			text, err := token(ctx)
			if err == nil && text == "" {
				err = errors.New("the token is empty")
			}
			if err != nil {
				return oauth.Auth{}, tokenError{err}
			}
			return oauth.Auth{Token: text}, nil
		}), nil
	default:
		return nil, fmt.Errorf("saslMechanism must be none, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, not %q",
			mechanism)
	}
}

// Send sends one record and returns when all in-sync replicas have it. It returns at the end of ctx also while the
// broker has the record: it may then still be stored.
func (s *sender) Send(ctx context.Context, m *destination.Message) destination.Result {
	r, err := newRecord(m, s.binary)
	if err != nil {
		return destination.Result{
			Result: policy.Result{Err: policy.ErrorArgument}, Text: "the event is no CloudEvent in JSON", Cause: err,
		}
	}
	if size := batchHead + encodedSize(r); size > s.maxBytes {
		return destination.Result{Result: policy.Result{Status: 413}, Text: fmt.Sprintf("the record has %d bytes, and at "+
			"most %d are allowed: send smaller events, or raise maxMessageSizeInKilobytes and the topic's max.message.bytes",
			size, s.maxBytes)}
	}
	return s.result(ctx, s.produce(ctx, r))
}

// Look checks that the topic exists and the credentials are right, by a request of metadata.
func (s *sender) Look(ctx context.Context) destination.Result {
	s.forget(nil)
	_, err := s.partitions(ctx)
	return s.result(ctx, err)
}

// Close closes the connections.
func (s *sender) Close() { s.client.Close() }
