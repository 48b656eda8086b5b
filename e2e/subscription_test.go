package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// order is a CloudEvent with what a terminal would obey: a colour in its subject, a C1 control character in its id.
func order(id string, total int) string {
	return fmt.Sprintf(`{"specversion":"1.0","id":"%s\u009b","source":"/shop","type":"shop.order",`+
		`"subject":"\u001b[31morders/%s","data":{"total":%d}}`, id, id, total)
}

// filteredService has a topic with three events and an event subscription whose filter matches one of them.
func filteredService(t *testing.T) (*database, *nodeProcess) {
	t.Helper()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	key := n.topic("orders")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"http://127.0.0.1:1/","endpointValidation":"skip","filter":{"subjectEndsWith":"1",`+
			`"advancedFilters":[{"operatorType":"NumberGreaterThan","key":"data.total","value":10}]}}`)
	for id, total := range map[string]int{"1": 20, "2": 5} {
		n.publish("orders", key, order(id, total))
	}
	n.publish("orders", key, order("31", 10))
	return db, n
}

func TestSubscriptionTestFilter(t *testing.T) {
	t.Parallel()
	db, n := filteredService(t)
	run := func(flags ...string) string {
		t.Helper()
		r := postrider(t, n.cliEnv(), append([]string{"subscription", "test-filter", "orders", "billing"}, flags...)...)
		require.Zero(t, r.code, r.stderr)
		return r.stdout
	}
	table := words(run())
	require.Len(t, table, 6)
	require.Equal(t,
		[]string{"EVENT ID TYPE SUBJECT MATCHED CLAUSE WHY NOT", "31 shop.order [31morders/31 no advancedFilters[0] " +
			"data.total is 10, but must be greater than 10"}, table[:2])
	require.ElementsMatch(t, []string{
		"1 shop.order [31morders/1 yes",
		// it is quoted
		`2 shop.order [31morders/2 no subjectEndsWith the subject is "\x1b[31morders/2", but must end with "1"`,
		"advancedFilters[0] data.total is 5, but must be greater than 10",
	}, table[2:5])
	require.Equal(t, "(1 of 3 events matched)", table[5])

	const path = "/v1/topics/orders/subscriptions/billing/testFilter"
	asJSON := run("-o", "json")
	require.JSONEq(t, n.manage(http.StatusOK, http.MethodPost, path, ""), asJSON)
	require.NotContains(t, asJSON, "\u009b")
	require.JSONEq(t, n.manage(http.StatusOK, http.MethodPost, path, `{"last":1}`), run("--last", "1", "-o", "json"))

	brought, filter := writtenFile(t, order("9", 11)), writtenFile(t,
		`{"advancedFilters":[{"operatorType":"StringIn","key":"id","values":["9\u009b"],"value":null}]}`)
	require.JSONEq(t, n.manage(http.StatusOK, http.MethodPost, path, `{"event":`+order("9", 11)+`}`),
		run("--event", brought, "-o", "json"))
	require.Contains(t, run("--event", brought), `must end with "1"`)
	require.Contains(t, run("--event", brought, "--filter", filter), "(1 of 1 event matched)",
		"a filter that is stored nowhere")
	require.Contains(t, run("--filter", filter), "(0 of 3 events matched)")
	require.Equal(t, 3, one[int](db, "SELECT count(*) FROM postrider.events"), "nothing is stored")

	piped := startProcess(t, n.cliEnv(), "sh", "-c", `"$0" subscription test-filter orders billing --event - < "$1"`,
		program, writtenFile(t, order("91", 11)))
	require.Zero(t, piped.wait(), piped.stderr.String())
	require.Contains(t, piped.stdout.String(), "(1 of 1 event matched)")
}

func writtenFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.json")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestSubscriptionTestFilterRejects(t *testing.T) {
	t.Parallel()
	_, n := filteredService(t)
	for _, row := range []struct {
		name string
		code int
		args string
		says string
	}{
		{"no such event subscription", 1, "orders none", `topic "orders" has no event subscription "none"`},
		{"no such topic", 1, "nowhere billing", `topic "nowhere" has no event subscription "billing"`},
		{"no name", 2, "orders", "<subscription>"},
		{"too many", 2, "orders billing --last 51", "--last 51: must be 1 to 50"},
		{"none", 2, "orders billing --last 0", "--last 0: must be 1 to 50"},
		{"an event and the last ones", 2, "orders billing --last 1 --event -", "--event"},
		{"two from standard input", 2, "orders billing --filter - --event -", "cannot both be read from standard input"},
		{"a file that is not there", 2, "orders billing --event nowhere.json", "nowhere.json"},
		{"no event", 1, "orders billing --event " + writtenFile(t, "[]"), "event must be an object: one event in schema " +
			"CloudEventSchemaV1_0"},
		{"an empty file", 2, "orders billing --event " + writtenFile(t, ""), "must be one JSON document"},
		{
			"two events", 2, "orders billing --event " + writtenFile(t, order("1", 1)+","+order("2", 2)),
			"must be one JSON document",
		},
		{"a wrong event", 1, "orders billing --event " +
			writtenFile(t, `{"specversion":"1.0","id":"1","source":"/"}`), "event.type: is required"},
		{
			"a wrong filter", 1,
			"orders billing --filter " + writtenFile(t, `{"advancedFilters":[{"operatorType":"NumberLike","key":"a"}]}`),
			"filter.advancedFilters[0].operatorType",
		},
		{
			"an unknown property", 1, "orders billing --filter " + writtenFile(t, `{"subject":"a","types":[]}`),
			"filter.subject",
		},
		{"no filter", 2, "orders billing --filter " + writtenFile(t, " "), "must be one JSON document"},
	} {
		r := postrider(t, n.cliEnv(), append([]string{"subscription", "test-filter"}, strings.Fields(row.args)...)...)
		require.Equal(t, row.code, r.code, "%s: %s%s", row.name, r.stdout, r.stderr)
		require.Contains(t, r.stderr, row.says, row.name)
	}
}

// A topic that nothing was published to, and the JSON of it, which has a list all the same.
func TestSubscriptionTestFilterWithoutEvents(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--role", "api")
	n.topic("orders")
	n.subscribe("orders", "billing", "http://127.0.0.1:1/")
	r := postrider(t, n.cliEnv(), "subscription", "test-filter", "orders", "billing", "-o", "json")
	require.Zero(t, r.code, r.stderr)
	var response map[string][]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &response))
	require.Equal(t, map[string][]any{"value": {}}, response)
}
