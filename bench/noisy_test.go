package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noisyOptions are small and short, with the real program.
func noisyOptions(t *testing.T) NoisyOptions {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary, err := build()
	require.NoError(t, err)
	o := NoisyOptions{
		Binary: binary, Baseline: time.Second, Duration: 2 * time.Second, Subscriptions: 20, Topics: 2, Clients: 4,
		Rate: 100, EventBytes: 1024, Backlog: 2500, Endpoints: 20, BacklogEach: 15, Retries: 300, NoiseRate: 20,
		ManyTopics: 30,
		Policy:     "ga-2018",
	}
	require.NoError(t, o.Validate())
	return o
}

// TestNoisy runs every scenario with the real binary, small and short: that the noise is made, the others are measured
// without it and then with it, and loses nothing. The test does not check the speed.
func TestNoisy(t *testing.T) {
	t.Parallel()
	o := noisyOptions(t)
	for scenario, tc := range map[string]struct {
		topics, subscriptions int
		noise                 NoiseReport
		goesOn                bool
	}{
		ScenarioHang:    {2, 20, NoiseReport{Endpoints: 1, Policy: "ga-2018", Backlog: 2500}, true},
		ScenarioHang20:  {2, 20, NoiseReport{Endpoints: 20, Policy: "ga-2018", Backlog: 300}, true},
		ScenarioRetries: {2, 20, NoiseReport{Endpoints: 1, Policy: "ga-2018", Backlog: 300}, false},
		ScenarioLimit:   {2, 20, NoiseReport{Endpoints: 1, Policy: "ga-2018", Backlog: 2500}, true},
		ScenarioTopics:  {30, 30, NoiseReport{}, false},
	} {
		t.Run(scenario, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			o := o
			o.Scenarios, o.Command = []string{scenario}, "as typed"
			report, err := Noisy(t.Context(), o, &log)
			require.NoError(t, err, log.String())
			require.NoError(t, report.Err(), log.String())
			require.Equal(t,
				Settings{Version: report.Settings.Version, Fsync: "on", SynchronousCommit: "on", FullPageWrites: "on"},
				report.Settings)
			require.Len(t, report.Results, 1)
			r := report.Results[0]
			requireMeasured(t, r)
			if scenario == ScenarioTopics {
				require.Positive(t, r.Again.Delivered)
				require.True(t, r.Again.StartedAt.After(r.Noisy.StartedAt.Add(2*time.Second)))
				require.Positive(t, r.Again.Latency.P50)
			} else {
				require.Nil(t, r.Again)
			}
			require.Equal(t, []int{tc.topics, tc.subscriptions}, []int{r.Topics, r.Subscriptions})
			require.Equal(t, tc.noise.Endpoints > 0, r.Noise.Calls > 0, log.String())
			require.Equal(t, tc.goesOn, r.Noise.Published > r.Noise.Backlog, "events published during the noise")
			r.Noise.Calls, r.Noise.FirstCallAfter, r.Noise.Published = 0, 0, 0
			require.Equal(t, tc.noise, r.Noise)
			require.Contains(t, report.String(), "as typed")
		})
	}
}

// requireMeasured checks the results about the others, which all scenarios have.
func requireMeasured(t *testing.T, r NoisyResult) {
	t.Helper()
	require.Positive(t, r.Published)
	require.Equal(t, r.Published, r.Delivered)
	require.Equal(t, r.Delivered, r.Received)
	require.Zero(t, r.Rejected+r.Failed, r.FirstError)
	require.Zero(t, r.Duplicates+r.Unacknowledged)
	require.Positive(t, r.Baseline.Delivered)
	require.Positive(t, r.Noisy.Delivered, "the others were delivered beside the noise")
	require.LessOrEqual(t, r.Baseline.Delivered+r.Noisy.Delivered, r.Received)
	end := r.Baseline.StartedAt.Add(time.Duration(r.Baseline.Seconds * float64(time.Second)))
	require.False(t, r.Noisy.StartedAt.Before(end.Add(-time.Millisecond)), "the noise comes after the baseline")
	require.Equal(t, 2.0, r.Noisy.Seconds)
	require.Len(t, r.Seconds, 2)
	require.Equal(t, r.Noisy.Delivered, r.Seconds[0].Delivered+r.Seconds[1].Delivered)
	require.Positive(t, r.Baseline.Latency.P99)
	require.Positive(t, r.Noisy.Latency.P99)
	require.Positive(t, r.Ratios.Throughput)
	require.NotEmpty(t, r.Bounds)
	require.NotEmpty(t, r.Noisy.CPUSeconds)
}

