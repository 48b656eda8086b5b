package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"postrider/ledger"
)

const (
	// defaultClients: with 32 and 64 connections commits are small, and an event costs 570 and 440 µs of CPU; with 128 and
	// 256 it costs 300. With 384 or more, events are published faster than delivered.
	defaultClients = 256
	// responseTimeout is longer than postrider's own timeouts, which are 30 s.
	responseTimeout = 60 * time.Second
	// failurePause limits the rate of rejected requests.
	failurePause = 50 * time.Millisecond
)

// target is a topic, or one event subscription of it, to publish events for.
type target struct {
	url     string // http://host:port/topics/{topic}/api/events
	key     string // an access key of the topic
	subject string // for the filters of event subscriptions; "" is /bench/load
	// prefixes of an event's names, see receiver: one for each event subscription that matches it
	prefixes []string
}

type loadOptions struct {
	targets          []target // get a request each in turn; all are on one host
	clients          int      // connections, each with one request in progress
	rate             float64  // events per second, in an open loop; 0 is a closed loop
	duration         time.Duration
	eventBytes       int
	eventsPerRequest int
	ledger           *ledger.Ledger // of the accepted events; nil: none
}

// loadReport has the results of the publishers, in events.
type loadReport struct {
	published, rejected, failed int64 // responses 200, other responses, no response
	firstError                  error // of a rejected or failed request
	from, to                    time.Time
	// latency is of the requests with response 200. In an open loop it counts from the time at which the request was due,
	// so that a stall of the service counts (coordinated omission).
	latency Latencies
	stall   time.Duration // the longest time without a response 200
}

// load publishes events.
type load struct {
	loadOptions
	run      string
	client   *fasthttp.HostClient
	writers  []eventWriter // one for each target
	started  time.Time
	requests atomic.Int64

	mu          sync.Mutex // of the following
	report      loadReport
	took        []time.Duration // of the requests with response 200
	lastSuccess time.Time
}

