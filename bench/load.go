package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// defaultClients: with 32 and 64 connections the commits are small, and an event costs 570 and 440 microseconds of CPU
	// in all; with 128 and 256 it costs 300. From 384 on publishes outrun deliveries, and a backlog builds up.
	defaultClients = 256
	// failurePause keeps clients that are refused, or cannot connect, from filling the machine with attempts.
	failurePause = 50 * time.Millisecond
)

// Target is a topic, and perhaps one event subscription of it, that events are published for.
type Target struct {
	// URL is the topic's endpoint, http://host:port/topics/{topic}/api/events. TLS is not spoken.
	URL string
	// Key is one of the topic's access keys.
	Key string
	// Subject is the events' subject, for the filters of event subscriptions; default /bench/load.
	Subject string
	// Prefix stands before the events' ids in the publishers' ledger: "a/" for an endpoint whose path is /a, see
	// CountingSink.
	Prefix string
}

// LoadOptions says what a Load publishes. URL and Key are required, or Targets, and one of Duration and Events.
type LoadOptions struct {
	// URL and Key are those of the one Target.
	URL, Key string
	// Targets get one event each in turn, instead of URL and Key. All are served by one host, and their URLs, keys and
	// subjects are of the same length.
	Targets []Target
	// Clients is the number of connections, each with one request in flight; default 256.
	Clients int
	// Rate is how many events are published per second, whatever the answers take (an open loop). 0 publishes the next
	// event of a connection when the one before was answered (a closed loop).
	Rate float64
	// Duration and Events end the load, whichever comes first; 0 is no end.
	Duration time.Duration
	Events   int64
	// EventBytes is the size of an event's JSON object; default 1,024.
	EventBytes int
	// EventsPerRequest is how many events one request publishes, all or none; default 1.
	EventsPerRequest int
	// DatabaseURL has events published by SQL there, and not by HTTP; each has what PostgreSQL's jsonb makes of its bytes,
	// and so the ledger has none of them.
	DatabaseURL string
	// Ledger notes each event after its 200; nil notes none.
	Ledger *Ledger
}

// LoadReport is what the publishers saw. Published + Refused + Failed events were sent.
type LoadReport struct {
	Published int64 // answered 200
	Refused   int64 // answered otherwise
	Failed    int64 // not answered: the service may have stored them or not
	// FirstError is what the first refused or failed event met; nil when there was none.
	FirstError error
	// StartedAt is just before the first event was sent, EndedAt just after the last answer.
	StartedAt, EndedAt time.Time
	// Latency is of the requests answered 200. In an open loop it counts from when the request was due and not from when
	// it was sent: a service that stalls must not be asked less often and look fast for it (coordinated omission).
	Latency Latencies
	// Stall is the longest time without an answer 200 to anybody.
	Stall time.Duration
}

// Load publishes events.
type Load struct {
	options   LoadOptions
	templates []*template // one for each client
	requests  [][]byte    // one for each target, to be copied into a client's template; nil when there is only one target
	address   string

	sequence, published, refused, failed atomic.Int64
	latency                              Histogram
	answered, stall                      atomic.Int64 // nanoseconds after started
	firstError                           atomic.Pointer[error]
	started                              time.Time
}

// NewLoad prepares a load. Its errors name the option that is wrong.
func NewLoad(o LoadOptions) (*Load, error) {
	o.Clients = orDefault(o.Clients, defaultClients)
	o.EventBytes = orDefault(o.EventBytes, defaultEventBytes)
	o.EventsPerRequest = orDefault(o.EventsPerRequest, 1)
	if len(o.Targets) == 0 {
		o.Targets = []Target{{URL: o.URL, Key: o.Key}}
	}
	switch {
	case min(o.Clients, o.EventsPerRequest) < 1 || o.Rate < 0:
		return nil, errors.New("load: Clients, EventsPerRequest and Rate must be positive")
	case o.Duration <= 0 && o.Events <= 0:
		return nil, errors.New("load: Duration or Events must say when to end")
	}
	l := &Load{options: o, templates: make([]*template, o.Clients)}
	if err := l.layOut(newRun()); err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	return l, nil
}

// layOut makes each client's template and, for several targets, each target's request.
func (l *Load) layOut(run string) (err error) {
	first := l.options.Targets[0]
	for i := range l.templates {
		if l.templates[i], err = l.template(first, run); err != nil {
			return err
		}
	}
	if len(l.options.Targets) == 1 {
		return nil
	}
	for _, target := range l.options.Targets {
		if len(target.URL) != len(first.URL) || len(target.Key) != len(first.Key) ||
			len(target.Subject) != len(first.Subject) {
			return fmt.Errorf("URL, key and subject of %s must be as long as those of %s", target.URL, first.URL)
		}
		t, err := l.template(target, run)
		if err != nil {
			return err
		}
		l.requests = append(l.requests, t.request)
	}
	return nil
}

