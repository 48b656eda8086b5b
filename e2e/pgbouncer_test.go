package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/ledger"
	"postrider/internal/local"
)

// pooler is a real PgBouncer before one database.
type pooler struct {
	*process
	url string // of the database through it
}

// startPgBouncer puts a PgBouncer in transaction mode before the database. Settings are lines of its ini file.
func startPgBouncer(t *testing.T, db *database, settings ...string) *pooler {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/pgbouncer") // not in every user's PATH
	}
	if err != nil {
		t.Skip("no pgbouncer here: apt-get install pgbouncer")
	}
	dir := t.TempDir()
	// the other user must be able to connect; the ini's password is only for the first
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711))
	require.NoError(t, os.Chmod(dir, 0o700))
	attributes := unprivilegedAttributes(t, dir)
	port := freePort(t)
	to := db.pool.Config().ConnConfig
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("postrider = host=%s port=%d dbname=%s user=%s password=%s", to.Host, to.Port, to.Database, to.User,
			to.Password),
		"[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = " + port, "unix_socket_dir =", "auth_type = any",
		"pool_mode = transaction",
	}, settings...)
	ini := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(ini, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	p := &pooler{startProcessWith(t, attributes, nil, binary, ini), "postgres://unknown@127.0.0.1:" + port +
		"/postrider?sslmode=disable"}
	eventually(t, "PgBouncer responds", func() bool { return p.responds() })
	return p
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

func (p *pooler) responds() bool {
	conn, err := pgx.Connect(p.t.Context(), p.url)
	if err != nil {
		return false
	}
	defer conn.Close(p.t.Context())
	return conn.Ping(p.t.Context()) == nil
}

// through is the database as the program reaches it through PgBouncer. The test's own questions go straight to it.
func (p *pooler) through(db *database) *database {
	return &database{t: db.t, url: p.url, pool: db.pool, extra: []string{"POSTRIDER_PGBOUNCER=true"}}
}

// pooledDatabase was migrated through PgBouncer and is served through it. There are fewer server connections than a
// node has of its own, so that what one transaction leaves behind in a session is met by another.
func pooledDatabase(t *testing.T) *database {
	t.Helper()
	direct := emptyDatabase(t)
	db := startPgBouncer(t, direct, "default_pool_size = 6").through(direct)
	db.migrate()
	return db
}

// complaints are the lines of a node's log above info, but for the advice on settings and what is said of the tests'
// clusters, which forget on purpose.
func complaints(n *nodeProcess) (lines []string) {
	for line := range strings.Lines(n.stderr.String()) {
		var entry struct{ Level, SQL, Settings string }
		if json.Unmarshal([]byte(line), &entry) != nil || (entry.Level != "INFO" && entry.SQL == "" && entry.Settings == "") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestMigrateThroughPgBouncerFromManyPlacesAtOnce(t *testing.T) {
	t.Parallel()
	direct := emptyDatabase(t)
	db := startPgBouncer(t, direct, "default_pool_size = 2").through(direct) // the least: the lock's and the work's
	racing := make([]*process, 6)
	for i := range racing {
		racing[i] = startProcess(t, db.env(), program, "migrate", "up")
	}
	for _, p := range racing {
		require.Zero(t, p.wait(), p.stderr.String())
		require.Contains(t, p.stdout.String(), "Schema at version")
	}
	require.Zero(t, postrider(t, db.env(), "migrate", "status").code)
	require.Zero(t, postrider(t, direct.env(), "migrate", "status").code)
	require.Zero(t, one[int](db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid "+
		"FROM pg_database WHERE datname = current_database())"))
}

func TestPgBouncerDeliversRetriesAndDeadLetters(t *testing.T) {
	t.Parallel()
	db := pooledDatabase(t)
	quickRetries(db)
	sink := httptest.NewServer(local.NewDemoSink(nil))
	t.Cleanup(sink.Close)
	n := startNode(t, db)
	key := n.topic("orders")
	for name, path := range map[string]string{"accepted": "/ok", "flaky": "/flaky", "rejected": "/status/400"} {
		n.subscribeUnder("quick", "orders", name, sink.URL+path)
	}
	n.publish("orders", key, cloudEvent("e1"))
	db.drained()

	const ended = "SELECT state || ' ' || attempts || coalesce(' ' || reason, '') FROM postrider.deliveries " +
		"WHERE subscription = $1"
	require.Equal(t, "delivered 1", one[string](db, ended, "accepted"))
	require.Equal(t, "delivered 3", one[string](db, ended, "flaky"))
	letter := one[string](db, ended, "rejected")
	require.Regexp(t, `^dead_lettered 1 \w+$`, letter)
	require.Equal(t, cloudEvent("e1"), one[string](db, "SELECT body_text FROM postrider.dead_letters"), "to the last byte")
	require.Equal(t, 5, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts"))

	for _, env := range [][]string{db.env(), {"POSTRIDER_DATABASE_URL=" + db.url}} {
		read := postrider(t, env, "sql", "-o", "json", "select subscription from postrider.dead_letters")
		require.Zero(t, read.code, read.stderr)
		require.JSONEq(t, `{"subscription":"rejected"}`, read.stdout)
	}
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/validated",
		fmt.Sprintf(`{"endpointUrl":%q}`, permits(t)))
	require.Equal(t, "Succeeded",
		one[string](db, "SELECT provisioning_state FROM postrider.event_subscriptions WHERE subscription = 'validated'"),
		"no wake-up; the fetchers poll")
	n.manage(http.StatusNoContent, http.MethodDelete, "/v1/topics/orders/subscriptions/accepted", "")
	code := n.stop()
	require.Zero(t, code)
	require.Empty(t, complaints(n))
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider_internal.nodes"))
}

// quickRetries makes a copy of the default policy that retries after 200 ms.
func quickRetries(db *database) {
	db.t.Helper()
	retriesAfter(db, "quick", "200 milliseconds")
}

// retriesAfter makes a copy of the default policy that always waits for as long as given, and rests no endpoint.
func retriesAfter(db *database, name, wait string) {
	db.t.Helper()
	db.exec(`INSERT INTO postrider_internal.retry_policies
		SELECT (jsonb_populate_record(p, jsonb_build_object('name', $1::text, 'built_in', false, 'steps', ARRAY[$2::text],
		    'tail', $2, 'jitter_fraction', 0, 'probation_scope', 'none'))).*
		  FROM postrider_internal.retry_policies p WHERE name = 'ga-2021'`, name, wait)
	db.exec(`INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action)
		SELECT $1, endpoint_kind, condition, action FROM postrider_internal.retry_policy_cells WHERE policy = 'ga-2021'`,
		name)
}

func TestPgBouncerManyEventsAtOnce(t *testing.T) {
	t.Parallel()
	db, sink := pooledDatabase(t), newGate(t)
	sink.open()
	n := startNode(t, db)
	key := n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	file := filepath.Join(t.TempDir(), "published")
	ledger, err := ledger.Open(file)
	require.NoError(t, err)
	load := &publishers{t: t, file: file, ledger: ledger}
	for client := range 20 {
		load.working.Go(func() {
			for i := range 100 {
				id := fmt.Sprintf("c%d-%d", client, i)
				event := cloudEvent(id)
				if status, _, err := postEvents(t.Context(), n.api, "orders", key, event); err == nil && status == http.StatusOK {
					_ = ledger.Note(id, sha256.Sum256([]byte(event)))
				}
			}
		})
	}
	load.working.Wait()
	db.drained()
	verdict := load.compare(sink)
	require.Equal(t, 2000, verdict.Published)
	require.Empty(t, verdict.Lost)
	require.Empty(t, verdict.Changed)
	require.Zero(t, verdict.Duplicates)
	requireEndedOnce(t, db)
	require.Empty(t, complaints(n))
}

func TestPgBouncerConfirmedChangeIsSeenByEveryNode(t *testing.T) {
	t.Parallel()
	changeIsSeenByEveryNode(t, pooledDatabase(t))
}

func TestPgBouncerSurvivorMakesTheAttemptsOfAKilledNodeAgain(t *testing.T) {
	t.Parallel()
	survivorMakesAttemptsAgain(t, pooledDatabase(t))
}

func TestWithoutTheSwitchPgBouncerIsNamed(t *testing.T) {
	t.Parallel()
	const ignore = "ignore_startup_parameters = plan_cache_mode,jit,enable_bitmapscan,lock_timeout," +
		"idle_in_transaction_session_timeout,search_path"
	for _, row := range []struct{ name, setting, says string }{
		{"it rejects our settings", "", "leads to PgBouncer (unsupported startup parameter: "},
		{"it ignores our settings", ignore, "leads to a connection pooler that drops the session's settings"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			db := emptyDatabase(t)
			db.url = startPgBouncer(t, db, row.setting).url
			for _, verb := range []string{"serve --listen 127.0.0.1:0", "migrate up", "migrate status"} {
				r := postrider(t, serveEnv(db), strings.Fields(verb)...)
				require.Equal(t, 2, r.code, "%s: %s", verb, r.stderr)
				require.Contains(t, r.stderr, row.says)
				require.Contains(t, r.stderr, "set --pgbouncer or POSTRIDER_PGBOUNCER=true")
			}
		})
	}
}

func TestPgBouncerRejectsAParameterOfTheURL(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	db.url = startPgBouncer(t, db).url + "&search_path=elsewhere"
	r := postrider(t, db.env(), "migrate", "up", "--pgbouncer")
	require.Equal(t, 2, r.code, r.stderr)
	require.Contains(t, r.stderr, "unsupported startup parameter: search_path; remove that parameter from the URL")
}

// The switch does no harm where the URL leads to PostgreSQL itself.
func TestPgBouncerSwitchWithoutPgBouncer(t *testing.T) {
	t.Parallel()
	db, sink := emptyDatabase(t), newGate(t)
	db.extra = []string{"POSTRIDER_PGBOUNCER=true"}
	db.migrate()
	sink.open()
	n := startNode(t, db)
	key := n.topic("orders")
	n.subscribe("orders", "billing", sink.url)
	n.publish("orders", key, cloudEvent("e1"))
	db.drained()
	requireEndedOnce(t, db)
}

// What a node advises is done as printed, and then it has nothing more to say.
func TestPgBouncerSettingsAreAdvised(t *testing.T) {
	t.Parallel()
	direct := emptyDatabase(t)
	db := startPgBouncer(t, direct).through(direct)
	db.migrate()
	n := startNode(t, db)
	advice := adviceOf(t, n)
	for _, setting := range []string{
		"search_path = pg_catalog, pg_temp", "lock_timeout = '2s'",
		"idle_in_transaction_session_timeout = '30s'", "jit = 'off'",
	} {
		require.Contains(t, advice, "SET "+setting+";")
	}
	n.stop()
	direct.exec(advice)
	// PgBouncer's older server connections keep what they began with.
	require.Empty(t, adviceOf(t, startNode(t, startPgBouncer(t, direct).through(direct))))
}

func adviceOf(t *testing.T, n *nodeProcess) (sql string) {
	t.Helper()
	for line := range strings.Lines(n.stderr.String()) {
		var entry struct{ SQL string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		sql += entry.SQL
	}
	return sql
}
