package query_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

const (
	// planDays is yesterday with a day before it, and today; planDeliveries make days of about 14,000 deliveries, 7,000
	// events and 15,000 attempts, and 5,000 pending deliveries.
	planDays, planDeliveries = 3, 43_000
	// readAtMost is how many rows one node of a plan may read: less than the 5,000 pending deliveries, which a question
	// must not read all. The most of any question are some 3,000.
	readAtMost = 4_000
	// readByTime is the same if a BRIN index finds the pages of a time: the 128 pages of two ranges, and as many at the
	// end that it does not cover yet, of 41 rows each. A day has more rows.
	readByTime = 12_000
	// smallTable is how many rows the tables of a page or two have: event subscriptions, batches, topics.
	smallTable = 100
)

// step is what EXPLAIN (ANALYZE, FORMAT JSON) says of one node.
type step struct {
	NodeType string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Recheck  float64 `json:"Rows Removed by Index Recheck"`
	Plans    []step  `json:"Plans"`
}

// most is the node that reads the most rows of a table. A small table counts once, however often it is scanned: for
// PostgreSQL, a scan of its page costs what an index costs, and 18 prefers it where it expects few deliveries.
func (s step) most() (at step, rows float64) {
	if s.Relation != "" {
		at, rows = s, s.Rows+s.Filtered+s.Recheck
		if s.NodeType != "Seq Scan" || rows > smallTable {
			rows *= s.Loops
		}
	}
	for _, child := range s.Plans {
		if deeper, n := child.most(); n > rows {
			at, rows = deeper, n
		}
	}
	return at, rows
}

// explained runs a statement and returns what most of its rows were read for.
func explained(t *testing.T, on interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, statement string, args ...any,
) (step, float64) {
	t.Helper()
	var raw []byte
	require.NoError(t, on.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+statement, args...).Scan(&raw))
	var plans []struct{ Plan step }
	require.NoError(t, json.Unmarshal(raw, &plans))
	return plans[0].Plan.most()
}

// pages are statements that read on from a place, as people and the dashboard page.
var pages = map[string]string{
	"events": "SELECT system_id, topic, event_id FROM postrider.events WHERE system_id < (SELECT system_id " +
		"FROM postrider.events WHERE event_id = 'e-15000') ORDER BY system_id DESC LIMIT 50",
	"deliveries": "SELECT delivery_id, topic, subscription, event_id, state FROM postrider.deliveries " +
		"WHERE delivery_id < 30000 ORDER BY delivery_id DESC LIMIT 50",
	"of a subscription": "SELECT delivery_id, event_id FROM postrider.deliveries " +
		"WHERE subscription_id = (SELECT subscription_id FROM postrider.event_subscriptions WHERE topic = 'vouchers' " +
		"AND subscription = 'mail') AND delivery_id < 40000 ORDER BY delivery_id DESC LIMIT 50",
	"of one without": "SELECT delivery_id, event_id FROM postrider.deliveries " +
		"WHERE subscription_id = (SELECT subscription_id FROM postrider.event_subscriptions WHERE topic = 'orders' " +
		"AND subscription = 'mail') AND state = 'pending' ORDER BY delivery_id LIMIT 50",
	"attempts": "SELECT delivery_id, number, topic, subscription, why FROM postrider.delivery_attempts " +
		"WHERE delivery_id < 30000 ORDER BY delivery_id DESC LIMIT 50",
	"batches": "SELECT batch_id, topic, subscription FROM postrider.batches WHERE batch_id < 40 " +
		"ORDER BY batch_id DESC LIMIT 50",
	"dead letters": "SELECT dead_letter_id, topic, reason FROM postrider.dead_letters " +
		"WHERE (dead_lettered_at, dead_letter_id) < (now() - interval '1 day', '00000000-0000-0000-0000-000000000000') " +
		"ORDER BY dead_lettered_at DESC, dead_letter_id DESC LIMIT 50",
	"letters by name": "SELECT dead_letter_id, reason FROM postrider.dead_letters WHERE topic = 'vouchers' " +
		"AND subscription = 'mail' ORDER BY dead_lettered_at DESC LIMIT 50",
	"a minute's ends": "SELECT delivery_id, state FROM postrider.deliveries WHERE finished_at BETWEEN " +
		"date_trunc('day', now(), 'UTC') - interval '22 hours 1 minute' AND date_trunc('day', now(), 'UTC') - " +
		"interval '22 hours'",
}

