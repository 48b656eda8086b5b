package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/bench"
)

// TestEveryScenarioIsAVerb: what the package can measure, the command offers.
func TestEveryScenarioIsAVerb(t *testing.T) {
	t.Parallel()
	verbs := leaves(t)
	for _, name := range bench.Scenarios() {
		require.Contains(t, verbs, "bench "+name)
	}
}

func TestBenchRefuses(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"bench speed":                             "unexpected argument speed",
		"bench throughput --duration 10ms":        "bench throughput: the duration must be 1s or more, not 10ms",
		"bench throughput --duration 0s":          "the duration must be 1s or more, not 0s",
		"bench throughput --clients=-1":           "all numbers must be positive",
		"bench throughput --subscriptions 0":      "--subscriptions 0: must be 1 or more",
		"bench throughput --answer-after x":       "--answer-after",
		"bench throughput -o xml":                 `--output must be one of "table","json"`,
		"bench throughput --event-bytes 10":       "an event has 320 bytes at least, not 10",
		"bench latency --rate 0":                  "--rate must be positive",
		"bench publish --events-per-request 2000": "a request has 1048576 bytes at most",
		"bench publish --events-per-request 0":    "--events-per-request 0: must be 1 or more",
		"bench failing --percent 100":             "1 to 99 percent of the requests can fail, not 100",
		"bench batched --events-per-batch 5001":   "5000 events at most",
		"bench batched --events-per-batch 0":      "--events-per-batch 0: must be 1 or more",
		"bench backlog --waits long":              `--waits must be one of "paused","scheduled"`,
		"bench noisy --owed 0":                    "bench noisy: all numbers must be positive",
		"bench noisy --scenario hang30":           "--scenario",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			r := postrider(t, nil, strings.Fields(args)...)
			require.Equal(t, 2, r.code, r.stderr)
			require.Contains(t, r.stderr, says)
		})
	}
}

// TestBench runs one scenario as a user does. What each of them measures is tested in package bench.
func TestBench(t *testing.T) {
	t.Parallel()
	r := postrider(t, nil, strings.Fields("bench latency --rate 50 --duration 1s --clients 2 -o json")...)
	require.Zero(t, r.code, r.stderr)
	var report struct {
		Scenario                                     string
		Published, Delivered, Lost, Duplicates, Left *int64
		LatencyMs                                    map[string]float64
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Equal(t, "latency", report.Scenario)
	require.EqualValues(t, 50, *report.Published)
	require.EqualValues(t, 50, *report.Delivered)
	require.Zero(t, *report.Lost+*report.Duplicates+*report.Left)
	require.Contains(t, report.LatencyMs, "p95")
	require.Contains(t, r.stderr, "latency: starting", "progress is no part of the report")
}