func (l *Load) template(target Target, run string) (*template, error) {
	endpoint, err := url.Parse(target.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("URL: %w", err)
	case endpoint.Scheme != "http" || endpoint.Port() == "":
		return nil, fmt.Errorf("URL %s must be http://host:port and the path of a topic", target.URL)
	case l.address != "" && l.address != endpoint.Host:
		return nil, fmt.Errorf("URL %s is not at %s as the first one is", target.URL, l.address)
	}
	l.address = endpoint.Host
	shape := plainEvent
	if l.options.DatabaseURL != "" {
		shape = sqlEvent
	}
	return newTemplate(endpoint, target.Key, orDefault(target.Subject, defaultSubject), run, l.options.EventsPerRequest,
		l.options.EventBytes, shape)
}

// Published is how many events were answered 200 so far.
func (l *Load) Published() int64 { return l.published.Load() }

// Run publishes until Duration or Events end it, and waits for the answers that are still to come. When ctx ends first,
// the connections are cut. Refused and failed events are counted and do not stop it; its error is ctx's, or the
// ledger's. Run may be called once.
func (l *Load) Run(ctx context.Context) (LoadReport, error) {
	l.started = time.Now()
	var clients sync.WaitGroup
	errs := make([]error, len(l.templates))
	for i, t := range l.templates {
		clients.Go(func() { errs[i] = l.client(ctx, t) })
	}
	clients.Wait()
	report := LoadReport{
		Published: l.published.Load(), Refused: l.refused.Load(), Failed: l.failed.Load(),
		StartedAt: l.started, EndedAt: time.Now(), Latency: l.latency.Latencies(), Stall: time.Duration(l.stall.Load()),
	}
	if first := l.firstError.Load(); first != nil {
		report.FirstError = *first
	}
	return report, errors.Join(ctx.Err(), errors.Join(errs...))
}

// client is one connection. An error is the ledger's.
func (l *Load) client(ctx context.Context, t *template) error {
	connection, err := l.connect()
	if err != nil {
		return err
	}
	defer connection.close()
	stop := context.AfterFunc(ctx, connection.cut)
	defer stop()
	for {
		request := l.sequence.Add(1) - 1
		due, more := l.due(ctx, request)
		if !more {
			return nil
		}
		prefix := l.aim(t, request)
		t.patch(l.first(request), due)
		status, err := connection.do(t.request)
		if err == nil && status == 200 {
			l.latency.Record(time.Since(due))
			l.answer(time.Since(l.started))
			l.published.Add(int64(len(t.slots)))
			if err := l.note(prefix, t); err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		l.miss(status, connection.said(), err)
		sleep(ctx, failurePause)
	}
}

func (l *Load) connect() (connection, error) {
	if l.options.DatabaseURL != "" {
		return newSQLClient(l.options.DatabaseURL, l.options.Targets[0].URL)
	}
	return &wireClient{address: l.address}, nil
}

// answer notes how long after the one before it an answer came.
func (l *Load) answer(at time.Duration) {
	gap := int64(at) - l.answered.Swap(int64(at))
	for seen := l.stall.Load(); gap > seen && !l.stall.CompareAndSwap(seen, gap); seen = l.stall.Load() {
	}
}

// first is the number of a request's first event.
func (l *Load) first(request int64) int64 { return request * int64(l.options.EventsPerRequest) }

// due waits until it is the request's turn and returns when that was; false when the load is over.
func (l *Load) due(ctx context.Context, request int64) (time.Time, bool) {
	due, first := time.Now(), l.first(request)
	if l.options.Rate > 0 {
		due = l.started.Add(time.Duration(float64(first) / l.options.Rate * float64(time.Second)))
	}
	over := l.options.Duration > 0 && due.Sub(l.started) >= l.options.Duration
	if over || l.options.Events > 0 && first >= l.options.Events || !publishable(l.first(request+1)) {
		return due, false
	}
	if wait := time.Until(due); wait > 0 {
		sleep(ctx, wait)
	}
	return due, ctx.Err() == nil
}

// aim makes the template one of the target whose turn it is. A copy of 1 KB takes 30 ns; a template for each target and
// client would take gigabytes.
func (l *Load) aim(t *template, request int64) (prefix string) {
	i := request % int64(len(l.options.Targets))
	if l.requests != nil {
		copy(t.request, l.requests[i])
	}
	return l.options.Targets[i].Prefix
}

func (l *Load) note(prefix string, t *template) error {
	if l.options.Ledger == nil {
		return nil
	}
	return l.options.Ledger.noteLines(t.ledgerLines(prefix))
}

func (l *Load) miss(status int, said []byte, err error) {
	events := int64(l.options.EventsPerRequest)
	if err == nil {
		l.refused.Add(events)
		err = fmt.Errorf("publishing was answered %d %s", status, said)
	} else {
		l.failed.Add(events)
		err = fmt.Errorf("publish: %w", err)
	}
	l.firstError.CompareAndSwap(nil, &err)
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
