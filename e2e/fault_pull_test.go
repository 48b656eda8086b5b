package e2e

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
)

const (
	// pullLedger has a row for each event that a consumer in SQL has processed, written in the transaction that
	// acknowledges the event. It has no unique key: the test counts duplicates.
	pullLedger = "CREATE TABLE public.processed (id text NOT NULL, consumer text NOT NULL)"
	// pullConsumers names the sessions of the consumers in SQL.
	pullConsumers = "pull-consumer"
	pullPending   = `SELECT coalesce(jsonb_agg(p), '[]')::text FROM (SELECT subscription, waits_for, count(*),
		max(attempts) FROM postrider.deliveries WHERE state = 'pending' GROUP BY 1, 2) p`
	pullBacklog = 5000
	pullBatch   = 50
	pullQueue   = `{"deliveryConfiguration":{"deliveryMode":"Queue","queue":{"maxDeliveryCount":10}}}`
)

// endPullLocks lets locks end after 3 s, because the shortest duration is a minute. Some end earlier, at any moment.
//
//go:embed testdata/sql/end_pull_locks.sql
var endPullLocks string

// pullDone are statements about a database whose consumers have acknowledged everything. Each counts what contradicts
// it.
var pullDone = []struct{ what, query string }{
	{"each delivery is delivered", "SELECT count(*) FROM postrider.deliveries WHERE state <> 'delivered'"},
	{"two deliveries for each event", `SELECT abs((SELECT 2 * count(*) FROM postrider.events)
		- (SELECT count(*) FROM postrider.deliveries))::bigint`},
	{"each delivery was acknowledged once", `SELECT count(*) FROM (SELECT FROM postrider_internal.delivery_attempts
		GROUP BY delivery_id HAVING count(*) FILTER (WHERE outcome = 'Acknowledged') <> 1) wrong`},
	{"attempts are numbered 1, 2, 3, …, as many as are counted", testnode.Miscounted},
	{"a consumer in SQL has processed each event once", `SELECT count(*) FROM postrider.events e
		FULL JOIN (SELECT id, count(*) AS n FROM public.processed GROUP BY id) p ON p.id = e.event_id
		WHERE p.n IS DISTINCT FROM 1 OR e.event_id IS NULL`},
}

// pullFaults are two nodes that are killed, publishers, and four consumers: two over HTTP, which have an event
// subscription, and two in SQL, which have another.
type pullFaults struct {
	t   *testing.T
	db  *database
	key string

	published    atomic.Int64 // events with response 200
	acknowledged atomic.Int64 // over HTTP, with response 200
	number       atomic.Int64 // of the last publish

	mu     sync.Mutex
	nodes  []*nodeProcess // nil: dead
	sent   []string       // prefixes of the ids of requests with response 200
	acked  map[string]int // over HTTP: how many acknowledgments of the event succeeded
	asked  map[string]int // over HTTP: how many were sent
	failed error
}

// fail notes the first failure, and returns it.
func (p *pullFaults) fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = cmp.Or(p.failed, err)
	return p.failed
}

// at replaces a node, and returns a living one; nil if there is none.
func (p *pullFaults) at(slot int, n *nodeProcess) *nodeProcess {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot >= 0 {
		p.nodes[slot] = n
	}
	for _, i := range rand.Perm(len(p.nodes)) {
		if p.nodes[i] != nil {
			return p.nodes[i]
		}
	}
	return nil
}

// post calls a living node. false: there was no response, or one that the node sends while it stops or starts.
func (p *pullFaults) post(ctx context.Context, path, media, body string) (text string, ok bool) {
	n := p.at(-1, nil)
	if n == nil {
		<-time.After(pollTime)
		return "", false
	}
	status, text, err := call(ctx, http.MethodPost, n.api+path, body, "aeg-sas-key", p.key, "Content-Type", media)
	if err != nil || status >= http.StatusInternalServerError {
		return "", false
	}
	if status != http.StatusOK {
		_ = p.fail(fmt.Errorf("%s: %d %s", path, status, text))
	}
	return text, status == http.StatusOK
}

