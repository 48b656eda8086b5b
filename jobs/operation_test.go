package jobs_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/node"
	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

const deadLetters = "SELECT count(*) FROM postrider.dead_letters"

// repairable is an endpoint that rejects every request until it is repaired.
func repairable(t *testing.T) (e *endpoint, repair func()) {
	t.Helper()
	var status atomic.Int32
	status.Store(http.StatusBadRequest)
	e = newEndpoint(t, func(w http.ResponseWriter, _ request) { w.WriteHeader(int(status.Load())) })
	return e, func() { status.Store(http.StatusOK) }
}

// A redelivered dead letter has the same bytes, even if the partition of its event is gone.
func TestRedeliveryHasTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		tn := setup(t)
		e, repair := repairable(t)
		subscribe(t, tn, "billing", e.URL, nil)
		tn.Start(t)
		publishRequest(t, tn, http.Header{
			"Content-Type": {"application/json"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		},
			`[ {"id":"e-1", "subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z","dataVersion":"2.1",`+
				` "data": {"a" : 1.50, "a":"\u0000"} } ]`)
		tn.Become(t, 1, deadLetters)
		if gone {
			tn.Exec(t, "DELETE FROM postrider_internal.events")
		}
		repair()
		tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id) FROM postrider.dead_letters")
		tn.Become(t, 1, "SELECT count(*) FROM postrider.deliveries d JOIN postrider.dead_letters l "+
			"ON d.redelivered_from = l.dead_letter_id WHERE d.state = 'delivered' AND d.attempts = 1")
		seen := e.requests()
		require.Len(t, seen, 2)
		require.Equal(t, seen[0].body, seen[1].body)
		for _, name := range []string{
			"Aeg-Output-Event-Id", "Aeg-Delivery-Count", "Aeg-Data-Version", "Traceparent", "Content-Type",
		} {
			require.NotEmpty(t, seen[0].header.Get(name), name)
			require.Equal(t, seen[0].header.Get(name), seen[1].header.Get(name), name)
		}
	}
}

// An operation keeps its rate, continues after its node has stopped, and redelivers each dead letter once.
func TestOperationSurvivesItsNode(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	e, repair := repairable(t)
	withoutProbation(t, tn)
	subscribe(t, tn, "billing", e.URL, nil)
	first := tn.Engine(t)
	require.NoError(t, first.Start(t.Context()))
	for i := range 25 {
		publishOne(t, tn, fmt.Sprintf("e-%d", i))
	}
	tn.Become(t, 25, deadLetters)
	repair()
	began := time.Now()
	id, err := tn.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{},
		&operator.Action{Kind: operator.Redeliver, Rate: 10})
	require.NoError(t, err)
	tn.BecomeRows(t, 1, "operations", "done >= 10")
	testnode.RequireStops(t, first)
	require.Equal(t, 1, tn.Rows(t, "operations", "state = 'running'"))
	s := tn.Beside(t, node.Options{Node: "node-2"})
	second := s.Engine(t)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() { testnode.RequireStops(t, second) })
	tn.BecomeRows(t, 1, "operations", "operation_id = $1 AND state = 'done' AND done = 25", id)
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second, "ten a second")
	tn.BecomeRows(t, 25, "deliveries", "state = 'delivered'")
	require.Equal(t, 25,
		tn.Count(t, "SELECT count(DISTINCT redelivered_from) FROM postrider.deliveries WHERE state = 'delivered'"))
	require.Len(t, e.requests(), 50)
}