func TestNoisyUnderAPolicyThatDoesNotExist(t *testing.T) {
	t.Parallel()
	o := noisyOptions(t)
	o.Scenarios, o.Policy = []string{ScenarioRetries}, "ga-1999"
	_, err := Noisy(t.Context(), o, io.Discard)
	require.ErrorContains(t, err, `bench retries: GET /v1/policies/ga-1999: response 404`)
}

func TestNoisyOptions(t *testing.T) {
	t.Parallel()
	o := NoisyOptions{Subscriptions: 1, Topics: 1}
	require.NoError(t, o.Validate())
	o.Topics++
	require.Error(t, o.Validate())
}

// TestNoisyPhases counts and times by hand: a baseline of 2 s from second 10 on, noise of 3.5 s from second 12 on.
func TestNoisyPhases(t *testing.T) {
	t.Parallel()
	zero := time.Unix(1_800_000_000, 0)
	at := func(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }
	sent := func(sent, arrived float64) arrival {
		return arrival{SentAt: at(sent).UnixNano(), At: at(arrived).UnixNano(), Acknowledged: true}
	}
	call := func(arrived float64) arrival { return arrival{SentAt: 1, At: at(arrived).UnixNano()} }
	var r NoisyResult
	r.Noise.Endpoints = 1
	r.addArrivals([]arrival{
		sent(9.5, 9.6),   // warm-up
		sent(9.9, 10.5),  // warm-up, arrives in the baseline: counted, not timed
		sent(10.0, 10.1), // baseline
		sent(11.0, 11.2), // baseline
		sent(11.5, 11.7), // baseline
		sent(11.9, 12.9), // on its way when the noise begins: the noise's, first second
		sent(12.0, 12.1), // noise, first second
		sent(12.5, 14.5), // sent in the first second, arrives in the third
		sent(13.5, 13.6), // noise, second second
		sent(15.2, 15.3), // noise, after its last whole second
		sent(15.4, 25.4), // sent in the noise, arrives after its end: timed, not counted
		sent(15.6, 15.7), // after the noise
		call(11), call(13), call(12.5), call(15.6),
	}, span{at(10), at(12)}, span{at(12), at(15.5)}, span{})

	require.EqualValues(t, 4, r.Baseline.Delivered)
	require.Equal(t, 2.0, r.Baseline.DeliveredPerSecond)
	require.Equal(t, at(10).UTC(), r.Baseline.StartedAt)
	require.InDelta(t, 200, r.Baseline.Latency.Max, 1)
	require.EqualValues(t, 5, r.Noisy.Delivered)
	require.InDelta(t, 5/3.5, r.Noisy.DeliveredPerSecond, 0.1)
	require.InDelta(t, 10_000, r.Noisy.Latency.Max, 1, "late, and not left out")
	require.Len(t, r.Seconds, 3, "whole ones")
	require.Equal(t, []int64{2, 1, 1}, []int64{r.Seconds[0].Delivered, r.Seconds[1].Delivered, r.Seconds[2].Delivered})
	require.Equal(t, []float64{1, 0.5, 0.5}, []float64{r.Seconds[0].Ratio, r.Seconds[1].Ratio, r.Seconds[2].Ratio})
	require.Equal(t, 1, r.WorstSecond)
	require.Equal(t, 0.5, r.Ratios.WorstSecondThroughput)
	require.InDelta(t, 2000, r.FirstSecond.P99, 1, "by the time of sending")
	require.InDelta(t, 1000, r.FirstSecond.P50, 20)
	require.InDelta(t, 10_000, r.FirstFiveSeconds.Max, 1)
	require.Zero(t, r.Seconds[2].P99, "nothing was sent in it")
	require.EqualValues(t, 2, r.Noise.Calls)
	require.Equal(t, 0.5, r.Noise.FirstCallAfter)
}

