package operator_test

import (
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

// foreign is an event with another system's topic, and white space and a number that jsonb would change.
const foreign = `{"id":"e-1", "subject":"orders/1","eventType":"placed","eventTime":"2024-01-01T00:00:00Z",` +
	`"topic":"/subscriptions/3c0f/topics/orders","data":{"total":1.50e1}}`

// fromFile is a dead letter of a file for event subscription "all" of topic "orders".
func fromFile(t *testing.T, file string, index int, eventText string) *operator.ImportedLetter {
	t.Helper()
	in := event.Input{Schema: event.EventGrid, Topic: "orders"}
	d, err := in.ReadDeadLetter([]byte(strings.TrimSuffix(eventText, "}") + `,"deadLetterReason":"SomethingNew",` +
		`"deliveryAttempts":3,"lastDeliveryOutcome":"NotFound","lastHttpStatusCode":404,` +
		`"publishTime":"2024-01-01T00:00:01Z","lastDeliveryAttemptTime":"2024-01-02T00:00:00Z"}`))
	require.NoError(t, err)
	return &operator.ImportedLetter{From: file, Index: index, Subscription: "all", DeadLetter: d}
}

// importing is a node with topic "orders" and its event subscription "all", and imports into it.
func importing(t *testing.T) (*testnode.Node, func(...*operator.ImportedLetter) (results []string)) {
	t.Helper()
	tn := testnode.New(t)
	tn.Topic(t, "orders")
	tn.Subscribe(t, "orders", "all", nil)
	return tn, func(letters ...*operator.ImportedLetter) (results []string) {
		found, err := tn.System.Operator.ImportDeadLetters(t.Context(), "orders", letters, false)
		require.NoError(t, err)
		for _, r := range found {
			results = append(results, r.Result)
		}
		return results
	}
}

func renamed(id string) string { return strings.Replace(foreign, "e-1", id, 1) }

// What is imported is a dead letter like others, whose time is that of the import.
func TestImportDeadLetters(t *testing.T) {
	t.Parallel()
	tn, _ := importing(t)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:ann", Address: "10.0.0.1"})
	letters := []*operator.ImportedLetter{
		fromFile(t, "ALL/2024/1/2/3/a.json", 0, foreign), fromFile(t, "ALL/2024/1/2/3/a.json", 1, renamed("e-2")),
	}
	letters[1].DeadLetter.PublishedAt, letters[1].LastAttemptAt = time.Time{}, time.Time{}
	letters[1].Outcome, letters[1].Status, letters[1].Attempts = "", 0, 0
	planned, err := tn.System.Operator.ImportDeadLetters(ctx, "orders", letters, true)
	require.NoError(t, err)
	require.Equal(t, []operator.ImportResult{{Result: "imported"}, {Result: "imported"}}, planned)
	require.Zero(t, tn.Rows(t, "dead_letters", ""), "a dry run stores nothing")

	results, err := tn.System.Operator.ImportDeadLetters(ctx, "orders", letters, false)
	require.NoError(t, err)
	require.Len(t, results, 2)
	l, err := tn.System.Reader.GetDeadLetter(t.Context(), *results[0].DeadLetterID)
	require.NoError(t, err)
	require.Equal(t, foreign, *l.BodyText)
	require.Nil(t, l.DeliveryID)
	require.Equal(t, "ALL/2024/1/2/3/a.json", *l.ImportedFrom)
	const given = `dead_letter_id = $1 AND imported_index = 0 AND reason = 'SomethingNew' AND attempts = 3 AND
		last_outcome = 'NotFound' AND last_status = 404 AND published_at = '2024-01-01T00:00:01Z' AND
		last_attempt_at = '2024-01-02' AND first_attempt_at IS NULL AND state = 'open' AND
		dead_lettered_at > now() - interval '1 hour' AND data = '{"total": 15.0}' AND export_state IS NULL`
	require.Equal(t, 1, tn.Rows(t, "dead_letters", given, l.DeadLetterID))
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "imported_index = 1 AND attempts = 0 AND last_outcome IS NULL AND "+
		"last_status IS NULL AND published_at = event_time AND last_attempt_at IS NULL"))
	require.Equal(t, 1, tn.Rows(t, "audit", `action = 'dead_letters_imported' AND actor = 'user:ann' AND
		topic = 'orders' AND details = '{"deadLetters": 2}'`))
	require.Zero(t, tn.Rows(t, "dead_letters", "NOT (event_id = ANY ('{e-1,e-2}'))"))
	page, err := tn.System.Reader.ReadDeadLetters(t.Context(), &query.DeadLetterFilter{Reason: new("SomethingNew")},
		query.Turn[query.DeadLetterPlace]{Limit: 10}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, page.Total)

	require.NoError(t, tn.System.Maintenance.Retain(t.Context(), query.Retention{DeadLettersDays: 1}))
	require.Equal(t, 2, tn.Rows(t, "dead_letters", ""), "retention counts from the import")
}

