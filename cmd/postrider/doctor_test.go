package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/destination"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testdb"
	"postrider/internal/testnode"
	"postrider/jobs"
)

// runDoctor runs the doctor on a database, which is not durable in tests: the exit code is 1. It returns the finding of
// each check, the worst of several.
func runDoctor(t *testing.T, url string, flags ...string) map[string]finding {
	t.Helper()
	r := postrider(t, nil, append([]string{"doctor", "-o", "json", "--database-url", url}, flags...)...)
	require.Equal(t, 1, r.code, r.stdout+r.stderr)
	var list []finding
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
	found := map[string]finding{}
	for _, f := range list {
		require.Equal(t, f.Level == ok, f.Remedy == "", f)
		if before := found[f.Check]; before.Level == "" || before.Level == ok || f.Level == fail {
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

// The doctor checks the addresses of stored endpoints without connecting.
func TestDoctorChecksStoredEndpoints(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	requireFinding(t, runDoctor(t, tn.URL), ok, "egress", "no event subscription has an endpoint yet")
	tn.Topic(t, "orders")
	subscribe := func(name, endpoint string) {
		tn.Subscribe(t, "orders", name, func(s *catalog.SubscriptionSpec) { s.EndpointURL = endpoint })
	}
	subscribe("billing", "http://127.0.0.1:1/in?code=secret")
	subscribe("audit", "http://127.0.0.1:1/other")
	allowed := []string{"--allow-cidr", "127.0.0.0/8"}
	requireFinding(t, runDoctor(t, tn.URL, allowed...), ok, "egress", "1 host of stored endpoints may be called")
	rejected := runDoctor(t, tn.URL, "--allow-cidr", "10.0.0.0/8")
	requireFinding(t, rejected, warn, "egress", "of 2 event subscriptions, such as orders/audit: ")
	require.Contains(t, rejected["egress"].Remedy, "--allow-cidr")
	require.Contains(t, rejected["egress"].Remedy, "with the flags of the service")

	subscribe("audit", "https://nowhere.invalid/in")
	requireFinding(t, runDoctor(t, tn.URL, allowed...), warn, "egress",
		"of 1 event subscription, such as orders/audit: https://nowhere.invalid")
	requireFinding(t, runDoctor(t, tn.URL, append(allowed, "--delivery-proxy", "http://proxy:3128")...), ok, "egress",
		"the proxy checks")
	broker := func(name string, servers ...string) {
		tn.Subscribe(t, "orders", name, func(s *catalog.SubscriptionSpec) {
			s.EndpointURL, s.Destination = "", &destination.Destination{
				EndpointType: destination.Kafka, Properties: &destination.Properties{Servers: servers, Topic: "orders"},
			}
		})
	}
	broker("audit", "127.0.0.1:9092", "nowhere.invalid:9092")
	requireFinding(t, runDoctor(t, tn.URL, allowed...), ok, "egress", "2 hosts of stored endpoints may be called")
	broker("audit", "nowhere.invalid:9092")
	unresolved := runDoctor(t, tn.URL, allowed...)
	requireFinding(t, unresolved, warn, "egress", "such as orders/audit: kafka://nowhere.invalid:9092")
	require.Contains(t, unresolved["egress"].Remedy, "correct the host in the destination")
	for i := range checkedHosts {
		subscribe(fmt.Sprintf("more-%d", i), fmt.Sprintf("http://127.0.0.1:%d/", 9000+i))
	}
	require.Contains(t, runDoctor(t, tn.URL, allowed...)["egress"].Message, "2 further hosts of stored endpoints")
}

// The doctor finds the faults of a real database. TestDoctorChecks has the others.
func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	url := testdb.Clone(t)
	tn := testnode.Open(t, url, node.Options{Node: "node-1", PartitionsAhead: jobs.PartitionsAhead})
	require.NoError(t, tn.System.Maintenance.EnsurePartitions(t.Context()))
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	require.NoError(t, catalog.CheckKey(t.Context(), tn.Pool, sealer))
	found := runDoctor(t, url, "--encryption-key", testEncryptionKey)
	for _, check := range []string{
		"version", "clock", "schema", "autovacuum", "vacuum horizon", "partitions", "connections", "encryption key",
	} {
		requireFinding(t, found, ok, check, "")
	}
	tn.Exec(t, "ALTER TABLE postrider_internal.river_job SET (autovacuum_enabled = off)")
	name := tn.Text(t, "SELECT quote_ident(current_database())")
	tn.Exec(t, "ALTER DATABASE "+name+" SET statement_timeout = '5min'")
	tn.Exec(t, "ALTER DATABASE "+name+" SET synchronous_commit = off")
	tn.Exec(t, "CREATE TABLE postrider_internal.events_rest PARTITION OF postrider_internal.events DEFAULT")
	found = runDoctor(t, url, "--encryption-key", "kS8v0w1JrQ2ZbV5n9XcTfLhYdM3uAeGi7oPpRqWsE4U=", "--max-conns", "1000")
	requireFinding(t, found, warn, "autovacuum", "autovacuum is off for table river_job")
	requireFinding(t, found, ok, "settings", "")
	requireFinding(t, found, fail, "durability", "")
	requireFinding(t, found, warn, "partitions", "events has a default partition")
	requireFinding(t, found, warn, "connections", "1 node with up to 1002 connections")
	requireFinding(t, found, warn, "nodes", "no node that delivers")
	requireFinding(t, found, fail, "encryption key", "sealed with key")
	require.Contains(t, runDoctor(t, url)["encryption key"].Remedy, "to the key of the nodes")
	requireFinding(t, runDoctor(t, url, "--encryption-key", "short"), fail, "encryption key", "")

	writer, err := pgx.Connect(t.Context(), url+"&default_transaction_read_only=off")
	require.NoError(t, err)
	defer writer.Close(context.Background())
	exec := func(statement string) {
		require.NoError(t, testnode.ErrorOf(writer.Exec(t.Context(), statement)))
	}
	exec("ALTER DATABASE " + name + " SET default_transaction_read_only = on")
	exec("ALTER DATABASE " + name + " SET enable_nestloop = off")
	found = runDoctor(t, url+"&statement_timeout=5000")
	requireFinding(t, found, fail, "writes", "default_transaction_read_only is on")
	require.Contains(t, found["writes"].Remedy, " RESET default_transaction_read_only")
	requireFinding(t, found, warn, "settings", "statement_timeout is 5000 ms")
	exec("ALTER DATABASE " + name + " RESET default_transaction_read_only")
	found = runDoctor(t, url)
	requireFinding(t, found, warn, "settings", "enable_nestloop is off")
	exec(strings.TrimPrefix(found["settings"].Remedy, "run: "))
	requireFinding(t, runDoctor(t, url), ok, "settings", "")
}

func TestDoctorWithoutADatabaseOrRights(t *testing.T) {
	t.Parallel()
	requireFinding(t, runDoctor(t, "postgres://127.0.0.1:1/none"), fail, "connection",
		"no connection to 127.0.0.1:1: connection refused")
	requireFinding(t, runDoctor(t, "postgres://%zz"), fail, "connection", "is invalid")
	requireFinding(t, runDoctor(t, testdb.Empty(t)), fail, "schema", "this program needs")

	tn := testnode.Open(t, testdb.Clone(t), node.Options{Node: "node-1"})
	role := pgx.Identifier{"doctor_" + tn.Text(t, "SELECT current_database()")}.Sanitize()
	tn.Exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
	defer tn.Exec(t, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	u, err := url.Parse(tn.URL)
	require.NoError(t, err)
	u.User = url.UserPassword(strings.Trim(role, `"`), "x")
	requireFinding(t, runDoctor(t, u.String()), fail, "schema", "its version cannot be read")
	tn.Exec(t, "GRANT USAGE ON SCHEMA postrider_internal TO "+role+
		"; GRANT SELECT ON ALL TABLES IN SCHEMA postrider_internal TO "+role)
	found := runDoctor(t, u.String())
	requireFinding(t, found, fail, "rights", "may not read and write")
	require.Contains(t, found["rights"].Remedy, "GRANT")

	tn.Exec(t, "GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA postrider_internal TO "+role)
	found = runDoctor(t, u.String())
	requireFinding(t, found, warn, "vacuum horizon", "cannot see")
	require.NotContains(t, found["connections"].Message, " 0 other connections",
		"it counts sessions whose kind it may not see")
	tn.Exec(t, strings.TrimPrefix(found["vacuum horizon"].Remedy, "as an administrator: "))
	require.NotContains(t, runDoctor(t, u.String())["vacuum horizon"].Message, "cannot see")
}
