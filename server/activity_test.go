package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Published events are followed page by page; a repeated entry has the same place.
func TestActivity(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	s.topic("other", "")
	read := func(path string) (value []any, next string) {
		t.Helper()
		page := s.get(path).json(200)
		return page["value"].([]any), page["nextLink"].(string)
	}
	value, next := read("/v1/activity?topic=orders")
	require.Empty(t, value, "it begins now")
	_, quiet := read("/v1/activity?topic=other")
	places := map[any]bool{}
	for i := range 3 {
		id := fmt.Sprintf("a-%d", i)
		body := fmt.Sprintf(`[{"id":%q,"subject":"s","eventType":"T","eventTime":"2026-11-20T09:30:00Z","dataVersion":"1"}]`,
			id)
		s.send(http.MethodPost, "/topics/orders/api/events", body, "aeg-sas-key", key).is(200)
		value, next = read(next)
		last := value[len(value)-1].(map[string]any)
		require.Equal(t, []any{"published", "orders", id, nil},
			[]any{last["kind"], last["topic"], last["eventId"], last["outcome"]})
		for _, entry := range value {
			places[entry.(map[string]any)["place"]] = true
		}
	}
	require.Len(t, places, 3, "each has its place, also if it comes again")
	value, _ = read(quiet)
	require.Empty(t, value, "nothing of another topic")

	require.Contains(t,
		s.get("/v1/activity?subscription=billing").rejected(400, "InvalidRequest").Message,
		"topic is required with subscription")
	require.Contains(t, s.get("/v1/activity?cursor=eHh4").rejected(400, "InvalidRequest").Message,
		"cursor must be the cursor of a nextLink")
}

// All dead letters are exported, the oldest first and unchanged; later ones are omitted.
func TestExportDeadLetters(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	s.exampleDeadLetter()
	more := func(from, to int) {
		_, err := s.db.Exec(t.Context(), fmt.Sprintf(`INSERT INTO postrider_internal.dead_letters
			SELECT (jsonb_populate_record(l, jsonb_build_object('id', gen_random_uuid(), 'event_id', 'n-' || n,
			    'dead_lettered_at', now() - (500 - n) * interval '1 second'))).*
			FROM postrider_internal.dead_letters l, generate_series(%d, %d) n WHERE l.event_id = 'o-42'`, from, to))
		require.NoError(t, err)
	}
	more(1, 119)
	ids := []any{}
	for next, pages := any("/v1/deadLetterExport?format=rows&limit=50"), 0; next != nil; pages++ {
		a := s.get(next.(string))
		page := a.json(200)
		for _, row := range page["value"].([]any) {
			ids = append(ids, row.(map[string]any)["event_id"])
		}
		require.Contains(t, a.body, `"data":{"total":9.50}`, "numbers keep their digits")
		if next = page["nextLink"]; pages == 0 {
			more(600, 600) // in 100 s
		}
	}
	require.Len(t, ids, 120)
	require.Equal(t, []any{"o-42", "n-1", "n-2"}, ids[:3])
	require.Equal(t, "n-119", ids[119])
	require.Empty(t, s.get("/v1/deadLetterExport?reason=other").json(200)["value"])
	require.Contains(t,
		s.get("/v1/deadLetterExport?format=csv").rejected(400, "InvalidRequest").Message,
		"format must be one of eventgrid, rows")
}
