package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/policy"
)

// rejects has PostgreSQL reject rows of a table with a SQLSTATE and a message.
func (b *bundle) rejects(t *testing.T, table, state, message string) {
	t.Helper()
	b.exec(t, `CREATE FUNCTION public.rejects() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION USING ERRCODE = '`+state+`', MESSAGE = '`+message+`'; END $$`)
	b.exec(t, "CREATE TRIGGER rejects BEFORE INSERT ON postrider_internal."+table+
		" FOR EACH STATEMENT EXECUTE FUNCTION public.rejects()")
}

func (b *bundle) acceptsAgain(t *testing.T) {
	t.Helper()
	b.exec(t, "DROP FUNCTION public.rejects CASCADE")
}

func (b *bundle) fails(t *testing.T, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return b.store.Commits.Failing() == want }, 20*time.Second, 10*time.Millisecond)
}

// Without a further publish, a test write shows that events can be stored again; it leaves nothing.
func TestFailedPublishCommitIsReportedUntilEventsCanBeStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	require.Empty(t, b.store.Commits.Failing())
	b.rejects(t, "events", "25006", "cannot execute INSERT in a read-only transaction")
	_, err := b.store.Publisher.Publish(t.Context(), publication("orders", "e", 1))
	require.Error(t, err)
	const reason = "events cannot be stored: cannot execute INSERT in a read-only transaction (SQLSTATE 25006)"
	require.Equal(t, reason, b.store.Commits.Failing())
	require.ErrorContains(t, postgres.TestWrite(t.Context(), b.pool), "read-only")
	require.Equal(t, reason, b.store.Commits.Failing())
	b.acceptsAgain(t)
	b.fails(t, "")
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.events"))
}

// The reason is for any client: it has no values and no addresses.
func TestCommitReasons(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	b.rejects(t, "events", "P0001", "the secret of orders")
	_, err := b.store.Publisher.Publish(t.Context(), publication("orders", "e", 1))
	require.Error(t, err)
	require.Equal(t, "events cannot be stored: SQLSTATE P0001", b.store.Commits.Failing())
	require.Equal(t, "PostgreSQL did not respond in time", postgres.CommitReason(context.DeadlineExceeded))
	require.Equal(t, "the connection to PostgreSQL failed", postgres.CommitReason(postgres.ErrUnavailable))
}

// The recorder repeats until the results are recorded.
func TestFailedCommitOfResultsIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic(t, "orders")
	sub := b.subscription(t, "orders", "all", nil)
	b.publish(t, "orders", "e", 1)
	d, j := b.fetched(t, "node-1")
	b.rejects(t, "delivery_attempts", "25006", "cannot execute INSERT in a read-only transaction")
	recorded := make(chan error)
	go func() {
		recorded <- b.store.Recorder.Record(context.Background(),
			result(d[0], j[0], sub, policy.Verdict{Action: policy.Delivered}))
	}()
	b.fails(t, "results of attempts cannot be recorded: cannot execute INSERT in a read-only transaction (SQLSTATE 25006)")
	b.acceptsAgain(t)
	require.NoError(t, <-recorded)
	b.fails(t, "")
}
