package operator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
)

// repairedBody is an event of publication after an edit, with white space, a number that jsonb rounds and an escaped
// character.
const repairedBody = `{"id":"e-0", "subject":"subject/e-0","eventType":"test",
	"eventTime":"2026-01-01T00:00:00Z","data":{"total":1e400,"a/b":"\u00e9"}}`

// oneDeadLetter is a node with one.
func oneDeadLetter(t *testing.T) (*testnode.Node, uuid.UUID) {
	t.Helper()
	tn, letters := testnode.ManyDeadLetters(t, 1)
	return tn, letters[0]
}

// edited reads the event of a delivery.
func edited(t *testing.T, tn *testnode.Node, delivery int64) (systemID uuid.UUID, body string) {
	t.Helper()
	require.NoError(t, tn.Pool.QueryRow(t.Context(),
		`SELECT e.id, convert_from(e.body, 'UTF8') FROM postrider_internal.deliveries d
			JOIN postrider_internal.events e ON e.id = d.event_uuid AND e.day = d.event_day WHERE d.id = $1`,
		delivery).Scan(&systemID, &body))
	return systemID, body
}

func TestRepairStoresItsBytes(t *testing.T) {
	t.Parallel()
	tn, letter := oneDeadLetter(t)
	tn.Subscribe(t, "orders", "other", nil)
	original, err := tn.System.Reader.ReadDeadLetter(t.Context(), letter)
	require.NoError(t, err)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:ann", Address: "10.0.0.1"})

	delivery, err := tn.System.Operator.Repair(ctx, letter, []byte(repairedBody), operator.Target{}, false)
	require.NoError(t, err)

	id, body := edited(t, tn, delivery)
	require.Equal(t, repairedBody, body)
	require.EqualValues(t, 7, id.Version())
	require.Equal(t, 1, tn.Pending(t, ""), "only this event subscription")
	require.Equal(t, 1, tn.Count(t,
		`SELECT count(*) FROM postrider_internal.deliveries d JOIN postrider_internal.events e ON e.id = d.event_uuid
			WHERE d.event_bytes = octet_length(e.body) AND d.redelivered_from = $1 AND e.published_at > now() - interval '1 day'
			AND e.day = (now() AT TIME ZONE 'UTC')::date`, letter))
	const edit = `{"data": {"a/b": "é", "total": 1e400}}`
	for _, view := range []string{"events", "deliveries"} {
		require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider."+view+" WHERE system_id = $1 "+
			"AND edited_from = $2 AND edited_by = 'user:ann' AND edit = $3", id, original.SystemID, edit), view)
	}
	require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider.audit WHERE action = 'dead_letter_repaired'
		AND actor = 'user:ann' AND topic = 'orders' AND subscription = 'all' AND details = jsonb_build_object(
		    'deadLetterId', $1::uuid, 'deliveryId', $2::bigint, 'systemId', $3::uuid,
		    'paths', '["/data/a~1b", "/data/total"]'::jsonb)`, letter, delivery, id), "paths, not values")

	after, err := tn.System.Reader.ReadDeadLetter(t.Context(), letter)
	require.NoError(t, err)
	require.Equal(t, original.BodyText, after.BodyText, "the dead letter keeps its event")
	require.NotNil(t, after.RedeliveredAt)
	require.NotEqual(t, original.Version, after.Version)
	kept, err := tn.System.Reader.ReadEvent(t.Context(), original.SystemID)
	require.NoError(t, err)
	require.Equal(t, *original.BodyText, string(kept.Body))
	require.Nil(t, kept.EditedFrom)

	// A repair that fails becomes a dead letter with its lineage, which can be edited again.
	tn.Refill(t, int64(tn.Count(t,
		"SELECT subscription_id FROM postrider.event_subscriptions WHERE subscription = 'all'")), false, 10)
	again := tn.DeadLetterAll(t)
	require.Len(t, again, 2)
	row, err := tn.System.Reader.ReadDeadLetter(t.Context(), again[1])
	require.NoError(t, err)
	require.Equal(t, repairedBody, *row.BodyText)
	require.Equal(t, original.SystemID, *row.EditedFrom)
	require.Equal(t, "user:ann", *row.EditedBy)
	require.Contains(t, string(row.Edit), `"a/b": "é"`)
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
}

func TestRepairRecomputesColumns(t *testing.T) {
	t.Parallel()
	tn, letter := oneDeadLetter(t)
	body := `{"id":"new","subject":"other","eventType":"Other","eventTime":"2026-02-02T00:00:00Z","dataVersion":"7",
		"data":1}`
	repaired(t, tn, letter, body)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "event_id = 'new' AND subject = 'other' AND event_type = 'Other'"))
	require.Equal(t, 1, tn.Events(t, `event_id = 'new'
		AND event_time = '2026-02-02T00:00:00Z' AND data_version = '7'`))
}

func TestRepairBySQL(t *testing.T) {
	t.Parallel()
	tn, letter := oneDeadLetter(t)
	event := `{"id": "e-0", "data": 12345678901234567890, "subject": "s", "eventType": "test"}`
	delivery := testnode.Value[int64](t, tn, "SELECT postrider.redeliver($1, event => $2)", letter, event)
	_, body := edited(t, tn, delivery)
	require.Contains(t, body, `"data": 12345678901234567890`)
	require.Contains(t, body, `"eventTime": "`, "filled in, as for a publish")
	require.Equal(t, 1, tn.Rows(t, "deliveries", "edited_by = session_user"))
	const call = "SELECT postrider.redeliver($1, again => true, event => $2)"
	for event, message := range map[string]string{
		`[]`:                "event must be an object, is an array",
		`{"id": "e"}`:       "event.eventType is required",
		`{"id": ["e"]}`:     "event.id must be a string or a number, is an array",
		`{"eventType": ""}`: "event.eventType must be 1 to 1024 bytes long, is 0",
	} {
		require.Contains(t, tn.RejectedBy(t, call, letter, event), message+" (SQLSTATE 22023)")
	}
	large := fmt.Sprintf(`{"eventType":"t","subject":"s","data":%q}`, strings.Repeat("x", 1<<20))
	require.Contains(t, tn.RejectedBy(t, call, letter, large), "an event has at most 1048576 bytes")
	require.Equal(t, 1, tn.Repairs(t, ""))
}

