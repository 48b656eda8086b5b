// Package azurefake serves the REST data planes of Azure Service Bus, Event Hubs and Relay hybrid connections to tests.
//
// It is strict: a request that Azure would accept, but not apply as its sender expects, is rejected with a text that
// says what is wrong, and is listed in Server.Violations. It follows Microsoft's public REST pages: Send Message Batch,
// Send batch events, Relay hybrid connections protocol, and access control with shared access signatures.
package azurefake

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The services of a Response.
const (
	ServiceBus   = "sb"
	EventHubs    = "eh"
	Relay        = "relay"
	StorageQueue = "queue" // the server has none
)

// Default limits of a request's messages with their properties, in bytes: those of the Standard tiers.
const (
	DefaultMessageBytes     = 256 << 10 // Service Bus
	DefaultPublicationBytes = 1 << 20   // Event Hubs
)

// Options configure a server.
type Options struct {
	Keys        []Keys           // the first keys; SetKeys replaces them
	MaxLifetime time.Duration    // how far ahead a signature may expire; 0 = 1 hour
	Now         func() time.Time // the clock that expires signatures; nil = time.Now
}

// Entity limits a queue, topic or event hub.
type Entity struct {
	MaxBytes         int  // of all messages of a request with their properties; 0 = the default of the service
	RequiresSession  bool // of queues: messages without a SessionId are rejected
	DetectDuplicates bool // of queues and topics: a message with a known MessageId is accepted and dropped
}

// Message is what an entity accepted.
type Message struct {
	Body                               []byte
	MessageID, SessionID, PartitionKey string
	Broker, User                       map[string]any // BrokerProperties and UserProperties; numbers are float64
	Header                             http.Header    // of the request without its token
	Request                            int            // the request that brought it: 1 is the entity's first
}

// Server is a namespace of all three services. Its methods may be called at any time from any goroutine.
type Server struct {
	t       testing.TB
	options Options
	server  *httptest.Server
	closed  chan struct{}

	mu         sync.Mutex
	keys       []Keys
	bearers    []string
	entities   map[string]*entity // by lower-case name
	violations []string
}

type entity struct {
	Entity
	name, service        string
	listener             http.Handler
	faults               []fault
	block                *block
	requests, duplicates int
	messages             []Message
	seen                 map[string]bool // by MessageId
}

// action ends a valid request.
type action func(http.ResponseWriter, *http.Request, *entity, []Message)

// fault is the action of the next n valid requests.
type fault struct {
	n  int
	do action
}

type block struct{ arrived, released chan struct{} }

// New starts a server on 127.0.0.1 that is closed when the test ends. Hanging and blocked requests end then, too.
func New(t testing.TB, options Options) *Server {
	t.Helper()
	options.MaxLifetime = cmp.Or(options.MaxLifetime, time.Hour)
	if options.Now == nil {
		options.Now = time.Now
	}
	s := &Server{t: t, options: options, closed: make(chan struct{}), entities: map[string]*entity{}}
	s.SetKeys(options.Keys...)
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		close(s.closed)
		s.server.Close()
	})
	return s
}

// URL returns the base URL, without a slash at its end.
func (s *Server) URL() string { return s.server.URL }

// SetKeys replaces the keys of the namespace, as a rotation does.
func (s *Server) SetKeys(keys ...Keys) { s.locked(func() { s.keys = slices.Clone(keys) }) }

// SetBearers replaces the Microsoft Entra tokens that the namespace accepts.
func (s *Server) SetBearers(tokens ...string) { s.locked(func() { s.bearers = slices.Clone(tokens) }) }

// AddQueue adds a Service Bus queue.
func (s *Server) AddQueue(name string, limits Entity) {
	limits.MaxBytes = cmp.Or(limits.MaxBytes, DefaultMessageBytes)
	s.add(&entity{name: name, service: ServiceBus, Entity: limits})
}

// AddTopic adds a Service Bus topic. Sessions are a property of its subscriptions, which the server does not have.
func (s *Server) AddTopic(name string, limits Entity) {
	limits.RequiresSession = false
	s.AddQueue(name, limits)
}

// AddHub adds an event hub, which has neither sessions nor duplicate detection.
func (s *Server) AddHub(name string, limits Entity) {
	limits = Entity{MaxBytes: cmp.Or(limits.MaxBytes, DefaultPublicationBytes)}
	s.add(&entity{name: name, service: EventHubs, Entity: limits})
}

// AddHybridConnection adds a hybrid connection with its listener.
func (s *Server) AddHybridConnection(path string, listener http.Handler) {
	s.add(&entity{name: path, service: Relay, listener: listener})
}

func (s *Server) add(e *entity) {
	e.seen = map[string]bool{}
	s.locked(func() { s.entities[strings.ToLower(e.name)] = e })
}

// Fail gives the next n valid requests a response. Only a response of success accepts the messages. Faults of an entity
// queue up. Requests that are malformed or not authorized are rejected as always and use up none.
func (s *Server) Fail(name string, n int, response Response) {
	s.fault(name, n, func(w http.ResponseWriter, _ *http.Request, e *entity, messages []Message) {
		if response.Status < http.StatusMultipleChoices {
			s.accept(e, messages)
		}
		response.write(w)
	})
}

