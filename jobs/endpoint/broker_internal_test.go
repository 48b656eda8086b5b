package endpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/policy"
)

// testSender is a client of a broker that confirms each message when the test lets it.
type testSender struct {
	properties *destination.Properties
	options    destination.ClientOptions
	begun      chan *destination.Message
	results    chan destination.Result
	closed     chan struct{}
}

// Send implements destination.Sender.
func (s *testSender) Send(ctx context.Context, m *destination.Message) destination.Result {
	s.begun <- m
	select {
	case result := <-s.results:
		return result
	case <-ctx.Done():
		return destination.Result{Result: policy.Result{Err: policy.ErrorTimeout}, Text: "slow", Cause: ctx.Err()}
	}
}

// Check implements destination.Sender.
func (s *testSender) Check(ctx context.Context) destination.Result {
	return s.Send(ctx, nil)
}

// Close implements destination.Sender. A second call panics.
func (s *testSender) Close() { close(s.closed) }

func (s *testSender) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// brokerClient is a client whose senders of type Kafka are the test's.
type brokerClient struct {
	*Client
	opened []*testSender
}

var errSettings = errors.New("these settings cannot be used")

func newBrokerClient(t *testing.T, o Options) *brokerClient {
	t.Helper()
	c := &brokerClient{}
	o.UserAgent, o.MaxIdleConnections = "postrider-test", 10
	o.Open = map[destination.Type]destination.Open{
		destination.Kafka: func(p *destination.Properties, o destination.ClientOptions) (destination.Sender, error) {
			if p.Topic == "unusable" {
				return nil, errSettings
			}
			s := &testSender{
				properties: p, options: o, begun: make(chan *destination.Message, 1), results: make(chan destination.Result, 1),
				closed: make(chan struct{}),
			}
			c.opened = append(c.opened, s)
			return s, nil
		},
	}
	c.Client = NewClient(t.Context(), o)
	t.Cleanup(c.CloseIdle)
	return c
}

func kafka(topic, password string) *MessageRequest {
	return &MessageRequest{
		Destination: &destination.Destination{EndpointType: destination.Kafka, Properties: &destination.Properties{
			Servers: []string{"broker.example.com:9092"}, Topic: topic, Password: password,
		}},
		Connection: &endpointconf.Connection{}, Message: &destination.Message{ID: "1"}, AckTimeout: time.Minute,
	}
}

// outcome sends a message and returns what Done got.
func (c *brokerClient) outcome(t *testing.T, r *MessageRequest) (resp Response, err error) {
	t.Helper()
	calls := 0
	_ = c.SendMessage(r, func(got Response, problem error) error {
		resp, err, calls = got, problem, calls+1
		return problem
	})
	require.Equal(t, 1, calls)
	return resp, err
}

// sent sends a message that the broker confirms, and returns the client that sent it.
func (c *brokerClient) sent(t *testing.T, r *MessageRequest) *testSender {
	t.Helper()
	before := len(c.opened)
	sender, release, err := c.brokers.use(c.Client, r.Destination, r.Connection, r.AckTimeout)
	require.NoError(t, err)
	release()
	require.LessOrEqual(t, len(c.opened), before+1)
	made := sender.(*broker).Sender.(*testSender)
	made.results <- destination.Result{Result: policy.Result{Status: http.StatusOK}}
	resp, err := c.outcome(t, r)
	require.NoError(t, err)
	require.Equal(t, policy.Result{Status: http.StatusOK}, resp.Result)
	require.Same(t, r.Message, <-made.begun)
	return made
}

func needs(requests ...*MessageRequest) func(func(Wanted) bool) {
	list := make([]Wanted, len(requests))
	for i, r := range requests {
		list[i] = Wanted{Destination: r.Destination, Connection: r.Connection, AckTimeout: r.AckTimeout}
	}
	return slices.Values(list)
}

// Event subscriptions with the same settings and credentials share a client. Any change of these has another.
func TestBrokerClientsAreShared(t *testing.T) {
	t.Parallel()
	c := newBrokerClient(t, Options{})
	first := c.sent(t, kafka("orders", "one"))
	require.Same(t, first, c.sent(t, kafka("orders", "one")))
	require.Equal(t, "postrider-test", first.options.Name)
	require.Equal(t, time.Minute, first.options.AckTimeout)
	require.NotNil(t, first.options.TLS)
	require.Nil(t, first.options.Token)
	changes := []func(*MessageRequest){
		func(r *MessageRequest) { r.Destination.Properties.Password = "two" },
		func(r *MessageRequest) { r.Destination.Properties.Topic = "other" },
		func(r *MessageRequest) { r.Destination.Properties.TLS = new(false) },
		func(r *MessageRequest) { r.AckTimeout = time.Hour },
		func(r *MessageRequest) { r.Connection.OAuth2 = &endpointconf.OAuth2{ClientSecret: "a"} },
		func(r *MessageRequest) { r.Connection.OAuth2 = &endpointconf.OAuth2{ClientSecret: "b"} },
	}
	for i, change := range changes {
		r := kafka("orders", "one")
		change(r)
		made := c.sent(t, r)
		require.Len(t, c.opened, i+2)
		require.Equal(t, r.Connection.OAuth2 != nil, made.options.Token != nil)
		require.Equal(t, r.Destination.Properties.UseTLS(), made.options.TLS != nil)
	}
	require.False(t, first.isClosed())
}