// No statement reads more of a table than it needs: an index leads to the rows, and not all days are read.
func testQuestionsReadLittle(t *testing.T, tn *testnode.Node) {
	pool, err := pgxpool.New(t.Context(), tn.URL) // as people's sessions are: without the settings of our own
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	statements := map[string]string{}
	for _, q := range docs.Questions() {
		statements[q.Name] = q.SQL
	}
	for name, page := range pages {
		statements["page: "+name] = page
	}
	for _, member := range []string{`"reason": "None"`, `"last_status": 5e2`, `"event_type": "None"`} {
		statements["dead letters: "+member] = "SELECT dead_letter_id FROM postrider.dead_letters WHERE " +
			tn.Text(t, "SELECT postrider_internal.dead_letter_condition('{"+member+"}')") +
			" ORDER BY dead_lettered_at DESC, dead_letter_id DESC LIMIT 50"
	}
	statements["dead letters: data"] = "SELECT dead_letter_id FROM postrider.dead_letters " +
		`WHERE data @> '{"number": 42}' ` +
		"ORDER BY dead_lettered_at DESC LIMIT 50"
	// Early on a day that is over: a day has three ranges of pages here, and retries let their times overlap. In the
	// morning today has so few rows that reading them all is right.
	statements["nodes"] = strings.Replace(statements["nodes"], "started_at > now() - interval '5 minutes'",
		"started_at BETWEEN date_trunc('day', now(), 'UTC') - interval '22 hours 5 minutes' "+
			"AND date_trunc('day', now(), 'UTC') - interval '22 hours'", 1)
	require.Contains(t, statements["nodes"], "22 hours")
	for name, statement := range statements {
		at, rows := explained(t, pool, statement)
		require.LessOrEqual(t, rows, mayRead(name), "%s: %s of %s", name, at.NodeType, at.Relation)
	}
	requireEachIndexIsNeeded(t, pool, statements)
	deliveriesOfATimeReadLittle(t, tn.URL)
}

func mayRead(statement string) float64 {
	switch {
	case statement == "nodes" || statement == "page: a minute's ends":
		return readByTime
	case statement == "lineage" || strings.Contains(statement, "letters"):
		return readAtMost / 2 // of some 3,800 dead letters
	}
	return readAtMost
}

// requireEachIndexIsNeeded takes each index away, and finds that something then reads too much.
func requireEachIndexIsNeeded(t *testing.T, pool *pgxpool.Pool, statements map[string]string) {
	t.Helper()
	for index, name := range map[string]string{
		"events_event_id_idx": "event", "events_unwanted_idx": "unmatched", "events_pkey": "page: events",
		"delivery_history_event_idx": "event", "delivery_history_subscription_idx": "page: of a subscription",
		"delivery_history_time_idx": "page: a minute's ends", "delivery_history_pkey": "page: deliveries",
		"deliveries_subscription_idx":  "page: of one without",
		"delivery_attempts_failed_idx": "failed-attempts", "delivery_attempts_rerun_idx": "interrupted",
		"delivery_attempts_time_idx": "nodes", "delivery_attempts_delivery_idx": "page: attempts",
		"dead_letters_time_idx": "page: dead letters", "dead_letters_name_idx": "page: letters by name",
		"dead_letters_event_id_idx": "lineage", "dead_letters_reason_idx": `dead letters: "reason": "None"`,
		"dead_letters_status_idx": `dead letters: "last_status": 5e2`,
		"dead_letters_type_idx":   `dead letters: "event_type": "None"`,
		"dead_letters_data_idx":   "dead letters: data",
		"rollups_pkey":            "failing",
	} {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		drop := "DROP INDEX postrider_internal." + index
		if table, isKey := map[string]string{
			"events_pkey": "events", "delivery_history_pkey": "delivery_history", "rollups_pkey": "rollups",
		}[index]; isKey {
			drop = "ALTER TABLE postrider_internal." + table + " DROP CONSTRAINT " + index
		}
		require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), drop)))
		_, rows := explained(t, tx, statements[name])
		require.Greater(t, rows, mayRead(name), "%s is not needed for %s", index, name)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// jitAboveCost is PostgreSQL's default: above it, a session compiles a statement, which takes up to two seconds.
const jitAboveCost = 100_000

// With the statistics of ten million deliveries, PostgreSQL does not compile a question, and plans no old days of
// attempts.
func testQuestionsAreNotCompiled(t *testing.T, tn *testnode.Node) {
	pool, err := pgxpool.New(t.Context(), tn.URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "UPDATE pg_class SET reltuples = reltuples * 250 WHERE relkind = 'r' AND "+
		"relnamespace = 'postrider_internal'::regnamespace AND relname ~ '^(events|deliver|dead_letters|batch)'")
	require.NoError(t, err)
	for _, q := range docs.Questions() {
		var raw []byte
		require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+q.SQL).Scan(&raw))
		var plans []struct {
			Plan struct {
				Cost float64 `json:"Total Cost"`
			}
		}
		require.NoError(t, json.Unmarshal(raw, &plans))
		require.Less(t, plans[0].Plan.Cost, float64(jitAboveCost), q.Name)
		if q.Name == "nodes" {
			var old string
			require.NoError(t, tx.QueryRow(t.Context(),
				"SELECT 'delivery_attempts_' || to_char(date 'yesterday' - 1, 'YYYYMMDD')").Scan(&old))
			require.NotContains(t, string(raw), old)
		}
	}
}

