package query_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/catalog"
	"postrider/internal/testnode"
)

// wantRows are the expected rows of the questions of docs/questions.sql, given testdata/questions.sql.
var wantRows = map[string]string{
	"pending": `[{"delivery_id": 101, "event_id": "order-43", "waits_for": "probation", "attempts": 1,` +
		` "last_outcome": "Busy", "last_status": 503},
		{"delivery_id": 102, "event_id": "order-43", "waits_for": "probation", "attempts": 0},
		{"delivery_id": 104, "event_id": "order-42", "waits_for": "probation"},
		{"delivery_id": 105, "waits_for": "probation"}, {"delivery_id": 106, "waits_for": "probation"}]`,
	"failing": `[{"topic": "orders", "subscription": "billing", "outcome": "Busy", "requests": 4}, {"outcome": ` +
		`"TimedOut", "requests": 2}]`,
	"event": `[{"topic": "orders", "matched": 2, "subscription": "billing", "state": "dead_lettered", "reason": ` +
		`"MaxDeliveryAttemptsExceeded", "attempts": 2, "last_status": 503, "delivery_id": 1, "body": {"data": {"text": ` +
		`"order-42"}}},
		{"subscription": "mail", "state": "delivered", "reason": null, "waits_for": null, "attempts": 1, "last_status": 200},
		{"subscription": "billing", "state": "pending", "waits_for": "probation", "delivery_id": 104}]`,
	"dead-letters": `[{"topic": "orders", "subscription": "billing", "reason": "MaxDeliveryAttemptsExceeded",` +
		` "last_status": 503, "dead_letters": 1}]`,
	"oldest": `[{"topic": "orders", "subscription": "mail", "oldest_delivery_id": 103}, {"subscription": ` +
		`"billing", "oldest_delivery_id": 101}]`,
	"backlogs": `[{"topic": "orders", "subscription": "billing", "pending_deliveries": 5}, {"subscription": "mail",` +
		` "pending_deliveries": 1}]`,
	"first-attempt": `[{"subscription": "billing", "ended": 1, "first_attempt_percent": 0, "delivered_percent": 0},` +
		` {"subscription": "mail", "ended": 4, "first_attempt_percent": 75.0, "delivered_percent": 100}]`,
	"latency": `[{"endpoint_base_url": "https://example.com/hook", "requests": 5, "p95_below_ms": 30000},` +
		` {"endpoint_base_url": "https://example.com/mail", "requests": 20, "p95_below_ms": 5}]`,
	"holds": `[{"topic": "orders", "subscription": "mail", "hold": "paused", "hold_cause": null, "hold_until": null},
		{"subscription": "billing", "hold": "probation", "hold_cause": "Busy", "probing": false, "endpoint_base_url": ` +
		`"https://example.com/hook"}]`,
	"failed-attempts": `[{"delivery_id": 101, "number": 1, "status": 503, "outcome": "Busy", "why": "503: step 1"},
		{"delivery_id": 1, "number": 2, "why": "503: attempt 2 of 2 failed", "response_excerpt": null}, {"delivery_id": 1,` +
		` "number": 1, "response_excerpt": "busy"}]`,
	"unmatched": `[{"topic": "orders", "event_id": "unmatched-2", "event_type": "Shop.OrderPlaced", "subject": ` +
		`"/unmatched-2"},` +
		` {"event_id": "unmatched-1"}]`,
	"batch": `[{"batch_id": 7, "state": "pending", "position": 1, "event_id": "order-43", "delivery_id": 105,` +
		` "left_reason": null}, {"position": 2, "delivery_id": 106, "left_reason": "OwnTime"}]`,
	"minutes": `[{"kind": "matched", "detail": "", "count": 2}, {"kind": "dead_lettered", "detail": ` +
		`"TimeToLiveExceeded",` +
		` "count": 1}, {"kind": "published", "count": 5}]`,
	"nodes": `[{"node": "node-b", "requests": 2, "failed": 1, "interrupted": 1, "average_ms": 15.0},
		{"node": "node-c", "requests": null}]`,
	"interrupted": `[{"topic": "orders", "subscription": "billing", "delivery_id": 101, "number": 1, "reruns": 1,` +
		` "outcome": "Busy", "node": "node-b"}]`,
	"lineage": `[{"subscription": "billing", "delivery_id": 1, "redelivered_from": null, "state": "dead_lettered",` +
		` "dead_letter_id": "00000000-0000-7000-8000-00000000000d"},
		{"delivery_id": 104, "redelivered_from": "00000000-0000-7000-8000-00000000000d", "state": "pending",` +
		` "dead_letter_id": null, "redelivered_at": null}]`,
	"changes": `[{"actor": "cli", "action": "subscription_replaced", "topic": "orders", "subscription": "billing"}]`,
	"policy": `[{"policy": "ga-2018", "endpoint_kind": "azure-resource"}, {"policy": "ga-2018", "endpoint_kind": ` +
		`"webhook"}, {"policy": "ga-2019", "endpoint_kind": "azure-resource"},
		{"policy": "ga-2019", "endpoint_kind": "webhook"}, {"policy": "ga-2021", "endpoint_kind": "azure-resource",` +
		` "condition": "503", "action": "retry", "min_delay_seconds": 30},
		{"policy": "ga-2021", "endpoint_kind": "webhook", "condition": "503", "action": "retry", "min_delay_seconds": 30},` +
		` {"policy": "ga-2026", "endpoint_kind": "azure-resource"}, {"policy": "ga-2026", "endpoint_kind": "webhook"},` +
		` {"policy": "namespace-2023", "endpoint_kind": "azure-resource"},
		{"policy": "namespace-2023", "endpoint_kind": "webhook"}, {"policy": "preview-2017", "endpoint_kind": ` +
		`"azure-resource"}, {"policy": "preview-2017", "endpoint_kind": "webhook"}]`,
	"handshakes": `[{"topic": "orders", "subscription": "new", "endpoint_base_url": "https://example.com/new", "state": ` +
		`"awaiting", "message": "open it to confirm"}]`,
}