// A client that no event subscription needs any more is closed at the end of its last use; an unused one when it is
// idle, and all when the node stops.
func TestBrokerClientsAreClosed(t *testing.T) {
	t.Parallel()
	c := newBrokerClient(t, Options{})
	c.CloseBrokers(needs())
	changed, kept, idle := kafka("orders", "old"), kafka("kept", ""), kafka("idle", "")
	senders := map[*MessageRequest]*testSender{}
	for _, r := range []*MessageRequest{changed, kept, idle} {
		senders[r] = c.sent(t, r)
	}
	done := make(chan error, 1)
	go func() {
		done <- c.SendMessage(changed, func(resp Response, err error) error {
			if resp.Result.Status != http.StatusOK {
				return fmt.Errorf("%v: %w", resp.Result, err)
			}
			return err
		})
	}()
	<-senders[changed].begun
	c.brokers.mu.Lock()
	c.brokers.clients[keyOf(idle.Destination, idle.Connection, idle.AckTimeout)].lastUse = time.Now().Add(-brokerIdle - 1)
	c.brokers.clients[keyOf(changed.Destination, changed.Connection, changed.AckTimeout)].lastUse = time.Time{}
	c.brokers.mu.Unlock()
	c.CloseBrokers(needs(kept, idle, kafka("orders", "new")))
	<-senders[idle].closed
	require.False(t, senders[changed].isClosed(), "it is in use")
	require.Same(t, senders[kept], c.sent(t, kept))
	require.NotSame(t, senders[idle], c.sent(t, idle), "it is opened again")
	require.NotSame(t, senders[changed], c.sent(t, changed), "a removed one gets no new messages")
	senders[changed].results <- destination.Result{Result: policy.Result{Status: http.StatusOK}}
	require.NoError(t, <-done)
	<-senders[changed].closed
	c.CloseIdle()
	for _, s := range c.opened {
		<-s.closed
	}
}

// A node that has stopped opens no client, which nothing would close.
func TestBrokerClientsAfterTheStop(t *testing.T) {
	t.Parallel()
	c := newBrokerClient(t, Options{})
	c.CloseIdle()
	_, err := c.outcome(t, kafka("orders", ""))
	require.ErrorIs(t, err, ErrInterrupted)
	require.Empty(t, c.opened)
}

// The least recently used client makes place for another, unless it is in use.
func TestBrokerClientsAreBounded(t *testing.T) {
	t.Parallel()
	c := newBrokerClient(t, Options{})
	used := kafka("used", "")
	_, release, err := c.brokers.use(c.Client, used.Destination, used.Connection, used.AckTimeout)
	require.NoError(t, err)
	defer release()
	for i := range maxBrokers + 9 {
		c.sent(t, kafka(fmt.Sprint("topic-", i), ""))
	}
	require.Len(t, c.brokers.clients, maxBrokers)
	for i, s := range c.opened[1:] {
		if i < 10 {
			<-s.closed
		}
		require.Equal(t, i < 10, s.isClosed(), i)
	}
	require.False(t, c.opened[0].isClosed())
}

func TestBrokerResults(t *testing.T) {
	t.Parallel()
	c := newBrokerClient(t, Options{})
	r := kafka("orders", "")
	s := c.sent(t, r)
	cause := errors.New("code 41")
	s.results <- destination.Result{
		Result: policy.Result{Err: policy.ErrorFull}, Text: "no place", Cause: cause, RetryAfter: 1500 * time.Millisecond,
	}
	resp, err := c.outcome(t, r)
	<-s.begun
	require.NoError(t, err)
	require.Equal(t, policy.Result{Err: policy.ErrorFull}, resp.Result)
	require.Equal(t, "no place", resp.ErrorText)
	require.Equal(t, cause, resp.Cause)
	require.Equal(t, "2", resp.RetryAfter, "whole seconds, not earlier")

	slow := kafka("orders", "")
	slow.AckTimeout = time.Millisecond
	resp, err = c.outcome(t, slow)
	require.NoError(t, err)
	require.Equal(t, policy.Result{Err: policy.ErrorTimeout}, resp.Result)
	require.Equal(t, "slow", resp.ErrorText)

	resp, err = c.outcome(t, kafka("unusable", ""))
	require.NoError(t, err)
	require.Equal(t, policy.Result{Err: policy.ErrorArgument}, resp.Result)
	require.Equal(t, errSettings.Error(), resp.ErrorText)
	other := kafka("orders", "")
	other.Destination.EndpointType = destination.NatsJetStream
	resp, err = c.outcome(t, other)
	require.NoError(t, err)
	require.Equal(t, policy.Result{Err: policy.ErrorArgument}, resp.Result)

	// The stop of this node is no outcome, a confirmation is one.
	within, stop := context.WithCancel(t.Context())
	r.Within = within
	stop()
	_, err = c.outcome(t, r)
	<-s.begun
	require.ErrorIs(t, err, ErrInterrupted)
	r.Within = nil
	require.Same(t, s, c.sent(t, r))
}