func newLoad(o loadOptions) (*load, error) {
	l := &load{loadOptions: o, run: newRunID(), writers: make([]eventWriter, len(o.targets))}
	for i, t := range o.targets {
		var err error
		if l.writers[i], err = newEventWriter(t, o.eventBytes); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// newClient returns a client that repeats no request. Its connections end with ctx or disconnect.
func newClient(ctx context.Context, t target, connections int) (_ *fasthttp.HostClient, disconnect func()) {
	ctx, disconnect = context.WithCancel(ctx)
	dialer := net.Dialer{Timeout: responseTimeout}
	address, _, _ := strings.Cut(strings.TrimPrefix(t.url, "http://"), "/")
	return &fasthttp.HostClient{
		Addr: address, MaxConns: connections, MaxIdemponentCallAttempts: 1,
		ReadTimeout: responseTimeout, WriteTimeout: responseTimeout, NoDefaultUserAgentHeader: true,
		Dial: func(address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		},
	}, disconnect
}

// publish sends events for the duration, and waits for the last responses. When ctx ends, it closes the connections.
// Rejected and failed events are counted; the error is ctx's or the ledger's.
func (l *load) publish(ctx context.Context) (loadReport, error) {
	var disconnect func()
	l.client, disconnect = newClient(ctx, l.targets[0], l.clients)
	defer disconnect()
	l.started = time.Now()
	l.report.from, l.lastSuccess = l.started, l.started
	var clients errgroup.Group
	for range l.clients {
		clients.Go(func() error { return l.runClient(ctx) })
	}
	err := errors.Join(clients.Wait(), ctx.Err())
	l.report.to, l.report.latency = time.Now(), latencies(l.took)
	return l.report, err
}

// runClient sends one request after the other.
func (l *load) runClient(ctx context.Context) error {
	var p publication
	for {
		number := l.requests.Add(1) - 1
		due, more := l.due(ctx, number)
		if !more {
			return nil
		}
		i := number % int64(len(l.targets))
		p.prepare(l.targets[i], l.writers[i], l.run, number*int64(l.eventsPerRequest), l.eventsPerRequest, due)
		err := p.send(l.client)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		l.note(time.Since(due), err)
		if err != nil {
			pause(ctx, failurePause)
		} else if l.ledger != nil {
			if err := l.ledger.Write(p.lines); err != nil {
				return err
			}
		}
	}
}

// note counts a request.
func (l *load) note(took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, events, now := &l.report, int64(l.eventsPerRequest), time.Now()
	switch {
	case err == nil:
		r.published += events
		l.took = append(l.took, took)
		r.stall, l.lastSuccess = max(r.stall, now.Sub(l.lastSuccess)), now
	case errors.Is(err, errRejected):
		r.rejected += events
	default:
		r.failed += events
	}
	r.firstError = cmp.Or(r.firstError, err)
}

// due waits until the request is due and returns that time; false when the load is over.
func (l *load) due(ctx context.Context, request int64) (time.Time, bool) {
	due := time.Now()
	if l.rate > 0 {
		first := float64(request * int64(l.eventsPerRequest))
		due = l.started.Add(time.Duration(first / l.rate * float64(time.Second)))
	}
	if due.Sub(l.started) >= l.duration {
		return due, false
	}
	return due, waitUntil(ctx, due)
}

var errRejected = errors.New("the publish was rejected")

// publication is a reusable request.
type publication struct {
	request     fasthttp.Request
	response    fasthttp.Response
	body, lines []byte // lines are the ledger lines of its events
}

// prepare makes it the request of count events that are numbered from first.
func (p *publication) prepare(t target, w eventWriter, run string, first int64, count int, sent time.Time) {
	p.body, p.lines = append(p.body[:0], '['), p.lines[:0]
	for i := range int64(count) {
		start := len(p.body)
		p.body = append(w.append(p.body, run, first+i, sent), ',')
		event := p.body[start : len(p.body)-1]
		id, hash := event[len(idPrefix):len(idPrefix)+idLength], sha256.Sum256(event)
		for _, prefix := range t.prefixes {
			p.lines = ledger.AppendLine(p.lines, prefix, id, hash)
		}
	}
	p.body[len(p.body)-1] = ']'
	p.request.SetBodyRaw(p.body)
	p.request.SetRequestURI(t.url)
	p.request.Header.SetMethod(fasthttp.MethodPost)
	p.request.Header.SetContentType("application/json")
	p.request.Header.Set("aeg-sas-key", t.key)
}

// send returns nil after a response 200, errRejected after any other. The next prepare waits until it has returned.
func (p *publication) send(client *fasthttp.HostClient) error {
	if err := client.Do(&p.request, &p.response); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if status := p.response.StatusCode(); status != fasthttp.StatusOK {
		body := p.response.Body()
		return fmt.Errorf("%w: %d %s", errRejected, status, body[:min(len(body), 500)])
	}
	return nil
}

// pause waits for d; false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}

// waitUntil waits until a time; false if ctx ended.
func waitUntil(ctx context.Context, t time.Time) bool { return pause(ctx, time.Until(t)) }

const (
	// firstID gives all numbers in ids 13 digits.
	firstID  = 1_000_000_000_000
	idPrefix = `{"id":"`
	idLength = 8 + 1 + 13 // run, dash, number
	// timeFormat of eventTime has a fixed length, so that all events of a load have the same size.
	timeFormat = "2006-01-02T15:04:05.000000Z"
	// leastEventBytes is the size of an event with the members of every load.
	leastEventBytes = 320
)

// eventWriter writes the events of one target. They have a topic and metadataVersion, so that postrider adds nothing
// and they must arrive unchanged.
type eventWriter struct{ middle, filler string }

// newEventWriter is for events of eventBytes each, from brace to brace.
func newEventWriter(t target, eventBytes int) (eventWriter, error) {
	subject := cmp.Or(t.subject, "/bench/load")
	path := strings.TrimSuffix(t.url[max(strings.Index(t.url, "/topics/"), 0):], "/api/events")
	w := eventWriter{middle: fmt.Sprintf(`","topic":"%s","subject":"%s","eventType":"Postrider.Bench",`+
		`"dataVersion":"1","metadataVersion":"1","eventTime":"`, path, subject)}
	missing := eventBytes - len(w.append(nil, newRunID(), 0, time.Now()))
	if missing < 0 {
		return w, fmt.Errorf("an event has %d bytes at least, not %d", eventBytes-missing, eventBytes)
	}
	w.filler = text(missing)
	return w, nil
}

// append adds the event with that number of a run. run has eight characters.
func (w eventWriter) append(body []byte, run string, number int64, sent time.Time) []byte {
	body = append(append(append(body, idPrefix...), run...), '-')
	body = append(strconv.AppendInt(body, firstID+number, 10), w.middle...)
	body = append(sent.UTC().AppendFormat(body, timeFormat), `","data":{"sentAt":`...)
	body = append(strconv.AppendInt(body, sent.UnixNano(), 10), `,"filler":"`...)
	return append(append(body, w.filler...), `"}}`...)
}

// newRunID returns random text, so that ids of two runs differ.
func newRunID() string { return strings.ToLower(rand.Text()[:8]) }

// text returns n letters, the same in every run. They compress badly, so that compression of a disk or database does
// not improve the result.
func text(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
	source, b := mathrand.New(mathrand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = letters[source.IntN(len(letters))]
	}
	return string(b)
}