// publish publishes until enough events are accepted. It waits while the consumers have a backlog.
func (p *pullFaults) publish(ctx context.Context, events int64) {
	for ctx.Err() == nil && p.published.Load() < events {
		if p.published.Load()-p.acknowledged.Load() > pullBacklog {
			<-time.After(pollTime)
			continue
		}
		prefix := fmt.Sprintf("e%d-", p.number.Add(1))
		if _, ok := p.post(ctx, eventsPath("orders")+"?api-version=2018-01-01", "application/cloudevents-batch+json",
			cloudEvents(prefix, pullBatch)); ok {
			p.mu.Lock()
			p.sent = append(p.sent, prefix)
			p.mu.Unlock()
			p.published.Add(pullBatch)
		}
	}
}

// consumeOverHTTP receives and acknowledges. Now and then the client goes away, releases, or forgets what it got.
func (p *pullFaults) consumeOverHTTP(ctx context.Context) {
	const path = "/topics/orders/eventsubscriptions/http:%s?api-version=2024-06-01%s"
	for ctx.Err() == nil {
		request, cancel := ctx, context.CancelFunc(func() {})
		if rand.N(20) == 0 {
			request, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		}
		text, ok := p.post(request, fmt.Sprintf(path, "receive", "&maxEvents=100&maxWaitTime=10"), "", "")
		cancel()
		tokens, ids := p.readEvents(text)
		if !ok || len(ids) == 0 || rand.N(20) == 0 {
			continue
		}
		how := "acknowledge"
		if rand.N(20) == 0 {
			how = "release"
		}
		body, err := json.Marshal(map[string]any{"lockTokens": tokens})
		if err != nil {
			_ = p.fail(err)
			return
		}
		text, _ = p.post(ctx, fmt.Sprintf(path, how, ""), "application/json", string(body))
		if how == "acknowledge" {
			p.note(tokens, ids, text)
		}
	}
}

// decode leaves into as it is without a response.
func (p *pullFaults) decode(text string, into any) {
	if text == "" {
		return
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		_ = p.fail(fmt.Errorf("%w: %s", err, text))
	}
}

func (p *pullFaults) readEvents(text string) (tokens, ids []string) {
	var got struct {
		Value []struct {
			BrokerProperties struct{ LockToken string }
			Event            struct{ ID string }
		}
	}
	p.decode(text, &got)
	for _, v := range got.Value {
		tokens, ids = append(tokens, v.BrokerProperties.LockToken), append(ids, v.Event.ID)
	}
	return tokens, ids
}

// note counts the acknowledgments of a request; text is "" without a response.
func (p *pullFaults) note(tokens, ids []string, text string) {
	var settled struct{ SucceededLockTokens []string }
	p.decode(text, &settled)
	p.acknowledged.Add(int64(len(settled.SucceededLockTokens)))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, id := range ids {
		p.asked[id]++
		if slices.Contains(settled.SucceededLockTokens, tokens[i]) {
			p.acked[id]++
		}
	}
}

// consumeInSQL has a session until it is terminated, then the next one. at once: the receive is in the transaction
// that processes the events; else it is committed first.
func (p *pullFaults) consumeInSQL(ctx context.Context, name string, atOnce bool) {
	for ctx.Err() == nil {
		config, err := pgx.ParseConfig(p.db.url)
		if err != nil {
			_ = p.fail(err)
			return
		}
		config.RuntimeParams["application_name"] = pullConsumers
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			continue
		}
		for ctx.Err() == nil && !conn.IsClosed() {
			p.consumeOnce(ctx, conn, name, atOnce)
		}
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}

func (p *pullFaults) consumeOnce(ctx context.Context, conn *pgx.Conn, name string, atOnce bool) {
	const receive = `SELECT coalesce(array_agg(lock_token), '{}'), coalesce(array_agg(event_id), '{}')
		FROM postrider.receive('orders', 'sql', 100)`
	var tokens, ids []string
	if !atOnce {
		if err := conn.QueryRow(ctx, receive).Scan(&tokens, &ids); err != nil {
			p.expect(err)
			return
		}
	}
	p.expect(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if atOnce {
			if err := tx.QueryRow(ctx, receive).Scan(&tokens, &ids); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "INSERT INTO public.processed SELECT unnest($1::text[]), $2", ids, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT postrider.acknowledge($1)", tokens); err != nil {
			return err
		}
		if rand.N(20) == 0 {
			return errChangedItsMind
		}
		return nil
	}))
	if len(ids) == 0 {
		<-time.After(pollTime)
	}
}