func TestRepairRejects(t *testing.T) {
	t.Parallel()
	tn, letter := oneDeadLetter(t)
	repair := func(body string, when ...postgres.Condition) error {
		_, err := tn.System.Operator.Repair(t.Context(), letter, []byte(body), operator.Target{}, false, when...)
		return err
	}
	var mistake *event.Error
	for body, message := range map[string]string{
		`{"id":"e"`: "events[0]: the text ends too early, at byte 9 of the body",
		`[]`:        "expected one event (an object), found an array",
		`{"id":{}}`: "events[0].id: must be a string or a number, is an object",
		`{"id":"e","subject":"","eventType":"t","eventTime":"x"}`: "events[0].eventTime: not an RFC 3339 time, such as " +
			"2026-11-28T03:00:00Z",
	} {
		require.ErrorAs(t, repair(body), &mistake)
		require.Equal(t, message, mistake.Message)
		require.ErrorAs(t, tn.System.Operator.CheckEdit(t.Context(), letter, []byte(body)), &mistake)
		require.Equal(t, message, mistake.Message)
	}
	require.NoError(t, tn.System.Operator.CheckEdit(t.Context(), letter, []byte(repairedBody)))
	_, err := tn.System.Operator.Repair(t.Context(), uuid.Nil, []byte(repairedBody), operator.Target{}, false)
	require.ErrorIs(t, err, postgres.ErrNotFound)

	row, err := tn.System.Reader.ReadDeadLetter(t.Context(), letter)
	require.NoError(t, err)
	version := *row.Version
	require.ErrorIs(t, repair(repairedBody, postgres.Condition{Versions: []postgres.Version{version + 1}}),
		postgres.ErrPrecondition)
	require.ErrorIs(t, repair(repairedBody, postgres.Condition{Versions: []postgres.Version{}}), postgres.ErrPrecondition)
	require.NoError(t, repair(repairedBody, postgres.Condition{Versions: []postgres.Version{version}}))
	require.ErrorIs(t, testnode.ErrorOf(tn.System.Operator.Redeliver(t.Context(), letter, operator.Target{}, true,
		postgres.Condition{Versions: []postgres.Version{version}})), postgres.ErrPrecondition, "it was redelivered meanwhile")
	require.ErrorContains(t, repair(repairedBody), "was redelivered already, at ")
	require.Equal(t, 1, tn.Repairs(t, ""))
	require.Equal(t, 2, tn.Events(t, ""), "a rejected edit stores no event")

	require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "all"))
	tn.Exec(t, "UPDATE postrider_internal.topics SET deleted_at = now() WHERE name = 'orders'")
	require.ErrorContains(t, repair(repairedBody),
		`topic "orders" was deleted: an edited event cannot be validated without its topic`)
}

