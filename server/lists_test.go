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

// listAll follows a list's nextLinks and returns one member of each row.
func (s *service) listAll(path, member string) (found []any, pages int) {
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
	s.deliveries(2)
	s.topic("bills", "")
	s.subscription("bills", "audit", `{"endpointUrl":"https://example.com/audit"}`)
	s.post("/v1/topics/bills/subscriptions/audit/pause", "").json(200)
	for _, body := range []string{gridEvents("b0"), strings.Replace(gridEvents("b1"), "OrderPlaced", "Bill", 1)} {
		s.post("/topics/bills/api/events", body).is(200)
	}
	s.post(fmt.Sprintf("/v1/deliveries/%d/cancel", s.count(pendingDelivery)), "").json(200)
	b0 := s.rows("SELECT system_id::text AS id, published_at AS at FROM postrider.events WHERE event_id = 'b0'")[0]
	id, at := b0["id"].(string), b0["at"].(time.Time).UTC().Format(time.RFC3339Nano)
	all := []any{"b1", "b0", "e1", "e0"}
	for query, want := range map[string][]any{
		"events?limit=3": all, "events?topic=orders": all[2:], "events?eventType=Shop.Bill": all[:1],
		"events?subject=orders/b1": all[:1], "events?subjectPrefix=orders/e": all[2:], "events?eventId=e1": all[2:3],
		"events?eventId=" + id: all[1:2], "events?unmatched=true": nil, "events?publishedFrom=" + at: all[:2],
		"events?publishedUntil=" + at: all[2:],
		"deliveries?limit=1":          all, "deliveries?topic=orders": all[2:], "deliveries?subscription=audit": all[:2],
		"deliveries?state=canceled": all[3:], "deliveries?hold=paused": all[:2], "deliveries?eventId=b0": all[1:2],
		"deliveries?publishedFrom=" + at: all[:2], "deliveries?publishedUntil=" + at: all[2:],
		"deliveries?lastOutcome=Busy": nil,
	} {
		got, _ := s.listAll("/v1/"+query, "eventId")
		require.Equal(t, want, got, query)
	}
	require.Equal(t, "b0", s.get("/v1/events/" + id).json(200)["event"].(map[string]any)["id"])
	s.get("/v1/events/0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c12").rejected(404, "NotFound")
	s.get("/v1/events/e1").rejected(400, "InvalidRequest")
	s.post("/v1/events/"+id+"/erase", "").json(200)
	erased := s.get("/v1/events/" + id).json(200)
	require.NotContains(t, erased, "event")
	require.NotEmpty(t, erased["erasedAt"])
}

// A list of a name that nothing has, or had, is no empty list.
func TestListsOfUnknownNames(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("gone", "")
	s.subscription("gone", "billing", `{"endpointUrl":"https://example.com/"}`)
	s.delete("/v1/topics/gone/subscriptions/billing").is(204)
	s.delete("/v1/topics/gone").is(204)
	for _, list := range []string{
		"events", "activity", "problems", "deliveries", "batches", "deadLetters", "deadLetterExport", "audit",
	} {
		path := "/v1/" + list + "?topic="
		require.Equal(t, `topic "nope" does not exist`, s.get(path+"nope").rejected(404, "NotFound").Message, list)
		s.get(path + "gone").json(200)
		if list == "events" || list == "problems" {
			continue // their events are of topics
		}
		s.get(path + "gone&subscription=billing").json(200)
		require.Equal(t, `topic "gone" has no event subscription "nope"`,
			s.get(path+"gone&subscription=nope").rejected(404, "NotFound").Message, list)
		if list != "activity" { // which needs the topic
			require.Equal(t, `no topic has an event subscription "nope"`,
				s.get("/v1/"+list+"?subscription=nope").rejected(404, "NotFound").Message, list)
		}
	}
	for _, many := range []string{
		"deadLetters/redeliver", "deadLetters/repair", "deadLetters/resolve", "deadLetters/purge", "deliveries/retryNow",
		"deliveries/cancel",
	} {
		send := func(filter string) response {
			body := `{"filter":` + filter + "}"
			if many == "deadLetters/repair" {
				body = `{"mergePatch":{},"filter":` + filter + "}"
			}
			return s.post("/v1/"+many, body)
		}
		require.Equal(t, `topic "nope" does not exist`, send(`{"topic":"nope"}`).rejected(404, "NotFound").Message, many)
		require.Equal(t, `topic "gone" has no event subscription "nope"`,
			send(`{"topic":"gone","subscription":"nope"}`).rejected(404, "NotFound").Message, many)
		send(`{"topic":"gone","subscription":"billing"}`).is(202)
	}
	const operation = "0199f0a4-7b1e-7c52-9d0e-3f6f2b8a4c12"
	require.Equal(t, `operation "`+operation+`" does not exist or is no longer stored`,
		s.get("/v1/deliveries?operationId="+operation).rejected(404, "NotFound").Message)
}

