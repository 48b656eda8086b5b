package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// walked follows a list's nextLinks and returns one member of each row.
func (s *service) walked(path, member string) (found []any, pages int) {
	s.t.Helper()
	for next := path; next != ""; pages++ {
		page := s.get(next).json(200)
		for _, row := range page["value"].([]any) {
			found = append(found, row.(map[string]any)[member])
		}
		next, _ = page["nextLink"].(string)
	}
	return found, pages
}

// Each parameter of a list is a filter. internal/query has what they find.
func TestListingEventsAndDeliveries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.deliveries(3)
	bills := s.topic("bills", "")
	for i := range 4 {
		s.publish("bills", bills, fmt.Sprintf(`[{"id":"b%d","subject":"bills/%d","eventType":"Bill%d",`+
			`"eventTime":"2026-01-01T00:00:00Z","dataVersion":"1","data":{}}]`, i, i, i%2)).is(200)
	}
	b0 := s.rows("SELECT system_id::text AS id, published_at AS at FROM postrider.events WHERE event_id = 'b0'")[0]
	at := b0["at"].(time.Time).UTC().Format(time.RFC3339Nano)
	for query, want := range map[string][]any{
		"":                              {"b3", "b2", "b1", "b0", "e2", "e1", "e0"},
		"&topic=orders":                 {"e2", "e1", "e0"},
		"&topic=nowhere":                nil,
		"&eventType=Bill1":              {"b3", "b1"},
		"&subject=bills/2":              {"b2"},
		"&subjectPrefix=people/":        {"e2", "e1", "e0"},
		"&eventId=e1":                   {"e1"},
		"&eventId=" + b0["id"].(string): {"b0"},
		"&unmatched=true":               {"b3", "b2", "b1", "b0"},
		"&publishedFrom=" + at:          {"b3", "b2", "b1", "b0"},
		"&publishedUntil=" + at:         {"e2", "e1", "e0"},
		"&topic=bills&eventType=Bill0":  {"b2", "b0"},
	} {
		got, pages := s.walked("/v1/events?limit=3"+query, "eventId")
		require.Equal(t, want, got, query)
		require.LessOrEqual(t, pages, len(want)/3+2, query)
	}
	e1 := s.rows("SELECT system_id::text AS id FROM postrider.events WHERE event_id = 'e1'")[0]["id"].(string)
	one := s.get("/v1/events/" + e1)
	require.Equal(t, "e1", one.json(200)["event"].(map[string]any)["id"])
	deliveries := one.json(200)["deliveries"].([]any)
	require.Len(t, deliveries, 1)
	require.Equal(t, "billing", deliveries[0].(map[string]any)["subscription"])
	s.get("/v1/events/0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c12").rejected(404, "NotFound")
	s.get("/v1/events/e1").rejected(400, "InvalidRequest")
	s.post("/v1/events/"+e1+"/erase", "").json(200)
	erased := s.get("/v1/events/" + e1).json(200)
	require.NotContains(t, erased, "event")
	require.NotEmpty(t, erased["erasedAt"])

	s.subscription("bills", "audit", `{"endpointUrl":"https://example.com/audit"}`)
	s.post(first+"/cancel", "").json(200)
	s.post("/v1/topics/bills/subscriptions/audit/pause", "").json(200)
	s.publish("bills", bills, gridEvents("e9")).is(200)
	at = s.rows("SELECT published_at AS at FROM postrider.events WHERE event_id = 'e2'")[0]["at"].(time.Time).UTC().
		Format(time.RFC3339Nano)
	for query, want := range map[string][]any{
		"":                     {"e9", "e2", "e1", "e0"},
		"&topic=orders":        {"e2", "e1", "e0"},
		"&subscription=audit":  {"e9"},
		"&state=canceled":      {"e1", "e0"},
		"&hold=paused":         {"e9"},
		"&eventId=e9":          {"e9"},
		"&publishedFrom=" + at: {"e9", "e2"},
		"&publishedUntil=" + at + "&state=canceled": {"e1", "e0"},
		"&lastOutcome=Busy":                         nil,
	} {
		got, _ := s.walked("/v1/deliveries?limit=1"+query, "eventId")
		require.Equal(t, want, got, query)
	}
}