// Where there are few event subscriptions, the rows of one that has none are not looked for among all the others'.
func TestLastOfAnEventSubscriptionWithoutAny(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	busy := tn.Subscribe(t, "orders", "busy", nil)
	tn.Subscribe(t, "orders", "fresh", nil)
	tn.Exec(t, `INSERT INTO postrider_internal.delivery_history (id, day, subscription_id, topic_id, event_uuid, event_day,
		    attempts, reruns, time_to_live_since, finished_at, state)
		SELECT i, (now() AT TIME ZONE 'UTC')::date, $1, $2, gen_random_uuid(), now(), 1, 0, now(), now(), 'delivered'
		FROM generate_series(1, 20000) i`, busy.ID, busy.TopicID)
	tn.Exec(t, `INSERT INTO postrider_internal.deliveries (id, subscription_id, topic_id, event_uuid, event_day,
		    event_bytes, hold, time_to_live_since, next_attempt_at)
		SELECT 20000 + i, $1, $2, gen_random_uuid(), now(), 1, 'paused', now(), now() FROM generate_series(1, 20000) i`,
		busy.ID, busy.TopicID)
	tn.Exec(t, "VACUUM ANALYZE")
	pool, err := pgxpool.New(t.Context(), tn.URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, state := range []string{"state = 'pending'", "state = 'delivered'", "true"} {
		at, rows := explained(t, pool,
			`SELECT delivery_id, event_id FROM postrider.deliveries WHERE subscription_id = (SELECT subscription_id
				    FROM postrider.event_subscriptions WHERE subscription = 'fresh') AND `+
				state+` ORDER BY delivery_id DESC LIMIT 50`)
		require.LessOrEqual(t, rows, 100.0, "%s: %s of %s", state, at.NodeType, at.Relation)
	}
	at, rows := explained(t, pool, "SELECT topic, subscription, oldest_pending_since FROM postrider.backlogs")
	require.LessOrEqual(t, rows, 100.0, "%s of %s", at.NodeType, at.Relation)
}

// lastQuery keeps the last query of a pool.
type lastQuery struct {
	sql  string
	args []any
}

func (a *lastQuery) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "all_deliveries d") && !strings.Contains(data.SQL, "OFFSET") { // a list of deliveries
		a.sql, a.args = data.SQL, data.Args
	}
	return ctx
}

func (*lastQuery) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// deliveriesOfATimeReadLittle: a list of deliveries of a time reads the deliveries of that time, and the event of each
// row that it shows; not all events.
func deliveriesOfATimeReadLittle(t *testing.T, url string) {
	t.Helper()
	ours, err := postgres.OpenPool(t.Context(), url, 2)
	require.NoError(t, err)
	t.Cleanup(ours.Close)
	var list lastQuery
	config := ours.Config()
	config.ConnConfig.Tracer = &list
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var from time.Time
	require.NoError(t, pool.QueryRow(t.Context(),
		"SELECT min(published_at) + interval '26 hours' FROM postrider_internal.events").Scan(&from))
	for name, f := range map[string]query.DeliveryFilter{
		"of all":       {From: &from},
		"of hours":     {From: &from, To: new(from.Add(3 * time.Hour))},
		"that end":     {To: &from},
		"of one":       {From: &from, Topic: "orders", Subscription: "billing"},
		"of a state":   {To: &from, State: "delivered"},
		"of a pending": {From: &from, State: "pending"},
	} {
		page, err := query.NewReader(postgres.NewDB(pool), postgres.NewClock()).
			ReadDeliveries(t.Context(), f, query.Turn[query.DeliveryPlace]{Limit: 50})
		require.NoError(t, err, name)
		require.NotEmpty(t, page.Rows, name)
		most := 500.0 // a page has 51
		if f.Subscription != "" || name == "of all" {
			most = 20_000 // no index knows them by their time: one look; and in the morning all events of today are few
		}
		at, rows := explained(t, pool, list.sql, list.args...)
		require.LessOrEqual(t, rows, most, "%s: %s of %s", name, at.NodeType, at.Relation)
	}
}
