package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"postrider/jobs/queue"
)

// recording is an executor that records the jobs it was to finish.
type recording struct {
	riverdriver.Executor
	params []*riverdriver.JobSetStateIfRunningManyParams
}

func (r *recording) JobSetStateIfRunningMany(
	_ context.Context, p *riverdriver.JobSetStateIfRunningManyParams,
) ([]*rivertype.JobRow, error) {
	r.params = append(r.params, p)
	return make([]*rivertype.JobRow, len(p.ID)), nil
}

func finishing(ids ...int64) *riverdriver.JobSetStateIfRunningManyParams {
	p := &riverdriver.JobSetStateIfRunningManyParams{ID: ids, Schema: "s"}
	for _, id := range ids {
		attempt := int(id)
		p.Attempt, p.ErrData, p.FinalizedAt = append(p.Attempt, &attempt), append(p.ErrData, []byte{byte(id)}),
			append(p.FinalizedAt, nil)
		p.MetadataDoMerge, p.MetadataUpdates = append(p.MetadataDoMerge, id%2 == 0), append(p.MetadataUpdates,
			[]byte{byte(id)})
		p.ScheduledAt, p.State = append(p.ScheduledAt, nil), append(p.State, rivertype.JobStateCompleted)
	}
	return p
}

// A completed job has no row any more.
func TestRiverFinishesNoJob(t *testing.T) {
	t.Parallel()
	under := &recording{}
	e := executor{Executor: under, runs: &runs{}}
	rows, err := e.JobSetStateIfRunningMany(t.Context(), finishing(1, 2, 3))
	require.NoError(t, err)
	require.Empty(t, rows)
	require.Empty(t, under.params)
}

// A job whose row is still there runs again, in whatever state River leaves it.
func TestJobsInOtherStatesRunAgain(t *testing.T) {
	t.Parallel()
	p := finishing(1, 2, 3, 4, 5, 6)
	p.State = []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStateCompleted, rivertype.JobStateScheduled, rivertype.JobStateRetryable,
		rivertype.JobStateCancelled, rivertype.JobStateDiscarded,
	}
	p.Attempt[3] = nil // the attempt began
	p.ScheduledAt[2] = new(time.Now().Add(time.Hour))
	require.Equal(t, []queue.Deferred{
		{Job: 1, After: time.Second},
		{Job: 3, After: time.Minute},
		{Job: 4, Begun: true, After: time.Second},
		{Job: 5, After: time.Second},
		{Job: 6, After: time.Second},
	}, deferred(p))
}

// flood is a database that sends notifications until none is left.
type flood struct {
	riverdriver.Listener
	topics        []string
	notifications []*riverdriver.Notification
	read          chan struct{} // closed when all were read
}

func (f *flood) Listen(_ context.Context, topic string) error {
	f.topics = append(f.topics, topic)
	return nil
}

func (f *flood) Unlisten(context.Context, string) error { return nil }

func (f *flood) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	if len(f.notifications) == 0 {
		close(f.read)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n := f.notifications[0]
	f.notifications = f.notifications[1:]
	return n, nil
}

func newFlood(n int, topic string, payloads ...string) *flood {
	f := &flood{read: make(chan struct{})}
	for range n {
		for _, payload := range payloads {
			f.notifications = append(f.notifications, &riverdriver.Notification{Topic: topic, Payload: payload})
		}
	}
	return f
}

// received lets a listener read all notifications, and returns what River receives of them.
func received(t *testing.T, f *flood) (payloads []string) {
	t.Helper()
	w := queue.NewWake()
	l := &listener{Listener: f, wake: w}
	l.read()
	<-f.read
	for len(w.Requested()) > 0 {
		n, err := l.WaitForNotification(t.Context())
		require.NoError(t, err)
		require.Equal(t, insertTopic, n.Topic)
		payloads = append(payloads, n.Payload)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := l.WaitForNotification(ended)
	require.ErrorIs(t, err, context.Canceled)
	return payloads
}

func TestNodesListenOnlyToWakeUps(t *testing.T) {
	t.Parallel()
	f := &flood{}
	l := &listener{Listener: f}
	for _, topic := range []string{"river_control", "river_leadership", insertTopic} {
		require.NoError(t, l.Listen(t.Context(), topic))
		require.NoError(t, l.Unlisten(t.Context(), topic))
	}
	require.Equal(t, []string{insertTopic}, f.topics)
}

func TestFloodOfWakeUpsIsOneForEachQueue(t *testing.T) {
	t.Parallel()
	payloads := received(t, newFlood(10_000, insertTopic, wakePayload(queue.DeliverQueue), wakePayload(queue.RouteQueue)))
	require.ElementsMatch(t, []string{wakePayload(queue.DeliverQueue), wakePayload(queue.RouteQueue)}, payloads)
}

func TestOtherNotificationsAreIgnored(t *testing.T) {
	t.Parallel()
	for topic, payload := range map[string]string{
		"river_control": `{"action":"pause","queue":"*"}`, "river_leadership": `{"action":"request_resign"}`,
		insertTopic: `{"queue":"deliveries","n":1}`, "": "\x01",
	} {
		require.Empty(t, received(t, newFlood(100, topic, payload)), payload)
	}
}

// The log has the error of a job once, except of one that is to run later.
func TestErrorsOfJobsAreLogged(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]string{
		fmt.Errorf("load: %w", &pgconn.PgError{Code: "22P05", Message: "planted"}): "22P05",
		fmt.Errorf("make a step: %w", context.Canceled):                            "DEBUG",
		errors.New("planted"): "planted",
		errPanic:              "",
		river.JobSnooze(1):    "",
	} {
		var log bytes.Buffer
		m := &joberrors{log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		err := m.Work(t.Context(), &rivertype.JobRow{ID: 7}, func(context.Context) error { return cause })
		require.Equal(t, cause, err)
		require.Contains(t, log.String(), want)
		require.Equal(t, want == "", log.Len() == 0)
	}
}

// The log has the text and the stack of a panic.
func TestPanicsAreLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := &joberrors{log: slog.New(slog.NewJSONHandler(&log, nil))}
	err := m.Work(t.Context(), &rivertype.JobRow{ID: 7, Kind: "deliver"}, func(context.Context) error {
		panic("planted")
	})
	require.ErrorIs(t, err, errPanic)
	var line map[string]any
	require.NoError(t, json.Unmarshal(log.Bytes(), &line))
	require.Equal(t, "ERROR", line["level"])
	require.Equal(t, "planted", line["error"])
	require.Contains(t, line["stack"], "river_internal_test.go")
}
