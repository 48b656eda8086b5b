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

func TestBenchRejects(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"bench speed":                             "unexpected argument speed",
		"bench throughput --duration 10ms":        "--duration 10ms: must be 1s or more",
		"bench throughput --duration 0s":          "--duration 0s: must be 1s or more",
		"bench throughput --clients=-1":           "--clients -1: must not be negative",
		"bench throughput --subscriptions 0":      "--subscriptions 0: must be 1 or more",
		"bench throughput --subscriptions=-1":     "--subscriptions -1: must be 1 or more",
		"bench throughput --rate=-1":              "--rate -1: must not be negative",
		"bench throughput --response-time x":      "--response-time",
		"bench throughput --response-time=-1s":    "--response-time -1s: must not be negative",
		"bench throughput -o xml":                 `--output must be one of "table","json"`,
		"bench throughput --event-bytes 10":       "--event-bytes 10: must be 320 or more",
		"bench latency --rate 0":                  "--rate 0: must be 0.001 or more",
		"bench publish --events-per-request 2000": "bench publish: a request has 1048576 bytes at most",
		"bench publish --events-per-request 0":    "--events-per-request 0: must be 1 to 5000",
		"bench failing --percent 100":             "--percent 100: must be 0 to 99",
		"bench batched --events-per-batch 5001":   "--events-per-batch 5001: must be 1 to 5000",
		"bench batched --events-per-batch 0":      "--events-per-batch 0: must be 1 to 5000",
		"bench backlog --waiting=-1":              "--waiting -1: must not be negative",
		"bench backlog --waits long":              `--waits must be one of "paused","scheduled"`,
		"bench pace --duration 1s":                "--duration 1s: must be 10s or more",
		"bench pace --nodes 1 --kill":             "--kill requires at least 2 --nodes",
		"bench pull --receivers 0":                "--receivers 0: must be 1 or more",
		"bench pull --event-bytes 5000":           "--event-bytes 5000: must be 320 to 2000",
		"bench noisy --baseline 1ms":              "--baseline 1ms: must be 1s or more",
		"bench noisy --duration 1ms":              "--duration 1ms: must be 1s or more",
		"bench noisy --backlog 0":                 "--backlog 0: must be 1 or more",
		"bench noisy --rate=-1":                   "--rate -1: must not be negative",
		"bench noisy --event-bytes 10":            "--event-bytes 10: must be 320 or more",
		"bench noisy --topics 2000":               "there must be an event subscription for each topic",
		"bench noisy --many-topics 100000":        "--many-topics 100000: must be 1 to 99999",
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
