package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newRejecting is an endpoint that responds 400.
func newRejecting(t *testing.T) string {
	t.Helper()
	e := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	t.Cleanup(e.Close)
	return e.URL
}

// buried is a service with dead letters of these events in topic orders.
func buried(t *testing.T, db *database, n *nodeProcess, settings string, bodies ...string) {
	t.Helper()
	key := n.topic("orders")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"%s}`, newRejecting(t), settings))
	for _, body := range bodies {
		n.publish("orders", key, body)
	}
	eventually(t, "all are dead letters", db.atLeast(len(bodies), "SELECT count(*) FROM postrider.dead_letters"))
}

const containerID = "/subscriptions/1b2/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/mystorage/" +
	"blobServices/default/containers/dead"

// A node is killed after it wrote its file and before it recorded that. The other node writes the file again, under its
// own name.
func TestKillBetweenTheFileAndItsMark(t *testing.T) {
	t.Parallel()
	db, directory := migratedDatabase(t), t.TempDir()
	flag := "--dead-letter-container=mystorage/dead=file://" + directory
	n := startNode(t, db, flag)
	buried(t, db, n,
		fmt.Sprintf(`,"deadLetterDestination":{"endpointType":"StorageBlob","properties":{"resourceId":%q}}`, containerID),
		order("1", 5), order("2", 5))

	blocker, err := db.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = blocker.Rollback(t.Context()) }()
	_, err = blocker.Exec(t.Context(), "SELECT pg_advisory_xact_lock(42)")
	require.NoError(t, err)
	db.exec(`CREATE FUNCTION postrider_internal.wait() RETURNS trigger
		LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN OLD; END'`)
	db.exec("CREATE TRIGGER wait BEFORE DELETE ON postrider_internal.exports FOR EACH ROW EXECUTE FUNCTION " +
		"postrider_internal.wait()")
	db.exec("UPDATE postrider_internal.dead_letters SET export_due_at = now()")
	eventually(t, "the node is about to record the export",
		db.atLeast(1, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"))
	found, err := filepath.Glob(directory + "/BILLING/*/*/*/*/*.json")
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, 2, one[int](db, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'pending'"))
	n.kill()
	// otherwise PostgreSQL would still execute the statement of the killed node
	db.exec("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted")
	require.NoError(t, blocker.Rollback(t.Context()))
	before, err := os.ReadFile(found[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(found[0], []byte("overwrite me"), 0o600))

	startNode(t, db, flag)
	eventually(t, "both are exported",
		db.atLeast(2, "SELECT count(*) FROM postrider.dead_letters WHERE export_state = 'exported' AND export_location = $1",
			"file://"+found[0]))
	after, err := os.ReadFile(found[0])
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
	var records []map[string]any
	require.NoError(t, json.Unmarshal(after, &records))
	require.Len(t, records, 2)
	require.Equal(t, "UndeliverableDueToHttpBadRequest", records[0]["deadletterreason"])
}

func TestDeadletterExport(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	buried(t, db, n, "", order("1", 5), "{\n \"specversion\":\"1.0\",\"id\":\"2\",\"source\":\"/shop\","+
		"\"type\":\"shop.order\",\n\t\"data\":{\"total\": 1e999, \"a\":1, \"a\":2}\n}")
	run := func(code int, flags ...string) result {
		t.Helper()
		r := postrider(t, n.cliEnv(), append([]string{"deadletter", "export"}, flags...)...)
		require.Equal(t, code, r.code, r.stderr)
		return r
	}
	records := run(0)
	require.Empty(t, records.stderr, "it is not a terminal")
	lines := strings.Split(strings.TrimSuffix(records.stdout, "\n"), "\n")
	require.Len(t, lines, 2)
	require.NotContains(t, records.stdout, "\u009b")
	slices.Sort(lines) // both may have the same time
	require.Contains(t, lines[1], `{"specversion":"1.0","id":"2","source":"/shop","type":"shop.order",`+
		`"data":{"total":1e999,"a":1,"a":2},"deadletterreason":"UndeliverableDueToHttpBadRequest","deliveryattempts":1,`)

	rows := strings.Split(run(0, "--format", "rows", "--topic", "orders", "--subscription", "billing", "--reason",
		"UndeliverableDueToHttpBadRequest").stdout, "\n")
	require.Len(t, rows, 3)
	if strings.Contains(rows[0], `"event_id":"2"`) {
		rows[1] = rows[0]
	}
	var row map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(rows[1]), &row))
	require.JSONEq(t, `"2"`, string(row["event_id"]))
	require.Equal(t,
		`{"specversion":"1.0","id":"2","source":"/shop","type":"shop.order","data":{"total":1e999,"a":1,"a":2}}`,
		string(row["body"]))
	columns := one[[]string](db, "SELECT array_agg(column_name::text) FROM information_schema.columns "+
		"WHERE table_schema = 'postrider' AND table_name = 'dead_letters'")
	for name := range row {
		require.Contains(t, columns, name, "it is called as in the view")
	}
	require.Empty(t, run(0, "--topic", "other").stdout)
	require.Empty(t, run(0, "--until", "2020-01-01T00:00:00Z").stdout)
	require.Empty(t, run(0, "--from", "2120-01-01T00:00:00Z").stdout)

	directory := t.TempDir()
	file := filepath.Join(directory, "dead.ndjson")
	for _, output := range []string{file, "file://" + file} {
		require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
		require.Empty(t, run(0, "-o", output).stdout)
		written, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(written), "\n"), output)
	}
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing half done is left")

	require.Contains(t, run(1, "-o", filepath.Join(directory, "missing", "x")).stderr, "no such file")
	require.Contains(t, run(2, "-o", "gs://bucket/x").stderr, "must begin with file://, s3:// or azblob://")
	require.Contains(t, run(2, "-o", "s3://bucket").stderr, "must name a file in the bucket")
	require.Contains(t, run(2, "--from", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z").stderr,
		"--from must be before --until")
	require.Contains(t, run(2, "--from", "yesterday").stderr, "yesterday")
}

func TestDeadLetterLocationsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	for flag, says := range map[string]string{
		"--dead-letter-location=/var/dead":                    `--dead-letter-location "/var/dead": must begin with file://`,
		"--dead-letter-location=file://var/dead":              "three slashes",
		"--dead-letter-location=s3://dead?role=arn:x":         `must have no parameter "role" in its query; s3:// has`,
		"--dead-letter-container=mystorage=s3://bucket":       "must be ACCOUNT/CONTAINER=URL",
		"--dead-letter-container=mystorage/dead=http://local": "must begin with file://",
	} {
		r := postrider(t, serveEnv(db), "serve", flag)
		require.Equal(t, 2, r.code)
		require.Contains(t, r.stderr, says)
	}
}
