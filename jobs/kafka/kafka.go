// Package kafka delivers events to a topic of Apache Kafka, or of a service with its protocol such as Azure Event Hubs.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"postrider/internal/destination"
	"postrider/policy"
)

// sender delivers to one topic.
type sender struct {
	client   *kgo.Client
	large    func() (*kgo.Client, error) // a client for records of more than maxShared bytes
	single   func() (*kgo.Client, error) // a client that has one record at a time, so it is alone in its batch
	failure  atomic.Pointer[error]       // the last one of a connection or request
	topic    string
	timeout  time.Duration
	maxBytes int
	binary   bool
}

// Open returns a Sender for the topic of the properties. It opens no connection. An error is a setting that cannot be
// used: no servers, or an unknown mechanism.
func Open(p *destination.Properties, o destination.ClientOptions) (destination.Sender, error) {
	if len(p.Servers) == 0 || p.Topic == "" {
		return nil, errors.New("must have servers and topic")
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // it is not made for one attempt
		defer cancel()
		conn, err := o.Dial(ctx, network, address)
		if err != nil || o.TLS == nil {
			return conn, err
		}
		config := o.TLS.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address)
		secure := tls.Client(conn, config)
		if err = secure.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("TLS handshake with %s: %w", address, err)
		}
		return secure, nil
	}
	bearer := func(ctx context.Context) (oauth.Auth, error) {
		token, err := o.Token(ctx)
		if err != nil {
			err = fmt.Errorf("%w: %w", errToken, err)
		}
		return oauth.Auth{Token: token}, err
	}
	login := scram.Auth{User: p.Username, Pass: p.Password}
	mechanism, ok := map[destination.SASLMechanism][]sasl.Mechanism{
		"": nil, destination.SASLNone: nil,
		destination.SASLPlain:       {plain.Auth{User: p.Username, Pass: p.Password}.AsMechanism()},
		destination.SASLScram256:    {login.AsSha256Mechanism()},
		destination.SASLScram512:    {login.AsSha512Mechanism()},
		destination.SASLOAuthBearer: {oauth.Oauth(bearer)},
	}[p.SASLMechanism]
	if !ok || p.SASLMechanism == destination.SASLOAuthBearer && o.Token == nil {
		return nil, fmt.Errorf("saslMechanism %s is unknown, or has no oauth2", p.SASLMechanism)
	}
	s := &sender{topic: p.Topic, timeout: o.AckTimeout, binary: p.ContentMode == destination.Binary}
	s.maxBytes = 1_048_588 // the broker's default of max.message.bytes
	if p.MaxMessageSizeInKilobytes != nil {
		s.maxBytes = *p.MaxMessageSizeInKilobytes * 1024
	}
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Metadata), 9) // without topic ids: a topic that is created again can be used
	options := []kgo.Opt{
		kgo.SeedBrokers(p.Servers...), kgo.ClientID(o.Name), kgo.Dialer(dial), kgo.SASL(mechanism...),
		kgo.WithHooks(s), kgo.DisableClientMetrics(),
		kgo.MinVersions(kversion.V0_11_0()), // the first with headers
		kgo.MaxVersions(versions),
		// Event Hubs closes connections that are idle for 240 s, and clients with older metadata get errors. franz-go may
		// keep a connection for twice the time.
		kgo.ConnIdleTimeout(100 * time.Second), kgo.MetadataMaxAge(180 * time.Second), kgo.MetadataMinAge(time.Second),
		// Of metadata: each server is requested once, and one of them twice.
		kgo.RequestRetries(len(p.Servers)),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.DefaultProduceTopic(p.Topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		// As other clients for a key; other records prefer partitions for which few records wait.
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(1, true, true, nil)),
		// The retry policy decides about another attempt.
		kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.UnknownTopicRetries(0),
		kgo.ProduceRequestTimeout(max(s.timeout, time.Second)), kgo.RecordDeliveryTimeout(max(s.timeout, time.Second)),
		kgo.RequestTimeoutOverhead(5 * time.Second), // then the connection is closed
	}
	open := func(own ...kgo.Opt) (*kgo.Client, error) { return kgo.NewClient(slices.Concat(options, own)...) }
	most := int32(s.maxBytes + batchHead)
	largest := []kgo.Opt{kgo.ProducerBatchMaxBytes(most), kgo.BrokerMaxWriteBytes(most + 64<<10)}
	s.single = sync.OnceValues(func() (*kgo.Client, error) { return open(append(largest, kgo.MaxBufferedRecords(1))...) })
	s.large = sync.OnceValues(func() (*kgo.Client, error) {
		return open(append(largest, kgo.MaxBufferedBytes(64<<20))...)
	})
	// Event Hubs closes the connection at 1,046,528 bytes. A record that is larger than these batches goes to large.
	var err error
	if s.client, err = open(kgo.MaxBufferedRecords(10_000), kgo.MaxBufferedBytes(64<<20),
		kgo.ProducerBatchMaxBytes(maxShared), kgo.BrokerMaxWriteBytes(1_000_000)); err != nil {
		return nil, fmt.Errorf("cannot use the settings: %w", err)
	}
	return s, nil
}

