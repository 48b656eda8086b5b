package jobs_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/policy"
)

// stranger connects to the database as a role that was granted nothing: it has what every database login has.
func (b *bundle) stranger(t *testing.T) *pgx.Conn {
	t.Helper()
	login, err := url.Parse(b.url)
	require.NoError(t, err)
	role := "stranger_" + strings.TrimPrefix(login.Path, "/")
	b.exec(t, "CREATE ROLE "+pgx.Identifier{role}.Sanitize()+" LOGIN PASSWORD 'known'")
	login.User = url.UserPassword(role, "known")
	conn, err := pgx.Connect(t.Context(), login.String())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close(t.Context())
		_, _ = b.pool.Exec(t.Context(), "DROP ROLE "+pgx.Identifier{role}.Sanitize())
	})
	return conn
}

func notify(t *testing.T, conn *pgx.Conn, topic, payload string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), "SELECT pg_notify('postrider_internal.' || $1, $2)", topic, payload)
	require.NoError(t, err)
}

// Any login may notify River's channels. Nodes obey wake-ups alone: nothing is paused, canceled or stopped.
func TestStrangerNotifiesNodes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begun, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	sink := newEndpoint(t, func(w http.ResponseWriter, r request) {
		if r.eventID() == "held" {
			close(begun)
			<-release
		}
		w.WriteHeader(http.StatusOK)
	})
	t.Cleanup(letGo)
	b.subscribe(t, "all", sink.URL, nil)
	b.start(t, nil)
	b.publishOne(t, "held")
	<-begun
	job := b.count(t, "SELECT id FROM postrider_internal.river_job WHERE state = 'running'")

	stranger := b.stranger(t)
	orders := []string{`{"action":"pause","queue":"*"}`, `{"action":"metadata_changed","queue":"deliveries","metadata":{"a":1}}`}
	for _, queue := range []string{"deliveries", "routes", "handshakes", "exports", "operations"} {
		orders = append(orders, `{"action":"pause","queue":"`+queue+`"}`, fmt.Sprintf(`{"action":"cancel","job_id":%d,"queue":%q}`, job, queue))
	}
	for _, order := range orders {
		notify(t, stranger, "river_control", order)
	}
	notify(t, stranger, "river_leadership", `{"action":"request_resign","leader_id":"node-1","name":"default"}`)
	notify(t, stranger, "river_leadership", `{"action":"resigned","leader_id":"node-1","name":"default"}`)
	for i := range 2000 {
		notify(t, stranger, "river_insert", fmt.Sprintf(`{"queue":"deliveries","n":%d}`, i))
		notify(t, stranger, "river_insert", "\x01 no JSON "+strings.Repeat("x", i))
		notify(t, stranger, "river_insert", `{"queue":"deliveries"}`)
		notify(t, stranger, "river_insert", `{"queue":"published"}`)
		if i%100 == 0 {
			b.publishOne(t, fmt.Sprint("event-", i))
			require.Equal(t, policy.Delivered, b.attempt(t).Verdict.Action)
		}
	}
	b.exec(t, "SELECT postrider.publish_data($1, 'test', 's', '{}')", topicName)
	require.Equal(t, policy.Delivered, b.attempt(t).Verdict.Action)
	letGo()
	held := b.attempt(t)
	require.Equal(t, policy.Delivered, held.Verdict.Action, "the attempt in flight was not canceled")
	b.become(t, 22, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.river_queue WHERE paused_at IS NOT NULL"))
}
