package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/pgdev"
)

// small is a scenario of a second at most, with the real program.
func small(t *testing.T, o Options) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary, err := build()
	require.NoError(t, err)
	o.Binary, o.Duration, o.EventBytes = binary, cmp.Or(o.Duration, time.Second), 1024
	o.Subscriptions, o.EventsPerRequest = max(o.Subscriptions, 1), max(o.EventsPerRequest, 1)
	o.EventsPerBatch = max(o.EventsPerBatch, 1)
	require.NoError(t, o.Validate())
	return o
}

// TestScenarios runs every scenario, small and short: every accepted event must be delivered. It does not check speed.
func TestScenarios(t *testing.T) {
	t.Parallel()
	const brief = 200 * time.Millisecond // of what publishes as fast as it can: more than a thousand events
	for _, tc := range []struct {
		o      Options
		phases []string
		ends   int64 // for each event
	}{
		{
			Options{Scenario: "throughput", Clients: 8, Rate: 100, Subscriptions: 3, ResponseTime: 20 * time.Millisecond},
			[]string{"throughput"},
			3,
		},
		{
			Options{Scenario: "publish", Clients: 2, EventsPerRequest: 10, Duration: brief},
			[]string{"publishing, delivery paused"},
			1,
		},
		{Options{Scenario: "latency", Clients: 8, Rate: 100}, []string{"latency"}, 1},
		{Options{Scenario: "failing", Clients: 8, Rate: 50, FailurePercent: 10}, []string{"0 % failing", "10 % failing"}, 1},
		{
			Options{Scenario: "batched", Clients: 2, EventsPerRequest: 10, EventsPerBatch: 20, Duration: brief},
			[]string{"publishing, delivery paused", "delivering what was paused", "publishing and delivering"},
			1,
		},
		{
			Options{Scenario: "backlog", Clients: 8, Rate: 100, Waiting: 2500, Waits: WaitPaused},
			[]string{"alone", "beside 2500 paused"},
			1,
		},
		{
			Options{Scenario: "backlog", Clients: 8, Rate: 100, Waiting: 2500, Waits: WaitScheduled},
			[]string{"alone", "beside 2500 scheduled"},
			1,
		},
	} {
		t.Run(tc.o.Scenario+tc.o.Waits, func(t *testing.T) {
			t.Parallel()
			o, log := small(t, tc.o), &bytes.Buffer{}
			o.Command = "as typed"
			report, err := Run(t.Context(), o, log)
			require.NoError(t, err, log.String())
			require.NoError(t, report.Err(), log.String())
			require.Equal(t, tc.phases, phaseNames(report))
			require.Positive(t, report.Published)
			require.Equal(t, tc.ends*report.Published, report.Delivered)
			require.Equal(t, tc.ends*report.Published, report.Received)
			require.Zero(t, report.Duplicates+report.Changed+report.Unacknowledged)
			require.Zero(t, report.Rejected+report.Failed, report.FirstError)
			require.EqualValues(t, tc.o.Waiting, report.Waiting)
			require.Equal(t, len(tc.phases), report.Checkpoints)
			require.Equal(t,
				Settings{Version: report.Settings.Version, Fsync: "on", SynchronousCommit: "on", FullPageWrites: "on"},
				report.Settings)
			requireFigures(t, report)
			require.Contains(t, report.String(), "as typed")
			if tc.o.Scenario == "throughput" {
				requireNamesInJSON(t, report)
			}
		})
	}
}

func phaseNames(r Report) (names []string) {
	for _, f := range r.Phases {
		names = append(names, f.Phase)
	}
	return names
}

// requireFigures checks that every phase has its figures.
func requireFigures(t *testing.T, r Report) {
	t.Helper()
	require.Equal(t, r.Phases[len(r.Phases)-1], r.Figures)
	for _, f := range r.Phases {
		paused, drained := strings.Contains(f.Phase, "delivery paused"), strings.HasPrefix(f.Phase, "delivering")
		require.Equal(t, !drained, f.AcceptedPerSecond > 0, f.Phase)
		require.Equal(t, !paused, f.DeliveredPerSecond > 0, f.Phase)
		require.Equal(t, !drained, f.LatencyMs.P99 > 0, f.Phase)
		require.LessOrEqual(t, f.LatencyMs.P50, f.LatencyMs.P95)
		require.LessOrEqual(t, f.LatencyMs.P95, f.LatencyMs.P99)
		require.Positive(t, f.WALBytesPerDelivery)
		require.Contains(t, f.CPUSeconds, "sink")
		require.Contains(t, f.CPUSecondsPer10k, "service")
		require.Contains(t, f.CPUSecondsPer10k, "postgres")
		require.Positive(t, f.RSSPeakMB)
	}
	require.Equal(t, r.Scenario == "failing" || r.Scenario == "backlog", r.Cost != nil)
}

