package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"postrider/internal/ledger"
)

const (
	// defaultClients: with 32 and 64 connections commits are small, and an event costs 570 and 440 µs of CPU; with 128 and
	// 256 it costs 300. With 384 or more, events are published faster than delivered.
	defaultClients = 256
	// responseTimeout is longer than postrider's own timeouts, which are 30 s.
	responseTimeout = 60 * time.Second
	// failurePause limits the rate of rejected requests.
	failurePause = 50 * time.Millisecond
	// maxRequestBytes is the limit of a request.
	maxRequestBytes = 1 << 20
)

// target is a topic, or one event subscription of it, to publish events for.
type target struct {
	url     string // http://host:port/topics/{topic}/api/events, of the first node
	key     string // an access key of the topic
	subject string // for the filters of event subscriptions; "" is /bench/load
	cloud   bool   // CloudEvents instead of Event Grid's schema
	// prefixes of an event's names, see receiver: one for each event subscription that matches it
	prefixes []string
}

// load publishes events.
type load struct {
	targets          []target      // get a request each in turn
	clients          int           // connections, each with one request in progress
	rate             float64       // events per second, in an open loop; 0 is a closed loop
	duration         time.Duration // 0: until events are published
	events           int64
	eventBytes       int
	eventsPerRequest int
	ledger           *ledger.Ledger // of the accepted events; nil: none

	run      string
	hosts    []*fasthttp.HostClient // one for each node
	writers  []eventWriter          // one for each target
	requests atomic.Int64

	mu                          sync.Mutex // of the following, which are valid after publish
	published, rejected, failed int64      // events: responses 200, other responses, no response
	firstError                  error      // of a rejected or failed request
	from, to                    time.Time
	stall                       time.Duration // the longest time without a response 200
	lastSuccess                 time.Time
	// took is of the requests with response 200. In an open loop it counts from the time at which the request was due, so
	// that a stall of the service counts (coordinated omission).
	took []time.Duration
}

// publish sends the events, and waits for the last responses, also when the run ends. It repeats no request. Rejected
// and failed events are counted.
func (l *load) publish(s *system) *load {
	l.run = newRunID()
	for _, node := range s.nodes {
		client := &fasthttp.HostClient{
			Addr: strings.TrimPrefix(node.api, "http://"), MaxConns: l.clients, MaxIdemponentCallAttempts: 1,
			ReadTimeout: responseTimeout, WriteTimeout: responseTimeout, NoDefaultUserAgentHeader: true,
		}
		l.hosts = append(l.hosts, client)
		defer client.CloseIdleConnections()
	}
	for _, t := range l.targets {
		l.writers = append(l.writers, newEventWriter(t, l.eventBytes))
	}
	l.from = time.Now()
	l.lastSuccess = l.from
	var clients sync.WaitGroup
	for i := range l.clients {
		clients.Go(func() { l.runClient(s, l.hosts[i%len(l.hosts)]) })
	}
	clients.Wait()
	l.to = time.Now()
	return l
}

// runClient sends one request after the other to a node.
func (l *load) runClient(s *system, host *fasthttp.HostClient) {
	var request fasthttp.Request
	var response fasthttp.Response
	var body, lines []byte // reused
	for {
		number := l.requests.Add(1) - 1
		i, first := number%int64(len(l.targets)), number*int64(l.eventsPerRequest)
		due, more := l.due(s.ctx, first)
		if !more {
			return
		}
		t, w := l.targets[i], l.writers[i]
		body, lines = append(body[:0], '['), lines[:0]
		for n := range int64(l.eventsPerRequest) {
			start := len(body)
			body = append(w.append(body, l.run, first+n, due), ',')
			event := body[start : len(body)-1]
			id, hash := event[len(w.head):len(w.head)+idLength], sha256.Sum256(event)
			for _, prefix := range t.prefixes {
				lines = ledger.AppendLine(lines, prefix, id, hash)
			}
		}
		body[len(body)-1] = ']'
		request.SetBodyRaw(body)
		request.SetRequestURI(t.url)
		request.Header.SetMethod(fasthttp.MethodPost)
		request.Header.SetContentType(w.media)
		request.Header.Set("aeg-sas-key", t.key)
		err, rejected := host.Do(&request, &response), response.StatusCode() != fasthttp.StatusOK
		if err == nil && rejected {
			err = fmt.Errorf("publish: response %d: %.500s", response.StatusCode(), response.Body())
		}
		if l.note(time.Since(due), err, rejected); err != nil {
			pause(s.ctx, failurePause)
		} else if l.ledger != nil {
			s.check(l.ledger.Write(lines))
		}
	}
}

