package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"postrider/internal/ledger"
)

// receiver is the endpoint of a benchmark. It responds 200 and notes the events; the query of the URL changes that, see
// behave. The name of an event is the path of the request and its id, such as "a/1": paths distinguish the event
// subscriptions of a topic.
type receiver struct {
	ctx    context.Context // ends with the receiver
	url    string
	ledger *ledger.Ledger // of the acknowledged events
	seed   maphash.Seed

	mu         sync.Mutex // of the following
	tokens     float64    // of perSecond
	tokensAt   time.Time
	inProgress int
	stats      receiverStats
	seen       map[uint64]struct{}
	line       []byte // reused
	// arrivals are the first receipts of events, those without acknowledgment, and all with perSecond or atOnce.
	arrivals []arrival
}

// receiverStats are counters.
type receiverStats struct {
	attempts int64 // all requests
	requests int64 // acknowledged requests; the next two are of these
	received int64 // events, including duplicates
	distinct int64
}

// arrival has times in nanoseconds since 1970.
type arrival struct {
	sentAt, at   int64
	acknowledged bool
}

// startReceiver serves an endpoint until ctx ends.
func startReceiver(ctx context.Context, ledgerFile string) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open the endpoint: %w", err)
	}
	// A slice that grows would be copied while events arrive. Memory that is not used costs nothing.
	r := &receiver{
		ctx: ctx, url: "http://" + listener.Addr().String(), seed: maphash.MakeSeed(), seen: map[uint64]struct{}{},
		arrivals: make([]arrival, 0, 4<<20),
	}
	if r.ledger, err = ledger.Create(ledgerFile); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := fasthttp.Server{
		Handler: r.handle, MaxRequestBodySize: 2 * maxRequestBytes, NoDefaultServerHeader: true, NoDefaultDate: true,
		NoDefaultContentType: true, CloseOnShutdown: true,
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() { _ = server.Serve(listener) }()
	return r, nil
}

// close completes the ledger and returns the arrivals. Later requests get a 500.
func (r *receiver) close() ([]arrival, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrivals, r.ledger.Close()
}

func (r *receiver) handle(request *fasthttp.RequestCtx) {
	path, now := string(request.Path()), time.Now()
	limited := request.QueryArgs().Has("atOnce")
	status := r.behave(request, now)
	err := r.note(path, request.PostBody(), status == http.StatusOK, limited, now)
	switch {
	case err != nil:
		request.Error(err.Error(), http.StatusInternalServerError)
	case status == 0:
		request.HijackSetNoResponse(true)
		request.Hijack(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) // until the client closes the connection
	case status != http.StatusOK || pause(r.ctx, time.Duration(request.QueryArgs().GetUintOrZero("ms"))*time.Millisecond):
		request.SetStatusCode(status)
	}
	if limited && status == http.StatusOK {
		r.mu.Lock()
		r.inProgress--
		r.mu.Unlock()
	}
}

// burst is how many requests perSecond accepts at once.
const burst = 10

// behave returns the status of a response, 0 for none. In the URL, hang=1 is no response, and failing a percentage of
// 503, evenly spread. perSecond and atOnce are how many requests get no 429, with Retry-After of retryAfter seconds.
func (r *receiver) behave(request *fasthttp.RequestCtx, now time.Time) int {
	value := request.QueryArgs().GetUintOrZero
	percent, perSecond, atOnce := int64(value("failing")), value("perSecond"), value("atOnce")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.attempts++
	r.tokens, r.tokensAt = min(r.tokens+float64(perSecond)*now.Sub(r.tokensAt).Seconds(), burst), now
	switch {
	case value("hang") > 0:
		return 0
	case r.stats.attempts*percent/100 > (r.stats.attempts-1)*percent/100:
		return http.StatusServiceUnavailable
	case perSecond > 0 && r.tokens < 1, atOnce > 0 && r.inProgress >= atOnce:
		if seconds := value("retryAfter"); seconds > 0 {
			request.Response.Header.Set("Retry-After", strconv.Itoa(seconds))
		}
		return http.StatusTooManyRequests
	}
	r.tokens = max(r.tokens-1, 0)
	r.inProgress++
	return http.StatusOK
}

// note counts a request and its events. A repeated request uses a limit, too.
func (r *receiver) note(path string, body []byte, acknowledged, limited bool, now time.Time) error {
	var err error
	prefix := path[1:] + "/"
	r.mu.Lock()
	defer r.mu.Unlock()
	if acknowledged {
		r.stats.requests++
	}
	eachEvent(body, func(event, id []byte, sentAt int64) {
		known := len(r.seen)
		if acknowledged {
			r.line = ledger.AppendLine(r.line[:0], prefix, id, sha256.Sum256(event))
			err = errors.Join(err, r.ledger.Write(r.line))
			r.stats.received++
			// The hash has 64 bits: two names with the same one are improbable.
			r.seen[maphash.Bytes(r.seed, r.line[:len(prefix)+len(id)])] = struct{}{}
		}
		if len(r.seen) > known || !acknowledged || limited {
			r.arrivals = append(r.arrivals, arrival{sentAt, now.UnixNano(), acknowledged})
		}
	})
	r.stats.distinct = int64(len(r.seen))
	return err
}

func (r *receiver) counters() receiverStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *receiver) attempts() int64 { return r.counters().attempts }

// eachEvent calls use with each event of a body, one object or an array. It expects the form that eventWriter writes:
// an event in any other form counts as lost or changed.
func eachEvent(body []byte, use func(event, id []byte, sentAt int64)) {
	body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte("[")), []byte("]"))
	for len(body) > 0 {
		event, rest, more := bytes.Cut(body, []byte(eventEnd))
		if more {
			event = body[:len(event)+len(eventEnd)]
		}
		use(event, between(event, `"id":"`, `"`), sentAt(event))
		body = bytes.TrimPrefix(rest, []byte(","))
	}
}

// between returns the text after begin, up to end.
func between(text []byte, begin, end string) []byte {
	_, after, _ := bytes.Cut(text, []byte(begin))
	found, _, _ := bytes.Cut(after, []byte(end))
	return found
}

// sentAt returns data.sentAt of the first event in a text, in nanoseconds since 1970; 0 if there is none.
func sentAt(text []byte) int64 {
	nanoseconds, _ := strconv.ParseInt(string(between(text, `"sentAt":`, ",")), 10, 64)
	return nanoseconds
}

// span is a span of time without its end.
type span struct{ from, to time.Time }

func (s span) holds(nanos int64) bool { return nanos >= s.from.UnixNano() && nanos < s.to.UnixNano() }

func (s span) length() time.Duration { return s.to.Sub(s.from) }