func TestListingBatches(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.deliveries(3)
	s.change(`WITH made AS (INSERT INTO postrider_internal.batches (id, subscription_id, state, members, delivery_ids,
		    bytes, hold)
		SELECT 100 + i, s.id, CASE WHEN i < 2 THEN 'pending' ELSE 'delivered' END, 3,
		       ARRAY (SELECT id FROM postrider_internal.deliveries ORDER BY id), 10, CASE WHEN i < 2 THEN 'paused' END
		FROM postrider_internal.event_subscriptions s, generate_series(1, 3) i) SELECT 1`)
	s.change("WITH bound AS (UPDATE postrider_internal.deliveries SET job_id = NULL, hold = NULL, batch_id = 101) " +
		"SELECT 1")
	s.change(`INSERT INTO postrider_internal.event_subscription_states (subscription_id, paused_since)
		SELECT id, now() FROM postrider_internal.event_subscriptions`)
	s.change(`INSERT INTO postrider_internal.left_members (batch_id, delivery_id, left_at, left_after, left_reason)
		SELECT 101, delivery_id, now(), 2, 'TimeToLiveExceeded' FROM postrider.deliveries WHERE event_id = 'e1'`)
	for query, want := range map[string][]any{
		"":                                  {103.0, 102.0, 101.0},
		"&state=delivered":                  {103.0, 102.0},
		"&hold=paused&subscription=billing": {101.0},
	} {
		got, _ := s.listAll("/v1/batches?limit=2"+query, "batchId")
		require.Equal(t, want, got, query)
	}
	one := s.get("/v1/batches/101").json(200)
	require.Equal(t, []any{"pending", "paused", "orders", "billing", 3.0},
		[]any{one["state"], one["hold"], one["topic"], one["subscription"], one["members"]})
	left, pages := s.listAll("/v1/batches/101/members?limit=2", "leftReason")
	require.Equal(t, []any{nil, "TimeToLiveExceeded", nil}, left)
	require.Equal(t, 2, pages)
	require.Empty(t, s.get("/v1/batches/101/attempts").json(200)["value"])
	for _, path := range []string{"/v1/batches/7", "/v1/batches/7/members", "/v1/batches/7/attempts"} {
		require.Contains(t, s.get(path).rejected(404, "NotFound").Message, "batch 7 does not exist")
	}
}

func TestListingTheAudit(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.deliveries(1)
	ci := s.apiKey("ci", "operate", "")
	s.send(http.MethodPost, billing+"/pause", `{"stopTimeToLive":false}`, "Authorization", "Bearer "+ci).is(200)
	at := s.rows("SELECT at FROM postrider.audit WHERE action = 'subscription_paused'")[0]["at"].(time.Time).UTC().
		Format(time.RFC3339Nano)
	for query, want := range map[string][]any{
		"": {
			"subscription_paused", "api_key_created", "subscription_created", "topic_created",
		},
		"actor=key:ci":                      {"subscription_paused"},
		"action=topic_created":              {"topic_created"},
		"topic=orders&subscription=billing": {"subscription_paused", "subscription_created"},
		"from=" + at:                        {"subscription_paused"},
		"until=" + at + "&actor=admin":      {"api_key_created", "subscription_created", "topic_created"},
	} {
		got, _ := s.listAll("/v1/audit?limit=2&"+query, "action")
		require.Equal(t, want, got, query)
	}
	row := s.get("/v1/audit?actor=key:ci").json(200)["value"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"key:ci", "orders", "billing", map[string]any{"stopTimeToLive": false}},
		[]any{row["actor"], row["topic"], row["subscription"], row["details"]})
}

// The error for a wrong parameter has its name and the valid values. server/api has the kinds of parameters.
func TestListsRejectWhatTheyCannotUse(t *testing.T) {
	t.Parallel()
	s := setup(t)
	const holds, cursor = "hold must be one of paused, not_validated, probation, admission, rate_limited",
		"cursor must be the cursor of a nextLink"
	for query, want := range map[string]string{
		"topics?limit=1001":          "limit must be between 1 and 1000, not 1001",
		"topics?cursor=AA":           cursor,
		"events?cursor=YQ":           cursor,
		"deliveries?cursor=MTI":      cursor, // 12: an id without its event
		"batches?cursor=*":           cursor,
		"batches/1/members?cursor=*": cursor,
		"audit?cursor=YQ":            cursor,
		"events?subject=%ff":         "subject must be UTF-8 without the character 0",
		"deliveries?state=dead":      `state must be one of pending, delivered, dead_lettered, dropped, canceled, not "dead"`,
		"deliveries?hold=resting":    holds + `, not "resting"`,
		"audit?action=dead":          "action must be one of topic_created, topic_replaced, ",
		"batches?state=open":         "state must be one of",
		"batches?hold=x":             holds,
		"batches/one":                `batchId must be an integer, not "one"`,
		"problems?withinInMinutes=0": "withinInMinutes must be between 1 and 10080, not 0",
		"deliveries?publishedFrom=2026-11-21T00:00:00Z&publishedUntil=2026-11-21T00:00:00Z": "publishedFrom must be before " +
			"publishedUntil",
	} {
		rejected := s.get("/v1/"+query).rejected(400, "InvalidRequest")
		require.Contains(t, rejected.Message, want, query)
		require.Equal(t, strings.Fields(want)[0], rejected.Details[0].Target, query)
	}
	wild := url.Values{"eventId": {"a&b=c d/ü"}, "limit": {"1"}}
	require.Empty(t, s.get("/v1/deliveries?" + wild.Encode()).json(200)["value"])
}
