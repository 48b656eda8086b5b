package publish_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/policy"
)

// rejects has PostgreSQL reject rows of a table with a SQLSTATE and a message.
func rejects(t *testing.T, tn *testnode.Node, table, state, message string) {
	t.Helper()
	tn.Exec(t, `CREATE FUNCTION public.rejects() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION USING ERRCODE = '`+state+`', MESSAGE = '`+message+`'; END $$`)
	tn.Exec(t, "CREATE TRIGGER rejects BEFORE INSERT ON postrider_internal."+table+
		" FOR EACH STATEMENT EXECUTE FUNCTION public.rejects()")
}

func stopRejecting(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Exec(t, "DROP FUNCTION public.rejects CASCADE")
}

func fails(t *testing.T, tn *testnode.Node, want string) {
	t.Helper()
	testnode.Within(t, `tn.System.Commits.Failing() == want`, func() bool { return tn.System.Commits.Failing() == want })
}

// Without a further publish, a test write shows that events can be stored again; it leaves nothing.
func TestFailedPublishCommitIsReportedUntilEventsCanBeStored(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	require.Empty(t, tn.System.Commits.Failing())
	rejects(t, tn, "events", "25006", "cannot execute INSERT in a read-only transaction")
	require.Error(t, testnode.ErrorOf(tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", "e", 1))))
	const reason = "events cannot be stored: cannot execute INSERT in a read-only transaction (SQLSTATE 25006)"
	require.Equal(t, reason, tn.System.Commits.Failing())
	require.ErrorContains(t, postgres.TestWrite(t.Context(), tn.Pool), "read-only")
	require.Equal(t, reason, tn.System.Commits.Failing())
	stopRejecting(t, tn)
	fails(t, tn, "")
	require.Zero(t, tn.Events(t, ""))
}

// The reason is for any client: it has no values and no addresses.
func TestCommitReasons(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	rejects(t, tn, "events", "P0001", "the secret of orders")
	require.Error(t, testnode.ErrorOf(tn.System.Publisher.Publish(t.Context(), testnode.Publication("orders", "e", 1))))
	require.Equal(t, "events cannot be stored: SQLSTATE P0001", tn.System.Commits.Failing())
	require.Equal(t, "PostgreSQL did not respond in time", postgres.CommitReason(context.DeadlineExceeded))
	require.Equal(t, "the connection to PostgreSQL failed", postgres.CommitReason(postgres.ErrUnavailable))
}

// The recorder repeats until the results are recorded.
func TestFailedCommitOfResultsIsReported(t *testing.T) {
	t.Parallel()
	tn, sub := testnode.Orders(t)
	d, j := tn.Started(t, "orders", "e", 1)
	rejects(t, tn, "delivery_attempts", "25006", "cannot execute INSERT in a read-only transaction")
	recorded := make(chan error)
	go func() {
		recorded <- tn.System.Recorder.Record(context.Background(),
			testnode.Result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered}))
	}()
	fails(t, tn, "results of attempts cannot be recorded: cannot execute INSERT in a read-only transaction "+
		"(SQLSTATE 25006)")
	stopRejecting(t, tn)
	require.NoError(t, <-recorded)
	fails(t, tn, "")
}