// Hang never responds to the next n valid requests and accepts none of their messages.
func (s *Server) Hang(name string, n int) {
	s.fault(name, n, func(_ http.ResponseWriter, r *http.Request, _ *entity, _ []Message) {
		s.wait(r, nil)
		panic(http.ErrAbortHandler)
	})
}

// Break closes the connections of the next n valid requests and accepts none of their messages.
func (s *Server) Break(name string, n int) {
	s.fault(name, n, func(http.ResponseWriter, *http.Request, *entity, []Message) { panic(http.ErrAbortHandler) })
}

// LoseResponse accepts the messages of the next n valid requests and closes their connections without a response.
func (s *Server) LoseResponse(name string, n int) {
	s.fault(name, n, func(_ http.ResponseWriter, _ *http.Request, e *entity, messages []Message) {
		s.accept(e, messages)
		panic(http.ErrAbortHandler)
	})
}

func (s *Server) fault(name string, n int, do action) {
	s.with(name, func(e *entity) { e.faults = append(e.faults, fault{n, do}) })
}

// Block holds valid requests until release is called. Each of them is sent to arrived when it begins to wait.
func (s *Server) Block(name string) (arrived <-chan struct{}, release func()) {
	b := &block{arrived: make(chan struct{}, 1000), released: make(chan struct{})}
	s.with(name, func(e *entity) { e.block = b })
	return b.arrived, sync.OnceFunc(func() {
		s.with(name, func(e *entity) { e.block = nil })
		close(b.released)
	})
}

// Messages returns what an entity accepted, in order.
func (s *Server) Messages(name string) []Message {
	return read(s, name, func(e *entity) []Message { return slices.Clone(e.messages) })
}

// Requests returns the number of requests that reached an entity, those that were rejected included.
func (s *Server) Requests(name string) int {
	return read(s, name, func(e *entity) int { return e.requests })
}

// Duplicates returns the number of messages that an entity dropped because it knew their MessageId.
func (s *Server) Duplicates(name string) int {
	return read(s, name, func(e *entity) int { return e.duplicates })
}

// Violations returns what clients did wrong, one text for each rejected request. Wrong or expired keys, sizes and
// missing sessions are no violations.
func (s *Server) Violations() []string {
	var violations []string
	s.locked(func() { violations = slices.Clone(s.violations) })
	return violations
}

func (s *Server) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

func (s *Server) with(name string, do func(*entity)) {
	s.locked(func() {
		e := s.entities[strings.ToLower(name)]
		if e == nil {
			s.t.Errorf("the fake of Azure has no entity %q", name)
			return
		}
		do(e)
	})
}

func read[T any](s *Server, name string, from func(*entity) T) T {
	var value T
	s.with(name, func(e *entity) { value = from(e) })
	return value
}

// find returns the entity whose name begins the path, the longest first, the rest of the path and the request's number.
func (s *Server) find(path string) (*entity, string, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path = strings.Trim(path, "/")
	for end := len(path); end > 0; end = strings.LastIndexByte(path[:end], '/') {
		if e := s.entities[strings.ToLower(path[:end])]; e != nil {
			e.requests++
			return e, path[end:], e.requests
		}
	}
	return nil, path, 0
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	e, rest, number := s.find(r.URL.Path)
	messages, refused := []Message{{Body: body, Header: r.Header}}, s.authorize(r, e)
	switch {
	case refused != nil:
	case e == nil:
		refused = &refusal{Response: Named("sb-404")}
	case e.service != Relay:
		messages, refused = e.parse(r, rest, body)
	}
	if refused != nil {
		if refused.violation != "" {
			s.locked(func() { s.violations = append(s.violations, r.Method+" "+r.URL.Path+": "+refused.violation) })
		}
		refused.write(w)
		return
	}
	for i := range messages {
		messages[i].Request = number
	}
	do, waiting := s.next(e)
	if waiting != nil {
		waiting.arrived <- struct{}{}
		s.wait(r, waiting.released)
	}
	do(w, r, e, messages)
}

// wait waits for a channel, for the client to go or for the server to close.
func (s *Server) wait(r *http.Request, released <-chan struct{}) {
	select {
	case <-released:
	case <-s.closed:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// complete is the end of a request without a fault.
func (s *Server) complete(w http.ResponseWriter, r *http.Request, e *entity, messages []Message) {
	s.accept(e, messages)
	if e.service != Relay {
		w.WriteHeader(http.StatusCreated)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(messages[0].Body))
	w.Header().Set("Via", "1.1 "+r.Host)
	e.listener.ServeHTTP(w, r)
}

func (s *Server) next(e *entity) (action, *block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; len(e.faults) > 0; e.faults = e.faults[1:] {
		if f := &e.faults[0]; f.n > 0 {
			f.n--
			return f.do, e.block
		}
	}
	return s.complete, e.block
}

func (s *Server) accept(e *entity, messages []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if e.DetectDuplicates && e.seen[m.MessageID] {
			e.duplicates++
			continue
		}
		e.seen[m.MessageID] = m.MessageID != ""
		e.messages = append(e.messages, m)
	}
}
