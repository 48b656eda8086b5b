package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testnode"
)

// What is stored is listed and shown from the command line as the REST API has it.
func TestListsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	h, key := billing(t, `,"maxEventsPerBatch":10`)
	for i := range 5 {
		h.publish("orders", key, order(fmt.Sprint(i), i))
	}
	h.pause()
	h.Exec(t, "INSERT INTO postrider_internal.batches (subscription_id, state, members, delivery_ids, bytes) "+
		"SELECT min(subscription_id), 'delivered', 5, array_agg(id ORDER BY id), 10 FROM postrider_internal.deliveries")
	h.Exec(t, "UPDATE postrider_internal.deliveries d SET hold = NULL, batch_id = b.id FROM postrider_internal.batches b")
	listed := func(line string) (list []map[string]any) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(h.line(0, line+" -o json")), &list))
		return list
	}
	for line, path := range map[string]string{
		"event list": "/v1/events", "event list --topic orders --event-type shop.order --limit 2": "/v1/events?limit=2",
		"delivery list --state pending --topic orders --subscription billing": "/v1/deliveries",
		"delivery list --until 2026-01-01T00:00:00Z":                          "/v1/deliveries?state=dropped",
		"batch list --topic orders":                                           "/v1/batches",
		"audit list --action subscription_paused":                             "/v1/audit?action=subscription_paused",
		"operation list":            "/v1/operations",
		"problem list --within 24h": "/v1/problems?withinInMinutes=1440",
	} {
		var page struct{ Value any }
		require.NoError(t, json.Unmarshal([]byte(h.manage(http.StatusOK, http.MethodGet, path, "")), &page))
		require.JSONEq(t, steady(mustJSON(t, page.Value)), steady(mustJSON(t, listed(line))), line)
	}
	require.Len(t, listed("event list"), 5)
	require.Empty(t, listed("event list --unmatched"))
	require.Len(t, listed("delivery list --limit 3"), 3)

	require.Regexp(t, `^ID +STATE +TOPIC .* SINCE +LAST FAILED +FAILURES +ATTEMPTS +429 % +`, h.line(0, "problem list"))
	table := h.line(0, "event list --limit 1")
	require.Regexp(t, `(?m)^PUBLISHED +TYPE +SUBJECT +EVENT ID +TOPIC`, table)
	require.NotContains(t, table, "\u001b", "what publishers wrote does not color the terminal")
	shown := h.line(0, "event show "+listed("event list --limit 1")[0]["systemId"].(string))
	require.Regexp(t, `(?m)^matched +1$`, shown)
	require.Contains(t, shown, `"specversion"`)
	require.Regexp(t, `(?m)^\d+ +pending .* orders +billing +`, shown, "its deliveries")
	batch := []string{"batch", "show", fmt.Sprint(listed("batch list")[0]["batchId"])}
	require.Regexp(t, `(?m)^state +delivered$`, h.run(0, batch...).stdout)
	require.Len(t, rest.Objects(h.object(batch...), "membersCut"), 5)
	require.Contains(t, h.line(0, "audit list"), "subscription_paused")

	started := h.object("deadletter", "purge", "--all", "--yes", "--no-wait")["operationId"].(string)
	require.Regexp(t, `(?m)^kind +purge$`, h.line(0, "operation show "+started))
	require.Contains(t, h.line(0, "operation list"), started)
}

var dueTime = regexp.MustCompile(`"nextAttemptAt": ?"[^"]*"`)

// steady is the same for two responses about deliveries that wait for a worker: these are due at the time of each
// response.
func steady(response string) string {
	return dueTime.ReplaceAllString(response, `"nextAttemptAt":"due"`)
}

