package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/jobs/endpoint"
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

func TestRiverFinishesOnlyJobsThatMayExist(t *testing.T) {
	t.Parallel()
	under, ended := &recording{}, queue.NewJobSet()
	e := executor{Executor: under, runs: &runs{ended: ended}}
	for _, id := range []int64{1, 3, 4} {
		ended.Add(id)
	}

	rows, err := e.JobSetStateIfRunningMany(t.Context(), finishing(1, 2, 3, 5))
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, finishing(2, 5), under.params[0], "every column without the jobs that ended")

	_, err = e.JobSetStateIfRunningMany(t.Context(), finishing(1, 3))
	require.NoError(t, err)
	require.Equal(t, finishing(1, 3), under.params[1], "forgotten after one use")

	rows, err = e.JobSetStateIfRunningMany(t.Context(), finishing(4))
	require.NoError(t, err)
	require.Empty(t, rows)
	require.Len(t, under.params, 2, "no statement without jobs")
	require.Zero(t, ended.Len())
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

// The stored error of a failed job has no text of PostgreSQL or Go. Its cause is unchanged.
func TestStoredErrorsOfJobsArePlain(t *testing.T) {
	t.Parallel()
	wrong := &pgconn.PgError{Severity: "ERROR", Code: "22P05", Message: "planted"}
	unreadable := json.Unmarshal([]byte("x"), new(int))
	for want, cause := range map[string]error{
		"the database rejected the data of this job; the log of the node has the cause": fmt.Errorf("%w: %w",
			postgres.ErrPoison, wrong),
		"the database did not run a statement of this job; the log of the node has the cause": fmt.Errorf("load: %w", wrong),
		"the node stopped before the job ended": fmt.Errorf("make a step: %w",
			context.Canceled),
		"the arguments of this job cannot be read; the log of the node has the cause": unreadable,
		"our text": &endpoint.PlainError{Text: "our text"},
		"event subscription: its retry policy does not exist":  fmt.Errorf("event subscription: %w", errNoPolicy),
		"internal error; the log of node node-7 has the cause": errors.New("can't scan into dest[3]: planted"),
	} {
		var log bytes.Buffer
		m := &joberrors{
			log:  slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			node: "node-7",
		}
		err := m.Work(t.Context(), &rivertype.JobRow{ID: 7}, func(context.Context) error { return cause })
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, cause)
		if errors.Is(cause, wrong) {
			require.Contains(t, log.String(), `"sqlstate":"22P05"`)
			require.Contains(t, log.String(), "planted")
		}
	}
	snooze := river.JobSnooze(1)
	m := &joberrors{log: slog.New(slog.DiscardHandler)}
	require.Equal(t, snooze, m.Work(t.Context(), &rivertype.JobRow{}, func(context.Context) error { return snooze }))
	require.NoError(t, m.Work(t.Context(), &rivertype.JobRow{}, func(context.Context) error { return nil }))
}

// River stores no text of a panic. The log has it, with the stack.
func TestStoredErrorOfAPanicIsPlain(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	m := &joberrors{log: slog.New(slog.NewJSONHandler(&log, nil)), node: "node-7"}
	err := m.Work(t.Context(), &rivertype.JobRow{ID: 7, Kind: "deliver"}, func(context.Context) error {
		panic("planted")
	})
	require.EqualError(t, err, "internal error; the log of node node-7 has the cause")
	var line map[string]any
	require.NoError(t, json.Unmarshal(log.Bytes(), &line))
	require.Equal(t, "ERROR", line["level"])
	require.Equal(t, "planted", line["error"])
	require.Contains(t, line["stack"], "river_internal_test.go")
}
