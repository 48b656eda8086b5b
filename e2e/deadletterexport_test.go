package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// order is a CloudEvent with what a terminal would obey: a colour in its subject, a C1 control character in its id.
func order(id string, total int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s\u009b","source":"/shop","type":"shop.order",`+
		`"subject":"\u001b[31morders/%s","data":{"total":%d}}`, id, id, total)
}
