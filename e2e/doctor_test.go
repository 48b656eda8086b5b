package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The doctor checks the addresses of stored endpoints without connecting.
func TestDoctorChecksStoredEndpoints(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	requireFinding(t, runDoctor(t, 1, db.env()), "ok", "egress", "no event subscription has an endpoint yet")
	n := startNode(t, db, "--role", "api")
	n.topic("orders")
	n.subscribe("orders", "billing", "http://127.0.0.1:1/in?code=secret")
	n.subscribe("orders", "audit", "http://127.0.0.1:1/other")
	allowed := []string{"--allow-cidr", "127.0.0.0/8"}
	requireFinding(t, runDoctor(t, 1, db.env(), allowed...), "ok", "egress", "1 host of stored endpoints may be called")
	rejected := runDoctor(t, 1, db.env(), "--allow-cidr", "10.0.0.0/8")["egress"]
	require.Equal(t, "warn", rejected.Level)
	require.Contains(t, rejected.Message, "of 2 event subscriptions, such as orders/audit: ")
	require.Contains(t, rejected.Remedy, "--allow-cidr")
	require.Contains(t, rejected.Remedy, "with the flags of the service")

	db.exec("UPDATE postrider_internal.event_subscriptions SET endpoint_base_url = 'https://nowhere.invalid/in' " +
		"WHERE name = 'audit'")
	unknown := runDoctor(t, 1, db.env(), allowed...)["egress"]
	require.Equal(t, "warn", unknown.Level)
	require.Contains(t, unknown.Message, "of 1 event subscription, such as orders/audit: https://nowhere.invalid")
	requireFinding(t, runDoctor(t, 1, db.env(), append(allowed, "--delivery-proxy", "http://proxy:3128")...), "ok",
		"egress", "the proxy checks")

	for i := range checkedHosts {
		n.subscribe("orders", fmt.Sprintf("more-%d", i), fmt.Sprintf("http://127.0.0.1:%d/", 9000+i))
	}
	require.Contains(t, runDoctor(t, 1, db.env(), allowed...)["egress"].Message, "2 further hosts of stored endpoints")
}

// finding is a result of `doctor -o json`.
type finding struct{ Level, Check, Message, Remedy string }

// checkedHosts is how many hosts of stored endpoints the doctor checks.
const checkedHosts = 50

// runDoctor runs the doctor and returns what it found of each check, the worst of several.
func runDoctor(t *testing.T, code int, env []string, flags ...string) map[string]finding {
	t.Helper()
	r := postrider(t, env, append([]string{"doctor", "-o", "json"}, flags...)...)
	require.Equal(t, code, r.code, r.stdout+r.stderr)
	var list []finding
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	found := map[string]finding{}
	for _, f := range list {
		require.Equal(t, f.Level == "ok", f.Remedy == "", f)
		if before := found[f.Check]; before.Level == "" || before.Level == "ok" || f.Level == "fail" {
			found[f.Check] = f
		}
	}
	return found
}

func requireFinding(t *testing.T, found map[string]finding, level, check, message string) {
	t.Helper()
	require.Equal(t, level, found[check].Level, "%s: %+v", check, found)
	require.Contains(t, found[check].Message, message)
}

// The tests' PostgreSQL is not durable: a doctor never leaves it with exit code 0.
func TestDoctorThroughPgBouncer(t *testing.T) {
	t.Parallel()
	direct := emptyDatabase(t)
	p := startPgBouncer(t, direct)
	unnamed := &database{t: t, url: p.url, pool: direct.pool}
	found := runDoctor(t, 1, unnamed.env())
	require.Len(t, found, 1)
	requireFinding(t, found, "fail", "pooler", "leads to PgBouncer")
	require.Contains(t, found["pooler"].Remedy, "--pgbouncer")

	db := p.through(direct)
	found = runDoctor(t, 1, db.env())
	requireFinding(t, found, "fail", "schema", "this program needs")
	require.Equal(t, "run: postrider migrate up", found["schema"].Remedy)
	db.migrate()
	found = runDoctor(t, 1, db.env())
	requireFinding(t, found, "warn", "pooler", "the role lacks them")
	requireFinding(t, found, "warn", "nodes", "no node that delivers")

	startNode(t, db)
	direct.exec(strings.TrimPrefix(found["pooler"].Remedy, "run: "))
	fresh := startPgBouncer(t, direct).through(direct) // older server connections keep their settings
	found = runDoctor(t, 1, append(fresh.env(), "POSTRIDER_ENCRYPTION_KEY="+testEncryptionKey))
	for _, check := range []string{
		"pooler", "version", "clock", "schema", "rights", "autovacuum", "vacuum horizon", "partitions", "connections",
		"nodes", "sweeper", "encryption key",
	} {
		requireFinding(t, found, "ok", check, "")
	}
	require.Equal(t, "fail", found["durability"].Level)
	requireFinding(t, runDoctor(t, 1, append(fresh.env(), "POSTRIDER_ENCRYPTION_KEY="+anotherEncryptionKey)), "fail",
		"encryption key", "sealed with key")
}

