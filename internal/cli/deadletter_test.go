package cli_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDeadletterVerbs(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("orders")
	h.subscribe("orders", "billing", "http://127.0.0.1:1/")
	ids := h.deadLetters(4)
	run := func(code int, args ...string) result { return h.run(code, append([]string{"deadletter"}, args...)...) }
	require.Regexp(t,
		`(?s)^ID +CREATED .*\n`+ids[3]+
			` .* orders +billing +e-3 +Shop.OrderPlaced +MaxDeliveryAttemptsExceeded +30 +503 +-\n`+ids[2],
		run(0, "list").stdout)
	var list []map[string]any
	require.NoError(t,
		json.Unmarshal([]byte(run(0, "list", "--subject-prefix", "orders/", "--event-id", "e-1", "--from",
			"2024-01-01T00:00:00Z", "-o", "json").stdout), &list))
	require.Len(t, list, 1)
	require.Equal(t, ids[1], list[0]["deadLetterId"])
	require.Regexp(t, `(?m)^event +\{"id":"e-1"\}$`, run(0, "show", ids[1]).stdout)
	require.Contains(t, run(0, "show", ids[1], "-o", "json").stdout, `"event": {`)

	require.Equal(t, "4 dead letters match.\n", run(0, "redeliver", "--topic", "orders", "--dry-run").stdout)
	require.Regexp(t, `^`+ids[0]+` +redelivered as delivery \d+\n$`, run(0, "redeliver", ids[0]).stdout)
	require.Contains(t, run(1, "redeliver", ids[0]).stderr, "was redelivered already, at ")
	require.Contains(t, run(1, "redeliver", ids[0]).stderr, "; --again redelivers it once more")
	mixed := run(1, "redeliver", ids[0], ids[1])
	require.Contains(t, mixed.stdout, ids[1], "a rejected one does not prevent the others")
	run(0, "redeliver", ids[0], "--again", "--to-subscription", "billing", "--to-topic", "orders")
	require.Equal(t, "2 dead letters match.\n", run(0, "redeliver", "--all", "--dry-run").stdout,
		"those that were redelivered are left alone")

	require.Regexp(t, `^Operation \S+: running, (counting, \d so far|0 of 2 redelivered, 0 skipped, 0 failed).\n$`,
		run(0, "redeliver", "--all", "--rate", "5", "--no-wait").stdout)
	var operation map[string]any
	require.NoError(t,
		json.Unmarshal([]byte(run(0, "purge", "--yes", "--last-status", "503", "--redelivered", "--no-wait", "-o",
			"json").stdout), &operation))
	require.Equal(t, []any{"purge", "running", "admin"},
		[]any{operation["kind"], operation["state"], operation["startedBy"]})
	require.Equal(t, fmt.Sprintf("Operation %s was canceled.\n", operation["operationId"]),
		run(0, "cancel", operation["operationId"].(string)).stdout)
	require.Contains(t, run(0, "cancel", operation["operationId"].(string)).stdout, "had already ended")
	require.Regexp(t, `^[0-9]+ past events? match(es)?\.\n$`,
		run(0, "events", "orders", "billing", "--from", "2024-01-01T00:00:00Z", "--dry-run").stdout)
	require.Regexp(t, `"atLeast": false`,
		run(0, "events", "orders", "billing", "--from", "2024-01-01T00:00:00Z", "--dry-run", "-o", "json").stdout)
	require.Contains(t, run(0, "events", "orders", "billing", "--from", "2024-01-01T00:00:00Z", "--no-wait").stdout,
		"running")

	require.Equal(t, ids[3]+"  purged\n", run(0, "purge", ids[3], "--yes").stdout)
	require.Contains(t, run(1, "purge", ids[3], "--yes").stderr, "does not exist")
	require.Equal(t, int64(3), one[int64](h, "SELECT count(*) FROM postrider.deliveries"))
	require.Equal(t, int64(3),
		one[int64](h, "SELECT count(*) FROM postrider.audit WHERE actor = 'admin' AND action = 'dead_letter_redelivered'"))
}

func TestDeadletterUsage(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for code, rows := range map[int]map[string][]string{
		2: {
			"choose dead letters with ids, filters such as --topic, --ids-from or --all": {"redeliver"},
			"use either ids or filters, not both": {
				"purge", "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60", "--topic", "orders",
			},
			`"x": not the id of a dead letter`:      {"redeliver", "x"},
			"--to-topic requires --to-subscription": {"redeliver", "--all", "--to-topic", "orders"},
			"--rate -1: must be 1 or more":          {"purge", "--all", "--rate=-1"},
			"--expected-count require a filter or":  {"purge", "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60", "--dry-run"},
			"--limit 0: must be 1 to 10000":         {"list", "--limit", "0"},
			"--from must be before --until":         {"list", "--from", "1h", "--to", "2h"},
		},
		1: {
			`dead letter "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60" does not exist`: {
				"show", "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d60",
			},
			`operation "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d61" does not exist`: {
				"cancel", "0198c5a0-7b1e-7c3a-9d52-5f3a1c2b4d61",
			},
			`topic "orders" has no event subscription "billing"`: {
				"redeliver", "--all", "--to-subscription", "billing", "--to-topic", "orders",
			},
			"topic is required with subscription": {"redeliver", "--all", "--to-subscription", "billing"},
		},
	} {
		for says, args := range rows {
			require.Contains(t, h.run(code, append([]string{"deadletter"}, args...)...).stderr, says)
		}
	}
}