func TestImportOnce(t *testing.T) {
	t.Parallel()
	tn, imported := importing(t)
	tn.Subscribe(t, "orders", "other", nil)
	first := fromFile(t, "a.json", 0, foreign)
	require.Equal(t, []string{"imported"}, imported(first))
	require.Equal(t, []string{"already_imported", "imported"}, imported(first, fromFile(t, "a.json", 1, renamed("e-2"))))
	require.Equal(t, []string{"already_imported"}, imported(fromFile(t, "b.json", 0, foreign)), "the same event")
	planned, err := tn.System.Operator.ImportDeadLetters(t.Context(), "orders",
		[]*operator.ImportedLetter{fromFile(t, "b.json", 0, foreign)}, true)
	require.NoError(t, err)
	require.Equal(t, "already_imported", planned[0].Result)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", "dead_letter_id = $1 AND imported_from = 'a.json'",
		planned[0].DeadLetterID))
	elsewhere := fromFile(t, "b.json", 0, foreign)
	elsewhere.Subscription = "other"
	require.Equal(t, []string{"imported"}, imported(elsewhere), "for another event subscription")
	require.Equal(t, []string{"imported", "already_imported"},
		imported(fromFile(t, "c.json", 0, renamed("e-3")), fromFile(t, "d.json", 0, renamed("e-3"))), "twice in a request")
	source := func(of, file string) *operator.ImportedLetter {
		in := event.Input{Schema: event.CloudEvents, Topic: "orders"}
		d, err := in.ReadDeadLetter(fmt.Appendf(nil,
			`{"specversion":"1.0","id":"c","source":%q,"type":"t","deadletterreason":"R"}`, of))
		require.NoError(t, err)
		return &operator.ImportedLetter{From: file, Subscription: "all", DeadLetter: d}
	}
	require.Equal(t, []string{"imported", "imported"}, imported(source("/a", "e.json"), source("/b", "f.json")),
		"ids are unique within a source")

	rows := tn.Rows(t, "dead_letters", "")
	require.Equal(t, []string{"conflict", "imported"},
		imported(fromFile(t, "a.json", 0, renamed("e-4")), fromFile(t, "a.json", 2, renamed("e-5"))))
	unknown := fromFile(t, "g.json", 0, renamed("e-6"))
	unknown.Subscription = "missing"
	require.Equal(t, []string{"imported", "not_found"}, imported(fromFile(t, "a.json", 2, renamed("e-5")), unknown))
	require.Equal(t, rows, tn.Rows(t, "dead_letters", ""), "all or none")
	_, err = tn.System.Operator.ImportDeadLetters(t.Context(), "none", nil, false)
	require.ErrorIs(t, err, postgres.ErrNotFound)

	letter := uuid.MustParse(tn.Text(t, "SELECT dead_letter_id FROM postrider.dead_letters "+
		"WHERE imported_from = 'a.json' AND imported_index = 0"))
	require.Equal(t, 1, tn.Count(t, "SELECT postrider.erase_event(system_id) FROM postrider.dead_letters "+
		"WHERE dead_letter_id = $1", letter))
	require.Equal(t, []string{"already_imported"}, imported(first), "an import brings nothing erased back")
}

