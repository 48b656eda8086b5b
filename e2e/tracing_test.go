package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans is a collector that keeps what it is sent, by name and as it came: texts stand in it as they are.
type spans struct {
	mu   sync.Mutex
	kept map[string]*trace.Span
	raw  strings.Builder
	url  string
}

func newSpans(t *testing.T) *spans {
	t.Helper()
	s := &spans{kept: map[string]*trace.Span{}}
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent collector.ExportTraceServiceRequest
		raw, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(raw, &sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.raw.Write(raw)
		for _, of := range sent.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					s.kept[span.GetName()] = span
				}
			}
		}
	}))
	t.Cleanup(e.Close)
	s.url = e.URL
	return s
}

func (s *spans) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

func (s *spans) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}

// A trace includes the publisher, the publish request with its commit, and each attempt. The endpoint receives the
// publisher's traceparent.
func TestTracingSendsSpans(t *testing.T) {
	t.Parallel()
	const traceID, parentID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	received := make(chan string, 1)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received <- r.Header.Get("Traceparent")
		w.WriteHeader(http.StatusBadRequest)
	}))
	t.Cleanup(e.Close)
	db, s := migratedDatabase(t), newSpans(t)
	n := startNodeWith(t, append(serveEnv(db), "OTEL_EXPORTER_OTLP_ENDPOINT="+s.url, "OTEL_BSP_SCHEDULE_DELAY=50"))
	key := n.topic("orders")
	n.subscribe("orders", "billing", e.URL+"?code=planted")
	status, text, err := call(t.Context(), http.MethodPost, n.api+"/topics/orders/api/events", cloudEvent("e1"),
		"aeg-sas-key", key,
		"Content-Type", "application/cloudevents+json", "Traceparent", "00-"+traceID+"-"+parentID+"-01")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, "00-"+traceID+"-"+parentID+"-01", <-received)
	eventually(t, "three spans", func() bool { return s.count() == 3 })
	publish, commit, deliver := s.kept["publish orders"], s.kept["commit"], s.kept["deliver orders/billing"]
	for _, span := range []*trace.Span{publish, commit, deliver} {
		require.Equal(t, traceID, fmt.Sprintf("%x", span.GetTraceId()))
		require.Greater(t, span.GetEndTimeUnixNano(), span.GetStartTimeUnixNano())
		require.NotContains(t, span.String(), "planted")
	}
	require.Equal(t, parentID, fmt.Sprintf("%x", publish.GetParentSpanId()))
	require.Equal(t, publish.GetSpanId(), commit.GetParentSpanId())
	require.Equal(t, parentID, fmt.Sprintf("%x", deliver.GetParentSpanId()))
	require.Equal(t, trace.Status_STATUS_CODE_ERROR, deliver.GetStatus().GetCode())
	require.Contains(t, deliver.GetStatus().GetMessage(), "400")
}
