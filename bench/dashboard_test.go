package bench

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A small run asks for every page, and each is shown.
func TestRunDashboard(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	report, err := RunDashboard(t.Context(), DashboardOptions{Deliveries: leastDeliveries, Rounds: 2}, &log)
	require.NoError(t, err, log.String())
	require.InDelta(t, leastDeliveries, report.Deliveries, 100)
	require.Greater(t, len(report.Pages), len(dashboardPages)+len(dashboardItems), "lists go on")
	for _, p := range report.Pages {
		require.Equal(t, http.StatusOK, p.Status, p.Path)
		require.Positive(t, p.MedianMs, p.Path)
		require.GreaterOrEqual(t, p.MaxMs, p.P95Ms, p.Path)
		require.Contains(t, report.String(), p.Path)
	}
	_, err = json.Marshal(report)
	require.NoError(t, err)
	_, err = RunDashboard(t.Context(), DashboardOptions{Deliveries: 5}, &log)
	require.ErrorContains(t, err, "there can be 10000 to 1000000000 deliveries, not 5")
}

func TestSummarise(t *testing.T) {
	t.Parallel()
	var took []float64
	for i := range 20 {
		took = append(took, float64(20-i))
	}
	var p PageTimes
	p.summarise(took)
	require.Equal(t, []float64{11, 19, 20}, []float64{p.MedianMs, p.P95Ms, p.MaxMs})
	p.summarise([]float64{7})
	require.Equal(t, []float64{7, 7, 7}, []float64{p.MedianMs, p.P95Ms, p.MaxMs})
}