// One of two imports at the same moment stores a dead letter.
func TestImportAtOnce(t *testing.T) {
	t.Parallel()
	tn, _ := importing(t)
	var results [4]string
	var errs [4]error
	letters := make([]*operator.ImportedLetter, len(results))
	for i := range letters {
		letters[i] = fromFile(t, fmt.Sprintf("%d.json", i/2), 0, foreign)
	}
	testnode.AtOnce(len(results), func(i int) {
		found, err := tn.System.Operator.ImportDeadLetters(t.Context(), "orders", letters[i:i+1], false)
		if errs[i] = err; err == nil {
			results[i] = found[0].Result
		}
	})
	require.Equal(t, [4]error{}, errs)
	require.ElementsMatch(t, []string{"imported", "already_imported", "already_imported", "already_imported"}, results)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", ""))
}

// A redelivery of an imported dead letter delivers the bytes of the file, and a repair keeps the foreign topic.
func TestRedeliverImported(t *testing.T) {
	t.Parallel()
	tn, imported := importing(t)
	imported(fromFile(t, "a.json", 0, foreign))
	letter := uuid.MustParse(tn.Text(t, "SELECT dead_letter_id FROM postrider.dead_letters"))

	delivery, err := tn.System.Operator.Redeliver(t.Context(), letter, operator.Target{}, false)
	require.NoError(t, err)
	_, body := edited(t, tn, delivery)
	require.Equal(t, foreign, body)
	require.Zero(t, tn.Rows(t, "events", ""), "it was not published here")

	edit := strings.Replace(foreign, "1.50e1", "2.0", 1)
	delivery, err = tn.System.Operator.Repair(t.Context(), letter, []byte(edit), operator.Target{}, true)
	require.NoError(t, err)
	_, body = edited(t, tn, delivery)
	require.Equal(t, edit, body)
	other := strings.Replace(edit, "3c0f", "other", 1) // it names a topic of the other system, whichever
	delivery, err = tn.System.Operator.Repair(t.Context(), letter, []byte(other), operator.Target{}, true)
	require.NoError(t, err)
	_, body = edited(t, tn, delivery)
	require.Equal(t, other, body)
	tn.Exec(t, "SELECT postrider.redeliver($1, again => true, event => $2)", letter, edit)

	do := operator.Action{Kind: operator.Repair, Patch: []byte(`{"data":{"total":3}}`), Again: true}
	preview, err := tn.System.Operator.PreviewRepair(t.Context(), &query.DeadLetterFilter{}, &do)
	require.NoError(t, err)
	require.Equal(t, 1, preview.Changed)
	require.Equal(t, 4, tn.Pending(t, "redelivered_from = $1", letter))

	today := fromFile(t, "a.json", 1, renamed("e-2"))
	today.PublishedAt = time.Now()
	imported(today)
	tn.Exec(t, "SELECT postrider.redeliver(dead_letter_id) FROM postrider.dead_letters WHERE event_id = 'e-2'")
	require.Equal(t, 1, tn.Rows(t, "events", "event_id = 'e-2' AND matched = 1"), "it does not wait for routing")
}

// An imported CloudEvent of a topic in the Event Grid schema was converted by the other system. It is edited as one.
func TestRepairImportedCloudEvent(t *testing.T) {
	t.Parallel()
	tn, imported := importing(t)
	tn.Subscribe(t, "orders", "cloud", func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents })
	const cloud = `{"specversion":"1.0","id":"c","source":"/other","type":"t","data":1}`
	in := event.Input{Schema: event.EventGrid, Topic: "orders"}
	d, err := in.ReadDeadLetter([]byte(strings.TrimSuffix(cloud, "}") + `,"deadletterreason":"R"}`))
	require.NoError(t, err)
	imported(&operator.ImportedLetter{From: "a.json", Subscription: "cloud", DeadLetter: d})
	letter := uuid.MustParse(tn.Text(t, "SELECT dead_letter_id FROM postrider.dead_letters"))
	edit := strings.Replace(cloud, `"data":1`, `"data":2`, 1)
	_, body := edited(t, tn, repaired(t, tn, letter, edit))
	require.Equal(t, edit, body)
}
