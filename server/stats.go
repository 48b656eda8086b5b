package server

import (
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/internal/postgres"
	"postrider/server/api"
)

// ResponseKey identifies responses that are counted together. Route is the route's pattern; "" without a route.
type ResponseKey struct {
	Method, Route string
	Status        int
}

// FailureKey identifies rejected publish requests that are counted together. Topic is "" if it does not exist.
type FailureKey struct {
	Topic, Code string
	Status      int
}

// Stats are the responses of a server since its counters were created.
type Stats struct {
	// Responses are the durations of requests in nanoseconds, without the waits of receives.
	Responses map[ResponseKey]postgres.Distribution
	// Published are the durations of stored publish requests in nanoseconds.
	Published postgres.Distribution
	// PublishFailures counts failed publish requests.
	PublishFailures map[FailureKey]int64
	// Unmatched counts events that match no event subscription, by topic.
	Unmatched map[string]int64
}

// Counters count the responses of a server. Its methods are safe for concurrent use.
type Counters struct {
	published *postgres.Histogram

	mu        sync.RWMutex
	responses map[ResponseKey]*postgres.Histogram
	failures  map[FailureKey]int64
	unmatched map[string]int64
}

// NewCounters returns counters at zero.
func NewCounters() *Counters {
	return &Counters{
		published: newTimes(), responses: map[ResponseKey]*postgres.Histogram{}, failures: map[FailureKey]int64{},
		unmatched: map[string]int64{},
	}
}

// newTimes is a histogram from the duration of a single publish to the longest wait of a publisher.
func newTimes() *postgres.Histogram {
	ms := int64(time.Millisecond)
	return postgres.NewHistogram(1*ms, 2*ms, 5*ms, 10*ms, 25*ms, 50*ms, 100*ms, 250*ms, 500*ms, 1000*ms, 2500*ms,
		10_000*ms)
}

// waitedKey is the key of the time that a request waited for events, which its duration does not include.
const waitedKey = "waited"

// counted counts each response by its route. It sends responses to errors, which sets their status.
func (s *Server) counted(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		if err := next(c); err != nil {
			c.Error(err)
			if topic, publishes := publishTopic(c); publishes {
				key := FailureKey{Topic: topic, Status: c.Response().Status, Code: api.CodeInternal}
				if _, exists := s.parts.Cache.Snapshot().Topic(topic); !exists {
					key.Topic = ""
				}
				if response := api.ResponseTo(err, c); response != nil {
					key.Code = response.Code
				}
				s.options.Counters.failed(key)
			}
		}
		waited, _ := c.Get(waitedKey).(time.Duration)
		s.options.Counters.times(ResponseKey{known(c.Request().Method), c.Path(), c.Response().Status}).
			Observe(int64(time.Since(began) - waited))
		return nil
	}
}

// known is a standard method; "" for others, which must not become series.
func known(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return method
	}
	return ""
}

func (n *Counters) times(key ResponseKey) *postgres.Histogram {
	n.mu.RLock()
	h := n.responses[key]
	n.mu.RUnlock()
	if h != nil {
		return h
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.responses[key] == nil {
		n.responses[key] = newTimes()
	}
	return n.responses[key]
}

func (n *Counters) failed(key FailureKey) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures[key]++
}

// publishTopic is the topic of a publish request; false for other requests.
func publishTopic(c echo.Context) (name string, publishes bool) {
	if c.Path() == publishPath || c.Path() == namespacePublishPath {
		return api.PathValue(c, "topic"), true
	}
	return "", false
}

// Read returns the counts.
func (n *Counters) Read() Stats {
	n.mu.RLock()
	defer n.mu.RUnlock()
	responses := make(map[ResponseKey]postgres.Distribution, len(n.responses))
	for key, times := range n.responses {
		responses[key] = times.Read()
	}
	return Stats{
		Responses: responses, Published: n.published.Read(), PublishFailures: maps.Clone(n.failures),
		Unmatched: maps.Clone(n.unmatched),
	}
}
