package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/access"
	"postrider/operator"
	"postrider/postgres"
)

// repairMany makes a selection of dead letters.
func repairMany(t *testing.T, n int) (b *bundle, letters []uuid.UUID, s *operator.Selection) {
	t.Helper()
	b, letters = deadMany(t, n)
	s, err := b.store.Operator.SelectDeadLetters(t.Context(), letters)
	require.NoError(t, err)
	return b, letters, s
}

// setBody changes the event of a dead letter, as it was published.
func (b *bundle) setBody(t *testing.T, letter uuid.UUID, body string) {
	t.Helper()
	b.exec(t, "UPDATE postrider_internal.dead_letters SET body = $2 WHERE id = $1", letter, []byte(body))
}

// A patch repairs each dead letter once, with steps by several nodes of which one died in each.
func TestRepairSelection(t *testing.T) {
	t.Parallel()
	b, letters, s := repairMany(t, 30)
	b.exec(t, "SELECT postrider.redeliver($1)", letters[3])
	b.exec(t, "SELECT postrider.purge($1)", letters[4])
	const envelope = `"subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z"`
	b.setBody(t, letters[5], `{"id":"x",`+envelope+`,"data":{"currency":"EUR"}}`)
	b.setBody(t, letters[6], `{"id":"",`+envelope+`,"data":{}}`)
	b.setBody(t, letters[7], `{"id":"y",`+envelope+`,"data":{"pad":"`+strings.Repeat("x", 1<<20-100)+`"}}`)
	b.setBody(t, letters[8], `{"id":"z",  `+envelope+`,"data":{"n":1e400,"big":12345678901234567890}}`)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:ann", Role: access.RoleAdmin})
	do := operator.Action{Kind: operator.Repair, Patch: []byte(`{"data":{"currency":"EUR"}}`), Rate: 10}

	preview, err := b.store.Operator.PreviewRepair(ctx, s.ID, &do)
	require.NoError(t, err)
	require.Equal(t, []int{30, 30, 25, 1}, []int{preview.Matched, preview.Checked, preview.Changed, preview.Unchanged})
	require.False(t, preview.AtLeast)
	require.Len(t, preview.Diffs, 3)
	require.Equal(t, letters[0], preview.Diffs[0].DeadLetterID)
	require.Contains(t, preview.Diffs[0].Diff, "-  \"data\": {}\n+  \"data\": {\n+    \"currency\": \"EUR\"\n+  }\n")
	require.Equal(t, []operator.RepairCause{
		{Cause: "redelivered", Count: 1, Samples: []operator.RepairSample{{
			DeadLetterID: letters[3],
			Message:      "it was redelivered before",
		}}},
		{Cause: "missing", Count: 1, Samples: []operator.RepairSample{{
			DeadLetterID: letters[4],
			Message:      "it no longer exists",
		}}},
	}, preview.Skipped)
	require.Equal(t, []operator.RepairCause{
		{Cause: "invalid", Count: 1, Samples: []operator.RepairSample{{
			DeadLetterID: letters[6],
			Message:      "event.id: must be 1 to 1024 bytes long, is 0",
		}}},
		{Cause: "size", Count: 1, Samples: []operator.RepairSample{{
			DeadLetterID: letters[7],
			Message:      "event: an event has at most 1048576 bytes, this one has 1048589",
		}}},
	}, preview.Failed)
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.repairs"), "a dry run changes nothing")

	id, err := b.store.Operator.ActOnSelection(ctx, s.ID, &do)
	require.NoError(t, err)
	for range 3 {
		lost, _ := b.reclaimOperation(t)
		b.operate(t)
		_, more, err := b.store.Operator.Operate(t.Context(), lost)
		require.NoError(t, err)
		require.False(t, more, "the node that was thought dead does nothing")
	}
	b.requireOperation(t, id, "repair done: matched 30 done 25 skipped 3 failed 2")
	require.Equal(t, []string{
		"4 redelivered skipped", "5 missing skipped", "6 unchanged skipped",
		"7 invalid: event.id: must be 1 to 1024 bytes long, is 0 failed",
		"8 size: event: an event has at most 1048576 bytes, this one has 1048589 failed",
	}, b.results(t, id))
	require.Equal(t, 25, b.count(t, `SELECT count(DISTINCT redelivered_from) FROM postrider.deliveries
		WHERE edited_by = 'user:ann' AND operation_id = $1
		AND edit = '[{"op": "add", "path": "/data/currency", "value": "EUR"}]'`, id))
	require.Equal(t, 26, b.count(t, "SELECT count(*) FROM postrider_internal.deliveries"), "each once")
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM postrider_internal.events WHERE convert_from(body, 'UTF8') = $1`,
		`{"id":"z",  `+envelope+`,"data":{"n":1e400,"big":12345678901234567890,"currency":"EUR"}}`), "other bytes are kept")
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM postrider.audit WHERE action = 'operation_started'
		AND details -> 'paths' = '["/data/currency"]' AND strpos(details::text, 'EUR') = 0`), "paths, not values")
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM postrider.operations o JOIN postrider_internal.operations i
		ON i.id = o.operation_id WHERE o.paths = '["/data/currency"]' AND i.patch IS NULL AND o.pending = 25`),
		"the patch is removed at the end")
	require.Zero(t, b.count(t, brokenTokens))

	do.Again, do.IncludeUnchanged = true, true
	id, err = b.store.Operator.ActOnSelection(ctx, s.ID, &do)
	require.NoError(t, err)
	b.operateOn(t)
	b.requireOperation(t, id, "repair done: matched 30 done 27 skipped 1 failed 2")
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE operation_id = $1 AND edit IS NULL",
		id),
		"the unchanged one is redelivered as it is")
}

// An item fails with its path if a test of the patch fails.
func TestRepairSelectionTests(t *testing.T) {
	t.Parallel()
	b, letters, s := repairMany(t, 3)
	b.setBody(t, letters[1],
		`{"id":"x","subject":"s","eventType":"test","eventTime":"2026-01-01T00:00:00Z","data":{"v":1.0}}`)
	id := b.actOn(t, s, operator.Action{Kind: operator.Repair, Patch: []byte(
		`[{"op":"test","path":"/data/v","value":1},{"op":"replace","path":"/eventType","value":"Other"}]`)})
	b.operateOn(t)
	b.requireOperation(t, id, "repair done: matched 3 done 1 skipped 0 failed 2")
	require.Equal(t, []string{"1 path: /data/v does not exist failed", "3 path: /data/v does not exist failed"},
		b.results(t, id))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.deliveries WHERE event_type = 'Other'"))
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM postrider.operations
		WHERE last_error = format('dead letter %s: /data/v does not exist', $1::text)`, letters[0].String()))

	id = b.actOn(t, s, operator.Action{Kind: operator.Repair, Again: true, Patch: []byte(
		`[{"op":"test","path":"/id","value":"x"},{"op":"remove","path":"/data"}]`)})
	b.operateOn(t)
	require.Equal(t, []string{
		"1 test: /id has another value than the test failed", "3 test: /id has another value than the test failed",
	}, b.results(t, id))
}

