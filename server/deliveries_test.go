package server_test

import (
	"fmt"
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
		s.events(key, fmt.Sprint("e", i))
	}
	return fmt.Sprintf("/v1/deliveries/%d", s.count(pendingDelivery))
}

// internal/operator has what these operations do, and TestExamples their responses.
func TestActingOnDeliveries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.deliveries(3)
	s.post(first+"/cancel", "").json(200)
	second := fmt.Sprintf("/v1/deliveries/%d", s.count(pendingDelivery))
	s.post(second+"/deadLetterNow", "").json(200)
	s.post(billing+"/pause", "").json(200)
	third := fmt.Sprintf("/v1/deliveries/%d", s.count(pendingDelivery))
	for path, want := range map[string]struct {
		method        string
		status        int
		code, message string
	}{
		first + "/cancel":                     {"POST", 409, "DeliveryEnded", "has ended: canceled"},
		second + "/retryNow":                  {"POST", 409, "DeliveryEnded", "has ended: dead_lettered"},
		third + "/retryNow":                   {"POST", 409, "SubscriptionPaused", "is paused"},
		"/v1/deliveries/7777":                 {"GET", 404, "NotFound", "delivery 7777 does not exist"},
		"/v1/deliveries/7777/attempts":        {"GET", 404, "NotFound", "delivery 7777 does not exist"},
		"/v1/deliveries/7777/cancel":          {"POST", 404, "NotFound", "delivery 7777 does not exist"},
		"/v1/deliveries/99999999999999999999": {"GET", 400, "InvalidRequest", "deliveryId"},
	} {
		response := s.manage(want.method, path, "")
		response.rejected(want.status, want.code)
		require.Contains(t, response.body, want.message, path)
	}

	s.post("/v1/events/"+exampleEvent+"/erase", "").rejected(404, "NotFound")
	s.post("/v1/events/e0/erase", "").rejected(400, "InvalidRequest")
	s.post("/v1/topics/none/eraseSubject", `{"subject":"a"}`).rejected(404, "NotFound")
	for _, body := range []string{"", `{"subject":""}`, `{"subject":1}`} {
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
		"":                                  {"Busy"},
		"?withinInMinutes=180&topic=orders": {"Busy", "NotFound"},
	} {
		found, _ := s.listAll("/v1/problems"+query, "outcome")
		require.Equal(t, outcomes, found, query)
	}
	require.Empty(t, s.get("/v1/problems?withinInMinutes=180&state=resolved").json(200)["value"])
	first := s.get("/v1/problems").json(200)["value"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"orders", "billing", 3.0, 4.0, 1.0, float64(s.count(pendingDelivery))},
		[]any{
			first["topic"], first["subscription"], first["failures"], first["attempts"], first["waiting"],
			first["deliveryId"],
		})
}