func TestNoisyBounds(t *testing.T) {
	t.Parallel()
	result := func(scenario string, throughput, p99 float64) NoisyResult {
		r := NoisyResult{Scenario: scenario, Seconds: []SecondReport{{Ratio: throughput}}}
		r.Baseline = PhaseReport{DeliveredPerSecond: 1000, Latency: Latencies{P50: 1, P99: 10}}
		r.Noisy = PhaseReport{DeliveredPerSecond: 1000 * throughput, Latency: Latencies{P50: 1, P99: 10 * p99}}
		r.compare()
		return r
	}
	for name, tc := range map[string]struct {
		result NoisyResult
		unmet  string
	}{
		"both met, just": {result(ScenarioHang, 0.8, 2), ""},
		"throughput":     {result(ScenarioHang, 0.79, 1), "hang: throughput 0.79 >= 0.8: not met"},
		"p99":            {result(ScenarioRetries, 1, 2.01), "retries: p99 2.01 <= 2: not met"},
		"nothing arrived": {
			result(ScenarioHang20, 0, 0), "hang20: throughput 0 >= 0.8: not met\nhang20: p99 0 <= 2: not met",
		},
		"topics: throughput alone": {result(ScenarioTopics, 1, 9), ""},
		"nothing to compare with": {
			NoisyResult{Scenario: ScenarioTopics, Bounds: []Bound{{Name: "throughput", Limit: 0.8}}}, "topics: throughput 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := NoisyReport{Results: []NoisyResult{tc.result}}
			require.NoError(t, report.Err(), "a bound that is not met loses nothing")
			require.NotContains(t, report.String(), "NaN")
			if tc.unmet == "" {
				require.NoError(t, report.Unmet())
				require.NotContains(t, report.String(), "not met")
				return
			}
			require.ErrorContains(t, report.Unmet(), tc.unmet)
		})
	}
}

func TestNoisyReport(t *testing.T) {
	t.Parallel()
	var r NoisyResult
	r.Scenario, r.Subscriptions, r.Topics = ScenarioHang, 1000, 1
	r.Noise = NoiseReport{Endpoints: 1, Policy: "ga-2018", Backlog: 500}
	r.addLoad(loadReport{published: 10})
	r.addLoad(loadReport{published: 10, rejected: 1, firstError: io.EOF})
	r.addVerdict(Verdict{Received: 21, Duplicates: 1})
	require.EqualValues(t, 20, r.Published)
	report := NoisyReport{Results: []NoisyResult{r}, Settings: Settings{"18", "on", "on", "on"}, Command: "c"}
	require.NoError(t, report.Err(), "a duplicate is allowed: at least once")
	for _, want := range []string{
		"topics 1, event subscriptions 1000, bad endpoints 1 (ga-2018)", "first: EOF",
	} {
		require.Contains(t, report.String(), want)
	}
	for name, broken := range map[string]func(*NoisyResult){
		"hang: of 20 events published: 1 lost": func(r *NoisyResult) { r.Lost = 1 },
		"2 changed":                            func(r *NoisyResult) { r.Changed = 2 },
		"3 not delivered":                      func(r *NoisyResult) { r.Left = 3 },
		"4 dead-lettered, dropped or canceled": func(r *NoisyResult) { r.Ended = 4 },
		"5 without a delivery":                 func(r *NoisyResult) { r.Noise.Unaccounted = 5 },
	} {
		bad := r
		broken(&bad)
		require.ErrorContains(t, NoisyReport{Results: []NoisyResult{r, bad}}.Err(), name)
	}
	text, err := json.Marshal(report)
	require.NoError(t, err)
	for _, name := range []string{
		"results", "scenario", "baseline", "noisy", "firstSecondMs", "secondsOfNoise", "ratios", "bounds", "lost", "fsync",
		"command",
	} {
		require.Contains(t, string(text), `"`+name+`":`)
	}
	for _, line := range strings.Split(report.String(), "\n") {
		require.Equal(t, strings.TrimRight(line, " "), line)
	}
}
