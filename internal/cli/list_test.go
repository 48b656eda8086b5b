package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is stored is listed and shown from the command line as the REST API has it.
func TestListsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	key := h.topic("orders")
	h.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"http://127.0.0.1:1/","endpointValidation":"skip","maxEventsPerBatch":10}`)
	for i := range 5 {
		h.publish("orders", key, order(fmt.Sprint(i), i))
	}
	h.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/subscriptions/billing/pause", "")
	h.exec("INSERT INTO postrider_internal.batches (subscription_id, state, members, delivery_ids, bytes) " +
		"SELECT min(subscription_id), 'delivered', 5, array_agg(id ORDER BY id), 10 FROM postrider_internal.deliveries")
	h.exec("UPDATE postrider_internal.deliveries d SET hold = NULL, batch_id = b.id FROM postrider_internal.batches b")
	run := h.line
	listed := func(line string) (list []map[string]any) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(run(0, line+" -o json")), &list))
		return list
	}
	api := func(path string) (page struct{ Value any }) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(h.manage(http.StatusOK, http.MethodGet, path, "")), &page))
		return page
	}
	same := func(line, path string) {
		t.Helper()
		got, err := json.Marshal(listed(line))
		require.NoError(t, err)
		want, err := json.Marshal(api(path).Value)
		require.NoError(t, err)
		require.JSONEq(t, steady(string(want)), steady(string(got)), line)
	}
	same("event list", "/v1/events")
	same("event list --topic orders --event-type "+listed("event list")[0]["eventType"].(string)+" --limit 2",
		"/v1/events?limit=2")
	same("delivery list --state pending --topic orders --subscription billing", "/v1/deliveries")
	same("delivery list --until 2026-01-01T00:00:00Z", "/v1/deliveries?state=dropped")
	same("batch list --topic orders", "/v1/batches")
	same("audit list --action subscription_paused", "/v1/audit?action=subscription_paused")
	same("operation list", "/v1/operations")
	same("problem list --within 24h", "/v1/problems?withinInMinutes=1440")
	require.Len(t, listed("event list"), 5)
	require.Empty(t, listed("event list --unmatched"))
	require.Len(t, listed("delivery list --limit 3"), 3)

	require.Regexp(t, `^TOPIC .* ATTEMPTS +429 % +LAST FAILED `, run(0, "problem list"))
	table := run(0, "event list --limit 1")
	require.Regexp(t, `(?m)^PUBLISHED +TOPIC +EVENT ID`, table)
	require.Contains(t, table, "orders")
	require.NotContains(t, table, "\u001b", "what publishers wrote does not colour the terminal")
	one := listed("event list --limit 1")[0]
	shown := run(0, "event show "+one["systemId"].(string))
	require.Regexp(t, `(?m)^matched by +1$`, shown)
	require.Contains(t, shown, `"specversion"`)
	require.Regexp(t, `(?m)^\d+ +orders +billing +`, shown, "its deliveries")
	batch := fmt.Sprint(listed("batch list")[0]["batchId"])
	require.Regexp(t, `(?m)^state +delivered$`, run(0, "batch show "+batch))
	var whole struct {
		BatchID    int64
		MembersCut []struct{ Position int }
	}
	require.NoError(t, json.Unmarshal([]byte(run(0, "batch show "+batch+" -o json")), &whole))
	require.Len(t, whole.MembersCut, 5)
	require.Contains(t, run(0, "audit list"), "subscription_paused")

	id := run(0, "deadletter purge --all --yes --no-wait -o json")
	var started struct{ OperationID string }
	require.NoError(t, json.Unmarshal([]byte(id), &started))
	require.Regexp(t, `(?m)^kind +purge$`, run(0, "operation show "+started.OperationID))
	require.Contains(t, run(0, "operation list"), started.OperationID)

	for line, says := range map[string]string{
		"event list --limit 0":     "--limit 0: must be 1 to 10000",
		"audit list --limit 10001": "--limit 10001: must be 1 to 10000",
		"event list --from 2026-11-20T00:00:00Z --until 2026-11-19T00:00:00Z":    "--from must be before --until",
		"delivery list --from 2026-11-20T00:00:00Z --until 2026-11-20T00:00:00Z": "--from must be before --until",
		"event show o-1":               "not the system id of an event",
		"delivery list --state dead":   "must be one of",
		"operation show x":             "not the id of an operation",
		"operation list --limit 10001": "must be 1 to 10000",
	} {
		require.Contains(t, run(2, line), says, line)
	}
	for line, says := range map[string]string{
		"batch show 4711":          "batch 4711 does not exist",
		"event show " + zeroID:     "does not exist",
		"operation show " + zeroID: "does not exist",
	} {
		require.Contains(t, run(1, line), says, line)
	}
}

var dueTime = regexp.MustCompile(`"nextAttemptAt": ?"[^"]*"`)

// steady is the same for two responses about deliveries that wait for a worker: these are due at the time of each
// response.
func steady(response string) string {
	return dueTime.ReplaceAllString(response, `"nextAttemptAt":"due"`)
}
