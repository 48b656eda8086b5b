package operator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs/queue"
)

func TestPurge(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	letters := tn.DeadLetters(t, "orders", "e", 2)
	purged, err := tn.System.Operator.Purge(t.Context(), letters[0])
	require.NoError(t, err)
	require.True(t, purged)
	purged, err = tn.System.Operator.Purge(t.Context(), letters[0])
	require.NoError(t, err)
	require.False(t, purged)
	require.Equal(t, 1, tn.Rows(t, "dead_letters", ""))
	require.Equal(t, 1, tn.Rows(t, "audit",
		"action = 'dead_letter_purged' AND actor = 'postrider' AND details ->> 'eventId' = 'e-0'"))
	tn.Exec(t, "SELECT postrider.purge($1)", letters[1])
	require.Equal(t, 1, tn.Rows(t, "audit", "action = 'dead_letter_purged' AND actor = session_user"))
}

func TestDeadLetterFilters(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.Subscribe(t, "orders", "other", nil)
	tn.DeadLetters(t, "orders", "e", 2)
	letters := tn.DeadLetterAll(t)
	require.Len(t, letters, 4)
	tn.Exec(t, "SELECT postrider.redeliver($1)", letters[0])
	tn.Exec(t, `UPDATE postrider_internal.dead_letters SET subject = $1, last_status = NULL, source = '/s' WHERE id = $2`,
		`50%\' OR true --`, letters[3])
	for filter, want := range map[string]int{
		`{}`:                     4,
		`{"topic":"orders"}`:     4,
		`{"topic":"ordersX"}`:    0,
		`{"subscription":"all"}`: 2,
		`{"reason":"MaxDeliveryAttemptsExceeded","last_outcome":"BadRequest"}`: 4,
		`{"last_status":400}`:             3,
		`{"last_status":4e2}`:             3,
		`{"last_status":400.5}`:           0,
		`{"event_id":"e-0"}`:              2,
		`{"event_type":"test"}`:           4,
		`{"subject":"subject/e-0"}`:       2,
		`{"subject_prefix":"subject/"}`:   3,
		`{"subject":"50%\\' OR true --"}`: 1,
		`{"min_attempts":1}`:              4, `{"min_attempts":0}`: 4, `{"min_attempts":2}`: 0,
		`{"subject_prefix":"50%\\'"}`:                         1,
		`{"subject_prefix":"' OR true --"}`:                   0,
		`{"event_id":"' OR $1 OR '"}`:                         0,
		`{"source":"/s"}`:                                     1,
		`{"state":"redelivered"}`:                             1,
		`{"state":"open"}`:                                    3,
		`{"dead_lettered_from":"2020-01-01T00:00:00Z"}`:       4,
		`{"dead_lettered_until":"2020-01-01T00:00:00+02:00"}`: 0,
		`{"dead_letter_ids":[]}`:                              0,
		fmt.Sprintf(`{"dead_letter_ids":["%s","%s"],"event_id":"e-0"}`, letters[0], uuid.Nil): tn.Count(t,
			"SELECT count(*) FROM postrider.dead_letters WHERE dead_letter_id = $1 AND event_id = 'e-0'", letters[0]),
	} {
		require.Equal(t, want, tn.Count(t, "SELECT postrider.count_dead_letters($1)", filter), filter)
	}
	for filter, problem := range map[string]string{
		`null`:                  "filter must be an object, is null",
		`[]`:                    "filter must be an object",
		`{"Topic":"orders"}`:    "filter.Topic is no member of a filter",
		`{"1=1) OR (1":1}`:      "filter.1=1) OR (1 is no member of a filter",
		`{"topic":1}`:           "filter.topic must be a string, is a number",
		`{"topic":null}`:        "filter.topic must be a string, is null",
		`{"min_attempts":-1}`:   "filter.min_attempts must be a whole number, 0 or more, is -1",
		`{"min_attempts":1.5}`:  "filter.min_attempts must be a whole number, 0 or more, is 1.5",
		`{"last_status":"400"}`: "filter.last_status must be a number, is a string",
		`{"state":true}`:        "filter.state must be a string, is a boolean",
		`{"state":"closed"}`:    `filter.state must be open, redelivered or resolved, is "closed"`,
		`{"dead_lettered_from":"2026-11-23"}`: `filter.dead_lettered_from: "2026-11-23" is not an RFC 3339 time such as ` +
			"2026-11-23T10:00:00Z",
		`{"dead_letter_ids":"x"}`:   "filter.dead_letter_ids must be an array, is a string",
		`{"dead_letter_ids":["x"]}`: `filter.dead_letter_ids must hold ids of dead letters, not "x"`,
		`{"dead_letter_ids":[{}]}`:  "filter.dead_letter_ids must hold ids",
	} {
		require.Contains(t, tn.RejectedBy(t, "SELECT postrider.count_dead_letters($1)", filter), problem, filter)
	}
	require.Contains(t, tn.RejectedBy(t, "SELECT postrider.count_dead_letters(NULL)"), "filter is required")
}

