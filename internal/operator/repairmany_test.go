package operator_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/operator"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// setBody changes the event of a dead letter, as it was published.
func setBody(t *testing.T, tn *testnode.Node, letter uuid.UUID, body string) {
	t.Helper()
	tn.Exec(t, "UPDATE postrider_internal.dead_letters SET body = $2 WHERE id = $1", letter, []byte(body))
}

// A patch repairs each dead letter once, with steps by several nodes of which one died in each.
func TestRepairMany(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 30)
	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[3])
	const envelope = `"subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z"`
	setBody(t, tn, letters[5], `{"id":"x",`+envelope+`,"data":{"currency":"EUR"}}`)
	setBody(t, tn, letters[6], `{"id":"",`+envelope+`,"data":{}}`)
	setBody(t, tn, letters[8], `{"id":"z",  `+envelope+`,"data":{"n":1e400,"big":12345678901234567890}}`)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:ann", Role: access.RoleAdmin})
	do := operator.Action{Kind: operator.Repair, Patch: []byte(`{"data":{"currency":"EUR"}}`), Rate: 10}
	all := &query.DeadLetterFilter{Topic: new("orders")}

	preview, err := tn.System.Operator.PreviewRepair(ctx, all, &do)
	require.NoError(t, err)
	require.Equal(t, []int{29, 27, 1}, []int{preview.Matched, preview.Changed, preview.Unchanged})
	require.False(t, preview.AtLeast)
	require.Len(t, preview.Diffs, 3)
	require.Equal(t, operator.RepairDiff{DeadLetterID: letters[0], Changes: []operator.Change{{
		Path: "/data/currency", After: json.RawMessage(`"EUR"`),
	}}}, preview.Diffs[0])
	require.Empty(t, preview.Skipped)
	require.Equal(t, []operator.RepairCause{
		{Cause: "invalid", Count: 1, Samples: []operator.RepairSample{{
			DeadLetterID: letters[6],
			Message:      "event.id: must be 1 to 1024 bytes long, is 0",
		}}},
	}, preview.Failed)
	require.Zero(t, tn.Repairs(t, ""), "a dry run changes nothing")

	id, err := tn.System.Operator.OnDeadLetters(ctx, all, &do)
	require.NoError(t, err)
	tn.Operate(t)
	tn.Exec(t, "SELECT postrider.purge($1)", letters[4])
	for range 3 {
		lost, _ := reclaimOperation(t, tn)
		tn.Operate(t)
		_, more, err := tn.System.Operator.Operate(t.Context(), lost)
		require.NoError(t, err)
		require.False(t, more, "the node that was thought dead does nothing")
	}
	tn.RequireOperation(t, id, "repair done: matched 29 done 26 skipped 2 failed 1")
	require.Equal(t, "dead letter "+letters[6].String()+": the edited event is invalid", lastError(t, tn, id),
		"nothing of the event")
	require.Equal(t, 26, tn.Count(t, `SELECT count(DISTINCT redelivered_from) FROM postrider.deliveries
		WHERE edited_by = 'user:ann' AND operation_id = $1 AND edit = '{"data": {"currency": "EUR"}}'`, id))
	require.Equal(t, 27, tn.Pending(t, ""), "each once")
	require.Equal(t, 1, tn.Events(t, `convert_from(body, 'UTF8') = $1`,
		`{"id":"z",  `+envelope+`,"data":{"n":1e400,"big":12345678901234567890,"currency":"EUR"}}`), "other bytes are kept")
	require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider.audit WHERE action = 'operation_started'
		AND details -> 'paths' = '["/data/currency"]' AND strpos(details::text, 'EUR') = 0`), "paths, not values")
	require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider.operations o JOIN postrider_internal.operations i
		ON i.id = o.operation_id WHERE o.paths = '["/data/currency"]' AND i.patch IS NULL AND o.pending = 26`),
		"the patch is removed at the end")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))

	do.Again, do.IncludeUnchanged = true, true
	id, err = tn.System.Operator.OnDeadLetters(ctx, all, &do)
	require.NoError(t, err)
	tn.OperateOn(t)
	tn.RequireOperation(t, id, "repair done: matched 29 done 28 skipped 0 failed 1")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "operation_id = $1 AND edit IS NULL", id),
		"the unchanged one is redelivered as it is")
}

func TestRepairManyRejects(t *testing.T) {
	t.Parallel()
	tn, letters := testnode.ManyDeadLetters(t, 1)
	do := operator.Action{Kind: operator.Repair, Patch: []byte("7")}
	_, err := tn.System.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{}, &do)
	require.ErrorContains(t, err, "mergePatch must be a JSON object")
	_, err = tn.System.Operator.PreviewRepair(t.Context(), &query.DeadLetterFilter{}, &do)
	require.ErrorContains(t, err, "mergePatch must be a JSON object")
	do.Patch, do.To = []byte(`{"data":1}`), operator.Target{Topic: "orders", Subscription: "none"}
	_, err = tn.System.Operator.PreviewRepair(t.Context(), &query.DeadLetterFilter{}, &do)
	require.ErrorContains(t, err, `topic "orders" has no event subscription "none"`)

	tn.Exec(t, "UPDATE postrider_internal.topics SET deleted_at = now() WHERE name = 'orders'")
	preview, err := tn.System.Operator.PreviewRepair(t.Context(), &query.DeadLetterFilter{},
		&operator.Action{Patch: []byte(`{"data":1}`)})
	require.NoError(t, err)
	require.Equal(t, []operator.RepairCause{{Cause: "topic_deleted", Count: 1, Samples: []operator.RepairSample{{
		DeadLetterID: letters[0], Message: "its topic was deleted",
	}}}}, preview.Failed)
}

// What was erased after the count is not repaired, and a patch of custom events uses the topic's mapping.
func TestRepairManyCustomEvents(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.CustomTopic(t, "custom")
	tn.Subscribe(t, "custom", "all", nil)
	tn.Send(t, testnode.Custom("custom",
		`[{"no":1,"list":[1]}, {"no":2,"list":[]}, {"no":3}]`))
	letters := tn.DeadLetterAll(t)
	do := operator.Action{Kind: operator.Repair, Patch: []byte(`{"who":"ann","list":[2,3],"no":null}`)}
	preview, err := tn.System.Operator.PreviewRepair(t.Context(), &query.DeadLetterFilter{}, &do)
	require.NoError(t, err)
	require.Equal(t, 3, preview.Failed[0].Count)
	require.True(t, strings.HasPrefix(preview.Failed[0].Samples[0].Message, "event.no: is required"))
	do.Patch = []byte(`{"who":"ann","list":[2,3]}`)
	id := tn.BeginOperation(t, &query.DeadLetterFilter{}, do)
	tn.Operate(t)
	tn.Exec(t, "SELECT postrider.erase_event(system_id) FROM postrider.dead_letters WHERE dead_letter_id = $1", letters[2])
	tn.OperateOn(t)
	tn.RequireOperation(t, id, "repair done: matched 3 done 2 skipped 0 failed 1")
	require.Contains(t, lastError(t, tn, id), "its event was erased")
	require.Equal(t, 2, tn.Rows(t, "events",
		"subject = 'ann' AND body -> 'list' = '[2, 3]' AND event_id IN ('1', '2') AND edited_by IS NOT NULL"))
}
