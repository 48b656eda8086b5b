package jobs_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/message"
	"postrider/jobs"
)

// messages makes an event subscription of postrider.system send messages.
func messages(format message.Format) func(*catalog.SubscriptionSpec) {
	return func(s *catalog.SubscriptionSpec) {
		s.EventDeliverySchema, s.MessageFormat = event.CloudEvents, format
		s.PagerDutyRoutingKey = keyOf(format)
	}
}

func keyOf(format message.Format) string {
	if format == message.PagerDuty {
		return "planted-key"
	}
	return ""
}

// A dead letter becomes a message in each format. Its attempts are those of every delivery: a failed one is repeated
// with the same body, 200 and 202 are successes, and a signature covers the message. Neither the routing key nor the
// webhook's path is stored in the clear, even if the response repeats it.
func TestNoticesAreSentAsMessages(t *testing.T) {
	t.Parallel()
	const base = "https://events.example.com"
	tn, log := setup(t), &logged{}
	require.NoError(t, tn.System.Topics.EnsureSystem(t.Context()))
	services := map[message.Format]*endpoint{}
	for format, success := range map[message.Format]int{
		message.Slack: http.StatusOK, message.Teams: http.StatusAccepted, message.PagerDuty: http.StatusAccepted,
	} {
		tries := 0
		services[format] = newEndpoint(t, func(w http.ResponseWriter, r request) {
			if tries++; tries == 1 {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = w.Write([]byte("cannot use " + keyOf(format) + " at " + r.uri))
				return
			}
			w.WriteHeader(success)
		})
		signed := func(s *catalog.SubscriptionSpec) { s.Signing.Enabled = format == message.Slack }
		subscribeTo(t, tn, catalog.SystemTopic, string(format), services[format].URL+"/services/planted-path",
			both(messages(format), signed))
	}
	bad := newEndpoint(t, respondWith(http.StatusBadRequest))
	subscribe(t, tn, "billing", bad.URL, nil)
	tn.Start(t, func(o *jobs.Options) {
		o.PublicURL, o.Logger = base, slog.New(slog.NewTextHandler(log, nil))
		o.LogAttempts = jobs.LogAll
	})
	publishOne(t, tn, "e-1")
	tn.AttemptsMade(t, 1+3)
	require.Equal(t, 3, makeDue(t, tn))
	tn.AttemptsMade(t, 3)

	notice := tn.Text(t, `SELECT convert_from(body, 'UTF8') FROM postrider_internal.events
		WHERE topic_id = postrider_internal.system_topic()`)
	require.Contains(t, notice, "postrider.deadLetter.created")
	for format, service := range services {
		seen := service.requests()
		require.Len(t, seen, 2, format)
		require.Equal(t, seen[0].body, seen[1].body)
		want, err := message.Write([]byte(notice),
			message.Settings{Format: format, BaseURL: base, RoutingKey: keyOf(format)})
		require.NoError(t, err)
		require.Equal(t, string(want), seen[0].body)
		require.Contains(t, seen[0].body, base+"/ui/dead-letters/")
		require.Equal(t, "/services/planted-path", seen[0].uri)
		require.Equal(t, "application/json", seen[0].header.Get("Content-Type"))
	}
	require.Contains(t, services[message.PagerDuty].requests()[0].body, `"routing_key":"planted-key"`)
	sub, err := tn.System.Subscriptions.Get(t.Context(), catalog.SystemTopic, string(message.Slack))
	require.NoError(t, err)
	verifier, err := standardwebhooks.NewWebhook(sub.SigningKeys.Secrets[0].Text())
	require.NoError(t, err)
	for _, r := range services[message.Slack].requests() {
		require.NoError(t, verifier.Verify([]byte(r.body), r.header))
	}

	require.Equal(t, 3, tn.Rows(t, "deliveries", "topic = $1 AND state = 'delivered'", catalog.SystemTopic))
	require.Equal(t, 3, tn.Rows(t, "delivery_attempts", "topic = $1 AND response_excerpt LIKE 'cannot use % at ***'",
		catalog.SystemTopic))
	for _, view := range []string{"event_subscriptions", "delivery_attempts", "deliveries", "audit", "events"} {
		require.Zero(t, tn.Rows(t, view+" v", "v::text LIKE '%planted%'"), view)
	}
	require.Zero(t, tn.Count(t, "SELECT count(*) FROM postrider_internal.event_subscriptions s "+
		"WHERE s::text LIKE '%planted%' OR position('planted'::bytea IN secrets_sealed) > 0"))
	require.Contains(t, log.String(), "delivery attempted")
	require.NotContains(t, log.String(), "planted")
}

// A batch that was cut before the event subscription had a message format becomes one message for each event.
func TestBatchBecomesSingleMessages(t *testing.T) {
	t.Parallel()
	tn := setup(t)
	require.NoError(t, tn.System.Topics.EnsureSystem(t.Context()))
	e := newSwitchable(t, http.StatusInternalServerError)
	change := func(format message.Format, batch int) {
		subscribeTo(t, tn, catalog.SystemTopic, "oncall", e.URL, both(messages(format),
			func(s *catalog.SubscriptionSpec) { s.MaxEventsPerBatch = &batch }))
	}
	change(message.None, 10)
	var list []string
	for i := range 3 {
		list = append(list, fmt.Sprintf(`{"specversion":"1.0","id":"%d","type":"postrider.x","source":"/topics/orders"}`, i))
	}
	publishTo(t, tn, catalog.SystemTopic, http.Header{"Content-Type": {"application/cloudevents-batch+json"}},
		"["+strings.Join(list, ",")+"]")
	tn.Start(t)
	tn.AttemptsMade(t, 1)
	require.Len(t, e.requests()[0].ids(t), 3)

	change(message.Teams, 1)
	e.status.Store(http.StatusOK)
	makeDue(t, tn)
	tn.AttemptsMade(t, 3)
	require.Equal(t, 3, tn.Rows(t, "deliveries", "topic = $1 AND state = 'delivered'", catalog.SystemTopic))
	for _, r := range e.requests()[1:] {
		require.Contains(t, r.body, `"type":"AdaptiveCard"`)
	}
	require.Equal(t, 2, tn.Rows(t, "batch_members", "left_reason = 'Unsendable'"))
}