// expect fails for an error of a consumer in SQL, unless locks were lost or its session was terminated.
func (p *pullFaults) expect(err error) {
	var rejected *pgconn.PgError
	if errors.As(err, &rejected) && rejected.Code != "55000" && rejected.Code != "57P01" {
		_ = p.fail(err)
	}
}

// kill kills one node or both, and a session of a consumer in SQL, and starts the nodes again.
func (p *pullFaults) kill(slots ...int) {
	p.t.Helper()
	for _, slot := range slots {
		p.nodes[slot].kill()
		p.at(slot, nil)
	}
	require.Zero(p.t, brokenOwners(p.db), "every unfinished delivery has exactly one owner")
	p.db.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE application_name = $1 AND datname = current_database() ORDER BY random() LIMIT 1`, pullConsumers)
	for _, slot := range slots {
		p.at(slot, startNode(p.t, p.db))
	}
}

// Consumers of queues lose no event when nodes, their sessions or they themselves go away at any moment. Those in SQL,
// which process and acknowledge in one transaction, process each event exactly once.
func TestFaultPull(t *testing.T) {
	t.Parallel()
	kills, events, limit := 3, int64(600), 3*patience
	db := migratedDatabase(t)
	if *faults {
		kills, events, limit = 60, 200_000, 10*time.Minute
		_, db = ownCluster(t)
	}
	db.exec(pullLedger)
	p := &pullFaults{
		t: t, db: db, nodes: []*nodeProcess{startNode(t, db), startNode(t, db)},
		acked: map[string]int{}, asked: map[string]int{},
	}
	p.key = p.nodes[0].topic("orders")
	for _, name := range []string{"http", "sql"} {
		p.nodes[1].manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+name, pullQueue)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer func() { cancel(); working.Wait() }()
	working.Go(func() { p.publish(ctx, events) })
	working.Go(func() { p.publish(ctx, events) })
	working.Go(func() { p.consumeOverHTTP(ctx) })
	working.Go(func() { p.consumeOverHTTP(ctx) })
	working.Go(func() { p.consumeInSQL(ctx, "one transaction", true) })
	working.Go(func() { p.consumeInSQL(ctx, "two transactions", false) })

	began, done := time.Now(), 0
	for deadline := began.Add(limit); ; <-time.After(5 * pollTime) {
		require.True(t, time.Now().Before(deadline), "not within %s: %d kills, %d published, %d acknowledged over HTTP, "+
			"pending: %s", limit, done, p.published.Load(), p.acknowledged.Load(), one[string](db, pullPending))
		require.NoError(t, p.fail(nil))
		db.exec(endPullLocks)
		if done < kills && p.acknowledged.Load() >= events*int64(done)/int64(kills) {
			p.kill([][]int{{0}, {1}, {0, 1}}[done%3]...)
			done++
		}
		if done == kills && p.published.Load() >= events && one[int](db, unfinishedQuery) == 0 {
			break
		}
	}
	cancel()
	working.Wait()
	p.requireDone()
	t.Logf("%d kills in %s, %d events published, %d acknowledged over HTTP, %d by one transaction, %d deliveries were "+
		"received more than once", done, time.Since(began).Round(time.Second), p.published.Load(), p.acknowledged.Load(),
		one[int](db, "SELECT count(*) FROM processed WHERE consumer = 'one transaction'"),
		one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE attempts > 1"))
}

func (p *pullFaults) requireDone() {
	p.t.Helper()
	require.NoError(p.t, p.fail(nil))
	for _, check := range pullDone {
		require.Zero(p.t, one[int](p.db, check.query), check.what)
	}
	require.Zero(p.t, brokenOwners(p.db))
	for id, n := range p.acked {
		require.Equal(p.t, 1, n, "%s was acknowledged over HTTP more than once", id)
	}
	stored := map[string]bool{}
	for _, id := range one[[]string](p.db, "SELECT array_agg(event_id) FROM postrider.events") {
		stored[id] = true
		require.Positive(p.t, p.asked[id], "%s was not received over HTTP", id)
	}
	for _, prefix := range p.sent {
		for i := range pullBatch {
			require.True(p.t, stored[fmt.Sprint(prefix, i)], "%s%d was published and is not stored", prefix, i)
		}
	}
}