func TestRepairCustomEvent(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.CustomTopic(t, "custom")
	tn.Subscribe(t, "custom", "all", nil)
	tn.Send(t, testnode.Custom("custom", `{"no":1,"who":"ann","kind":"k"}`))
	letter := tn.DeadLetterAll(t)[0]
	const body = `{"no":2,"who":"bob\""}`
	delivery := repaired(t, tn, letter, body)
	require.Equal(t, 1, tn.Count(t, `SELECT count(*) FROM postrider.deliveries WHERE event_id = '2' AND subject = 'bob"'
		AND event_type = 'test' AND delivery_id = $1`, delivery), "the mapping names the fields")
	e := event.Event{Schema: event.Custom, ID: "2", Type: "test", Subject: `bob"`, Body: []byte(body)}
	require.Equal(t, e.Size(), tn.Count(t, "SELECT event_bytes FROM postrider_internal.deliveries"))
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver($1, again => true, event => '{}')", letter),
		"event.no is required: inputSchemaMapping reads id from it")
	tn.Exec(t, `SELECT postrider.redeliver($1, again => true, event => '{"no": 3}')`, letter)
	require.Equal(t, 1, tn.Rows(t, "deliveries", "event_id = '3' AND subject = 's'"))
}

func TestRepairCloudEvent(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.PutTopic(t, "cloud", testnode.CloudEvents)
	tn.Subscribe(t, "cloud", "all", func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents })
	const body = `{"specversion":"1.0","id":"c","source":"/s","type":"t","data_base64":"AAEC"}`
	tn.Send(t, testnode.Custom("cloud", body))
	letter := tn.DeadLetterAll(t)[0]
	for edit, message := range map[string]string{
		strings.Replace(body, "1.0", "0.3", 1):    `specversion: must be "1.0"`,
		strings.Replace(body, "AAEC", "AAE", 1):   "data_base64: ",
		strings.Replace(body, `"id":"c",`, "", 1): "id: is required",
	} {
		_, err := tn.System.Operator.Repair(t.Context(), letter, []byte(edit), operator.Target{}, false)
		require.ErrorContains(t, err, message)
	}
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.redeliver($1, event => $2)", letter,
		strings.Replace(body, "1.0", "0.3", 1)), `event.specversion must be "1.0"`)
	delivery := repaired(t, tn, letter, strings.Replace(body, "AAEC", "AAED", 1))
	require.Equal(t, 1, tn.Rows(t, "deliveries", `delivery_id = $1 AND edit = '{"data_base64": "AAED"}'`, delivery))
}

// One of two repairs at the same moment is delivered.
func TestRepairOnlyOnce(t *testing.T) {
	t.Parallel()
	tn, letter := oneDeadLetter(t)
	var errs [2]error
	testnode.AtOnce(2, func(i int) {
		_, errs[i] = tn.System.Operator.Repair(t.Context(), letter, []byte(repairedBody), operator.Target{}, false)
	})
	require.NotEqual(t, errs[0] == nil, errs[1] == nil, "%v", errs)
	require.Equal(t, 1, tn.Repairs(t, ""))
}

func TestEditsAreMergePatches(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	for _, row := range []struct{ before, after, patch, paths string }{
		{`{}`, `{}`, `{}`, `null`},
		{`{"a":1.0,"b":2}`, `{"b":2,"a":1.00}`, `{}`, `null`},
		{`{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"c":1,"d":3}}}`, `{"a":{"b":{"d":3}}}`, `["/a/b/d"]`},
		{`{"a":[1,2]}`, `{"a":[1,3]}`, `{"a":[1,3]}`, `["/a"]`},
		{`{"a":null,"b":{}}`, `{"b":{}}`, `{"a":null}`, `["/a"]`},
		{`{}`, `{"a":null}`, `{"a":null}`, `["/a"]`},
		{`{"a":1}`, `{"a":{}}`, `{"a":{}}`, `["/a"]`},
		{`{"~":{"/":1}}`, `{"~":{"/":2},"":3}`, `{"~":{"/":2},"":3}`, `["/","/~0/~1"]`},
		{`{}`, `[1]`, `[1]`, `[""]`},
	} {
		var patch, paths string
		require.NoError(t, tn.Pool.QueryRow(t.Context(), `SELECT p, coalesce(postrider_internal.patch_paths(p, 100), 'null')
			FROM postrider_internal.merge_patch($1, $2) p`, row.before, row.after).Scan(&patch, &paths))
		require.JSONEq(t, row.patch, patch, "%s to %s", row.before, row.after)
		require.JSONEq(t, row.paths, paths, row.patch)
	}
	require.Equal(t, 2, tn.Count(t, `SELECT count(*) FROM (VALUES (postrider_internal.merge_patch(NULL, '{}')),
		(postrider_internal.merge_patch('{}', NULL))) v(p) WHERE p IS NULL`))
	// Many changed members take no quadratic time.
	require.Equal(t, 100, tn.Count(t, `SELECT jsonb_array_length(postrider_internal.patch_paths(
		postrider_internal.merge_patch((SELECT jsonb_object_agg(i::text, i) FROM generate_series(1, 100000) i),
		(SELECT jsonb_object_agg(i::text, -i) FROM generate_series(1, 100000) i)), 100))`))
}