// What people on call do to deliveries, event subscriptions and events: the audit has each, with who did it and from
// where.
func TestOperateFromTheCommandLine(t *testing.T) {
	t.Parallel()
	h, key := billing(t)
	for i := range 5 {
		h.publish("orders", key, order(fmt.Sprint(i), i))
	}
	ids := one[[]int64](h, "SELECT array_agg(delivery_id ORDER BY delivery_id) FROM postrider.deliveries")
	systemID := one[string](h, "SELECT max(system_id::text) FROM postrider.events WHERE subject LIKE '%/3'")
	for _, row := range []struct {
		code       int
		line, says string
	}{
		{0, fmt.Sprint("delivery cancel --yes ", ids[0]), fmt.Sprintf("^Delivery %d was canceled.\n$", ids[0])},
		{1, fmt.Sprint("delivery cancel --yes ", ids[0]), fmt.Sprintf("delivery %d has ended: canceled\n$", ids[0])},
		{
			0, fmt.Sprint("delivery dead-letter-now ", ids[1]),
			fmt.Sprintf("^Delivery %d became dead letter [0-9a-f-]{36}\\.\n$", ids[1]),
		},
		{0, fmt.Sprint("delivery show ", ids[1]), `(?m)^state +dead_lettered$`},
		{
			0, fmt.Sprint("delivery retry-now ", ids[2]),
			fmt.Sprintf("^The next attempt of delivery %d is due now.\n$", ids[2]),
		},
		{
			0, "subscription pause orders billing --stop-time-to-live",
			"^Event subscription billing of topic orders: paused.\n$",
		},
		{1, fmt.Sprint("delivery retry-now ", ids[2]), `is paused`},
		{0, "subscription resume orders billing", "^Event subscription billing of topic orders: resumed.\n$"},
		{0, "subscription release orders billing", "^Event subscription billing of topic orders: released.\n$"},
		{0, "event erase --yes " + systemID, "^Events erased: 1\n$"},
		{0, "event erase --yes " + systemID, "^Events erased: 0\n$"},
		{0, "event erase --topic orders --yes --subject \u001b[31morders/4", "^Events erased: 1\n$"},
	} {
		require.Regexp(t, row.says, h.line(row.code, row.line), row.line)
	}
	retried := h.object("delivery", "retry-now", fmt.Sprint(ids[2]))
	require.JSONEq(t, steady(h.manage(http.StatusOK, http.MethodGet, fmt.Sprint("/v1/deliveries/", ids[2]), "")),
		steady(mustJSON(t, retried)))
	require.Equal(t, "paused", rest.ValueAt(h.object("subscription", "pause", "orders", "billing"), "hold.reason"))
	require.JSONEq(t, mustJSON(t, h.object("subscription", "resume", "orders", "billing")),
		h.manage(http.StatusOK, http.MethodGet, "/v1/topics/orders/subscriptions/billing", ""))
	require.Equal(t, []string{
		"delivery_canceled", "delivery_dead_lettered", "subscription_paused", "subscription_resumed", "subscription_released",
		"event_erased", "event_erased", "subject_erased", "subscription_paused", "subscription_resumed",
	},
		one[[]string](h, "SELECT array_agg(action ORDER BY audit_id) FROM postrider.audit WHERE actor = 'admin' "+
			"AND address = '127.0.0.1' AND action NOT IN ('topic_created', 'subscription_created')"))
}

// The command line saves, lists, runs and deletes queries.
func TestQueryVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.createQueryLogins()
	run := func(args ...string) string { return h.run(0, append([]string{"query"}, args...)...).stdout }
	require.Equal(t, "Query sum was saved.\n", run("save", "sum", "--description", "Adds", "--sql",
		"select $1::int + $2::int as n, '=1' as t"))
	require.Equal(t, "n,t\n3,'=1\n", run("run", "sum", "--arg", "1=1", "--arg", "2=2", "-o", "csv"))
	require.JSONEq(t, `[{"n": 3, "t": "=1"}]`, run("run", "sum", "--arg", "1=1", "--arg", "2=2", "-o", "json"))
	require.Equal(t, "n  t\n3  =1\n(1 row)\n", run("run", "sum", "--arg", "1=1", "--arg", "2=2"))
	require.Contains(t, run("run", "sum", "--arg", "1=1", "--arg", "2=2", "--plan"), "cost=")
	require.Equal(t, "n\n5\n", run("run", "--sql", "select $1::int as n", "--arg", "1=5", "-o", "csv"))
	require.Equal(t, "c\na [31m\n", run("run", "--sql", `select e'a\x1b[31m' as c`, "-o", "csv"), "no control characters")
	list := run("list")
	require.Contains(t, list, "sum")
	require.Contains(t, list, "dead-letters", "the documented questions are templates")
	require.Contains(t, run("show", "sum"), "select $1::int + $2::int")
	require.Contains(t, run("show", "backlogs"), "desc limit 10\n", "the whole SQL")
	require.Contains(t, run("run", "pending", "--arg", "topic=orders", "--arg", "subscription=billing"), "(0 rows)")
	more := h.run(0, "query", "run", "--sql", "select generate_series(1, 5)", "--limit", "2", "-o", "csv")
	require.Contains(t, more.stderr, "only the first 2 are shown")
	h.line(2, "query run --sql x --arg a=1")
	require.Contains(t, h.run(2, "query", "run", "--sql", "delete from topics").stderr, "syntax error")
	require.Equal(t, "Query sum was deleted.\n", run("delete", "sum"))
}

// createQueryLogins creates the login roles that run queries, as migrate up does.
func (h *host) createQueryLogins() {
	h.t.Helper()
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(h.t, err)
	require.NoError(h.t, sqlquery.EnsureLogins(h.t.Context(), h.System.DB, h.System.DB, sealer))
}
