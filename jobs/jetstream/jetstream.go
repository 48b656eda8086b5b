// Package jetstream delivers events to streams of NATS JetStream.
//
// It speaks to the server by requests: a message is published with a reply subject, and the stream's response is the
// acknowledgment. The client library's own publisher adds retries, which the retry policy does.
//
// Source: NATS, JetStream wire API reference; ADR-1 (schemas), ADR-4 (headers).
package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/singleflight"

	"postrider/internal/destination"
	"postrider/policy"
)

const (
	// connectTimeout bounds the connection to one server, so that an attempt reaches the next one.
	connectTimeout = 5 * time.Second
	// pingInterval: a server that is silent is noticed after three of them.
	pingInterval = 20 * time.Second

	streamNames = "$JS.API.STREAM.NAMES"
)

type sender struct {
	p       *destination.Properties
	o       destination.ClientOptions
	options nats.Options
	// ctx ends with Close.
	ctx      context.Context
	cancel   context.CancelFunc
	connects singleflight.Group
	stored   atomic.Bool // the stream has acknowledged a message

	mu      sync.Mutex
	link    *link // nil before the first connection, and after one that is not restored
	flights map[*flight]struct{}
}

// link is a connection, and those that replace it while the client reconnects.
type link struct {
	client     *nats.Conn
	err        error // why the latest connection failed
	down       bool  // the client reconnects
	gone       bool  // the client has closed it
	maxPayload int
}

// flight is a request without a response.
type flight struct {
	subject string
	end     context.CancelCauseFunc
}