// dialed is a connection of a broker's client with these options.
func dialed(t *testing.T, o Options, plain bool, address string) (net.Conn, error) {
	t.Helper()
	dial := NewClient(t.Context(), o).transports.dialer(plain)
	conn, err := dial(t.Context(), "tcp", address)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

func requireRejected(t *testing.T, err error, text string) {
	t.Helper()
	var rejected interface{ Rejected() bool }
	require.ErrorAs(t, err, &rejected)
	require.True(t, rejected.Rejected())
	require.ErrorContains(t, err, text)
}

// listen serves connections with a function until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return l.Addr().String()
}

// Every address is checked after its name was resolved, also those that a broker names.
func TestBrokerDialerRejectsPrivateAddresses(t *testing.T) {
	t.Parallel()
	resolver := nameServer(t, func(string) netip.Addr { return netip.MustParseAddr("127.0.0.1") })
	broker := listen(t, func(net.Conn) {})
	_, port, err := net.SplitHostPort(broker)
	require.NoError(t, err)
	for _, address := range []string{broker, "broker.example.com:" + port, "10.0.0.1:9092", "[::1]:4222"} {
		_, err := dialed(t, Options{Resolver: resolver, AllowHTTP: true}, false, address)
		requireRejected(t, err, "rejected address")
	}
	opened := Options{Resolver: resolver, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, plain := range []bool{false, true} {
		_, err = dialed(t, opened, plain, "broker.example.com:"+port)
		require.NoError(t, err)
	}
	_, err = dialed(t, Options{}, true, "93.184.216.34:9092")
	requireRejected(t, err, "https") // without TLS only to opened networks
}

// newConnectProxy is a proxy that gives each CONNECT one response, and sends its request's line and credentials.
func newConnectProxy(t *testing.T, response string) (at *url.URL, requests chan string) {
	t.Helper()
	requests = make(chan string, 10)
	address := listen(t, func(conn net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		requests <- r.Method + " " + r.RequestURI + " " + r.Host + " " + r.Header.Get("Proxy-Authorization")
		_, _ = io.WriteString(conn, response)
		_, _ = io.Copy(conn, conn)
	})
	at = &url.URL{Scheme: "http", Host: address, User: url.UserPassword("user", "p@ss")}
	return at, requests
}

// A broker's first bytes may arrive with the proxy's response.
func TestBrokersBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, response := range []string{
		"HTTP/1.1 200 OK\r\n\r\nINFO {}\r\n", "HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\nINFO {}\r\n",
	} {
		proxy, requests := newConnectProxy(t, response)
		conn, err := dialed(t, Options{Proxy: proxy}, false, "broker.example.com:4222")
		require.NoError(t, err)
		require.Equal(t, "CONNECT broker.example.com:4222 broker.example.com:4222 Basic dXNlcjpwQHNz", <-requests)
		lines := bufio.NewReader(conn)
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "INFO {}\r\n", line)
		_, err = io.WriteString(conn, "PING\r\n")
		require.NoError(t, err)
		line, err = lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "PING\r\n", line)
		require.NoError(t, conn.Close())
	}
}

func TestProxyWithoutConnect(t *testing.T) {
	t.Parallel()
	proxy, requests := newConnectProxy(t, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
	o := Options{Proxy: proxy, AllowCIDR: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	_, err := dialed(t, o, false, "broker.example.com:9092")
	requireRejected(t, err, "it responded 403 Forbidden to CONNECT broker.example.com:9092")
	require.ErrorIs(t, err, errNoConnect)
	require.NotContains(t, ErrorText(err), "p@ss")
	<-requests
	for _, address := range []string{
		"127.0.0.1:9092", "169.254.169.254:9092", "metadata.google.internal:9092", "1.2.3.4:25",
	} {
		_, err = dialed(t, o, false, address)
		requireRejected(t, err, "rejected address")
	}
	require.Empty(t, requests, "they do not reach the proxy")
	_, err = dialed(t, Options{Proxy: proxy}, true, "broker.example.com:9092")
	requireRejected(t, err, "https")

	silent, requests := newConnectProxy(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-requests; cancel() }()
	_, err = NewClient(t.Context(), Options{Proxy: silent}).transports.dialer(false)(ctx, "tcp", "broker.example.com:9092")
	require.Error(t, err, "the end of the attempt ends the dial")
}
