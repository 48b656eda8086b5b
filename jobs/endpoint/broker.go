package endpoint

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"postrider/internal/destination"
	"postrider/internal/endpointconf"
	"postrider/policy"
)

const (
	// maxBrokers bounds the clients of brokers that are kept. Each has a few connections, and Event Hubs allows 1,000 for
	// a namespace.
	maxBrokers = 256
	// brokerIdle is how long an unused client is kept.
	brokerIdle = 5 * time.Minute
	// checkTimeout bounds a check of a destination.
	checkTimeout = 15 * time.Second
)

// MessageRequest is a message to a broker.
type MessageRequest struct {
	// Within is within the client's context, and cuts the request at its end; nil = the client's context.
	Within      context.Context //nolint:containedctx // the request is made within it
	Destination *destination.Destination
	Connection  *endpointconf.Connection
	Message     *destination.Message
	AckTimeout  time.Duration
}

// SendMessage sends a message to a broker. Like Send it calls done once, with the result or ErrInterrupted. A broker
// has no late responses: at the ack timeout the message may have been stored, and the next attempt may repeat it.
func (c *Client) SendMessage(r *MessageRequest, done Done) error {
	lifetime := c.lifetime(&Request{Within: r.Within})
	ctx, cancel := context.WithTimeout(lifetime, r.AckTimeout)
	defer cancel()
	began := time.Now()
	sender, release, err := c.brokers.use(c, r.Destination, r.Connection, r.AckTimeout)
	if errors.Is(err, ErrInterrupted) {
		return done(Response{}, err)
	}
	if err != nil {
		resp := Response{Result: policy.Result{Err: policy.ErrorArgument}}
		resp.Failed(err)
		return done(resp, nil)
	}
	defer release()
	result := sender.Send(ctx, r.Message)
	resp := Response{Duration: time.Since(began)}
	if result.Err != policy.ErrorNone && lifetime.Err() != nil {
		return done(resp, ErrInterrupted)
	}
	if c.transports.Sent != nil {
		c.transports.Sent()
	}
	resp.translated(result)
	if resp.ErrorText == "" {
		resp.timedOut(r.AckTimeout)
	}
	if result.Status == http.StatusUnauthorized && r.Connection.OAuth2 != nil {
		if token, err := c.Token(r.Connection); err == nil {
			c.tokens.rejected(r.Connection, token) // the next attempt gets another one
		}
	}
	return done(resp, nil)
}

// Check checks that the target of a destination exists and accepts its credentials, if its protocol can show that
// without a message. Otherwise the result is a success. now is the database's time.
func (c *Client) Check(
	ctx context.Context, now time.Time, d *destination.Destination, by *endpointconf.Connection,
) destination.Result {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	if d.Type().IsBroker() {
		sender, release, err := c.brokers.use(c, d, by, checkTimeout)
		if err != nil {
			return destination.Result{Result: policy.Result{Err: policy.ErrorArgument}, Text: ErrorText(err), Cause: err}
		}
		defer release()
		return sender.Check(ctx)
	}
	return c.checkByHTTP(ctx, now, d, by)
}

// translated sets what the retry policy sees to a destination's own result.
func (r *Response) translated(result destination.Result) {
	r.Result, r.ErrorText, r.Cause, r.passed = result.Result, result.Text, result.Cause, result.Passed
	if result.RetryAfter > 0 {
		r.RetryAfter = fmt.Sprint(int((result.RetryAfter + time.Second - 1) / time.Second))
	}
}

// brokers are the clients of brokers, shared by all event subscriptions that have the same settings and credentials.
type brokers struct {
	open map[destination.Type]destination.Open
	log  *slog.Logger

	mu      sync.Mutex
	clients map[brokerKey]*broker
	closed  bool // by the node's stop
}

// brokerKey is a hash of all that a client depends on. New credentials have a new client.
type brokerKey [sha256.Size]byte

