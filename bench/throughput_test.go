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

// TestThroughput runs the real binary for a second, with two event subscriptions: everything that was accepted must arrive at
// both. How fast is not asked here.
func TestThroughput(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary, err := build()
	require.NoError(t, err)
	var log bytes.Buffer
	report, err := Throughput(t.Context(), ThroughputOptions{Binary: binary, Duration: time.Second, Clients: 8, Rate: 300, Subscriptions: 2}, &log)
	require.NoError(t, err, log.String())
	require.NoError(t, report.Err())
	require.Positive(t, report.Published)
	require.Equal(t, 2*report.Published, report.Delivered)
	require.Equal(t, report.Delivered, report.Received)
	require.Zero(t, report.Duplicates+report.Changed+report.Unacknowledged)
	require.Zero(t, report.Refused+report.Failed, report.FirstError)
	require.Equal(t, Settings{Version: report.Settings.Version, Fsync: "on", SynchronousCommit: "on", FullPageWrites: "on"}, report.Settings)
	require.NotEmpty(t, report.Settings.Version)
	require.Positive(t, report.PublishedPerSecond)
	require.GreaterOrEqual(t, report.DeliverSeconds, 0.9, "an open loop of a second")
	require.Positive(t, report.DeliveryLatency.P50)
	require.Contains(t, report.Command, "bench throughput --duration 1s --clients 8")
}

// TestThroughputOnAGivenDatabase leaves a database that is the user's without a topic of its own, and with its events.
func TestThroughputOnAGivenDatabase(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and runs the whole program")
	}
	binary, err := build()
	require.NoError(t, err)
	database, err := pgdev.Start(t.Context(), pgdev.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Stop(context.Background())) })
	report, err := Throughput(t.Context(), ThroughputOptions{
		Binary: binary, Duration: time.Second, Clients: 2, Rate: 100, DatabaseURL: database.URL("postgres"),
	}, io.Discard)
	require.NoError(t, err)
	require.NoError(t, report.Err())
	require.Equal(t, "off", report.Settings.Fsync, "as this database has it: the report does not pretend")
	require.NotContains(t, report.CPUSeconds, "postgres", "nobody knows where it runs")
	conn, err := pgx.Connect(t.Context(), database.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var topics, events int64
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM postrider.topics), (SELECT count(*) FROM postrider.events)").Scan(&topics, &events))
	require.Zero(t, topics)
	require.Equal(t, report.Published, events)
}

func TestThroughputWithoutAService(t *testing.T) {
	t.Parallel()
	// The test binary plays a postrider whose serve fails, behind a script that notes what it was called with.
	dir := t.TempDir()
	script, calls := filepath.Join(dir, "postrider"), filepath.Join(dir, "calls")
	text := "#!/bin/sh\necho \"$@\" >> '" + calls + "'\n" + roleVariable + "='broken serve' exec '" + os.Args[0] + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(script, []byte(text), 0o700))
	_, err := Throughput(t.Context(), ThroughputOptions{Binary: script}, io.Discard)
	require.ErrorContains(t, err, "service ended: exit status 1")
	require.ErrorContains(t, err, "port trouble")
	noted, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Regexp(t, `^migrate up\nserve --listen 127.0.0.1:0 --allow-cidr 127.0.0.0/8 --ready-file \S+\n$`, string(noted))
	words := strings.Fields(string(noted))
	require.NoDirExists(t, filepath.Dir(words[len(words)-1]), "the run's folder is gone")
}

func TestThroughputIsCut(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Throughput(ctx, ThroughputOptions{Binary: os.Args[0]}, io.Discard)
	require.ErrorIs(t, err, context.Canceled)
}

func TestThroughputOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]ThroughputOptions{
		"no binary":              {},
		"too short":              {Binary: "b", Duration: time.Millisecond},
		"negative duration":      {Binary: "b", Duration: -time.Minute},
		"negative clients":       {Binary: "b", Clients: -1},
		"negative subscriptions": {Binary: "b", Subscriptions: -1},
		"negative rate":          {Binary: "b", Rate: -1},
	} {
		_, err := Throughput(t.Context(), o, io.Discard)
		require.ErrorContains(t, err, "throughput:", name)
	}
	o := ThroughputOptions{Binary: "b", Command: "as typed"}
	require.NoError(t, o.prepare())
	require.Equal(t, ThroughputOptions{
		Binary: "b", Duration: 30 * time.Second, Clients: defaultClients, EventBytes: 1024, Subscriptions: 1, Command: "as typed",
	}, o)
}

func TestReport(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	recorded := start.Add(4 * time.Second)
	var report ThroughputReport
	report.fill(
		LoadReport{Published: 1000, Refused: 2, FirstError: errors.New("answered 503"), StartedAt: start, EndedAt: start.Add(2 * time.Second)},
		SinkStats{LastAt: start.Add(3 * time.Second).UnixNano()},
		rows{Delivered: 1000, LastDeliveredAt: &recorded},
	)
	report.judge(Verdict{Received: 1001, Duplicates: 1})
	require.InDelta(t, 500, report.PublishedPerSecond, 0)
	require.InDelta(t, 250, report.DeliveredPerSecond, 0, "until the last delivery is recorded, not only received")
	require.NoError(t, report.Err(), "a duplicate is allowed: at least once")
	require.Contains(t, report.String(), "first: answered 503")
	for name, broken := range map[string]func(*ThroughputReport){
		"1 lost":               func(r *ThroughputReport) { r.Lost = 1 },
		"2 changed on the way": func(r *ThroughputReport) { r.Changed = 2 },
		"3 left undelivered":   func(r *ThroughputReport) { r.Left = 3 },
		"4 given up":           func(r *ThroughputReport) { r.Ended = 4 },
	} {
		bad := report
		broken(&bad)
		require.ErrorContains(t, bad.Err(), name)
	}
	text, err := json.Marshal(report)
	require.NoError(t, err)
	for _, name := range []string{"published", "deliveredPerSecond", "lost", "left", "fsync", "synchronousCommit", "fullPageWrites", "cpus", "p99Ms", "command"} {
		require.Contains(t, string(text), `"`+name+`":`)
	}
}

func TestReportOfNothingDelivered(t *testing.T) {
	t.Parallel()
	var report ThroughputReport
	report.fill(LoadReport{Published: 1, StartedAt: time.Now(), EndedAt: time.Now().Add(time.Second)}, SinkStats{}, rows{Left: 1})
	report.judge(Verdict{Lost: []string{"a"}})
	require.Zero(t, report.DeliveredPerSecond)
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