// asReader queries as the role postrider_reader and returns the rows by column.
func asReader(t *testing.T, tn *testnode.Node, statement string) (rows []map[string]any) {
	t.Helper()
	tx := tn.Begin(t)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), "SET LOCAL ROLE postrider_reader")))
	found, err := tx.Query(t.Context(), "SELECT to_jsonb(q)::text FROM ("+statement+") q")
	require.NoError(t, err)
	lines, err := pgx.CollectRows(found, pgx.RowTo[string])
	require.NoError(t, err, statement)
	for _, line := range lines {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		rows = append(rows, row)
	}
	return rows
}

func plantedQuestions(t *testing.T) *testnode.Node {
	t.Helper()
	tn := testnode.WithTopic(t)
	tn.Subscribe(t, "orders", "billing", nil)
	tn.Subscribe(t, "orders", "mail", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL = "https://example.com/mail"
	})
	tn.Pause(t, "orders", "mail")
	tn.Exec(t, "DELETE FROM postrider_internal.audit")
	planted, err := os.ReadFile("testdata/questions.sql")
	require.NoError(t, err)
	tn.Exec(t, string(planted))
	return tn
}

// Each question of docs/questions.sql, word for word, returns the planted rows.
func TestQuestionsReturnTheirRows(t *testing.T) {
	t.Parallel()
	tn := plantedQuestions(t)
	//nolint:paralleltest // in parallel it could wait for other tests until the rows are older than five minutes
	for _, q := range docs.Questions() {
		t.Run(q.Name, func(t *testing.T) {
			rows := asReader(t, tn, q.SQL)
			if q.Name == "storage" {
				requireStorage(t, rows)
				return
			}
			var want []map[string]any
			require.NoError(t, json.Unmarshal([]byte(wantRows[q.Name]), &want))
			require.Len(t, rows, len(want), "%v", rows)
			for i := range want {
				for column, value := range want[i] {
					require.Contains(t, rows[i], column)
					require.Equal(t, value, rows[i][column], "row %d, %s: %v", i+1, column, rows[i])
				}
			}
		})
	}
	require.Len(t, asReader(t, tn, first(docs.Find("pending")).With(map[string]string{"subscription": "mail"})), 1)
	require.Empty(t, asReader(t, tn, first(docs.Find("event")).With(map[string]string{"event-id": "order-'42"})))
}

// requireStorage: a row for each day that has a part, and one for the tables without days.
func requireStorage(t *testing.T, rows []map[string]any) {
	t.Helper()
	require.GreaterOrEqual(t, len(rows), 3, "today, tomorrow and the tables without days; after midnight, yesterday too")
	for _, row := range rows {
		require.NotEmpty(t, row["total"])
	}
	require.Nil(t, rows[len(rows)-1]["day"])
}

func first(q docs.Question, known bool) docs.Question {
	if !known {
		panic("no such question")
	}
	return q
}
