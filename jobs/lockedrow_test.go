package jobs_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"postrider/internal/testnode"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// lockedFor is how long these tests lock a row: longer than any lock_timeout (2 s, and 0.5 s in the recorder) and than
// many retries of a blocked result (0.25 s each).
func lockedFor() time.Duration {
	if *faults {
		return time.Minute
	}
	return 4 * time.Second
}

// whileLocked locks a row in another session, as a user of psql would, and publishes: each event must reach the
// endpoint "other" at once. begin is called once the row is locked.
func whileLocked(t *testing.T, tn *testnode.Node, begin func(), lock string, args ...any) {
	t.Helper()
	user, err := pgx.Connect(t.Context(), tn.URL)
	require.NoError(t, err)
	defer func() { _ = user.Close(context.WithoutCancel(t.Context())) }()
	tx, err := user.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = 0")
	require.NoError(t, err)
	locked, err := tx.Exec(t.Context(), lock, args...)
	require.NoError(t, err)
	require.EqualValues(t, 1, locked.RowsAffected())
	begin()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	last := time.Now().Add(lockedFor())
	for i := 0; time.Now().Before(last); i++ {
		id := fmt.Sprint("meanwhile-", i)
		publishOne(t, tn, id)
		for report := tn.Attempt(t); report.Subscription != "other" || report.EventID != id; {
			report = tn.Attempt(t)
		}
		<-pace.C
	}
	require.NoError(t, tx.Commit(t.Context()), "the row was locked throughout")
}

func TestLockedJobRowDelaysOnlyItsDelivery(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	arrived, respond := make(chan struct{}), make(chan struct{})
	var first sync.Once
	slow := newEndpoint(t, func(w http.ResponseWriter, _ request) {
		first.Do(func() { close(arrived); <-respond })
		w.WriteHeader(http.StatusOK)
	})
	fine := newEndpoint(t, respondWith(http.StatusOK))
	sub := subscribe(t, tn, "slow", slow.URL, nil)
	subscribe(t, tn, "other", fine.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "locked")
	await(t, arrived)
	require.Equal(t, "other", tn.Attempt(t).Subscription)

	whileLocked(t, tn, func() { close(respond) },
		"SELECT FROM postrider_internal.river_job WHERE (args ->> 's')::bigint = $1 FOR UPDATE", sub.ID)

	tn.BecomeRows(t, 0, "deliveries", "state = 'pending'")
}

func TestLockedProbationRowDelaysOnlyItsEndpoint(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	bad := newEndpoint(t, respondWith(http.StatusInternalServerError))
	fine := newEndpoint(t, respondWith(http.StatusOK))
	copyPolicy(t, tn, "ga-2021", "touchy", `{"probation_trigger":3}`)
	subscribe(t, tn, "bad", bad.URL, under("touchy"))
	subscribe(t, tn, "other", fine.URL, nil)
	tn.Start(t)
	publishOne(t, tn, "first")
	tn.AttemptsMade(t, 2)
	const failed = "SELECT count(*) FROM postrider.delivery_attempts WHERE subscription = 'bad'"
	require.Equal(t, 1, tn.Count(t, failed))

	whileLocked(t, tn, func() {}, "SELECT FROM postrider_internal.probations FOR UPDATE")

	tn.Become(t, 1, "SELECT least(count(*), 1) FROM postrider_internal.probations WHERE since IS NOT NULL")
	require.Greater(t, tn.Count(t, failed), 1)
}
