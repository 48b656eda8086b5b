package server

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/jobs/publish"
	"postrider/postgres"
	"postrider/server/api"
)

// AnswerKey names answers that are counted together. Route is the route's pattern, "" where there is none: what
// strangers ask for must not become series of their own.
type AnswerKey struct {
	Method, Route string
	Status        int
}

// FailureKey names refused publish requests that are counted together. Topic is "" where there is no such topic.
type FailureKey struct {
	Topic, Code string
	Status      int
}

// Stats are the responses of a server since its counters were created.
type Stats struct {
	// Answers are the requests by how long they took, in nanoseconds.
	Answers map[AnswerKey]postgres.Distribution
	// Published are the publish requests that were stored, by how long that took, in nanoseconds.
	Published postgres.Distribution
	// PublishFailures counts publish requests that were not.
	PublishFailures map[FailureKey]int64
	// Unmatched counts events that no event subscription wants, by topic.
	Unmatched map[string]int64
}

// Counters count the responses of a server: one lookup in a map and two atomic additions for each request. Their
// methods are safe for concurrent use.
type Counters struct {
	published *postgres.Histogram

	mu        sync.RWMutex
	answers   map[AnswerKey]*postgres.Histogram
	failures  map[FailureKey]int64
	unmatched map[string]int64
}

// NewCounters returns counters at zero.
func NewCounters() *Counters {
	return &Counters{
		published: newTimes(), answers: map[AnswerKey]*postgres.Histogram{}, failures: map[FailureKey]int64{},
		unmatched: map[string]int64{},
	}
}

// newTimes has bounds from what a lone publish takes to what a publisher waits for at most.
func newTimes() *postgres.Histogram {
	ms := int64(time.Millisecond)
	return postgres.NewHistogram(1*ms, 2*ms, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms, 1000*ms, 2500*ms,
		10_000*ms)
}

// counted counts each answer by its route. It answers errors, as echo would after it: only then there is a status.
func (s *Server) counted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		if err := next(c); err != nil {
			c.Error(err)
			if topic, publishes := publishTopic(c); publishes {
				s.options.Counters.failed(s.failureKey(c, topic, err))
			}
		}
		s.options.Counters.times(AnswerKey{known(c.Request().Method), c.Path(), c.Response().Status}).
			Observe(int64(time.Since(began)))
		return nil
	}
}

// known keeps methods that somebody made up from becoming series.
func known(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method
	}
	return ""
}

func (n *Counters) times(key AnswerKey) *postgres.Histogram {
	n.mu.RLock()
	h := n.answers[key]
	n.mu.RUnlock()
	if h != nil {
		return h
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.answers[key] == nil {
		n.answers[key] = newTimes()
	}
	return n.answers[key]
}

func (n *Counters) failed(key FailureKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures[key]++
}

// stored counts a publish request that was answered after its commit.
func (n *Counters) stored(topic string, receipt *publish.Receipt, took time.Duration) {
	n.published.Observe(int64(took))
	for i, matched := range receipt.Matched {
		if matched == 0 && !receipt.Repeated && (receipt.Duplicates == nil || !receipt.Duplicates[i]) {
			n.mu.Lock()
			n.unmatched[topic]++
			n.mu.Unlock()
		}
	}
}

const publishRoute, publishToNamespaceRoute = "/topics/:topic/api/events", "/topics/:operation"

// publishTopic is the topic that a request would publish to; false where it would not.
func publishTopic(c echo.Context) (name string, publishes bool) {
	switch c.Path() {
	case publishRoute:
		return api.PathValue(c, "topic"), true
	case publishToNamespaceRoute:
		return strings.CutSuffix(api.PathValue(c, "operation"), ":publish")
	}
	return "", false
}

// failureKey has the code that the publisher was told.
func (s *Server) failureKey(c echo.Context, topic string, err error) FailureKey {
	key := FailureKey{Topic: topic, Status: c.Response().Status, Code: api.CodeInternal}
	if _, exists := s.parts.Cache.Snapshot().Topic(topic); !exists {
		key.Topic = ""
	}
	if answer := api.AnswerTo(err, c); answer != nil {
		key.Code = answer.Code
	}
	return key
}

// Read returns the counts.
func (n *Counters) Read() Stats {
	n.mu.RLock()
	defer n.mu.RUnlock()
	answers := make(map[AnswerKey]postgres.Distribution, len(n.answers))
	for key, times := range n.answers {
		answers[key] = times.Read()
	}
	return Stats{
		Answers: answers, Published: n.published.Read(), PublishFailures: maps.Clone(n.failures),
		Unmatched: maps.Clone(n.unmatched),
	}
}