// Open returns a Sender that publishes to the subject of p. It opens no connection.
func Open(p *destination.Properties, o destination.ClientOptions) (destination.Sender, error) {
	options := nats.GetDefaultOptions()
	for _, server := range p.Servers {
		options.Servers = append(options.Servers, "nats://"+server)
	}
	options.Name, options.TLSConfig, options.Secure = o.Name, o.TLS, o.TLS != nil
	options.Timeout = min(connectTimeout, cmp.Or(o.AckTimeout, connectTimeout))
	options.FlusherTimeout = cmp.Or(o.AckTimeout, options.FlusherTimeout)
	options.PingInterval = pingInterval
	options.ReconnectBufSize = -1 // a message that waits for a connection could be sent after its attempt
	options.SkipHostLookup = true // the dialer resolves names
	options.NoCallbacksAfterClientClose = true
	switch {
	case p.Credentials != "":
		err := nats.UserCredentialBytes([]byte(p.Credentials))(&options)
		if err == nil {
			_, err = options.SignatureCB(nil)
		}
		if err != nil { // its text may quote the credentials
			return nil, errors.New("credentials must be the text of a .creds file, with the user's JWT and seed")
		}
	case p.Username == "":
		options.Token = p.Password
	default:
		options.User, options.Password = p.Username, p.Password
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &sender{p: p, o: o, options: options, flights: map[*flight]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Send implements [destination.Sender]. During an election of the stream's leader, 4 to 9 s, nothing responds to its
// subject. A stream that has acknowledged messages is not taken for a missing one, which is retried much later.
func (s *sender) Send(ctx context.Context, m *destination.Message) destination.Result {
	msg := &nats.Msg{Subject: s.p.Subject, Data: m.Body, Header: nats.Header{}}
	for _, a := range m.Attributes {
		if strings.HasPrefix(strings.ToLower(a.Name), "nats-") { // such as one that removes all other messages
			return failed(policy.Result{Err: policy.ErrorArgument}, "header %s is reserved: use another name", a.Name).Result
		}
		msg.Header.Add(a.Name, a.Value)
	}
	msg.Header.Set("Content-Type", m.ContentType)
	msg.Header.Set(nats.MsgIdHdr, m.ID)
	if s.p.Stream != "" {
		msg.Header.Set(nats.ExpectedStreamHdr, s.p.Stream)
	}
	response, err := s.request(ctx, msg)
	if err == nil {
		err = parseAcknowledgment(response.Data)
	}
	switch {
	case err == nil:
		s.stored.Store(true)
	case errors.Is(err, nats.ErrNoResponders) && s.stored.Load():
		return failed(policy.Result{Status: 503}, "no responders: the stream has no leader, or it was deleted; check the "+
			"servers of the cluster").Result
	}
	return resultOf(err)
}

// Check implements [destination.Sender]. A user who may not read the names of streams is no failure.
func (s *sender) Check(ctx context.Context) destination.Result {
	body, err := json.Marshal(map[string]string{"subject": s.p.Subject})
	if err != nil {
		return resultOf(err)
	}
	response, err := s.request(ctx, &nats.Msg{Subject: streamNames, Data: body})
	var f *failure
	switch {
	case errors.As(err, &f) && f.refused == streamNames:
		return resultOf(nil)
	case errors.Is(err, nats.ErrNoResponders):
		return resultOf((&apiError{503, 10076, "JetStream not enabled"}).failure())
	case err != nil:
		return resultOf(err)
	}
	var found struct {
		Streams []string  `json:"streams"`
		Error   *apiError `json:"error"`
	}
	switch err = json.Unmarshal(response.Data, &found); {
	case err != nil:
		found.Error = &apiError{Description: "the response is no list of streams"}
	case found.Error != nil:
	case len(found.Streams) == 0:
		found.Error = &apiError{404, 10059, "no stream has subject " + s.p.Subject}
	case s.p.Stream != "" && !slices.Contains(found.Streams, s.p.Stream):
		found.Error = &apiError{400, 10060, "the subject's stream is " + strings.Join(found.Streams, ", ")}
	default:
		return resultOf(nil)
	}
	return resultOf(found.Error.failure())
}

// Close implements [destination.Sender].
func (s *sender) Close() {
	s.cancel()
	s.mu.Lock()
	l := s.link
	s.link = nil
	s.endFlights("", context.Canceled)
	s.mu.Unlock()
	if l != nil {
		l.client.Close()
	}
}

// request sends a message and returns its response. It ends with ctx, when the connection is lost, and when the server
// reports that the user may not publish to the subject.
func (s *sender) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	size := messageSize(msg)
	if kilobytes := s.p.MaxMessageSizeInKilobytes; kilobytes != nil && size > *kilobytes*1024 {
		return nil, tooLarge(size, *kilobytes*1024, "maxMessageSizeInKilobytes")
	}
	l, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	f := &flight{msg.Subject, end}
	s.mu.Lock()
	limit, lost := l.maxPayload, error(nil)
	if s.link != l || l.down {
		lost = connectFailure(cmp.Or(l.err, nats.ErrDisconnected), true)
	}
	s.flights[f] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.flights, f)
		s.mu.Unlock()
	}()
	if lost != nil || size > limit {
		return nil, cmp.Or(lost, tooLarge(size, limit, "max_payload of the server"))
	}
	type reply struct {
		msg *nats.Msg
		err error
	}
	replies := make(chan reply, 1)
	// The client holds a lock while it opens another connection, so the call may return later than ctx ends.
	go func() {
		response, err := l.client.RequestMsgWithContext(ctx, msg)
		replies <- reply{response, err}
	}()
	select {
	case r := <-replies:
		if r.err != nil && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if isAny(r.err, nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrDisconnected) {
			return nil, connectFailure(nats.ErrDisconnected, true)
		}
		return r.msg, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// messageSize is what the server compares with its maximum: the bytes of the headers and the body.
func messageSize(msg *nats.Msg) int {
	size := len(msg.Data)
	if len(msg.Header) > 0 {
		size += len("NATS/1.0\r\n\r\n")
	}
	for name, values := range msg.Header {
		for _, value := range values {
			size += len(name) + len(": \r\n") + len(strings.TrimSpace(value))
		}
	}
	return size
}

// endFlights ends the requests to a subject; "" is all. The caller holds mu.
func (s *sender) endFlights(subject string, cause error) {
	for f := range s.flights {
		if subject == "" || f.subject == subject {
			f.end(cause)
		}
	}
}

func (s *sender) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// connect returns the connection, and opens it if there is none. Concurrent calls share one attempt. It outlives the
// ctx of each, so that a later call finds the server that responds slowly.
func (s *sender) connect(ctx context.Context) (*link, error) {
	if l := s.current(); l != nil {
		return l, nil
	}
	select {
	case r := <-s.connects.DoChan("", func() (any, error) { return s.open() }):
		l, _ := r.Val.(*link)
		return l, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *sender) open() (*link, error) {
	if l := s.current(); l != nil {
		return l, nil
	}
	l := &link{}
	options := s.options
	options.CustomDialer = dialer{s, l}
	options.DisconnectedErrCB = func(_ *nats.Conn, err error) { s.lose(l, cmp.Or(err, nats.ErrDisconnected)) }
	options.ReconnectErrCB = func(_ *nats.Conn, err error) { s.lose(l, err) }
	options.ReconnectedCB = func(client *nats.Conn) { s.restore(l, int(client.MaxPayload())) }
	options.ClosedCB = func(*nats.Conn) { s.forget(l, nil) }
	options.AsyncErrorCB = func(client *nats.Conn, _ *nats.Subscription, err error) { s.report(l, client, err) }
	client, err := options.Connect()
	maxPayload := 0
	if err == nil { // not below: the client holds its lock while the dialer waits for ours
		maxPayload = int(client.MaxPayload())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.ctx.Err() != nil:
		return nil, context.Canceled
	case errors.Is(err, nats.ErrNoServers), isRejection(err):
		return nil, connectFailure(cmp.Or(l.err, err), false) // the client hides refused connections
	case err != nil:
		return nil, connectFailure(err, false)
	case s.ctx.Err() != nil:
		go client.Close()
		return nil, context.Canceled
	}
	l.client, l.maxPayload = client, maxPayload
	if !l.gone {
		s.link = l
	}
	return l, nil
}

// dialer opens the connections of a client, also to servers that the cluster names.
type dialer struct {
	s *sender
	l *link
}

// Dial implements [nats.CustomDialer].
func (d dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.s.ctx, d.s.options.Timeout)
	defer cancel()
	conn, err := d.s.o.Dial(ctx, network, address)
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if err != nil && (d.l.err == nil || !isRejection(err)) { // a rejected address counts if no other fails
		d.l.err = err
	}
	return conn, err
}

// lose ends the requests in flight: their acknowledgments cannot arrive.
func (s *sender) lose(l *link, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.down {
		s.o.Log.Warn("connection to NATS lost", "servers", s.p.Servers, "error", err)
		s.endFlights("", connectFailure(err, true))
	}
	l.down, l.err = true, err
}

func (s *sender) restore(l *link, maxPayload int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.o.Log.Info("connection to NATS restored", "servers", s.p.Servers)
	l.down, l.err, l.maxPayload = false, nil, maxPayload
}

// forget drops a connection that is not restored. The next request opens another.
func (s *sender) forget(l *link, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.gone = true
	if s.link == l {
		s.link = nil
		s.endFlights("", cmp.Or(cause, connectFailure(cmp.Or(l.err, nats.ErrConnectionClosed), true)))
	}
}

// report handles the errors that the server sends without a request: violations of permissions, and that it rejects
// the user of a restored connection.
func (s *sender) report(l *link, client *nats.Conn, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.down {
			l.err = err
		}
		return
	}
	parts := strings.SplitN(err.Error(), `"`, 3)
	if len(parts) < 3 {
		return
	}
	f := failed(policy.Result{Status: 403}, "%s: add the permission, or use another user", words(err))
	if strings.Contains(parts[0], "Subscription") {
		// No acknowledgment arrives on this connection, also not after the permission is added.
		s.forget(l, f)
		go client.Close()
		return
	}
	f.refused = parts[1]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endFlights(f.refused, f)
}
