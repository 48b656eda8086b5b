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
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/jobs/endpoint"
)

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
	require.Contains(t, line["stack"], "joberrors_internal_test.go")
}
