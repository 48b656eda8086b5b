package bench

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// CountingSink is an endpoint that answers 204 as cheaply as it can and keeps count of what arrives. An event that
// arrives at two paths is two receipts of two names: at /a its name is "a/" and its id, at / the id alone. So several
// event subscriptions of one topic can be told apart when each has a path of its own. At paths that begin with /hang it
// never answers, at /status/{code} it answers that, and at /failing/{percent} that share of the requests is answered
// 503, evenly spread; what it does not acknowledge there is none of its receipts. At /slow/{ms} it answers after so
// many milliseconds. It answers the validation handshakes of both schemas, and GET /stats with its SinkStats as JSON.
// Its methods may be called from several goroutines.
type CountingSink struct {
	ledger   *Ledger     // nil: none
	arrivals *arrivalLog // nil: none

	failing atomic.Int64 // requests at /failing

	mu    sync.Mutex
	seen  map[string]struct{}
	name  []byte // scratch
	stats SinkStats
}

// SinkStats is what a CountingSink has counted so far.
type SinkStats struct {
	Requests   int64 `json:"requests"`
	Received   int64 `json:"received"`   // events, duplicates included
	Distinct   int64 `json:"distinct"`   // names, see CountingSink
	Duplicates int64 `json:"duplicates"` // received - distinct
	// Unreadable are requests without an event that has an id.
	Unreadable int64 `json:"unreadable"`
	// TurnedAway are requests that were left without an answer or answered with a status that is no success. Nothing else
	// counts them.
	TurnedAway int64 `json:"turnedAway"`
	// FirstAt and LastAt are when the first and the latest event arrived, in nanoseconds since 1970; 0 before.
	FirstAt int64 `json:"firstAt"`
	LastAt  int64 `json:"lastAt"`
}

// NewCountingSink makes a sink that appends what arrives to a ledger at that path; "" keeps none.
func NewCountingSink(ledger string) (*CountingSink, error) {
	s := &CountingSink{seen: map[string]struct{}{}}
	if ledger == "" {
		return s, nil
	}
	var err error
	s.ledger, err = openBufferedLedger(ledger)
	return s, err
}

// Serve answers requests on the listener until ctx ends, then cuts the connections, closes the listener and returns
// nil.
func (s *CountingSink) Serve(ctx context.Context, listener net.Listener) error {
	return serveWire(ctx, listener, s.answer)
}

// ServeHTTP answers as Serve does, by the standard library's server, which costs more: for httptest and TLS.
func (s *CountingSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	answer := refusal(err)
	if err == nil {
		h := head{eventType: r.Header.Get("aeg-event-type"), origin: r.Header.Get("WebHook-Request-Origin")}
		answer = s.answer(r.Method, r.URL.Path, &h, body)
	}
	answer.send(r.Context(), w)
}

// Stats is what was counted until now.
func (s *CountingSink) Stats() SinkStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.stats
	stats.Distinct = int64(len(s.seen))
	stats.Duplicates = stats.Received - stats.Distinct
	return stats
}

// Close completes ledger and arrivals. Requests that come later are answered 500, because nothing notes them.
func (s *CountingSink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.ledger != nil {
		errs = append(errs, s.ledger.Close())
	}
	if s.arrivals != nil {
		errs = append(errs, s.arrivals.close())
	}
	return errors.Join(errs...)
}

func (s *CountingSink) answer(method, path string, h *head, body []byte) reply {
	if method == http.MethodGet && path == "/stats" {
		return s.statsReply()
	}
	if shaken, ok := handshake(method, h.get, body); ok {
		return shaken
	}
	answer, now := s.behaviour(path), time.Now()
	if answer.status/100 != 2 {
		s.turnAway(body, now)
		return answer
	}
	if err := s.take(path, body, now); err != nil {
		return reply{status: http.StatusInternalServerError, body: err.Error() + "\n"}
	}
	return answer
}

// behaviour is what the path asks for: see CountingSink.
func (s *CountingSink) behaviour(path string) reply {
	if strings.HasPrefix(path, "/hang") {
		return reply{}
	}
	if code, ok := strings.CutPrefix(path, "/status/"); ok {
		return statusReply(code)
	}
	if percent, ok := strings.CutPrefix(path, "/failing/"); ok {
		return s.failingReply(percent)
	}
	answer := reply{status: http.StatusNoContent}
	if ms, ok := strings.CutPrefix(path, "/slow/"); ok {
		answer.after = slowReply(ms).after
	}
	return answer
}

