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
	s.tn.DeadLetters(t, "orders", "n", 5)
	ids := []any{}
	for next, pages := any("/v1/deadLetterExport?format=rows&limit=4"), 0; next != nil; pages++ {
		a := s.get(next.(string))
		page := a.json(200)
		for _, row := range page["value"].([]any) {
			ids = append(ids, row.(map[string]any)["event_id"])
		}
		if next = page["nextLink"]; pages == 0 {
			require.Contains(t, a.body, `"data":{"total":9.50}`, "numbers keep their digits")
			s.tn.DeadLetters(t, "orders", "later", 1)
		}
	}
	require.Equal(t, []any{"o-42", "n-0", "n-1", "n-2", "n-3", "n-4"}, ids)
	require.Empty(t, s.get("/v1/deadLetterExport?reason=other").json(200)["value"])
	require.Contains(t,
		s.get("/v1/deadLetterExport?format=csv").rejected(400, "InvalidRequest").Message,
		"format must be one of eventgrid, rows")
}
