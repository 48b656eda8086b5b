package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"postrider/jsonscan"
	"postrider/ledger"
)

// receiver is the endpoint of a benchmark. It responds 204 and notes the events. The name of an event is the path of
// the request and its id, such as "a/1": paths distinguish the event subscriptions of a topic. Special paths:
//
//	/hang…             no response
//	/failing/{percent} 503 for that share of the requests, evenly spread, and 200 for the others
//	/slow/{ms}/…       204 after so many milliseconds
//	/quota?…           204, and 429 beyond a quota, see quota.take
type receiver struct {
	ctx      context.Context // ends with the receiver
	ledger   *bufferedFile   // of the acknowledged events
	arrivals *bufferedFile   // of arrival records
	failing  atomic.Int64    // requests at /failing
	quota    quota

	mu    sync.Mutex // of the files, too
	seen  map[string]struct{}
	name  []byte // reused
	line  []byte // reused
	stats receiverStats
}

// receiverStats are the counters of a receiver.
type receiverStats struct {
	Requests        int64 `json:"requests"`        // acknowledged requests; the next two are of these
	Received        int64 `json:"received"`        // events, including duplicates
	Distinct        int64 `json:"distinct"`        // names
	NotAcknowledged int64 `json:"notAcknowledged"` // requests without a response 2xx
	LastAt          int64 `json:"lastAt"`          // arrival of the last event, in nanoseconds since 1970
}

// arrival is the first receipt of an event, one that was not acknowledged, or any with a quota. Times are in
// nanoseconds since 1970.
type arrival struct {
	SentAt       int64 // data.sentAt of the event; 0 if there is none
	At           int64
	Acknowledged bool
}

// maxBody is twice the limit of a request.
const maxBody = 2 << 20

var arrivalBytes = binary.Size(arrival{})

// RunSink serves the endpoint of a benchmark until ctx ends. It writes a ledger and the arrivals to files, unless their
// paths are "".
func RunSink(ctx context.Context, listener net.Listener, ledgerFile, arrivals string) (err error) {
	r := &receiver{ctx: ctx, seen: map[string]struct{}{}}
	if r.ledger, err = createBuffered(cmp.Or(ledgerFile, os.DevNull)); err != nil {
		return err
	}
	if r.arrivals, err = createBuffered(cmp.Or(arrivals, os.DevNull)); err != nil {
		return errors.Join(err, r.ledger.Close())
	}
	defer func() { err = errors.Join(err, r.close()) }()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	server := fasthttp.Server{
		Handler: r.handle, MaxRequestBodySize: maxBody, NoDefaultServerHeader: true, NoDefaultDate: true,
		NoDefaultContentType: true, CloseOnShutdown: true,
	}
	if err := server.Serve(listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the endpoint of the benchmark: %w", err)
	}
	return nil
}

// close completes the files. Later requests get a 500.
func (r *receiver) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.ledger.Close(), r.arrivals.Close())
}

func (r *receiver) handle(request *fasthttp.RequestCtx) {
	path, now := string(request.Path()), time.Now()
	if path == "/stats" {
		r.sendStats(request)
		return
	}
	status, delay := r.behavior(path)
	if path == "/quota" {
		var leave func()
		status, delay, leave = r.quota.take(request, now)
		defer leave()
	}
	err := r.note(path, request.PostBody(), status/100 == 2, now)
	switch {
	case err != nil:
		request.Error(err.Error(), http.StatusInternalServerError)
	case status == 0:
		request.HijackSetNoResponse(true)
		request.Hijack(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }) // until the client closes the connection
	case pause(r.ctx, delay):
		request.SetStatusCode(status)
	}
}

// behavior returns status 0 for no response.
func (r *receiver) behavior(path string) (status int, delay time.Duration) {
	kind, value, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if strings.HasPrefix(kind, "hang") {
		return 0, 0
	}
	value, _, _ = strings.Cut(value, "/")
	number, err := strconv.Atoi(value)
	switch {
	case err != nil || number < 0:
	case kind == "slow":
		return http.StatusNoContent, time.Duration(number) * time.Millisecond
	case kind == "failing":
		if n, percent := r.failing.Add(1), int64(number); n*percent/100 > (n-1)*percent/100 {
			return http.StatusServiceUnavailable, 0
		}
		return http.StatusOK, 0 // policies before 2019 treat 204 as a failure
	}
	return http.StatusNoContent, 0
}

// quotaBurst is how many requests a quota per second accepts at once.
const quotaBurst = 10

// quota limits requests per second, or in progress.
type quota struct {
	mu         sync.Mutex
	tokens     float64
	at         time.Time
	inProgress int
}