// A count is bounded by the size of what it reads.
func TestCountsOfDeadLettersReadAnIndex(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	for filter, columns := range map[string]string{
		`{}`: "(dead_lettered_at, id)",
		`{"state":"open","dead_lettered_from":""}`: "(dead_lettered_at, id)",
		`{"topic":"a"}`:                    "(topic, subscription, dead_lettered_at, id)",
		`{"topic":"a","subscription":"b"}`: "(topic, subscription, dead_lettered_at, id)",
		`{"reason":"a"}`:                   "(reason, dead_lettered_at, id)",
		`{"last_status":1}`:                "(last_status, dead_lettered_at, id)",
		`{"event_type":"a"}`:               "(event_type, dead_lettered_at, id)",
	} {
		require.Contains(t, tn.Text(t, "SELECT pg_get_indexdef(postrider_internal.scanned_for($1))", filter),
			columns+" INCLUDE (state)", filter)
	}
	for _, filter := range []string{`{"subject":"a"}`, `{"subscription":"a"}`, `{"reason":"a","topic":"b"}`} {
		require.Equal(t, "postrider_internal.dead_letters",
			tn.Text(t, "SELECT postrider_internal.scanned_for($1)::text", filter), filter)
	}
}

// A count is that of the rows, while these are created, redelivered and purged.
func TestCountsOfDeadLettersAreExact(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	tn.DeadLetters(t, "orders", "e", 20)
	const compare = `SELECT postrider.count_dead_letters('{}') = count(*)
		    AND postrider.count_dead_letters('{"state": "open"}') = count(*) FILTER (WHERE redelivered_at IS NULL)
		    AND postrider.count_dead_letters('{"last_status": 400, "topic": "orders"}') = count(*)
		FROM postrider.dead_letters`
	ended, compared := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			var same bool
			if err := tn.Pool.QueryRow(t.Context(), compare).Scan(&same); err != nil || !same {
				compared <- fmt.Errorf("the counts are the same: %t: %w", same, err)
				return
			}
			select {
			case <-ended:
				compared <- nil
				return
			default:
			}
		}
	}()
	for i, id := range tn.DeadLetters(t, "orders", "f", 20) {
		tn.Exec(t, []string{"SELECT postrider.redeliver($1)", "SELECT postrider.purge($1)"}[i%2], id)
	}
	close(ended)
	require.NoError(t, <-compared)
	require.Equal(t, 20, tn.Count(t, "SELECT postrider.count_dead_letters('{}')"))
}

// Operators may do all this. migrations has which roles may call which functions.
func TestOperatorsMayRedeliver(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	letters := tn.DeadLetters(t, "orders", "e", 2)
	for _, call := range []string{
		"count_dead_letters('{}')", fmt.Sprintf("redeliver('%s')", letters[0]), fmt.Sprintf("purge('%s')", letters[1]),
		"redeliver_all('{}')", "purge_all('{}')", "redeliver_events('orders', 'all', now() - interval '1 hour')",
		"cancel_operation(postrider.redeliver_all('{}'))",
	} {
		tx := tn.Begin(t)
		require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), "SET LOCAL ROLE postrider_operator")))
		require.NoError(t, testnode.ErrorOf(tx.Exec(t.Context(), "SELECT postrider."+call)), call)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestDeadLetterList(t *testing.T) {
	t.Parallel()
	tn, _ := testnode.Orders(t)
	letters := tn.DeadLetters(t, "orders", "e", 5)
	d, filter := tn.System, &query.DeadLetterFilter{
		Topic:            new("orders"),
		DeadLetteredFrom: new(time.Now().Add(-time.Hour)),
	}
	var listed []uuid.UUID
	for place, pages := (query.DeadLetterPlace{}), 0; pages < 3; pages++ {
		list, err := d.Reader.ListDeadLetters(t.Context(), filter, place, 2)
		require.NoError(t, err)
		for _, l := range list.Rows {
			listed, place = append([]uuid.UUID{l.DeadLetterID}, listed...), l.Place()
			require.Nil(t, l.BodyText)
		}
	}
	require.Equal(t, letters, listed)
	one, err := d.Reader.GetDeadLetter(t.Context(), letters[0])
	require.NoError(t, err)
	require.Contains(t, *one.BodyText, `"id":"e-0"`)
	require.ErrorIs(t, testnode.ErrorOf(d.Reader.GetDeadLetter(t.Context(), uuid.Nil)), postgres.ErrNotFound)
	require.ErrorIs(t, testnode.ErrorOf(d.Reader.ListDeadLetters(t.Context(),
		&query.DeadLetterFilter{DeadLetterIDs: make([]uuid.UUID, 10_001)}, query.DeadLetterPlace{}, 1)), postgres.ErrInvalid)
	n, err := d.Reader.CountDeadLetters(t.Context(), &query.DeadLetterFilter{DeadLetterIDs: []uuid.UUID{}})
	require.NoError(t, err)
	require.Zero(t, n, "no destination was chosen")
}

// tokenOf is the job of a delivery.
func tokenOf(t *testing.T, tn *testnode.Node, delivery int64) queue.JobToken {
	t.Helper()
	return queue.JobToken{
		JobID: int64(tn.Count(t, "SELECT job_id FROM postrider_internal.deliveries WHERE id = $1", delivery)),
	}
}