func TestRepairSelectionRejects(t *testing.T) {
	t.Parallel()
	b, letters, s := repairMany(t, 1)
	for patch, message := range map[string]string{"": "patch must be JSON", "7": "patch must be a JSON merge patch"} {
		do := operator.Action{Kind: operator.Repair, Patch: []byte(patch)}
		_, err := b.store.Operator.ActOnSelection(t.Context(), s.ID, &do)
		require.ErrorContains(t, err, message)
		_, err = b.store.Operator.PreviewRepair(t.Context(), s.ID, &do)
		require.ErrorContains(t, err, message)
	}
	do := operator.Action{Kind: operator.Repair, Patch: []byte(`{"data":1}`)}
	_, err := b.store.Operator.PreviewRepair(t.Context(), uuid.Nil, &do)
	require.ErrorIs(t, err, postgres.ErrNotFound)
	deliveries, err := b.store.Operator.SelectDeliveries(t.Context(), []int64{1})
	require.NoError(t, err)
	_, err = b.store.Operator.PreviewRepair(t.Context(), deliveries.ID, &do)
	require.ErrorContains(t, err, "has deliveries: they cannot be repaired")
	_, err = b.store.Operator.ActOnSelection(t.Context(), deliveries.ID, &do)
	require.ErrorContains(t, err, "has deliveries: they cannot be repaired")
	do.To = operator.Target{Topic: "orders", Subscription: "none"}
	_, err = b.store.Operator.PreviewRepair(t.Context(), s.ID, &do)
	require.ErrorContains(t, err, `topic "orders" has no event subscription "none"`)

	b.exec(t, "UPDATE postrider_internal.topics SET deleted_at = now() WHERE name = 'orders'")
	preview, err := b.store.Operator.PreviewRepair(t.Context(), s.ID, &operator.Action{Patch: []byte(`{"data":1}`)})
	require.NoError(t, err)
	require.Equal(t, []operator.RepairCause{{Cause: "topic_deleted", Count: 1, Samples: []operator.RepairSample{{
		DeadLetterID: letters[0], Message: "its topic was deleted",
	}}}}, preview.Failed)
}

// What was erased after the preview is not repaired, and a patch of custom events uses the topic's mapping.
func TestRepairSelectionOfCustomEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.customTopic(t, "custom")
	b.subscription(t, "custom", "all", nil)
	_, err := b.store.Publisher.Publish(t.Context(), own("custom", `[{"no":1,"list":[1]}, {"no":2,"list":[]}, {"no":3}]`))
	require.NoError(t, err)
	letters := b.deadLetterAll(t)
	s, err := b.store.Operator.SelectDeadLetters(t.Context(), letters)
	require.NoError(t, err)
	id := b.actOn(t, s, operator.Action{Kind: operator.Repair, Patch: []byte(`{"who":"ann","list":[2,3],"no":null}`)})
	b.operateOn(t)
	b.requireOperation(t, id, "repair done: matched 3 done 0 skipped 0 failed 3")
	require.Contains(t, b.results(t, id)[0], "invalid: event.no: is required: inputSchemaMapping reads id from it")
	failed := id

	b.exec(t, "SELECT postrider.erase_event(system_id) FROM postrider.dead_letters WHERE dead_letter_id = $1", letters[2])
	require.Contains(t, b.results(t, failed)[0], "event.no", "of another event")
	require.Contains(t, b.results(t, failed)[2], "invalid: its event was erased failed")
	require.Equal(t, 1, b.count(t, `SELECT count(*) FROM postrider.operations WHERE operation_id = $1
		AND last_error NOT LIKE '%event.no%'`, failed))
	id = b.actOn(t, s, operator.Action{Kind: operator.Repair, Patch: []byte(`{"who":"ann","list":[2,3]}`)})
	b.operateOn(t)
	b.requireOperation(t, id, "repair done: matched 3 done 2 skipped 0 failed 1")
	require.Equal(t, 2, b.count(t,
		`SELECT count(*) FROM postrider.events WHERE subject = 'ann' AND body -> 'list' = '[2, 3]'
		AND event_id IN ('1', '2') AND edited_by IS NOT NULL AND published_at > $1`, time.Now().Add(-time.Hour)))
}
