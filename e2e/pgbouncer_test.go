package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/local"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
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
	retriesAfter(db, "quick", 200*time.Millisecond)
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
	require.Regexp(t, `^dead_lettered 1 \w+$`, one[string](db, ended, "rejected"))
	require.Equal(t, cloudEvent("e1"), one[string](db, "SELECT body_text FROM postrider.dead_letters"), "to the last byte")
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
	manyAtOnce(t, db, n)
	require.Zero(t, n.stop())
	require.Empty(t, complaints(n))
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider_internal.nodes"))
}

// manyAtOnce publishes with more clients than there are connections; each event is delivered once.
func manyAtOnce(t *testing.T, db *database, n *nodeProcess) {
	t.Helper()
	sink := newGate(t)
	sink.open()
	key := n.topic("many")
	n.subscribe("many", "billing", sink.url)
	var clients sync.WaitGroup
	for client := range 20 {
		clients.Go(func() {
			for i := range 50 {
				status, text, err := postEvents(t.Context(), n.api, "many", key, cloudEvent(fmt.Sprintf("c%d-%d", client, i)))
				if err != nil || status != http.StatusOK {
					t.Errorf("publish: %v, status %d: %s", err, status, text)
				}
			}
		})
	}
	clients.Wait()
	db.drained()
	require.Len(t, sink.arrivalsSoFar(), 1000)
	for _, id := range sink.arrivalsSoFar() {
		require.Equal(t, 1, sink.times(id), id)
	}
	require.Zero(t, brokenOwners(db)+one[int](db, testnode.EndedTwice))
}

// retriesAfter makes a copy of the default policy that always waits for as long as given, and rests no endpoint.
func retriesAfter(db *database, name string, wait time.Duration) {
	db.t.Helper()
	db.exec(`INSERT INTO postrider_internal.retry_policies (name, settings)
		SELECT $1, jsonb_set(settings, '{probation,scope}', '"none"') || jsonb_build_object(
		           'stepsInSeconds', ARRAY[$2::float8], 'tailInSeconds', $2, 'jitterFraction', 0)
		  FROM postrider_internal.retry_policies WHERE name = 'ga-2021'`, name, wait.Seconds())
	db.exec(`INSERT INTO postrider_internal.retry_policy_cells (policy, endpoint_kind, condition, action)
		SELECT $1, endpoint_kind, condition, action FROM postrider_internal.retry_policy_cells WHERE policy = 'ga-2021'`,
		name)
}

// Without the switch each verb names PgBouncer. With it, a parameter of the URL that PgBouncer rejects is named.
func TestWithoutTheSwitchPgBouncerIsNamed(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range postgres.Settings {
		names = append(names, s.Name)
	}
	ignore := "ignore_startup_parameters = " + strings.Join(names, ",")
	direct := emptyDatabase(t)
	for setting, says := range map[string]string{
		"":     "leads to PgBouncer (unsupported startup parameter: ",
		ignore: "leads to a connection pooler that drops the session's settings",
	} {
		db := &database{t: t, url: startPgBouncer(t, direct, setting).url, pool: direct.pool}
		for _, verb := range []string{"serve --listen 127.0.0.1:0", "migrate up"} {
			r := postrider(t, serveEnv(db), strings.Fields(verb)...)
			require.Equal(t, 2, r.code, "%s: %s", verb, r.stderr)
			require.Contains(t, r.stderr, says)
			require.Contains(t, r.stderr, "set --pgbouncer or POSTRIDER_PGBOUNCER=true")
		}
		doctor := postrider(t, db.env(), "doctor")
		require.Equal(t, 1, doctor.code)
		require.Regexp(t, `(?m)^fail +pooler +.* leads to `, doctor.stdout)
		require.Contains(t, doctor.stdout, "--pgbouncer")
		if setting == "" {
			r := postrider(t, []string{"POSTRIDER_DATABASE_URL=" + db.url + "&search_path=elsewhere"}, "migrate", "up",
				"--pgbouncer")
			require.Equal(t, 2, r.code, r.stderr)
			require.Contains(t, r.stderr, "unsupported startup parameter: search_path; remove that parameter from the URL")
		}
	}
}

// What a node and the doctor advise is done as printed, and then they have nothing more to say.
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
	require.Contains(t, postrider(t, db.env(), "doctor").stdout, "the role lacks them")
	n.stop()
	direct.exec(advice)
	// PgBouncer's older server connections keep what they began with.
	fresh := startPgBouncer(t, direct).through(direct)
	require.Empty(t, adviceOf(t, startNode(t, fresh)))
	require.Regexp(t, `(?m)^ok +pooler +`, postrider(t, fresh.env(), "doctor").stdout)

	direct.extra = fresh.extra // the switch does no harm where the URL leads to PostgreSQL itself
	startNode(t, direct).publishMany("orders", permits(t), 1)
	direct.drained()
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