type broker struct {
	destination.Sender
	uses    int
	lastUse time.Time
	removed bool // closed at the end of its last use
}

// keyOf returns the key of a client. Settings of messages, such as the topic, are in it, too: a client keeps what it
// knows of its topic.
func keyOf(d *destination.Destination, by *endpointconf.Connection, ackTimeout time.Duration) brokerKey {
	text, _ := json.Marshal(struct { // cannot fail: texts and numbers
		Destination *destination.Destination
		Connection  *endpointconf.Connection
		AckTimeout  time.Duration
	}{d, by, ackTimeout})
	return sha256.Sum256(text)
}

// use returns the client for these settings. The caller calls release when it no longer uses it.
func (b *brokers) use(
	c *Client, d *destination.Destination, by *endpointconf.Connection, ackTimeout time.Duration,
) (sender destination.Sender, release func(), err error) {
	open := b.open[d.Type()]
	if open == nil {
		return nil, nil, fmt.Errorf("this program has no client for %s", d.Type())
	}
	key := keyOf(d, by, ackTimeout)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, ErrInterrupted
	}
	client, known := b.clients[key]
	if !known {
		options, err := c.clientOptions(d.Properties, by, ackTimeout)
		if err != nil {
			return nil, nil, err
		}
		opened, err := open(d.Properties, options)
		if err != nil {
			return nil, nil, err
		}
		client = &broker{Sender: opened}
		b.clients[key] = client
		b.bound()
	}
	client.uses++
	return client, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		client.uses--
		if client.lastUse = time.Now(); client.uses == 0 && client.removed {
			go client.Close()
		}
	}, nil
}

// bound removes the least recently used client if there are too many.
func (b *brokers) bound() {
	if len(b.clients) <= maxBrokers {
		return
	}
	var oldest brokerKey
	for key, client := range b.clients {
		first, found := b.clients[oldest]
		if client.uses == 0 && !client.lastUse.IsZero() && (!found || client.lastUse.Before(first.lastUse)) {
			oldest = key
		}
	}
	b.remove(oldest)
}

// remove forgets a client and closes it, or leaves that to the end of its last use.
func (b *brokers) remove(key brokerKey) {
	client, known := b.clients[key]
	if !known {
		return
	}
	delete(b.clients, key)
	if client.removed = true; client.uses == 0 {
		go client.Close()
	}
}

// Wanted is a client that an event subscription needs.
type Wanted struct {
	Destination *destination.Destination
	Connection  *endpointconf.Connection
	AckTimeout  time.Duration
}

// CloseBrokers closes the clients that were unused for 5 minutes, and those that no event subscription needs any more:
// it was deleted, or has other settings or credentials.
func (c *Client) CloseBrokers(wanted func(yield func(Wanted) bool)) {
	b := c.brokers
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.clients) == 0 {
		return
	}
	needed := map[brokerKey]bool{}
	for w := range wanted {
		needed[keyOf(w.Destination, w.Connection, w.AckTimeout)] = true
	}
	for key, client := range b.clients {
		if !needed[key] || client.uses == 0 && time.Since(client.lastUse) > brokerIdle {
			b.remove(key)
		}
	}
}

// closeAll closes all clients. None is opened afterward.
func (b *brokers) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for key, client := range b.clients {
		delete(b.clients, key)
		client.Close()
	}
}

// clientOptions are what a client of a broker works with.
func (c *Client) clientOptions(
	p *destination.Properties, by *endpointconf.Connection, ackTimeout time.Duration,
) (destination.ClientOptions, error) {
	o := destination.ClientOptions{
		Dial: c.transports.dialer(!p.UseTLS()), Name: c.transports.UserAgent, AckTimeout: ackTimeout, Log: c.brokers.log,
	}
	if p.UseTLS() {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		if err := setTLS(o.TLS, by); err != nil {
			return o, err
		}
	}
	if by.OAuth2 != nil {
		o.Token = func(context.Context) (string, error) { return c.Token(by) }
	}
	return o, nil
}