// The doctor finds the faults of a real database.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	name := one[string](db, "SELECT quote_ident(current_database())")
	db.exec("ALTER TABLE postrider_internal.river_job SET (autovacuum_enabled = off)")
	db.exec("ALTER DATABASE " + name + " SET statement_timeout = '5min'")
	db.exec("ALTER DATABASE " + name + " SET synchronous_commit = off")
	db.exec("CREATE TABLE postrider_internal.events_rest PARTITION OF postrider_internal.events DEFAULT")
	found := runDoctor(t, 1, append(db.env(), "POSTRIDER_ENCRYPTION_KEY=short"), "--max-conns", "1000")
	requireFinding(t, found, "warn", "autovacuum", "autovacuum is off for table river_job")
	requireFinding(t, found, "warn", "timeouts", "statement_timeout = 5min in database")
	requireFinding(t, found, "fail", "durability", "")
	requireFinding(t, found, "warn", "partitions", "events has a default partition")
	requireFinding(t, found, "warn", "connections", "1 node with up to 1001 connections")
	requireFinding(t, found, "warn", "nodes", "no node that delivers")
	requireFinding(t, found, "fail", "encryption key", "")
	require.Contains(t, runDoctor(t, 1, db.env())["encryption key"].Remedy, "to the key of the nodes")

	db.exec("ALTER DATABASE " + name + " SET default_transaction_read_only = on")
	requireFinding(t, runDoctor(t, 1, db.env()), "fail", "writes", "default_transaction_read_only is on")
}

func TestDoctorWithoutADatabaseOrRights(t *testing.T) {
	t.Parallel()
	requireFinding(t, runDoctor(t, 1, []string{"POSTRIDER_DATABASE_URL=postgres://127.0.0.1:1/none"}), "fail",
		"connection", "database unavailable")
	requireFinding(t, runDoctor(t, 1, []string{"POSTRIDER_DATABASE_URL=postgres://%zz"}), "fail", "connection",
		"is invalid")

	db := migratedDatabase(t)
	role := "doctor_" + one[string](db, "SELECT md5(current_database())")
	db.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'x'")
	defer func() { db.exec("DROP OWNED BY " + role + "; DROP ROLE " + role) }()
	u, err := url.Parse(db.url)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "x")
	env := []string{"POSTRIDER_DATABASE_URL=" + u.String()}
	requireFinding(t, runDoctor(t, 1, env), "fail", "schema", "its version cannot be read")
	db.exec("GRANT USAGE ON SCHEMA postrider_internal TO " + role +
		"; GRANT SELECT ON ALL TABLES IN SCHEMA postrider_internal TO " + role)
	found := runDoctor(t, 1, env)
	requireFinding(t, found, "fail", "rights", "may not read and write")
	require.Contains(t, found["rights"].Remedy, "GRANT")

	db.exec("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA postrider_internal TO " + role)
	found = runDoctor(t, 1, env)
	requireFinding(t, found, "warn", "vacuum horizon", "role "+role+" cannot see")
	others := one[int](db,
		"SELECT count(*) FROM pg_stat_activity WHERE usename <> '"+role+"' AND backend_type = 'client backend'")
	require.Positive(t, others)
	require.NotContains(t, found["connections"].Message, " 0 other connections",
		"it counts sessions whose kind it may not see")
	db.exec(strings.TrimPrefix(found["vacuum horizon"].Remedy, "as a superuser: "))
	require.NotContains(t, runDoctor(t, 1, env)["vacuum horizon"].Message, "cannot see")
}
