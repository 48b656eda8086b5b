package main

import (
	"encoding/xml"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/ledger"
)

var zero = time.Unix(1_800_000_000, 0)

func at(seconds float64) time.Time { return zero.Add(time.Duration(seconds * float64(time.Second))) }

func arrived(sent, arrived float64) arrival {
	return arrival{sentAt: at(sent).UnixNano(), at: at(arrived).UnixNano(), acknowledged: true}
}

func TestReport(t *testing.T) {
	t.Parallel()
	recorded := at(4)
	l := &load{published: 1000, rejected: 2, firstError: errors.New("response 503"), from: at(0), to: at(2)}
	before := counts{
		wal: 1000, tables: 500, cpu: map[string]float64{"service": 1, "postgres": 1, machineBusy: 10, "idle": 0},
	}
	after := counts{
		wal: 4_001_000, tables: 1_000_500, delivered: 1000, lastEndedAt: &recorded,
		cpu: map[string]float64{"service": 3, "postgres": 2, machineBusy: 14, "idle": 1},
	}
	var f figures
	f.addPublish(l)
	f.addCounts(before, after, at(0), 1000)
	require.Equal(t, []float64{500, 250}, []float64{f.AcceptedPerSecond, f.DeliveredPerSecond})
	require.Equal(t, []float64{1000, 4000}, []float64{f.TableBytesPerDelivery, f.WALBytesPerDelivery})
	require.Equal(t, map[string]float64{"service": 2, "postgres": 1, "others": 1, "idle": 1}, f.CPUSeconds)
	require.Equal(t, map[string]float64{"service": 20, "postgres": 10}, f.CPUSecondsPer10k)

	r := report{Scenario: "failing"}
	r.addLoad(l)
	r.addVerdict(ledger.Verdict{Received: 1001, Duplicates: 1})
	r.addPhases([]phase{
		{figures: f, sent: span{at(0), at(2)}}, {figures: f, duringPublish: true, sent: span{at(4), at(5)}},
	}, []arrival{
		arrived(1, 1.5), {sentAt: at(1).UnixNano(), at: at(1.5).UnixNano()}, arrived(4, 4.25), arrived(4.5, 9),
	})
	require.Equal(t, 500.0, r.Phases[0].LatencyMs["max"], "of what was acknowledged")
	require.Equal(t, 1.0, r.DeliveredPerSecond, "while events were published; the report's figures are the last")
	require.Equal(t, 4500.0, r.LatencyMs["max"], "whenever it arrived")
	require.Equal(t,
		map[string]float64{"accepted": 1, "delivered": 0.004, "latencyP99": 9, "serviceCpu": 1, "postgresCpu": 1}, r.Cost)
	require.NoError(t, r.err(0, 0), "a duplicate is allowed: at least once")
	r.Lost, r.Changed, r.Left = 1, 2, 3
	require.EqualError(t, r.err(4, 5), "of 1000 events published: 1 lost, 2 changed, 3 not delivered, "+
		"4 dead-lettered, dropped or canceled, 5 without a delivery")
}

// TestNoisyPhases: a baseline of 2 s from second 10 on, noise of 3.5 s from second 12 on.
func TestNoisyPhases(t *testing.T) {
	t.Parallel()
	r := noisyResult{
		Baseline: phaseReport{span: span{at(10), at(12)}}, Noisy: phaseReport{span: span{at(12), at(15.5)}},
	}
	call := func(arrived float64) arrival { return arrival{sentAt: 1, at: at(arrived).UnixNano()} }
	r.addArrivals([]arrival{
		arrived(9.5, 9.6),   // warm-up
		arrived(9.9, 10.5),  // warm-up, arrives in the baseline: counted, not timed
		arrived(10.0, 10.1), // baseline
		arrived(11.0, 11.2), // baseline
		arrived(11.5, 11.7), // baseline
		arrived(11.9, 12.9), // in progress when the noise begins: the noise's, first second
		arrived(12.0, 12.1), // noise, first second
		arrived(12.5, 14.5), // sent in the first second, arrives in the third
		arrived(13.5, 13.6), // noise, second second
		arrived(15.2, 15.3), // noise, after its last whole second
		arrived(15.4, 25.4), // sent in the noise, arrives after its end: timed, not counted
		arrived(15.6, 15.7), // after the noise
		call(11), call(13), call(12.5), call(15.6),
	})
	require.EqualValues(t, 4, r.Baseline.Delivered)
	require.Equal(t, 2.0, r.Baseline.DeliveredPerSecond)
	require.Equal(t, at(10).UTC(), r.Baseline.StartedAt)
	require.InDelta(t, 200, r.Baseline.Latency["max"], 1)
	require.EqualValues(t, 5, r.Noisy.Delivered)
	require.InDelta(t, 10_000, r.Noisy.Latency["max"], 1, "late, and not left out")
	require.Len(t, r.Seconds, 3, "whole ones")
	for i, want := range []float64{2, 1, 1} {
		require.Equal(t, []float64{want, want / 2}, []float64{r.Seconds[i]["delivered"], r.Seconds[i]["ratio"]})
	}
	require.Equal(t, 1, r.WorstSecond)
	require.Equal(t, 0.5, r.Ratios["worstSecondThroughput"])
	require.InDelta(t, 2000, r.FirstSecond["p99"], 1, "by the time of sending")
	require.InDelta(t, 10_000, r.FirstFiveSeconds["max"], 1)
	require.EqualValues(t, 2, r.Noise.Calls)
	require.Equal(t, 0.5, r.Noise.FirstCallAfter)
	require.NoError(t, r.err(false))
	require.ErrorContains(t, r.err(true), "throughput 0.7 >= 0.8: not met")
	require.ErrorContains(t, r.err(true), "p99 50 <= 2: not met")
}