func TestErasureOfRepairs(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	id := personal(t, tn, "e", "people/anna")
	letter := tn.DeadLetterAll(t)[0]
	repair := func(letter uuid.UUID, subject string) {
		body, err := json.Marshal(map[string]any{
			"id": "e", "eventType": "test", "eventTime": "2026-01-01T00:00:00Z",
			"subject": subject, "data": map[string]string{"mail": secretOf, "note": "people/anna"},
		})
		require.NoError(t, err)
		_, err = tn.System.Operator.Repair(t.Context(), letter, body, operator.Target{}, false)
		require.NoError(t, err)
	}
	repair(letter, "people/third")
	tn.Refill(t, int64(tn.Count(t, "SELECT subscription_id FROM postrider.event_subscriptions")), false, 10)
	repair(tn.DeadLetterAll(t)[1], "people/other")

	// The original is gone: only the lineage names it.
	tn.Exec(t, "DELETE FROM postrider_internal.events WHERE id = $1", id)
	tn.Exec(t, "SELECT postrider.purge($1)", letter)
	require.Equal(t, 2, erase(t, tn, id))
	for _, text := range []string{secretOf, "people/anna", "people/third", "people/other"} {
		requireInNoTable(t, tn, text)
	}
	require.Equal(t, 2, tn.Repairs(t, ""), "the lineage stays")
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	require.Zero(t, erase(t, tn, id))
}

// A repair may have another subject, also when its original is gone.
func TestErasureBySubjectFindsRepairs(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		tn, _ := testnode.Orders(t)
		id := personal(t, tn, "e", "people/anna")
		letter := tn.DeadLetterAll(t)[0]
		other := strings.Replace(repairedBody, "subject/e-0", "other", 1)
		repaired(t, tn, letter, other)
		want := 2
		if gone {
			want = 1
			tn.Exec(t, "DELETE FROM postrider_internal.events WHERE id = $1", id)
			tn.Exec(t, "SELECT postrider.purge($1)", letter)
		}
		erased, operation, err := tn.System.Operator.EraseSubject(t.Context(), "orders", "people/anna")
		require.NoError(t, err)
		require.Nil(t, operation)
		require.Equal(t, want, erased)
		require.Zero(t, tn.Rows(t, "events", "erased_at IS NULL"))
		requireInNoTable(t, tn, "people/anna")
	}
}

// A repair that is not committed yet when the erasure begins is erased too.
func TestErasureWaitsForRepair(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	id := personal(t, tn, "e", "people/anna")
	letter := tn.DeadLetterAll(t)[0]
	end := tn.OpenTransaction(t, `SELECT postrider.redeliver($1, event => jsonb_build_object('eventType', 'test',
		'subject',
		'x', 'data', $2::text))`, letter, secretOf)
	requireEraseWaits(t, tn, id, end)
}

func TestLineageIsRemovedWithEvents(t *testing.T) {
	t.Parallel()
	tn, letter := oneDeadLetter(t)
	repaired(t, tn, letter, repairedBody)
	clean := func() int {
		require.NoError(t, tn.System.Maintenance.Clean(t.Context()))
		return tn.Repairs(t, "")
	}
	tn.Exec(t, "UPDATE postrider_internal.repairs SET edited_at = now() - interval '2 hours'")
	require.Equal(t, 1, clean(), "its event is stored")
	tn.Exec(t, "DELETE FROM postrider_internal.events WHERE id IN (SELECT system_id FROM postrider_internal.repairs)")
	require.Zero(t, clean())
}

// A repair was not published to the topic: past events are redelivered without it.
func TestPastEventsWithoutRepairs(t *testing.T) {
	t.Parallel()
	tn, letter := oneDeadLetter(t)
	repaired(t, tn, letter, repairedBody)
	found, err := tn.System.Reader.CountEvents(t.Context(), "orders", "all", time.Now().Add(-time.Hour), nil)
	require.NoError(t, err)
	require.Equal(t, query.Matched{Matched: 1}, found)
}

// A query that does not name the lineage does not read it.
func TestUnusedLineageIsNotRead(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	for _, view := range []string{"events", "deliveries", "dead_letters"} {
		for columns, read := range map[string]bool{"system_id, topic": false, "system_id, edited_by": true} {
			plan, err := postgres.Values[string](t.Context(), tn.Pool, "EXPLAIN SELECT "+columns+" FROM postrider."+view)
			require.NoError(t, err)
			require.Equal(t, read, strings.Contains(strings.Join(plan, "\n"), "repairs"), "%s: %v", view, plan)
		}
	}
}

// repaired repairs a dead letter, and returns the delivery.
func repaired(t *testing.T, tn *testnode.Node, letter uuid.UUID, body string) int64 {
	t.Helper()
	delivery, err := tn.System.Operator.Repair(t.Context(), letter, []byte(body), operator.Target{}, false)
	require.NoError(t, err)
	return delivery
}
