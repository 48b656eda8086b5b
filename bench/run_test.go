package bench

import (
	"bytes"
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

// small is a scenario in a second or two.
func small(t *testing.T, o Options) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary, err := build()
	require.NoError(t, err)
	o.Binary, o.Duration = binary, orDefault(o.Duration, time.Second)
	return o
}

// TestScenarios runs every scenario with the real binary, small and short: everything that was accepted must come to
// the end that it should. How fast is not asked here.
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		o      Options
		phases []string
		ends   int64 // for each event
	}{
		{Options{Scenario: "throughput", Clients: 8, Rate: 300, Subscriptions: 2}, []string{"throughput"}, 2},
		{Options{Scenario: "publish", Clients: 2, EventsPerRequest: 10}, []string{"publishing, delivery paused"}, 1},
		{Options{Scenario: "sql", Clients: 4, Rate: 200}, []string{"sql"}, 1},
		{Options{Scenario: "latency", Clients: 8}, []string{"latency"}, 1},
		{Options{Scenario: "remote", Clients: 8, Rate: 100, AnswerAfter: 20 * time.Millisecond}, []string{"remote"}, 1},
		{Options{Scenario: "fanout", Clients: 8, Rate: 50}, []string{"fanout"}, 10},
		{Options{Scenario: "failing", Clients: 8, Rate: 50, FailurePercent: 10}, []string{"0 % failing", "10 % failing"}, 1},
		{Options{Scenario: "deadletters", Clients: 8, Rate: 100}, []string{"dead letters"}, 1},
		{
			Options{Scenario: "batched", Clients: 2, EventsPerRequest: 10, EventsPerBatch: 20},
			[]string{"publishing, delivery paused", "delivering what was paused", "publishing and delivering"},
			1,
		},
		{
			Options{Scenario: "retention", Clients: 8, Rate: 100, Days: 3}, []string{"keeping everything", "removing 3 days"}, 1,
		},
		{Options{Scenario: "backlog", Clients: 8, Rate: 100, Waiting: 2500}, []string{"alone", "beside 2500 paused"}, 1},
		{
			Options{Scenario: "backlog", Clients: 8, Rate: 100, Waiting: 2500, Waits: WaitScheduled},
			[]string{"alone", "beside 2500 scheduled"},
			1,
		},
	} {
		t.Run(tc.o.Scenario+tc.o.Waits, func(t *testing.T) {
			t.Parallel()
			o, log := small(t, tc.o), &bytes.Buffer{}
			o.NoCeilings = true
			report, err := Run(t.Context(), o, log)
			require.NoError(t, err, log.String())
			require.NoError(t, report.Err(), log.String())
			require.Equal(t, tc.phases, phaseNames(report))
			require.Positive(t, report.Published)
			require.Equal(t, tc.ends*report.Published, report.Delivered+report.DeadLettered)
			require.Equal(t, tc.o.Scenario == "deadletters", report.DeadLettered > 0)
			require.Equal(t, tc.ends*report.Published, report.Received)
			require.Zero(t, report.Duplicates+report.Changed+report.Unacknowledged)
			require.Zero(t, report.Refused+report.Failed, report.FirstError)
			require.EqualValues(t, tc.o.Waiting, report.Waiting)
			require.Equal(t, len(tc.phases), report.Checkpoints)
			require.Equal(t,
				Settings{Version: report.Settings.Version, Fsync: "on", SynchronousCommit: "on", FullPageWrites: "on"},
				report.Settings)
			require.Nil(t, report.Ceilings)
			requireFigures(t, report)
			require.Contains(t, report.Command, "bench "+tc.o.Scenario+" --duration 1s --clients ")
		})
	}
}

func phaseNames(r Report) (names []string) {
	for _, f := range r.Phases {
		names = append(names, f.Phase)
	}
	return names
}

