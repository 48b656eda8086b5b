package event_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/event"
)

func TestSystemEvents(t *testing.T) {
	t.Parallel()
	e := event.SystemEvent{ID: "1", Topic: "orders", Subscription: "billing", Time: time.Date(2026, 11, 22, 10, 30, 0, 5e8,
		time.FixedZone("", 3600))}
	require.JSONEq(t, `[{"id":"1","topic":"/topics/orders","subject":"","data":{"validationCode":"c0de",`+
		`"validationUrl":"https://a.example/?x=\"\\"},
		"eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","eventTime":"2026-11-22T09:30:00.5Z",`+
		`"metadataVersion":"1","dataVersion":"1"}]`,
		string(event.ValidationBody(e, "c0de", `https://a.example/?x="\`)))
	for _, schema := range []event.Schema{event.EventGrid, event.CustomInput} {
		require.JSONEq(t, `[{"id":"1","topic":"/topics/orders","subject":"",`+
			`"data":{"eventSubscriptionId":"/topics/orders/eventSubscriptions/billing"},
			"eventType":"Microsoft.EventGrid.SubscriptionDeletedEvent","eventTime":"2026-11-22T09:30:00.5Z",`+
			`"metadataVersion":"1","dataVersion":"1"}]`,
			string(event.DeletedBody(e, schema)))
	}
	require.JSONEq(t, `{"specversion":"1.0","id":"1","source":"/topics/orders",`+
		`"type":"Microsoft.EventGrid.SubscriptionDeletedEvent","time":"2026-11-22T09:30:00.5Z",
		"datacontenttype":"application/json","data":{"eventSubscriptionId":"/topics/orders/eventSubscriptions/billing"}}`,
		string(event.DeletedBody(e, event.CloudEvents)))
}