// take decides about a request: 204 after ms milliseconds, or at once 429, with Retry-After of retryAfter seconds. It
// accepts perSecond requests per second and atOnce at once; 0 = any number. Call leave after the response.
func (q *quota) take(request *fasthttp.RequestCtx, now time.Time) (status int, delay time.Duration, leave func()) {
	value := request.QueryArgs().GetUintOrZero
	perSecond, atOnce := float64(value("perSecond")), value("atOnce")
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tokens, q.at = min(q.tokens+perSecond*now.Sub(q.at).Seconds(), quotaBurst), now
	if perSecond > 0 && q.tokens < 1 || atOnce > 0 && q.inProgress >= atOnce {
		if seconds := value("retryAfter"); seconds > 0 {
			request.Response.Header.Set("Retry-After", strconv.Itoa(seconds))
		}
		return http.StatusTooManyRequests, 0, func() {}
	}
	q.tokens--
	q.inProgress++
	return http.StatusNoContent, time.Duration(value("ms")) * time.Millisecond, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.inProgress--
	}
}

// note counts a request and its events, and writes them to the files.
func (r *receiver) note(path string, body []byte, acknowledged bool, now time.Time) (err error) {
	prefix := path[1:] + "/"
	r.mu.Lock()
	defer r.mu.Unlock()
	if acknowledged {
		r.stats.Requests++
	} else {
		r.stats.NotAcknowledged++
	}
	eachEvent(body, func(e *receivedEvent) {
		first := acknowledged && len(e.id) > 0 && r.count(prefix, e, now, &err)
		if first || !acknowledged || path == "/quota" { // a repeated request uses the quota, too
			r.line, _ = binary.Append(r.line[:0], binary.LittleEndian, arrival{e.sentAt, now.UnixNano(), acknowledged})
			_, failed := r.arrivals.Write(r.line)
			err = errors.Join(err, failed)
		}
	})
	return err
}

// count counts an event and reports whether it is no duplicate.
func (r *receiver) count(prefix string, e *receivedEvent, now time.Time, err *error) (first bool) {
	r.line = ledger.AppendLine(r.line[:0], prefix, e.id, sha256.Sum256(e.text))
	_, failed := r.ledger.Write(r.line)
	*err = errors.Join(*err, failed)
	r.stats.Received++
	r.stats.LastAt = now.UnixNano()
	r.name = append(append(r.name[:0], prefix...), e.id...)
	if _, twice := r.seen[string(r.name)]; twice {
		return false
	}
	r.seen[string(r.name)] = struct{}{}
	return true
}

func (r *receiver) sendStats(request *fasthttp.RequestCtx) {
	r.mu.Lock()
	stats := r.stats
	stats.Distinct = int64(len(r.seen))
	r.mu.Unlock()
	request.SetContentType("application/json")
	_ = json.NewEncoder(request).Encode(stats)
}

// readArrivals reads the file of arrivals after the end of the receiver.
func readArrivals(path string) ([]arrival, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read arrivals: %w", err)
	}
	arrivals := make([]arrival, len(raw)/arrivalBytes)
	if _, err := binary.Decode(raw, binary.LittleEndian, arrivals); err != nil {
		return nil, fmt.Errorf("read arrivals: %w", err)
	}
	return arrivals, nil
}

// span is a span of time without its end.
type span struct{ from, to time.Time }

func (s span) holds(nanos int64) bool { return nanos >= s.from.UnixNano() && nanos < s.to.UnixNano() }

func (s span) length() time.Duration { return s.to.Sub(s.from) }

// bufferedFile is a file that is written in blocks.
type bufferedFile struct {
	*bufio.Writer
	file *os.File
}

func createBuffered(path string) (*bufferedFile, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create a file of the endpoint: %w", err)
	}
	return &bufferedFile{bufio.NewWriterSize(file, 64<<10), file}, nil
}

// Close implements io.Closer.
func (f *bufferedFile) Close() error { return errors.Join(f.Flush(), f.file.Close()) }

// receivedEvent has the parts of an event that the receiver reads.
type receivedEvent struct {
	text   []byte // the whole object
	id     []byte // decoded; empty if there is none
	sentAt int64  // data.sentAt in nanoseconds since 1970, 0 if there is none
}

// eachEvent calls use with each event of a body, one object or an array, until the first syntax error. It takes 1 µs
// for an event of 1 KB; encoding/json would take 15 µs of the CPUs that the service also uses.
func eachEvent(body []byte, use func(e *receivedEvent)) {
	s := jsonscan.Scanner{Text: body}
	var e receivedEvent
	event := func() bool {
		if s.Peek() != '{' || !e.read(&s) {
			return false
		}
		use(&e)
		return true
	}
	if s.Space() == '[' {
		s.Array(event)
	} else {
		event()
	}
}

// read reads the event at s.Pos.
func (e *receivedEvent) read(s *jsonscan.Scanner) bool {
	*e = receivedEvent{}
	start := s.Pos
	ok := s.Object(func(name []byte) bool {
		value := s.Pos
		switch {
		case string(name) == "data" && s.Peek() == '{':
			return s.Object(func(name []byte) bool {
				value := s.Pos
				ok := s.Value()
				if string(name) == "sentAt" {
					e.sentAt, _ = strconv.ParseInt(string(s.Text[value:s.Pos]), 10, 64)
				}
				return ok
			})
		case string(name) == "id" && s.Peek() == '"':
			if !s.Value() {
				return false
			}
			e.id, _ = jsonscan.Unescape(s.Text[value+1 : s.Pos-1])
			return true
		}
		return s.Value()
	})
	e.text = s.Text[start:s.Pos]
	return ok
}
