package testnode

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
)

// Notice is an event of postrider.system.
type Notice struct {
	ID, Type, Source, Subject string
	Data                      map[string]any
}

// SubscribeToNotices creates the topic and an event subscription of it.
func (tn *Node) SubscribeToNotices(t testing.TB) *catalog.Subscription {
	t.Helper()
	require.NoError(t, tn.System.Topics.EnsureSystem(t.Context()))
	return tn.Subscribe(t, catalog.SystemTopic, "operators",
		func(s *catalog.SubscriptionSpec) { s.EventDeliverySchema = event.CloudEvents })
}

// PublishNotices publishes the notices, as if the second since the last time had passed, and returns the events in
// their order.
func (tn *Node) PublishNotices(t testing.TB) (notices []Notice) {
	t.Helper()
	_, err := tn.Pool.Exec(t.Context(), "UPDATE postrider_internal.notice_pass SET noticed_at = '-infinity'")
	require.NoError(t, err)
	_, err = tn.System.Maintenance.PublishNotices(t.Context())
	require.NoError(t, err)
	require.Zero(t, tn.Noted(t))
	rows, err := tn.Pool.Query(t.Context(),
		"SELECT body::text FROM postrider.events WHERE topic = $1 ORDER BY event_time, event_id", catalog.SystemTopic)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, text := range texts {
		var n Notice
		require.NoError(t, json.Unmarshal([]byte(text), &n))
		notices = append(notices, n)
	}
	return notices
}

// Noted counts the notices that wait for their publication.
func (tn *Node) Noted(t testing.TB) int {
	t.Helper()
	return tn.Count(t, "SELECT count(*) FROM postrider_internal.notices")
}