// note counts a request.
func (l *load) note(took time.Duration, err error, rejected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events, now := int64(l.eventsPerRequest), time.Now()
	switch {
	case err == nil:
		l.published += events
		l.took = append(l.took, took)
		l.stall, l.lastSuccess = max(l.stall, now.Sub(l.lastSuccess)), now
	case rejected:
		l.rejected += events
	default:
		l.failed += events
	}
	l.firstError = cmp.Or(l.firstError, err)
}

// due waits until the request with that first event is due and returns that time; false when the load is over.
func (l *load) due(ctx context.Context, first int64) (time.Time, bool) {
	due := time.Now()
	if l.rate > 0 {
		due = l.from.Add(time.Duration(float64(first) / l.rate * float64(time.Second)))
	}
	if l.duration > 0 && due.Sub(l.from) >= l.duration || l.duration == 0 && first >= l.events {
		return due, false
	}
	return due, pause(ctx, time.Until(due))
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

const (
	// firstID gives all numbers in ids 13 digits.
	firstID  = 1_000_000_000_000
	idLength = 8 + 1 + 13 // run, dash, number
	// timeFormat has a fixed length, so that all events of a load have the same size.
	timeFormat = "2006-01-02T15:04:05.000000Z"
	eventEnd   = `"}}`
)

// eventWriter writes the events of one target. In Event Grid's schema they have a topic and metadataVersion, so that
// postrider adds nothing and they must arrive unchanged.
type eventWriter struct{ media, head, middle, filler string }

// newEventWriter is for events of eventBytes each, from brace to brace.
func newEventWriter(t target, eventBytes int) eventWriter {
	path := strings.TrimSuffix(t.url[max(strings.Index(t.url, "/topics/"), 0):], "/api/events")
	w := eventWriter{media: "application/json", head: `{"id":"`, middle: fmt.Sprintf(`","topic":"%s","subject":"%s",`+
		`"eventType":"Postrider.Bench","dataVersion":"1","metadataVersion":"1","eventTime":"`, path,
		cmp.Or(t.subject, "/bench/load"))}
	if t.cloud {
		w.media, w.head = "application/cloudevents-batch+json", `{"specversion":"1.0","id":"`
		w.middle = `","source":"/bench","type":"Postrider.Bench","time":"`
	}
	w.filler = text(max(eventBytes-len(w.append(nil, newRunID(), 0, time.Now())), 0))
	return w
}

// append adds the event with that number of a run. run has eight characters.
func (w eventWriter) append(body []byte, run string, number int64, sent time.Time) []byte {
	body = append(append(append(body, w.head...), run...), '-')
	body = append(strconv.AppendInt(body, firstID+number, 10), w.middle...)
	body = append(sent.UTC().AppendFormat(body, timeFormat), `","data":{"sentAt":`...)
	body = append(strconv.AppendInt(body, sent.UnixNano(), 10), `,"filler":"`...)
	return append(append(body, w.filler...), eventEnd...)
}

// newRunID returns random text, so that ids of two runs differ.
func newRunID() string { return strings.ToLower(rand.Text()[:8]) }

// text returns n random letters: they compress badly, so that compression of a disk or database does not improve the
// result.
func text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(rand.Text())
	}
	return b.String()[:n]
}
