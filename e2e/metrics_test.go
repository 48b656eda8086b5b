package e2e

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// promtool is Prometheus' checker of metrics and rules. The whole test suite requires it.
func promtool(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("POSTRIDER_CI") == "" {
		t.Skip("promtool is not installed (Debian: prometheus)")
	}
	require.NoError(t, err)
	return path
}

// scrape reads a node's metrics as Prometheus does.
func (s *service) scrape() string {
	s.t.Helper()
	return s.manage(http.StatusOK, http.MethodGet, "/metrics", "")
}

// valueOf is the value of one series, written as in the text format; 0 where there is none.
func valueOf(text, name string) float64 {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			n, _ := strconv.ParseFloat(value, 64)
			return n
		}
	}
	return 0
}

// The counts of all nodes are the same and exact, a node's own are its own, and promtool accepts the metrics.
func TestMetricsCountWhatHappened(t *testing.T) {
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	sink.open()
	api := startNode(t, db, "--role", "api")
	worker := startNode(t, db, "--role", "worker")
	for _, n := range []*nodeProcess{api, worker} {
		n.scrape() // before anything was published
	}
	key := api.topic("orders")
	api.subscribe("orders", "billing", sink.url)
	for _, id := range []string{"e1", "e2", "e3"} {
		api.publish("orders", key, cloudEvent(id))
	}
	db.drained()

	const sub = `{event_subscription="billing",topic="orders"}`
	for _, n := range []*nodeProcess{api, worker} {
		require.Eventually(t, func() bool { return valueOf(n.scrape(), "postrider_delivery_success_total"+sub) == 3 },
			patience, pollTime, "within 5 s of its last look")
		text := n.scrape()
		require.Equal(t, 3.0, valueOf(text, `postrider_publish_success_total{topic="orders"}`))
		require.Equal(t, 3.0, valueOf(text, "postrider_matched_event_total"+sub))
		require.Equal(t, 3.0, valueOf(text, "postrider_destination_processing_duration_seconds_count"+sub))
		require.Equal(t, 1.0, valueOf(text, "postrider_nodes"))
		require.Contains(t, text, "\npostrider_held_deliveries{hold=\"probation\"} 0\n",
			"a hold that nothing is on is there too")
		require.Equal(t, 1.0, valueOf(text, "postrider_database_up"))
		require.Equal(t, 8.0, valueOf(text, "postrider_daily_partitions_ahead"))
	}
	published, delivered := api.scrape(), worker.scrape()
	require.Equal(t, 3.0, valueOf(published, "postrider_publish_group_events_sum"))
	require.Equal(t, 3.0, valueOf(published,
		`postrider_http_request_duration_seconds_count{code="200",method="POST",route="/topics/:topic/api/events"}`))
	require.Zero(t, valueOf(published, "postrider_record_flush_results_sum"))
	require.Equal(t, 3.0, valueOf(delivered, "postrider_record_flush_results_sum"))
	require.Zero(t, valueOf(delivered, "postrider_publish_group_events_sum"))
	require.Equal(t, 1000.0, valueOf(delivered, "postrider_attempts_in_flight_max"))
	require.NotContains(t, published, testAdminToken)

	tool := promtool(t)
	for _, text := range []string{published, delivered} {
		check := exec.Command(tool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		out, err := check.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