// maxShared bounds the bytes of records that share a request.
const maxShared = 256 << 10

// errToken is that there are no credentials to send.
var errToken = errors.New("no access token")

// Send sends one record and returns when all in-sync replicas have it. It returns at the end of ctx also while the
// broker has the record: it may then still be stored.
func (s *sender) Send(ctx context.Context, m *destination.Message) destination.Result {
	r, err := newRecord(m, s.binary)
	if err != nil {
		return destination.Result{
			Result: policy.Result{Err: policy.ErrorArgument}, Cause: err,
			Text: "the event is no CloudEvent in JSON",
		}
	}
	size := batchSize(r)
	if size > s.maxBytes {
		return destination.Result{Result: policy.Result{Status: 413}, Text: fmt.Sprintf("the record has %d bytes, and at "+
			"most %d are allowed: send smaller events, or raise maxMessageSizeInKilobytes and the topic's max.message.bytes",
			size, s.maxBytes)}
	}
	client := s.client
	if size > maxShared {
		if client, err = s.large(); err != nil {
			return s.result(ctx, err)
		}
	}
	err = s.produce(ctx, client, r, false)
	if code, ok := errors.AsType[*kerr.Error](err); ok && slices.Contains(blamesBatch, code) {
		var single *kgo.Client
		if single, err = s.single(); err == nil {
			err = s.produce(ctx, single, r, true)
		}
	}
	return s.result(ctx, err)
}

// blamesBatch has the errors that another record may have caused: franz-go returns them for the whole partition.
var blamesBatch = []*kerr.Error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.CorruptMessage}

func (s *sender) produce(ctx context.Context, client *kgo.Client, r *kgo.Record, alone bool) error {
	before, done := s.failure.Load(), make(chan error, 1)
	promise := func(_ *kgo.Record, err error) { done <- err }
	if alone {
		client.Produce(ctx, r, promise)
	} else {
		// The end of one record's context would end the request and the partition's other records.
		client.TryProduce(context.WithoutCancel(ctx), r, promise)
	}
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if code, ok := errors.AsType[*kerr.Error](err); err != nil && (!ok || code.Retriable) {
		client.ForceMetadataRefresh() // without retries, franz-go does not find a new leader
	}
	if last := s.failure.Load(); last != before && errors.Is(err, kgo.ErrRecordRetries) {
		return *last
	}
	return err
}

// OnBrokerConnect remembers why a connection failed, which franz-go does not return for a record.
func (s *sender) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		s.failure.Store(&err)
	}
}

// OnBrokerE2E remembers why a request has no response.
func (s *sender) OnBrokerE2E(m kgo.BrokerMetadata, _ int16, e kgo.BrokerE2E) {
	s.OnBrokerConnect(m, 0, nil, e.Err())
}

// Check checks that the topic exists and the credentials are right, by a request of metadata.
func (s *sender) Check(ctx context.Context) destination.Result {
	req, requested := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic() // by default, it creates no topic
	requested.Topic = &s.topic
	req.Topics = append(req.Topics, requested)
	resp, err := req.RequestWith(ctx, s.client)
	if err == nil && len(resp.Topics) == 1 {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	return s.result(ctx, err)
}

// Close closes the connections.
func (s *sender) Close() {
	s.client.Close()
	for _, open := range []func() (*kgo.Client, error){s.single, s.large} {
		if client, err := open(); err == nil {
			client.Close()
		}
	}
}
