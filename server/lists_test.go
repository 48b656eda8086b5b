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
func (b *bundle) walked(path, member string) (found []any, pages int) {
	b.t.Helper()
	for next := path; next != ""; pages++ {
		page := b.manage(http.MethodGet, next, "").json(http.StatusOK)
		for _, row := range page["value"].([]any) {
			found = append(found, row.(map[string]any)[member])
		}
		next, _ = page["nextLink"].(string)
	}
	return found, pages
}

func TestListingEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deliveries(3)
	bills := b.topic("bills", "")
	for i := range 4 {
		require.Equal(t, http.StatusOK,
			b.publish("bills", bills,
				fmt.Sprintf(`[{"id":"b%d","subject":"bills/%d","eventType":"Bill%d","eventTime":"2026-01-01T00:00:00Z",`+
					`"dataVersion":"1","data":{}}]`, i, i, i%2)).status)
	}
	first := b.rows("SELECT system_id::text AS id, published_at AS at FROM postrider.events WHERE event_id = 'b0'")[0]
	at := first["at"].(time.Time).UTC().Format(time.RFC3339Nano)
	for query, want := range map[string][]any{
		"":                                   {"b3", "b2", "b1", "b0", "e2", "e1", "e0"},
		"?topic=orders":                      {"e2", "e1", "e0"},
		"?topic=nowhere":                     nil,
		"?eventType=Bill1":                   {"b3", "b1"},
		"?subject=bills/2":                   {"b2"},
		"?subjectPrefix=people/":             {"e2", "e1", "e0"},
		"?eventId=e1":                        {"e1"},
		"?eventId=" + first["id"].(string):   {"b0"},
		"?unmatched=true":                    {"b3", "b2", "b1", "b0"},
		"?publishedFrom=" + at:               {"b3", "b2", "b1", "b0"},
		"?publishedUntil=" + at:              {"e2", "e1", "e0"},
		"?topic=bills&eventType=Bill0":       {"b2", "b0"},
		"?subject=bills/2&subjectPrefix=bil": {"b2"},
	} {
		for limit, slack := range map[int]int{1: 1, 3: 1, 1000: 0} {
			path := "/v1/events" + query + map[bool]string{true: "?", false: "&"}[query == ""] + fmt.Sprintf("limit=%d", limit)
			got, pages := b.walked(path, "eventId")
			require.Equal(t, want, got, path)
			require.LessOrEqual(t, pages, len(want)/limit+slack+1, path)
		}
	}
	one := b.manage(http.MethodGet,
		"/v1/events/"+b.rows("SELECT system_id::text AS id FROM postrider.events WHERE event_id = 'e1'")[0]["id"].(string),
		"").json(http.StatusOK)
	require.Equal(t, "e1", one["event"].(map[string]any)["id"])
	deliveries := one["deliveries"].([]any)
	require.Len(t, deliveries, 1)
	require.Equal(t, []any{"billing", "e1"},
		[]any{deliveries[0].(map[string]any)["subscription"], deliveries[0].(map[string]any)["eventId"]})
	b.manage(http.MethodGet, "/v1/events/0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c12", "").rejected(404, "NotFound")
	b.manage(http.MethodGet, "/v1/events/e1", "").rejected(400, "InvalidRequest")

	b.manage(http.MethodPost, "/v1/events/"+one["systemId"].(string)+"/erase", "").json(http.StatusOK)
	erased := b.manage(http.MethodGet, "/v1/events/"+one["systemId"].(string), "").json(http.StatusOK)
	require.NotContains(t, erased, "event")
	require.NotEmpty(t, erased["erasedAt"])
}

func TestListingDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.deliveries(4)
	b.subscription("orders", "audit", `{"endpointUrl":"https://example.com/audit"}`)
	b.manage(http.MethodPost, first+"/cancel", "").json(http.StatusOK)
	b.manage(http.MethodPost, billing+"/pause", "").json(http.StatusOK)
	key := b.manage(http.MethodPost, "/v1/topics/orders/listKeys", "").json(http.StatusOK)["key1"].(string)
	require.Equal(t, http.StatusOK, b.publish("orders", key, eventNamed("e9")).status)
	at := b.rows("SELECT published_at AS at FROM postrider.events WHERE event_id = 'e2'")[0]["at"].(time.Time).UTC().
		Format(time.RFC3339Nano)
	for query, want := range map[string]int{
		"":                                   6,
		"topic=orders":                       6,
		"topic=orders&subscription=audit":    1,
		"subscription=billing":               5,
		"subscription=none":                  0,
		"state=canceled":                     1,
		"state=delivered":                    0,
		"state=pending&subscription=billing": 4,
		"hold=paused":                        1,
		"eventId=e9":                         2,
		"publishedFrom=" + at:                4,
		"publishedUntil=" + at:               2,
		"publishedUntil=" + at + "&state=pending": 1,
		"lastOutcome=Busy":                        0,
	} {
		for _, limit := range []string{"1", "4", "100"} {
			got, _ := b.walked("/v1/deliveries?limit="+limit+"&"+query, "deliveryId")
			require.Len(t, got, want, "%s by %s", query, limit)
			for i := 1; i < len(got); i++ {
				require.Less(t, got[i], got[i-1])
			}
		}
	}
}

func TestListingBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deliveries(3)
	b.change(`WITH made AS (INSERT INTO postrider_internal.batches (id, subscription_id, state, members, delivery_ids,
		    bytes, hold)
		SELECT 100 + i, s.id, CASE WHEN i < 3 THEN 'pending' ELSE 'delivered' END, 3,
		       ARRAY (SELECT id FROM postrider_internal.deliveries ORDER BY id), 10, CASE WHEN i < 3 THEN 'paused' END
		FROM postrider_internal.event_subscriptions s, generate_series(1, 5) i) SELECT 1`)
	b.change("WITH bound AS (UPDATE postrider_internal.deliveries SET job_id = NULL, hold = NULL, batch_id = 101) " +
		"SELECT 1")
	b.change(`WITH paused AS (INSERT INTO postrider_internal.event_subscription_states (subscription_id, paused_since)
		SELECT id, now() FROM postrider_internal.event_subscriptions) SELECT 1`)
	b.change(`INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
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
		got, _ := b.walked("/v1/batches?limit=2"+query, "batchId")
		require.Equal(t, want, got, query)
	}
	one := b.manage(http.MethodGet, "/v1/batches/101", "").json(http.StatusOK)
	require.Equal(t, []any{"pending", "paused", "orders", "billing", 3.0},
		[]any{one["state"], one["hold"], one["topic"], one["subscription"], one["members"]})
	events, pages := b.walked("/v1/batches/101/members?limit=2", "eventId")
	require.Equal(t, []any{"e0", "e1", "e2"}, events)
	require.Equal(t, 2, pages)
	left, _ := b.walked("/v1/batches/101/members", "leftReason")
	require.Equal(t, []any{nil, "TimeToLiveExceeded", nil}, left)
	require.Empty(t, b.manage(http.MethodGet, "/v1/batches/101/attempts", "").json(http.StatusOK)["value"])
	for _, path := range []string{"/v1/batches/7", "/v1/batches/7/members", "/v1/batches/7/attempts"} {
		require.Contains(t, b.manage(http.MethodGet, path, "").rejected(404, "NotFound").Message, "batch 7 does not exist")
	}
	b.manage(http.MethodGet, "/v1/batches/101/members?cursor=LTE", "").rejected(400, "InvalidRequest") // -1
}

func TestListingTheAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deliveries(1)
	ci := b.apiKey("ci", "operate", "")
	require.Equal(t, http.StatusOK,
		b.send(http.MethodPost, billing+"/pause", `{"stopTimeToLive":false}`, "Authorization", "Bearer "+ci).status)
	b.manage(http.MethodPost, billing+"/resume", "").json(http.StatusOK)
	at := b.rows("SELECT at FROM postrider.audit WHERE action = 'subscription_paused'")[0]["at"].(time.Time).UTC().
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
		got, _ := b.walked("/v1/audit?limit=2&"+query, "action")
		require.Equal(t, want, got, query)
	}
	row := b.manage(http.MethodGet, "/v1/audit?actor=key:ci", "").json(http.StatusOK)["value"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"key:ci", "orders", "billing", map[string]any{"stopTimeToLive": false}},
		[]any{row["actor"], row["topic"], row["subscription"], row["details"]})
}

// The error for a wrong parameter has its name and the valid values.
func TestListsRejectWhatTheyCannotUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
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
		rejected := b.manage(http.MethodGet, "/v1/"+query, "").rejected(400, "InvalidRequest")
		require.Contains(t, rejected.Message, want, query)
		if strings.Contains(want, " must ") {
			require.Equal(t, strings.Fields(want)[0], rejected.Details[0].Target, query)
		}
	}
	both := b.manage(http.MethodGet, "/v1/deliveries?state=x&hold=y", "").rejected(400, "InvalidRequest")
	require.Len(t, both.Details, 2, "all mistakes at once")
	wild := url.Values{"topic": {"a&b=c d/ü"}, "limit": {"1"}}
	require.Empty(t, b.manage(http.MethodGet, "/v1/deliveries?"+wild.Encode(), "").json(http.StatusOK)["value"])
}