// requireFigures checks that every phase says what it should.
func requireFigures(t *testing.T, r Report) {
	t.Helper()
	require.Equal(t, r.Phases[len(r.Phases)-1], r.Figures)
	for _, f := range r.Phases {
		paused, drained := strings.Contains(f.Phase, "delivery paused"), strings.HasPrefix(f.Phase, "delivering")
		require.Equal(t, !drained, f.AcceptedPerSecond > 0, f.Phase)
		require.Equal(t, !paused, f.DeliveredPerSecond+f.DeadLettersPerSecond > 0, f.Phase)
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

// TestCeilings measures them on a real server, and finds nothing of them in the scenario's own figures.
func TestCeilings(t *testing.T) {
	t.Parallel()
	o := small(t, Options{Scenario: "throughput", Clients: 4, Rate: 100, CeilingTime: 300 * time.Millisecond})
	report, err := Run(t.Context(), o, io.Discard)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.Equal(t, report.Published, report.Received, "the ceilings have a sink of their own")
	require.Positive(t, report.Ceilings.HTTP)
	require.Positive(t, report.Ceilings.RiverPost)
	require.Positive(t, report.Ceilings.Commits)
	require.Positive(t, *report.RatioToRiverPost)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	for _, name := range []string{
		"acceptedPerSecond", "deliveredPerSecond", "latencyMs", "p50", "p95", "p99", "ceilings", "http", "riverPost",
		"commits", "ratioToRiverPost",
		"cpuSecondsPer10k", "service", "postgres", "tableBytesPerDelivery", "walBytesPerDelivery", "rssPeakMB", "lost",
		"duplicates",
		"published", "delivered", "left", "fsync", "synchronousCommit", "fullPageWrites", "cpus", "checkpoints", "command",
	} {
		require.Contains(t, string(text), `"`+name+`":`)
	}
}

// TestRunOnAGivenDatabase leaves a database that is the user's without a topic, a retry policy or a database of its
// own, and with its events.
func TestRunOnAGivenDatabase(t *testing.T) {
	t.Parallel()
	o := small(t, Options{Scenario: "failing", Clients: 2, Rate: 50, CeilingTime: 300 * time.Millisecond})
	database, err := pgdev.Start(t.Context(), pgdev.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Stop(context.Background())) })
	o.DatabaseURL = database.URL("postgres")
	report, err := Run(t.Context(), o, io.Discard)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.Equal(t, "off", report.Settings.Fsync, "as this database has it: the report does not pretend")
	require.NotContains(t, report.CPUSeconds, "postgres", "nobody knows where it runs")
	require.Positive(t, report.Ceilings.RiverPost)
	conn, err := pgx.Connect(t.Context(), database.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var left, events int64
	require.NoError(t,
		conn.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM postrider.topics
		    WHERE topic <> 'postrider.system') + (SELECT count(*) FROM postrider_internal.retry_policies WHERE NOT built_in)
		+ (SELECT count(*) FROM pg_database WHERE datname LIKE 'postrider%'), (SELECT count(*) FROM postrider.events)`).
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
	_, err := Run(t.Context(), Options{Scenario: "throughput", Binary: script, NoCeilings: true}, io.Discard)
	require.ErrorContains(t, err, "service ended: exit status 1")
	require.ErrorContains(t, err, "port trouble")
	noted, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Regexp(t, `^migrate up\nserve --listen 127.0.0.1:0 --allow-cidr 127.0.0.0/8 --ready-file \S+\n$`,
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
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for says, o := range map[string]Options{
		"must be named":                  {},
		"must be 1s or more, not 1ms":    {Binary: "b", Duration: time.Millisecond},
		"must be 1s or more, not -1m0s":  {Binary: "b", Duration: -time.Minute},
		"ceiling must be positive":       {Binary: "b", CeilingTime: -time.Second},
		"all numbers must be positive":   {Binary: "b", Clients: -1},
		"positive":                       {Binary: "b", Subscriptions: -1},
		"numbers must be positive":       {Binary: "b", Rate: -1},
		"must be positive":               {Binary: "b", EventsPerRequest: -1},
		"320 bytes at least, not 10":     {Binary: "b", EventBytes: 10},
		"5000 events at most":            {Binary: "b", EventsPerBatch: 5001},
		"1048576 bytes at most":          {Binary: "b", EventsPerRequest: 1200},
		"can fail, not 100":              {Binary: "b", FailurePercent: 100},
		`paused or scheduled, not "how"`: {Binary: "b", Waits: "how"},
	} {
		o.Scenario = "throughput"
		_, err := Run(t.Context(), o, io.Discard)
		require.ErrorContains(t, err, says)
	}
	_, err := Run(t.Context(), Options{Scenario: "speed", Binary: "b"}, io.Discard)
	require.ErrorContains(t, err, `there is no scenario "speed", only throughput, publish, sql, latency,`)
	for _, name := range Scenarios() {
		o := Options{Scenario: name, Binary: "b"}
		require.NoError(t, o.Prepare())
		require.Equal(t, defaultDuration, o.Duration)
		require.Contains(t, o.Command, "postrider bench "+name+" --duration 30s --clients ")
	}
	o := Options{Scenario: "latency", Binary: "b", Command: "as typed"}
	require.NoError(t, o.Prepare())
	require.Equal(t, Options{
		Scenario: "latency", Binary: "b", Duration: 30 * time.Second, Clients: defaultClients, Rate: 100, EventBytes: 1024,
		Subscriptions:    1,
		EventsPerRequest: 1, EventsPerBatch: 1, Waits: WaitPaused, CeilingTime: 5 * time.Second, Command: "as typed",
	}, o)
}

func TestReport(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	at := func(seconds float64) int64 { return start.UnixNano() + int64(seconds*1e9) }
	recorded := start.Add(4 * time.Second)
	loaded := LoadReport{
		Published: 1000, Refused: 2, FirstError: errors.New("answered 503"), StartedAt: start,
		EndedAt: start.Add(2 * time.Second),
	}
	before := look{
		cpu:    map[string]float64{"service": 1, "postgres": 1, machineBusy: 10, "idle": 0},
		weight: weight{WAL: 1000, Tables: 500},
	}
	after := look{
		cpu: map[string]float64{"service": 3, "postgres": 2, machineBusy: 14, "idle": 1}, weight: weight{
			WAL: 4_001_000, Tables: 1_000_500,
		},
		rows: rows{Delivered: 1000, LastEndedAt: &recorded}, sink: SinkStats{LastAt: at(3)},
	}
	f := Figures{CPUSeconds: used(before.cpu, after.cpu)}
	f.publish(loaded)
	f.deliver(before, after, start)
	f.each(before, after, 1000)
	require.Equal(t, 500.0, f.AcceptedPerSecond)
	require.Equal(t, 250.0, f.DeliveredPerSecond, "until the last delivery is recorded, not only received")
	require.Equal(t, []float64{1000, 4000}, []float64{f.TableBytesPerDelivery, f.WALBytesPerDelivery})
	require.Equal(t, map[string]float64{"service": 20, "postgres": 10}, f.CPUSecondsPer10k)
	require.Equal(t, 1.0, f.CPUSeconds["others"])

	report := newReport(Options{Scenario: "failing"})
	report.add(loaded)
	report.count(rows{Delivered: 1000})
	report.judge(Verdict{Received: 1001, Duplicates: 1})
	report.Ceilings = &Ceilings{HTTP: 9, RiverPost: 500, Commits: 8}
	calm := phase{figures: f, sent: span{start, start.Add(2 * time.Second)}}
	windowed := phase{figures: f, window: true, sent: span{start.Add(4 * time.Second), start.Add(5 * time.Second)}}
	report.conclude([]phase{calm, windowed}, []Arrival{
		{SentAt: at(1), At: at(1.5), Acknowledged: true},
		{SentAt: at(1), At: at(1.5)},
		{SentAt: at(4), At: at(4.25), Acknowledged: true},
		{SentAt: at(4.5), At: at(9), Acknowledged: true},
	})
	require.Equal(t, []float64{500, 500}, []float64{report.Phases[0].LatencyMs.P50, report.Phases[0].LatencyMs.Max},
		"of what was acknowledged")
	require.Equal(t, 1.0, report.DeliveredPerSecond, "in the window alone; at the top it is the last phase's")
	require.Equal(t, 4500.0, report.LatencyMs.Max, "whenever it came")
	require.Equal(t, &Cost{Accepted: 1, Delivered: 0.004, LatencyP99: 9, ServiceCPU: 1, PostgresCPU: 1}, report.Cost)
	require.Equal(t, 0.002, *report.RatioToRiverPost)
	require.NoError(t, report.Err(), "a duplicate is allowed: at least once")
	require.Contains(t, report.String(), "first: answered 503")
	for name, broken := range map[string]func(*Report){
		"1 lost":                           func(r *Report) { r.Lost = 1 },
		"2 changed on the way":             func(r *Report) { r.Changed = 2 },
		"3 left undelivered":               func(r *Report) { r.Left = 3 },
		"9 given up":                       func(r *Report) { r.Ended, r.DeadLettered = 4, 5 },
		"6 of the backlog unaccounted for": func(r *Report) { r.Unaccounted = 6 },
	} {
		bad := report
		broken(&bad)
		require.ErrorContains(t, bad.Err(), name)
	}
	dead := report
	dead.Scenario, dead.DeadLettered = "deadletters", 5
	require.NoError(t, dead.Err())
}

func TestReportOfNothingDelivered(t *testing.T) {
	t.Parallel()
	var f Figures
	f.publish(LoadReport{Published: 1, StartedAt: time.Now(), EndedAt: time.Now().Add(time.Second)})
	f.deliver(look{}, look{}, time.Now())
	f.each(look{}, look{}, 0)
	report := newReport(Options{Scenario: "backlog"})
	report.conclude([]phase{{figures: f}, {figures: f}}, nil)
	report.judge(Verdict{Lost: []string{"a"}})
	require.Zero(t, report.DeliveredPerSecond)
	require.Nil(t, report.RatioToRiverPost)
	require.Equal(t, []string{"a"}, report.LostIDs)
	require.Error(t, report.Err())
	require.NotContains(t, report.String(), "NaN")
}

func TestInParallel(t *testing.T) {
	t.Parallel()
	var calls [100]atomic.Int64
	require.NoError(t, inParallel(t.Context(), 7, len(calls), func(_ context.Context, i int) error {
		calls[i].Add(1)
		return nil
	}))
	for i := range calls {
		require.EqualValues(t, 1, calls[i].Load(), i)
	}
	require.NoError(t, inParallel(t.Context(), 7, 0, nil))
	begun := 0
	err := inParallel(t.Context(), 1, 10, func(ctx context.Context, i int) error {
		begun++
		if i == 3 {
			return io.ErrUnexpectedEOF
		}
		return ctx.Err()
	})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, 4, begun, "none after the first error")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, inParallel(ctx, 2, 10, nil), context.Canceled)
}

func TestProgressLine(t *testing.T) {
	t.Parallel()
	before := sample{after: 5 * time.Second, published: 1000, received: 900}
	now := sample{after: 10 * time.Second, published: 2000, received: 1900}
	require.Equal(t, "  10 s  published 2000 (200/s)  delivered 1900 (200/s)  waiting 2100", now.line(before, 2))
	require.NotContains(t, before.line(before, 1), "NaN")
	require.False(t, isTerminal(&strings.Builder{}))
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, isTerminal(file))
}
