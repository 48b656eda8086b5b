package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// What people on call do, by the verbs that they have: the audit has each, with who did it and from where.
func TestOperateFromTheCommandLine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	key := h.topic("orders")
	h.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"http://127.0.0.1:1/","endpointValidation":"skip"}`)
	for i := range 5 {
		h.publish("orders", key, order(fmt.Sprint(i), i))
	}
	ids := one[[]int64](h, "SELECT array_agg(delivery_id ORDER BY delivery_id) FROM postrider.deliveries")
	run := func(code int, args ...string) string {
		r := h.run(code, args...)
		return r.stdout + r.stderr
	}
	asJSON := h.object
	id := func(i int) string { return fmt.Sprint(ids[i]) }

	require.Equal(t, "Delivery "+id(0)+" was canceled.\n", run(0, "delivery", "cancel", id(0), "--yes"))
	require.Contains(t, run(1, "delivery", "cancel", id(0), "--yes"), "delivery "+id(0)+" has ended: canceled\n")
	require.Equal(t, "postrider: delivery 7777 does not exist\n", run(1, "delivery", "cancel", "7777", "--yes"))
	require.Regexp(t, "Delivery "+id(1)+" became dead letter [0-9a-f-]{36}\\.\n",
		run(0, "delivery", "dead-letter-now", id(1)))
	require.Equal(t, "The next attempt of delivery "+id(2)+" is due now.\n", run(0, "delivery", "retry-now", id(2)))
	retried := asJSON("delivery", "retry-now", id(2))
	require.JSONEq(t, steady(h.manage(http.StatusOK, http.MethodGet, "/v1/deliveries/"+id(2), "")),
		steady(mustJSON(t, retried)))
	require.Equal(t, "Event subscription billing of topic orders: paused.\n",
		run(0, "subscription", "pause", "orders", "billing", "--stop-time-to-live"))
	require.Contains(t, run(1, "delivery", "retry-now", id(2)), `is paused`)
	require.Equal(t, "Event subscription billing of topic orders: resumed.\n",
		run(0, "subscription", "resume", "orders", "billing"))
	require.Equal(t, "Event subscription billing of topic orders: released.\n",
		run(0, "subscription", "release", "orders", "billing"))
	require.Contains(t, run(1, "subscription", "release", "orders", "none"),
		`topic "orders" has no event subscription "none"`)

	h.subscribe("orders", "audited", "http://127.0.0.1:1/")
	require.Equal(t, "paused", rest.ValueAt(asJSON("subscription", "pause", "orders", "audited"), "hold.reason"))
	resumed := asJSON("subscription", "resume", "orders", "audited")
	require.JSONEq(t, h.manage(http.StatusOK, http.MethodGet, "/v1/topics/orders/subscriptions/audited", ""),
		mustJSON(t, resumed))
	require.Equal(t, resumed, asJSON("subscription", "release", "orders", "audited"),
		"releasing what is not in probation is nothing")

	require.Regexp(t, `(?m)^state +dead_lettered$`, run(0, "delivery", "show", id(1)))
	require.Equal(t, "postrider: delivery 7777 does not exist or is no longer stored\n",
		run(1, "delivery", "show", "7777"))
	var shown struct{ State, SystemID, Subject string }
	require.NoError(t, json.Unmarshal([]byte(run(0, "delivery", "show", id(3), "-o", "json")), &shown))
	require.Equal(t, "pending", shown.State)
	require.Equal(t, "Events erased: 1\n", run(0, "event", "erase", shown.SystemID, "--yes"))
	require.Equal(t, "Events erased: 0\n", run(0, "event", "erase", shown.SystemID, "--yes"))
	require.Equal(t, "Events erased: 1\n",
		run(0, "event", "erase", "--topic", "orders", "--yes", "--subject", "\u001b[31morders/4"))
	for _, args := range [][]string{
		{}, {"4"}, {shown.SystemID, "--topic", "orders"}, {"--topic", "orders"}, {"--subject", "a"},
	} {
		run(2, append([]string{"event", "erase", "--yes"}, args...)...)
	}
	require.Equal(t, []string{
		"delivery_canceled", "delivery_dead_lettered", "subscription_paused", "subscription_resumed", "subscription_released",
		"subscription_paused", "subscription_resumed", "subscription_released", "event_erased", "event_erased",
		"subject_erased",
	},
		one[[]string](h, "SELECT array_agg(action ORDER BY audit_id) FROM postrider.audit WHERE actor = 'admin' "+
			"AND address = '127.0.0.1' AND action NOT IN ('topic_created', 'subscription_created')"))
}
