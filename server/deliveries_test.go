package server_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

const pendingDelivery = "SELECT delivery_id FROM postrider.deliveries WHERE state = 'pending' ORDER BY delivery_id " +
	"LIMIT 1"

// deliveries publishes n events to one event subscription and returns the first delivery's path.
func (s *service) deliveries(n int) string {
	s.t.Helper()
	key := s.topic("orders", "")
	s.subscription("orders", "billing", `{"endpointUrl":"https://example.com/hook"}`)
	for i := range n {
		event := fmt.Sprintf(`[{"id":"e%d","subject":"people/anna","eventType":"test","eventTime":"2026-01-01T00:00:00Z",`+
			`"dataVersion":"1","data":{}}]`, i)
		require.Equal(s.t, http.StatusOK, s.publish("orders", key, event).status)
	}
	return fmt.Sprintf("/v1/deliveries/%d", s.count(pendingDelivery))
}

func TestActingOnDeliveries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.deliveries(3)
	s.audited()
	require.Equal(t, "pending", s.get(first).json(200)["state"])
	id := s.count(pendingDelivery)
	s.change("UPDATE postrider_internal.river_job SET state = 'scheduled', scheduled_at = now() + interval '1 hour' "+
		"WHERE args ->> 'd' = $1::text", strconv.Itoa(id))
	s.change("UPDATE postrider_internal.deliveries SET next_attempt_at = now() + interval '1 hour' WHERE id = $1", id)

	require.Equal(t, "pending", s.post(first+"/retryNow", "").json(200)["state"])
	require.Zero(t, s.count("SELECT count(*) FROM postrider.deliveries WHERE next_attempt_at > now()"))
	canceled := s.post(first+"/cancel", "").json(200)
	require.Equal(t, []any{"canceled", "CanceledByOperator"}, []any{canceled["state"], canceled["reason"]})
	second := fmt.Sprintf("/v1/deliveries/%d", s.count(pendingDelivery))
	dead := s.post(second+"/deadLetterNow", "").json(200)
	require.Equal(t, []any{"dead_lettered", "DeadLetteredByOperator"}, []any{dead["state"], dead["reason"]})
	require.Equal(t, 1,
		s.count("SELECT count(*) FROM postrider.dead_letters WHERE dead_letter_id::text = $1", dead["deadLetterId"]))
	require.Empty(t, s.get(second + "/attempts").json(200)["value"])
	require.Equal(t, []string{
		fmt.Sprintf(`delivery_retried orders/billing {"deliveryId":%d}`, id),
		fmt.Sprintf(`delivery_canceled orders/billing {"deliveryId":%d}`, id),
		fmt.Sprintf(`delivery_dead_lettered orders/billing {"deadLetterId":%q,"deliveryId":%.0f}`, dead["deadLetterId"],
			dead["deliveryId"]),
	}, s.audited())

	for path, want := range map[string]struct {
		method  string
		status  int
		code    string
		message string
	}{
		first + "/cancel": {
			"POST", 409, "DeliveryEnded", fmt.Sprintf("delivery %d has ended: canceled", id),
		},
		second + "/retryNow":                  {"POST", 409, "DeliveryEnded", "has ended: dead_lettered"},
		"/v1/deliveries/7777":                 {"GET", 404, "NotFound", "delivery 7777 does not exist"},
		"/v1/deliveries/7777/attempts":        {"GET", 404, "NotFound", "delivery 7777 does not exist"},
		"/v1/deliveries/7777/cancel":          {"POST", 404, "NotFound", "delivery 7777 does not exist"},
		"/v1/deliveries/one/cancel":           {"POST", 400, "InvalidRequest", "deliveryId"},
		"/v1/deliveries/99999999999999999999": {"GET", 400, "InvalidRequest", "deliveryId"},
	} {
		response := s.manage(want.method, path, "")
		response.rejected(want.status, want.code)
		require.Contains(t, response.body, want.message, path)
	}
	s.post(billing+"/pause", "").json(200)
	response := s.post(fmt.Sprintf("/v1/deliveries/%d/retryNow", s.count(pendingDelivery)), "")
	response.rejected(409, "SubscriptionPaused")
	require.Contains(t, response.body, "is paused")
}

func TestErasing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.deliveries(2)
	s.audited()
	id := s.rows("SELECT system_id::text AS id FROM postrider.events ORDER BY system_id LIMIT 1")[0]["id"].(string)
	require.Equal(t, map[string]any{"events": 1.0}, s.post("/v1/events/"+id+"/erase", "").json(200))
	require.Equal(t, map[string]any{"events": 1.0},
		s.post("/v1/topics/orders/eraseSubject", `{"subject":"people/anna"}`).json(200))
	require.Equal(t, 2,
		s.count("SELECT count(*) FROM postrider.events WHERE erased_at IS NOT NULL AND body IS NULL AND subject = ''"))
	require.Equal(t, 2,
		s.count("SELECT count(*) FROM postrider.deliveries WHERE state = 'canceled' AND reason = 'EventErased'"))
	require.Equal(t,
		[]string{fmt.Sprintf(`event_erased orders/- {"events":1,"systemId":%q}`, id), `subject_erased orders/- {"events":1}`},
		s.audited())

	s.post("/v1/events/"+exampleEvent+"/erase", "").rejected(404, "NotFound")
	s.post("/v1/events/e0/erase", "").rejected(400, "InvalidRequest")
	s.post("/v1/topics/none/eraseSubject", `{"subject":"a"}`).rejected(404, "NotFound")
	for _, body := range []string{"", `{}`, `{"subject":""}`, `{"subject":1}`} {
		s.post("/v1/topics/orders/eraseSubject", body).rejected(400, "InvalidRequest")
	}
}

func TestListingProblems(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.deliveries(1)
	require.Empty(t, s.get("/v1/problems").json(200)["value"])
	s.change("UPDATE postrider_internal.deliveries SET last_outcome = 'Busy', attempts = 1")
	for _, failed := range [][]any{{"Busy", "0 h", 3}, {"Delivered", "0 h", 1}, {"NotFound", "2 h", 5}} {
		s.change("INSERT INTO postrider_internal.rollups (minute, topic_id, subscription_id, kind, detail, count) "+
			"SELECT date_trunc('minute', now()) - $2::interval, topic_id, id, 'attempt', $1, $3 "+
			"FROM postrider_internal.event_subscriptions", failed...)
	}
	for query, outcomes := range map[string][]any{
		"":                                   {"Busy"},
		"?withinInMinutes=180":               {"Busy", "NotFound"},
		"?withinInMinutes=180&topic=orders":  {"Busy", "NotFound"},
		"?withinInMinutes=180&topic=nowhere": nil,
	} {
		found, _ := s.walked("/v1/problems"+query, "outcome")
		require.Equal(t, outcomes, found, query)
	}
	first := s.get("/v1/problems").json(200)["value"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"orders", "billing", 3.0, 4.0, 1.0, float64(s.count(pendingDelivery))},
		[]any{
			first["topic"], first["subscription"], first["failures"], first["attempts"], first["waiting"],
			first["deliveryId"],
		})
	s.get("/v1/problems?withinInMinutes=0").rejected(400, "InvalidRequest")
	s.get("/v1/problems?withinInMinutes=10081").rejected(400, "InvalidRequest")
}