func TestListingBatches(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.deliveries(3)
	s.change(`WITH made AS (INSERT INTO postrider_internal.batches (id, subscription_id, state, members, delivery_ids,
		    bytes, hold)
		SELECT 100 + i, s.id, CASE WHEN i < 3 THEN 'pending' ELSE 'delivered' END, 3,
		       ARRAY (SELECT id FROM postrider_internal.deliveries ORDER BY id), 10, CASE WHEN i < 3 THEN 'paused' END
		FROM postrider_internal.event_subscriptions s, generate_series(1, 5) i) SELECT 1`)
	s.change("WITH bound AS (UPDATE postrider_internal.deliveries SET job_id = NULL, hold = NULL, batch_id = 101) " +
		"SELECT 1")
	s.change(`WITH paused AS (INSERT INTO postrider_internal.event_subscription_states (subscription_id, paused_since)
		SELECT id, now() FROM postrider_internal.event_subscriptions) SELECT 1`)
	s.change(`INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
		SELECT 101, delivery_id, now(), 2, 'TimeToLiveExceeded' FROM postrider.deliveries WHERE event_id = 'e1'`)
	for query, want := range map[string][]any{
		"":                                  {105.0, 104.0, 103.0, 102.0, 101.0},
		"&topic=orders":                     {105.0, 104.0, 103.0, 102.0, 101.0},
		"&topic=bills":                      nil,
		"&state=pending":                    {102.0, 101.0},
		"&state=delivered":                  {105.0, 104.0, 103.0},
		"&hold=paused&subscription=billing": {102.0, 101.0},
		"&hold=probation":                   nil,
	} {
		got, _ := s.walked("/v1/batches?limit=2"+query, "batchId")
		require.Equal(t, want, got, query)
	}
	one := s.get("/v1/batches/101").json(200)
	require.Equal(t, []any{"pending", "paused", "orders", "billing", 3.0},
		[]any{one["state"], one["hold"], one["topic"], one["subscription"], one["members"]})
	events, pages := s.walked("/v1/batches/101/members?limit=2", "eventId")
	require.Equal(t, []any{"e0", "e1", "e2"}, events)
	require.Equal(t, 2, pages)
	left, _ := s.walked("/v1/batches/101/members", "leftReason")
	require.Equal(t, []any{nil, "TimeToLiveExceeded", nil}, left)
	require.Empty(t, s.get("/v1/batches/101/attempts").json(200)["value"])
	for _, path := range []string{"/v1/batches/7", "/v1/batches/7/members", "/v1/batches/7/attempts"} {
		require.Contains(t, s.get(path).rejected(404, "NotFound").Message, "batch 7 does not exist")
	}
	s.get("/v1/batches/101/members?cursor=LTE").rejected(400, "InvalidRequest") // -1
}

func TestListingTheAudit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.deliveries(1)
	ci := s.apiKey("ci", "operate", "")
	s.send(http.MethodPost, billing+"/pause", `{"stopTimeToLive":false}`, "Authorization", "Bearer "+ci).is(200)
	s.post(billing+"/resume", "").json(200)
	at := s.rows("SELECT at FROM postrider.audit WHERE action = 'subscription_paused'")[0]["at"].(time.Time).UTC().
		Format(time.RFC3339Nano)
	for query, want := range map[string][]any{
		"": {
			"subscription_resumed", "subscription_paused", "api_key_created", "subscription_created", "topic_created",
		},
		"actor=key:ci":                      {"subscription_paused"},
		"action=topic_created":              {"topic_created"},
		"topic=orders&subscription=billing": {"subscription_resumed", "subscription_paused", "subscription_created"},
		"from=" + at:                        {"subscription_resumed", "subscription_paused"},
		"until=" + at + "&actor=admin":      {"api_key_created", "subscription_created", "topic_created"},
		"actor=none":                        nil,
	} {
		got, _ := s.walked("/v1/audit?limit=2&"+query, "action")
		require.Equal(t, want, got, query)
	}
	row := s.get("/v1/audit?actor=key:ci").json(200)["value"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"key:ci", "orders", "billing", map[string]any{"stopTimeToLive": false}},
		[]any{row["actor"], row["topic"], row["subscription"], row["details"]})
}

// The error for a wrong parameter has its name and the valid values.
func TestListsRejectWhatTheyCannotUse(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const holds = "paused, not_validated, probation, admission, rate_limited"
	for query, want := range map[string]string{
		"events?limit=0":             "limit must be between 1 and 1000, not 0",
		"events?limit=1001":          "limit must be between 1 and 1000, not 1001",
		"events?cursor=YQ":           "cursor must be the cursor of a nextLink",
		"deliveries?cursor=YQ":       "cursor must be the cursor of a nextLink",
		"deliveries?cursor=MTI":      "cursor must be the cursor of a nextLink", // 12: an id without its event
		"batches?cursor=*":           "cursor must be the cursor of a nextLink",
		"audit?cursor=YQ":            "cursor must be the cursor of a nextLink",
		"events?topic=%00":           "topic must be UTF-8 without the character 0",
		"events?subject=%ff":         "subject must be UTF-8 without the character 0",
		"events?publishedFrom=today": "publishedFrom must be an RFC 3339 time, such as 2026-11-20T09:30:00Z",
		"deliveries?state=dead":      `state must be one of pending, delivered, dead_lettered, dropped, canceled, not "dead"`,
		"audit?action=dead":          "action must be one of topic_created, topic_replaced, ",
		"deliveries?state=":          `state must be one of pending`,
		"deliveries?hold=resting":    "hold must be one of " + holds + `, not "resting"`,
		"batches?state=open":         "state must be one of",
		"batches?hold=x":             "hold must be one of " + holds,
		"audit?until=now":            "until must be an RFC 3339 time",
		"audit?limit=many":           `limit must be an integer between 1 and 1000, not "many"`,
		"events?unmatched=perhaps":   `unmatched must be true or false, not "perhaps"`,
		"batches/one":                `batchId must be an integer, not "one"`,
		"deliveries?publishedFrom=2026-11-21T00:00:00Z&publishedUntil=2026-11-21T00:00:00Z": "publishedFrom must be before " +
			"publishedUntil",
	} {
		rejected := s.get("/v1/"+query).rejected(400, "InvalidRequest")
		require.Contains(t, rejected.Message, want, query)
		if strings.Contains(want, " must ") {
			require.Equal(t, strings.Fields(want)[0], rejected.Details[0].Target, query)
		}
	}
	both := s.get("/v1/deliveries?state=x&hold=y").rejected(400, "InvalidRequest")
	require.Len(t, both.Details, 2, "all mistakes at once")
	wild := url.Values{"topic": {"a&b=c d/ü"}, "limit": {"1"}}
	require.Empty(t, s.get("/v1/deliveries?" + wild.Encode()).json(200)["value"])
}