// requireNamesInJSON: the names are an interface.
func requireNamesInJSON(t *testing.T, report Report) {
	t.Helper()
	text, err := json.Marshal(report)
	require.NoError(t, err)
	for _, name := range []string{
		"scenario", "command", "clients", "eventBytes", "eventsPerRequest", "subscriptions", "phases", "phase",
		"acceptedPerSecond", "publishSeconds", "deliveredPerSecond", "deliverSeconds", "eventsPerAttempt", "latencyMs",
		"publishLatencyMs", "p50", "p90", "p95", "p99", "max", "publishStallMs", "deliveryStallMs", "cpuSeconds",
		"cpuSecondsPer10k", "service", "postgres", "sink", "load", "tableBytesPerDelivery", "walBytesPerDelivery",
		"rssPeakMB", "published", "rejected", "failed", "delivered", "deadLettered", "ended", "left", "received", "lost",
		"duplicates", "changed", "unacknowledged", "checkpoints", "settings", "fsync", "synchronousCommit",
		"fullPageWrites", "machine", "cpus",
	} {
		require.Contains(t, string(text), `"`+name+`":`)
	}
}

// TestRunOnAGivenDatabase leaves the events in the user's database, and no topic and no retry policy of its own.
func TestRunOnAGivenDatabase(t *testing.T) {
	t.Parallel()
	o := small(t, Options{Scenario: "failing", Clients: 2, Rate: 50, FailurePercent: 20})
	database, err := pgdev.Start(t.Context(), pgdev.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Stop(context.Background())) })
	o.DatabaseURL = database.URL("postgres")
	report, err := Run(t.Context(), o, io.Discard)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.Equal(t, "off", report.Settings.Fsync, "as this database has it")
	require.NotContains(t, report.CPUSeconds, "postgres", "its process is not known")
	conn, err := pgx.Connect(t.Context(), database.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var left, events int64
	require.NoError(t,
		conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM postrider.topics
		    WHERE topic <> 'postrider.system') + (SELECT count(*) FROM postrider_internal.retry_policies
		    WHERE NOT built_in AND deleted_at IS NULL), (SELECT count(*) FROM postrider.events)`).
			Scan(&left, &events))
	require.Zero(t, left)
	require.Equal(t, report.Published, events)
}

func TestRunWithoutAService(t *testing.T) {
	t.Parallel()
	// The test binary plays a postrider whose serve fails, behind a script that notes what it was called with.
	dir := t.TempDir()
	script, calls := filepath.Join(dir, "postrider"), filepath.Join(dir, "calls")
	text := "#!/bin/sh\necho \"$@\" >> '" + calls + "'\n" + roleVariable + "='broken serve' exec '" + os.Args[0] +
		"' \"$@\"\n"
	require.NoError(t, os.WriteFile(script, []byte(text), 0o700))
	_, err := Run(t.Context(), Options{Scenario: "throughput", Binary: script}, io.Discard)
	require.ErrorContains(t, err, "service ended: exit status 1")
	require.ErrorContains(t, err, "port trouble")
	noted, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Regexp(t, `^serve --allow-cidr 127.0.0.0/8 --listen 127.0.0.1:0 --ready-file \S+\n$`,
		string(noted))
	words := strings.Fields(string(noted))
	require.NoDirExists(t, filepath.Dir(words[len(words)-1]), "the run's folder is gone")
}

func TestRunIsCut(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, Options{Scenario: "throughput", Binary: os.Args[0]}, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Noisy(ctx, NoisyOptions{Scenarios: []string{ScenarioHang}, Binary: os.Args[0]}, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	o := Options{EventBytes: 1024, EventsPerRequest: 1023}
	require.NoError(t, o.Validate())
	o.EventsPerRequest++
	require.ErrorContains(t, o.Validate(), "1048576 bytes at most")
}

func TestReport(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	at := func(seconds float64) int64 { return start.UnixNano() + int64(seconds*1e9) }
	recorded := start.Add(4 * time.Second)
	loaded := loadReport{
		published: 1000, rejected: 2, firstError: errors.New("response 503"), from: start, to: start.Add(2 * time.Second),
	}
	before := snapshot{
		cpu:     map[string]float64{"service": 1, "postgres": 1, machineBusy: 10, "idle": 0},
		written: written{wal: 1000, tables: 500},
	}
	after := snapshot{
		cpu:        map[string]float64{"service": 3, "postgres": 2, machineBusy: 14, "idle": 1},
		written:    written{wal: 4_001_000, tables: 1_000_500},
		deliveries: deliveries{delivered: 1000, lastEndedAt: &recorded}, sink: receiverStats{LastAt: at(3)},
	}
	f := Figures{CPUSeconds: used(before.cpu, after.cpu)}
	f.addPublish(loaded)
	f.addDeliveries(before, after, start)
	f.addCost(before, after, 1000)
	require.Equal(t, 500.0, f.AcceptedPerSecond)
	require.Equal(t, 250.0, f.DeliveredPerSecond, "until the last delivery is recorded, not only received")
	require.Equal(t, []float64{1000, 4000}, []float64{f.TableBytesPerDelivery, f.WALBytesPerDelivery})
	require.Equal(t, map[string]float64{"service": 20, "postgres": 10}, f.CPUSecondsPer10k)
	require.Equal(t, 1.0, f.CPUSeconds["others"])

	report := newReport(Options{Scenario: "failing"})
	report.addLoad(loaded)
	report.addVerdict(Verdict{Received: 1001, Duplicates: 1})
	first := phase{figures: f, sent: span{start, start.Add(2 * time.Second)}}
	last := phase{figures: f, duringPublish: true, sent: span{start.Add(4 * time.Second), start.Add(5 * time.Second)}}
	report.addPhases([]phase{first, last}, []arrival{
		{SentAt: at(1), At: at(1.5), Acknowledged: true},
		{SentAt: at(1), At: at(1.5)},
		{SentAt: at(4), At: at(4.25), Acknowledged: true},
		{SentAt: at(4.5), At: at(9), Acknowledged: true},
	})
	require.Equal(t, []float64{500, 500}, []float64{report.Phases[0].LatencyMs.P50, report.Phases[0].LatencyMs.Max},
		"of what was acknowledged")
	require.Equal(t, 1.0, report.DeliveredPerSecond, "while events were published; the report's figures are the last")
	require.Equal(t, 4500.0, report.LatencyMs.Max, "whenever it arrived")
	require.Equal(t, &Cost{Accepted: 1, Delivered: 0.004, LatencyP99: 9, ServiceCPU: 1, PostgresCPU: 1}, report.Cost)
	require.NoError(t, report.Err(), "a duplicate is allowed: at least once")
	require.Contains(t, report.String(), "first: response 503")
	for name, broken := range map[string]func(*Report){
		"1 lost":                               func(r *Report) { r.Lost = 1 },
		"2 changed":                            func(r *Report) { r.Changed = 2 },
		"3 not delivered":                      func(r *Report) { r.Left = 3 },
		"9 dead-lettered, dropped or canceled": func(r *Report) { r.Ended, r.DeadLettered = 4, 5 },
		"6 without a delivery":                 func(r *Report) { r.Unaccounted = 6 },
	} {
		bad := report
		broken(&bad)
		require.ErrorContains(t, bad.Err(), name)
	}
}

func TestReportOfNothingDelivered(t *testing.T) {
	t.Parallel()
	var f Figures
	f.addPublish(loadReport{published: 1, from: time.Now(), to: time.Now().Add(time.Second)})
	f.addDeliveries(snapshot{}, snapshot{}, time.Now())
	f.addCost(snapshot{}, snapshot{}, 0)
	report := newReport(Options{Scenario: "backlog"})
	report.addPhases([]phase{{figures: f}, {figures: f}}, nil)
	report.addVerdict(Verdict{Lost: []string{"a"}})
	require.Zero(t, report.DeliveredPerSecond)
	require.Equal(t, []string{"a"}, report.LostIDs)
	require.Error(t, report.Err())
	require.NotContains(t, report.String(), "NaN")
}

func TestParallel(t *testing.T) {
	t.Parallel()
	var calls [100]atomic.Int64
	require.NoError(t, parallel(t.Context(), 7, len(calls), func(_ context.Context, i int) error {
		calls[i].Add(1)
		return nil
	}))
	for i := range calls {
		require.EqualValues(t, 1, calls[i].Load(), i)
	}
	require.NoError(t, parallel(t.Context(), 7, 0, nil))
	begun := 0
	err := parallel(t.Context(), 1, 10, func(ctx context.Context, i int) error {
		begun++
		if i == 3 {
			return io.ErrUnexpectedEOF
		}
		return ctx.Err()
	})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.LessOrEqual(t, begun, 5, "the others end at once")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, parallel(ctx, 2, 10, nil), context.Canceled)
}
