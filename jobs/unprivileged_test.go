package jobs_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/testnode"
	"postrider/jobs"
	"postrider/policy"
)

// unprivileged connects to the database as a role without any grant.
func unprivileged(t *testing.T, tn *testnode.Node) *pgx.Conn {
	t.Helper()
	login, err := url.Parse(tn.URL)
	require.NoError(t, err)
	role := "unprivileged_" + strings.TrimPrefix(login.Path, "/")
	tn.Exec(t, "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" LOGIN PASSWORD 'known'")
	login.User = url.UserPassword(role, "known")
	conn, err := pgx.Connect(t.Context(), login.String())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close(t.Context())
		_, _ = tn.Pool.Exec(t.Context(), "DROP ROLE "+pgx.Identifier{role}.Sanitize())
	})
	return conn
}

func notify(t *testing.T, conn *pgx.Conn, topic, payload string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), "SELECT pg_notify('postrider_internal.' || $1, $2)", topic, payload)
	require.NoError(t, err)
}

// Any login can notify River's channels. Nodes only act on wake-ups: nothing is paused, canceled or stopped.
func TestUnprivilegedNotifications(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	begun, release := make(chan struct{}), make(chan struct{})
	unblock := sync.OnceFunc(func() { close(release) })
	sink := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if r.eventID() == "held" {
			close(begun)
			<-release
		}
		w.WriteHeader(http.StatusOK)
	})
	t.Cleanup(unblock)
	copyPolicy(t, tn, policy.DefaultName, "patient", `{"ackTimeoutInSeconds": 600}`)
	subscribe(t, tn, "all", sink.URL, under("patient"))
	tn.Start(t)
	publishOne(t, tn, "held")
	await(t, begun)
	job := tn.Count(t, "SELECT id FROM postrider_internal.river_job WHERE state = 'running'")

	conn := unprivileged(t, tn)
	messages := []string{
		`{"action":"pause","queue":"*"}`, `{"action":"metadata_changed","queue":"deliveries","metadata":{"a":1}}`,
	}
	for _, queue := range []string{"deliveries", "routes", "handshakes", "exports", "operations"} {
		messages = append(messages, `{"action":"pause","queue":"`+queue+`"}`,
			fmt.Sprintf(`{"action":"cancel","job_id":%d,"queue":%q}`, job, queue))
	}
	for _, message := range messages {
		notify(t, conn, "river_control", message)
	}
	notify(t, conn, "river_leadership", `{"action":"request_resign","leader_id":"node-1","name":"default"}`)
	notify(t, conn, "river_leadership", `{"action":"resigned","leader_id":"node-1","name":"default"}`)
	for i := range 500 { // 2,000 notifications
		notify(t, conn, "river_insert", fmt.Sprintf(`{"queue":"deliveries","n":%d}`, i))
		notify(t, conn, "river_insert", "\x01 no JSON "+strings.Repeat("x", 4*i))
		notify(t, conn, "river_insert", `{"queue":"deliveries"}`)
		if i%25 == 0 {
			publishOne(t, tn, fmt.Sprint("event-", i))
			require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
		}
	}
	tn.Exec(t, "SELECT postrider.publish_data($1, 'test', 's', '{}')", topicName)
	require.Equal(t, policy.Delivered, tn.Attempt(t).Verdict.Action)
	unblock()
	held := tn.Attempt(t)
	require.Equal(t, policy.Delivered, held.Verdict.Action, "the attempt in flight was not canceled")
	tn.BecomeRows(t, 22, "deliveries", "state = 'delivered'")
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.river_queue WHERE paused_at IS NOT NULL"))
}

// holdEveryAdvisoryLock takes all advisory locks that postrider has ever used, in both forms, for the session.
func holdEveryAdvisoryLock(t *testing.T, tn *testnode.Node, conn *pgx.Conn, idempotencyKeys ...string) {
	t.Helper()
	for _, statement := range []string{
		`SELECT pg_advisory_lock(727274, n), pg_advisory_lock((727274::bigint << 32) | n), pg_advisory_lock(n)
			FROM generate_series(0, 10) n`,
		`SELECT pg_advisory_lock(727275, n), pg_advisory_lock((727275::bigint << 32) | n) FROM generate_series(0, 100) n`,
		`SELECT pg_advisory_lock(x'706f7374'::bigint), pg_advisory_lock(0, x'706f7374'::int)`,
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, key := range idempotencyKeys {
		_, err := conn.Exec(t.Context(),
			`SELECT pg_advisory_lock(k # n), pg_advisory_lock(((k # n) >> 32)::int, ((k # n) << 32 >> 32)::int)
			FROM generate_series(0, 10) n, (SELECT ('x' || encode(substr(sha256(convert_to($1, 'UTF8')), 1, 8),
			    'hex'))::bit(64)::bigint AS k) key`, key)
		require.NoError(t, err)
	}
}

// Any login can hold advisory locks. postrider waits for none of them.
func TestUnprivilegedAdvisoryLocks(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	holdEveryAdvisoryLock(t, tn, unprivileged(t, tn), "by REST", "by SQL")
	sink := newEndpoint(t, respondWith(http.StatusOK))
	subscribe(t, tn, "all", sink.URL, nil)

	tn.Exec(t, "DROP TABLE postrider_internal.events_"+time.Now().UTC().AddDate(0, 0, 1).Format("20060102"))
	require.NoError(t, tn.System.Maintenance.EnsurePartitions(t.Context()))
	require.Equal(t, 2,
		tn.Count(t, "SELECT count(*) FROM pg_inherits WHERE inhparent = 'postrider_internal.events'::regclass"))

	for range 2 {
		keyed := testnode.Publication(topicName, "keyed", 1)
		keyed.IdempotencyKey = "by REST"
		_, err := tn.System.Publisher.Publish(t.Context(), keyed)
		require.NoError(t, err)
		tn.Exec(t, "SELECT postrider.publish_data($1, 'test', 's', '{}', idempotency_key => 'by SQL')", topicName)
	}
	require.Equal(t, 2, tn.Rows(t, "events", ""))

	merged, err := tn.System.Maintenance.MergeRollups(t.Context())
	require.NoError(t, err)
	require.NotZero(t, merged)

	tn.Exec(t, "DELETE FROM postrider_internal.river_job WHERE kind = 'deliver'")
	tn.Exec(t, olderBy, "2 minutes")
	require.Equal(t, jobs.Swept{Repaired: 1}, tn.Sweep(t))

	subscribe(t, tn, "batched", sink.URL, func(s *catalog.SubscriptionSpec) { s.MaxEventsPerBatch = new(10) })
	tn.Start(t)
	publishOne(t, tn, "in a batch")
	tn.BecomeRows(t, 1, "deliveries", "state = 'delivered' AND subscription = 'batched'")
}
