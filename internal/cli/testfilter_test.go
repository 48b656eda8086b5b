package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// filteredService has a topic with three events and an event subscription whose filter matches one of them.
func filteredService(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	key := h.topic("orders")
	h.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"http://127.0.0.1:1/","endpointValidation":"skip","filter":{"subjectEndsWith":"1",`+
			`"advancedFilters":[{"operatorType":"NumberGreaterThan","key":"data.total","value":10}]}}`)
	for id, total := range map[string]int{"1": 20, "2": 5} {
		h.publish("orders", key, order(id, total))
	}
	h.publish("orders", key, order("31", 10))
	return h
}

func TestSubscriptionTestFilter(t *testing.T) {
	t.Parallel()
	h := filteredService(t)
	run := func(flags ...string) string {
		t.Helper()
		return h.run(0, append([]string{"subscription", "test-filter", "orders", "billing"}, flags...)...).stdout
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
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodPost, path, ""), asJSON)
	require.NotContains(t, asJSON, "\u009b")
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodPost, path, `{"last":1}`), run("--last", "1", "-o", "json"))

	brought, filter := writtenFile(t, order("9", 11)), writtenFile(t,
		`{"advancedFilters":[{"operatorType":"StringIn","key":"id","values":["9\u009b"],"value":null}]}`)
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodPost, path, `{"event":`+order("9", 11)+`}`),
		run("--event", brought, "-o", "json"))
	require.Contains(t, run("--event", brought), `must end with "1"`)
	require.Contains(t, run("--event", brought, "--filter", filter), "(1 of 1 event matched)",
		"a filter that is stored nowhere")
	require.Contains(t, run("--filter", filter), "(0 of 3 events matched)")
	require.Equal(t, 3, one[int](h, "SELECT count(*) FROM postrider.events"), "nothing is stored")

	piped := typed(t, strings.NewReader(order("91", 11)),
		h.reached(strings.Fields("subscription test-filter orders billing --event -"))...)
	require.Contains(t, piped.stdout, "(1 of 1 event matched)", piped.stderr)
}

func TestSubscriptionTestFilterRejects(t *testing.T) {
	t.Parallel()
	h := filteredService(t)
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
		require.Contains(t, h.line(row.code, "subscription test-filter "+row.args), row.says, row.name)
	}
}

// A topic that nothing was published to, and the JSON of it, which has a list all the same.
func TestSubscriptionTestFilterWithoutEvents(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("orders")
	h.subscribe("orders", "billing", "http://127.0.0.1:1/")
	r := h.run(0, "subscription", "test-filter", "orders", "billing", "-o", "json")
	var response map[string][]any
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &response))
	require.Equal(t, map[string][]any{"value": {}}, response)
}

func TestTopicTestFilter(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("acted")
	filter, event := writtenFile(t, `{"subjectEndsWith":"1"}`), writtenFile(t, order("9", 1))
	tried := func(flags ...string) []string { return append([]string{"topic", "test-filter", "acted"}, flags...) }
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodPost, "/v1/topics/acted/testFilter",
		`{"filter":{"subjectEndsWith":"1"},"event":`+order("9", 1)+`}`),
		mustJSON(t, h.object(tried("--filter", filter, "--event", event)...)))
	said := words(h.run(0, tried("--filter", filter, "--event", event)...).stdout)
	require.Equal(t, "EVENT ID TYPE SUBJECT MATCHED CLAUSE WHY NOT", said[0])
	require.Regexp(t, `^9 shop.order \S+ no subjectEndsWith the subject is .*, but must end with "1"$`, said[1])
	require.Equal(t, "(0 of 1 event matched)", said[2])
	h.run(2, tried("--filter", writtenFile(t, "{"))...)
	h.run(2, tried("--filter", "-", "--event", "-")...)
	h.run(2, tried("--event", event)...)
	h.run(2, tried("--filter", filter, "--last", "51")...)
}
