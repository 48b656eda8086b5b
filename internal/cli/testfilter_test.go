package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The verb prints what the API responds for the newest events, an event or a filter in a file, and stores nothing.
// Package server has what is rejected.
func TestSubscriptionTestFilter(t *testing.T) {
	t.Parallel()
	h, key := billing(t, `,"filter":{"subjectEndsWith":"1",`+
		`"advancedFilters":[{"operatorType":"NumberGreaterThan","key":"data.total","value":10}]}`)
	run := func(flags string) string {
		t.Helper()
		return h.line(0, "subscription test-filter orders billing "+flags)
	}
	require.JSONEq(t, `{"value":[]}`, run("-o json"), "a list all the same")
	h.publish("orders", key, order("1", 20), order("2", 5), order("31", 10))
	require.Equal(t, []string{
		"EVENT ID TYPE SUBJECT MATCHED CLAUSE WHY NOT",
		"31 shop.order [31morders/31 no advancedFilters[0] data.total is 10, but must be greater than 10",
		// it is quoted
		`2 shop.order [31morders/2 no subjectEndsWith the subject is "\x1b[31morders/2", but must end with "1"`,
		"advancedFilters[0] data.total is 5, but must be greater than 10",
		"1 shop.order [31morders/1 yes",
		"(1 of 3 events matched)",
	}, words(run("")))

	const path, topicPath = "/v1/topics/orders/subscriptions/billing/testFilter", "/v1/topics/orders/testFilter"
	brought, filter := writtenFile(t, order("9", 11)), writtenFile(t,
		`{"advancedFilters":[{"operatorType":"StringIn","key":"id","values":["9\u009b"],"value":null}]}`)
	for flags, body := range map[string]string{
		"": "", "--last 1": `{"last":1}`, "--event " + brought: `{"event":` + order("9", 11) + `}`,
	} {
		asJSON := run(flags + " -o json")
		require.JSONEq(t, h.manage(http.StatusOK, http.MethodPost, path, body), asJSON)
		require.NotContains(t, asJSON, "\u009b")
	}
	require.Contains(t, run("--event "+brought+" --filter "+filter), "(1 of 1 event matched)",
		"a filter that is stored nowhere")
	piped := typed(t, strings.NewReader(order("91", 11)),
		h.reached(strings.Fields("subscription test-filter orders billing --event -"))...)
	require.Contains(t, piped.stdout, "(1 of 1 event matched)", piped.stderr)

	ends := writtenFile(t, `{"subjectEndsWith":"1"}`)
	onTopic := fmt.Sprintf("topic test-filter orders --filter %s --event %s", ends, brought)
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodPost, topicPath,
		`{"filter":{"subjectEndsWith":"1"},"event":`+order("9", 11)+`}`), h.line(0, onTopic+" -o json"))
	require.Contains(t, h.line(0, onTopic), "(0 of 1 event matched)")
	require.Equal(t, 3, one[int](h, "SELECT count(*) FROM postrider.events"), "nothing is stored")

	const of, none = "subscription test-filter orders billing ", "must be one JSON document"
	for line, says := range map[string]string{
		of + "--last 51": "--last 51: must be 1 to 50", of + "--last 1 --event -": "--event",
		of + "--filter - --event -":                           "cannot both be read from standard input",
		of + "--event nowhere.json":                           "nowhere.json",
		of + "--event " + writtenFile(t, ""):                  none,
		of + "--event " + writtenFile(t, "{},{}"):             none,
		of + "--filter " + writtenFile(t, " "):                none,
		"topic test-filter orders --filter - --event -":       "cannot both be read from standard input",
		"topic test-filter orders --event " + brought:         "--filter",
		"topic test-filter orders --last 51 --filter " + ends: "--last 51: must be 1 to 50",
	} {
		require.Contains(t, h.line(2, line), says, line)
	}
}