// TestHeldReport: a hold of 20 s from second 10 on, in two parts; then 10 s, of which the first two are slow.
func TestHeldReport(t *testing.T) {
	t.Parallel()
	r := heldReport{Kind: "slot", Rate: 10, released: at(30)}
	for i, phase := range []string{"before", "held", "held", "after"} {
		r.Rows = append(r.Rows, &heldRow{
			Phase: phase, Minute: float64(i) / 6, span: span{at(float64(10 * i)), at(float64(10*i + 10))},
			used: map[string]float64{"service": 1, "postgres": float64(i), "load": 9}, tableState: tableState{Dead: 1000},
		})
	}
	var arrivals []arrival
	for i := range 400 { // 10/s
		sent := float64(i)/10 + 0.05
		took := map[bool]float64{true: 0.6, false: 0.2}[sent > 20 && sent < 32]
		arrivals = append(arrivals, arrived(sent, sent+took))
	}
	r.addArrivals(arrivals)
	require.Equal(t, []float64{10, 200, 100, 9.6}, []float64{
		r.Rows[1].DeliveredPerSecond, r.Rows[1].Latency["p99"], r.Rows[1].CPU["service"], r.Rows[2].DeliveredPerSecond,
	})
	require.Equal(t, map[string]float64{
		"delivered": 0.96, "p50": 3, "p99": 3, "serviceCpu": 1.042, "postgresCpu": 2.083,
	}, r.Ratios)
	require.Equal(t, 2.0, r.RecoveredSeconds, "the first 5 s without a slow event")

	var svg strings.Builder
	require.NoError(t, drawChart(&svg, []heldReport{r}))
	require.NoError(t, xml.Unmarshal([]byte(svg.String()), new(any)), svg.String())
	require.Contains(t, svg.String(), "slot: the p99 of the hold's last part is 3 times that of its first.")
	require.Contains(t, svg.String(), `points="60.0,130.0 `, "200 of 600 ms before the hold")
}

func TestRatesReport(t *testing.T) {
	t.Parallel()
	var arrivals []arrival
	for i := range 400 { // 20/s for 20 s; every tenth of the last 10 s is throttled
		arrivals = append(arrivals, arrival{at: at(float64(i) / 20).UnixNano(), acknowledged: i < 200 || i%10 > 0})
	}
	var r ratesReport
	r.addArrivals(arrivals, span{at(0), at(20)})
	require.Equal(t, ratesReport{Accepted: 19, Lowest: 18, Highest: 20, Throttled: 5, MostThrottled: 10}, r)
}

func TestCPUSeconds(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	require.Positive(t, peakMB(os.Getpid()))
	require.Zero(t, peakMB(1<<30), "no such process")
	alone := cpuSeconds(0, map[int]string{os.Getpid(): "load", 1 << 30: "none"})
	require.NotContains(t, alone, "none")
	parent := cpuSeconds(0, map[int]string{os.Getppid(): "parent"})["parent"]
	both := cpuSeconds(0, map[int]string{os.Getpid(): "service", os.Getppid(): "service"})
	require.GreaterOrEqual(t, both["service"], alone["load"]+parent, "the sum of a service's nodes")
	require.NotContains(t, alone, "postgres")
	require.Greater(t, alone[machineBusy], alone["load"])
	require.GreaterOrEqual(t, cpuSeconds(os.Getppid(), nil)["postgres"], alone["load"], "a process includes its children")
}