// failingReply fails that share of the requests, no two of which are further apart than need be: of 20 % each fifth.
func (s *CountingSink) failingReply(percent string) reply {
	share, err := strconv.ParseInt(percent, 10, 64)
	if err != nil || share < 0 || share > 100 {
		return reply{status: http.StatusBadRequest, body: "the share is a number from 0 to 100, as in /failing/20\n"}
	}
	if n := s.failing.Add(1); n*share/100 > (n-1)*share/100 {
		return reply{status: http.StatusServiceUnavailable}
	}
	return reply{status: http.StatusOK} // under the policies of before 2019, 204 is no success
}

// turnAway notes a request that is not acknowledged. A failure to note it stays with the log, see arrivalLog.
func (s *CountingSink) turnAway(body []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.TurnedAway++
	if s.arrivals != nil {
		eachEvent(body, func(e *receivedEvent) { _ = s.arrivals.note(Arrival{SentAt: e.sentAt, At: now.UnixNano()}) })
	}
}

func (s *CountingSink) statsReply() reply {
	text, err := json.Marshal(s.Stats())
	if err != nil {
		return reply{status: http.StatusInternalServerError}
	}
	return reply{status: http.StatusOK, header: map[string]string{"Content-Type": "application/json"}, body: string(text)}
}

// take counts a request's events.
func (s *CountingSink) take(path string, body []byte, now time.Time) (err error) {
	prefix := ""
	if path != "/" && path != "" {
		prefix = path[1:] + "/"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Requests++
	readable := false
	eachEvent(body, func(e *receivedEvent) {
		if len(e.id) > 0 {
			readable = true
			err = errors.Join(err, s.count(prefix, e, now))
		}
	})
	if !readable {
		s.stats.Unreadable++
	}
	return err
}

func (s *CountingSink) count(prefix string, e *receivedEvent, now time.Time) error {
	if s.ledger != nil {
		if err := s.ledger.note(prefix, e.id, sha256.Sum256(e.text)); err != nil {
			return err
		}
	}
	s.stats.Received++
	if s.stats.LastAt = now.UnixNano(); s.stats.FirstAt == 0 {
		s.stats.FirstAt = s.stats.LastAt
	}
	s.name = append(append(s.name[:0], prefix...), e.id...)
	if _, twice := s.seen[string(s.name)]; twice { // looked up first: only a new name costs a copy
		return nil
	}
	s.seen[string(s.name)] = struct{}{}
	if s.arrivals == nil {
		return nil
	}
	return s.arrivals.note(Arrival{SentAt: e.sentAt, At: now.UnixNano(), Acknowledged: true})
}

// SinkOptions says where RunSink listens and what it keeps.
type SinkOptions struct {
	// Listen is host:port; port 0 takes a free one.
	Listen string
	// ReadyFile is written once the sink listens, as {"sink":"http://host:port"}; "" writes none.
	ReadyFile string
	// Ledger is the path of the sink's ledger; "" keeps none.
	Ledger string
	// Arrivals is the path of the file that notes when each event arrived, see ReadArrivals; "" keeps none.
	Arrivals string
}

// RunSink runs a CountingSink until ctx ends, then completes its files.
func RunSink(ctx context.Context, o SinkOptions) error {
	sink, err := NewCountingSink(o.Ledger)
	if err != nil {
		return err
	}
	if o.Arrivals != "" {
		if sink.arrivals, err = createArrivals(o.Arrivals); err != nil {
			return errors.Join(err, sink.Close())
		}
	}
	var network net.ListenConfig
	listener, err := network.Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return errors.Join(fmt.Errorf("start the sink: %w", err), sink.Close())
	}
	err = writeReady(o.ReadyFile, map[string]string{"sink": "http://" + listener.Addr().String()})
	if err == nil {
		err = sink.Serve(ctx, listener)
	} else {
		_ = listener.Close()
	}
	return errors.Join(err, sink.Close())
}

// writeReady writes the file beside its place and renames it: whoever waits for it never reads half of it.
func writeReady(path string, content map[string]string) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(content)
	if err != nil {
		return fmt.Errorf("write ready file: %w", err)
	}
	fresh := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := errors.Join(os.WriteFile(fresh, text, 0o600), os.Rename(fresh, path)); err != nil {
		return fmt.Errorf("write ready file: %w", err)
	}
	return nil
}
