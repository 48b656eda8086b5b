package node_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/node"
	"postrider/internal/pgdev"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
	"postrider/jobs"
)

// endpoint responds to each path with its status, and not to /hang. It returns its URL, the paths that were called, and
// those whose request was cut.
func endpoint(t *testing.T) (url string, called, cut chan string) {
	t.Helper()
	called, cut = make(chan string, 10_000), make(chan string, 1000) // for more requests than any test causes
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client is gone
		called <- r.URL.Path
		switch r.URL.Path {
		case "/hang":
			<-r.Context().Done()
			cut <- r.URL.Path
		case "/wait":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/fail":
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.WriteHeader(http.StatusOK)
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL, called, cut
}

func received(t *testing.T, from chan string) string {
	t.Helper()
	select {
	case path := <-from:
		return path
	case <-time.After(testnode.Timeout):
		require.FailNow(t, "it did not happen")
		return ""
	}
}

// subscribeTo creates an event subscription for the endpoint.
func subscribeTo(t *testing.T, tn *testnode.Node, topic, name, url string) *catalog.Subscription {
	t.Helper()
	return tn.Subscribe(t, topic, name, func(s *catalog.SubscriptionSpec) { s.EndpointURL = url })
}

// A reset leaves no event, no request and nothing that a node remembers of them. The configuration is that of before.
func TestReset(t *testing.T) {
	t.Parallel()
	tn := testnode.New(t)
	url, called, cut := endpoint(t)
	tn.Topic(t, "orders")
	kept := subscribeTo(t, tn, "orders", "ok", url+"/ok")
	wait := subscribeTo(t, tn, "orders", "wait", url+"/wait")
	state, err := tn.System.KeepState(t.Context())
	require.NoError(t, err)
	engine := tn.Start(t)

	var attempts []jobs.AttemptReport
	for round := range 3 { // each as after the first start
		hang := subscribeTo(t, tn, "orders", "hang", url+"/hang")
		subscribeTo(t, tn, "orders", "fail", url+"/fail")
		tn.Topic(t, "later")
		subscribeTo(t, tn, "later", "ok", url+"/ok")
		tn.Publish(t, "orders", "e", 1)
		require.ElementsMatch(t, []string{"/fail", "/hang", "/ok", "/wait"},
			[]string{received(t, called), received(t, called), received(t, called), received(t, called)}, round)
		for range 3 {
			attempts = append(attempts, tn.Attempt(t))
		}
		require.False(t, slices.ContainsFunc(attempts, func(r jobs.AttemptReport) bool { return r.Subscription == "hang" }))
		tn.Become(t, 1, "SELECT count(*) FROM postrider.dead_letters")
		_, err := tn.System.Holds.Pause(t.Context(), "orders", "ok", nil)
		require.NoError(t, err)
		tn.Publish(t, "orders", "held", 1)
		require.ElementsMatch(t, []string{"/hang", "/fail"}, []string{received(t, called), received(t, called)})

		require.NoError(t, state.Reset(t.Context(), engine))
		require.Equal(t, []string{"/hang", "/hang"}, []string{received(t, cut), received(t, cut)})
		for _, table := range strings.Fields("river_job events deliveries delivery_history delivery_attempts dead_letters " +
			"rollup_deltas rollups backlog_counts problems probations delivery_rates") {
			require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal."+table), table)
		}
		snapshot := tn.System.Cache.Snapshot()
		_, known := snapshot.Subscription(hang.ID)
		require.False(t, known)
		_, known = snapshot.Topic("later")
		require.False(t, known)
		require.Equal(t, []int64{kept.ID, wait.ID}, []int64{
			named(t, snapshot, "ok").ID, named(t, snapshot, "wait").ID,
		})
		require.Empty(t, tn.System.Traffic.LatestTraffic().Holds)
		require.False(t, tn.System.Gate.Knows(wait.ID))
		drain(tn.Attempts)

		tn.Publish(t, "orders", "next", 1) // no endpoint is closed, nothing is paused
		require.ElementsMatch(t, []string{"/ok", "/wait"}, []string{received(t, called), received(t, called)})
		reports := []jobs.AttemptReport{tn.Attempt(t), tn.Attempt(t)}
		for _, r := range reports {
			require.Equal(t, []any{"next-0", 1}, []any{r.EventID, r.Number})
		}
		attempts = nil
		require.NoError(t, state.Reset(t.Context(), engine))
		require.Empty(t, called)
	}
}

func named(t *testing.T, snapshot *catalog.Snapshot, name string) *catalog.Subscription {
	t.Helper()
	topic, known := snapshot.Topic("orders")
	require.True(t, known)
	sub, known := snapshot.SubscriptionNamed(topic.ID, name)
	require.True(t, known)
	return sub
}

func drain(attempts chan jobs.AttemptReport) {
	for len(attempts) > 0 {
		<-attempts
	}
}

// A reset while events are published and delivered: the invariants of deliveries hold afterwards, which New requires.
func TestResetWhileDelivering(t *testing.T) {
	t.Parallel()
	tn := testnode.New(t)
	url, _, _ := endpoint(t)
	tn.Topic(t, "orders")
	subscribeTo(t, tn, "orders", "ok", url+"/ok")
	tn.Subscribe(t, "orders", "batches", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.MaxEventsPerBatch = url+"/ok", new(10)
	})
	subscribeTo(t, tn, "orders", "fail", url+"/fail")
	state, err := tn.System.KeepState(t.Context())
	require.NoError(t, err)
	engine := tn.Start(t)
	for range 10 {
		tn.Publish(t, "orders", "e", 200)
		require.NoError(t, state.Reset(t.Context(), engine))
	}
	tn.Publish(t, "orders", "last", 50)
	tn.Become(t, 100, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND subscription <> 'fail'")
	tn.Become(t, 50, "SELECT count(*) FROM postrider.dead_letters")
	require.Equal(t, 50, tn.Rows(t, "events", ""))
}

// A transaction in progress ends before a reset: no row of it is left.
func TestResetWaitsForTransactions(t *testing.T) {
	t.Parallel()
	tn := testnode.New(t)
	state, err := tn.System.KeepState(t.Context())
	require.NoError(t, err)
	engine := tn.Start(t)
	tx, err := tn.Pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, "+
		"left_after) VALUES (1, 1, now(), 0)")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- state.Reset(t.Context(), engine) }()
	testnode.Within(t, "the reset waits for the lock", func() bool {
		require.Empty(t, done, "it does not wait")
		return tn.Count(t, "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'ExclusiveLock' AND relation = "+
			"'postrider_internal.left_members'::regclass") == 1
	})
	other := *state
	other.LockTime = 0
	require.ErrorIs(t, other.Reset(t.Context(), engine), postgres.ErrLocked)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-done)
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.left_members"))
}

// Each table is in one of the lists, or restored: a new table needs a decision.
func TestTablesOfAReset(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	names := map[pgdev.Fate][]string{}
	rows, err := tn.Pool.Query(t.Context(), pgdev.TablesQuery())
	require.NoError(t, err)
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name, nil, nil))
		fate := node.ResetFate(name)
		names[fate] = append(names[fate], name)
	}
	require.NoError(t, rows.Err())
	require.ElementsMatch(t, node.ResetUntouched, names[pgdev.Untouched])
	require.ElementsMatch(t, node.ResetEmptied, names[pgdev.Emptied])
	require.ElementsMatch(t, strings.Fields("retry_policies retry_policy_cells topics event_subscriptions "+
		"event_subscription_states notice_pass problem_pass audit handshakes handshake_steps"), names[pgdev.Restored])
}
