package server_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

func TestTestDelivery(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	s.subscription("orders", "billing", withFilter(`{"subjectBeginsWith":"nothing"}`))
	made := s.post(billing+"/testDelivery", "").json(200)
	require.Equal(t, 1,
		s.count("SELECT count(*) FROM postrider.deliveries WHERE delivery_id = $1 AND event_type = 'postrider.TestEvent'",
			made["deliveryId"]))
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.audit WHERE actor = 'admin' "+
		"AND action = 'test_delivery_created' AND subscription = 'billing'"))
	for _, path := range []string{
		"orders/subscriptions/none", "nowhere/subscriptions/billing", "orders/subscriptions/%00",
	} {
		s.post("/v1/topics/"+path+"/testDelivery", "").rejected(404, "NotFound")
	}
}

// The dashboard publishes without a key for users with the role admin only.
func TestPublishAsAUser(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for role, status := range map[access.Role]int{
		access.RoleAdmin: http.StatusOK, access.RoleOperator: http.StatusUnauthorized,
		access.RoleViewer: http.StatusUnauthorized, "": http.StatusUnauthorized,
	} {
		ctx := access.WithActor(t.Context(), access.Actor{Name: "anna", Role: role})
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/topics/orders/api/events",
			strings.NewReader(gridEvents("1")))
		w := httptest.NewRecorder()
		s.server.Handler().ServeHTTP(w, r)
		require.Equal(t, status, w.Code, "%s: %s", role, w.Body)
	}
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.events"))
}
