package pull_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/testnode"
	"postrider/jobs/pull"
)

// pushed makes the event subscription of pulled one that postrider sends the events of.
func pushed(t *testing.T, tn *testnode.Node) {
	t.Helper()
	tn.Subscribe(t, "orders", "pull", func(s *catalog.SubscriptionSpec) {
		s.EventDeliverySchema, s.RetryPolicy.Policy = event.CloudEvents, "namespace-2023"
		s.DeadLetterDestination = &catalog.DeadLetterDestination{EndpointType: catalog.DeadLetterNone}
		s.DeliveryRate = &endpointconf.DeliveryRate{Limit: 1}
	})
}

// The limits of the current configuration apply when an event is handed out: in REST and in SQL.
func TestLimitsAreCheckedAtEachReceive(t *testing.T) {
	t.Parallel()
	receives := map[string]func(*testing.T, *testnode.Node, *catalog.Subscription) int{
		"REST": func(t *testing.T, tn *testnode.Node, sub *catalog.Subscription) int {
			return len(receive(t, tn, sub, 1))
		},
		"SQL": func(t *testing.T, tn *testnode.Node, _ *catalog.Subscription) int {
			return tn.Count(t, "SELECT count(*) FROM postrider.receive('orders', 'pull')")
		},
	}
	for name, receiveOne := range receives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := pulled(t, 5, 2)
			for range 2 {
				settle(t, tn, sub, pull.Release, 0, receive(t, tn, sub, 2)...)
			}
			tn.Subscribe(t, "orders", "pull", queueOf(2))
			publishCloudEvents(t, tn, "fresh", 1)
			require.Equal(t, 1, receiveOne(t, tn, sub), "the next event that may be received")
			require.Equal(t, 2, tn.Rows(t, "dead_letters", "reason = 'MaxDeliveryAttemptsExceeded' AND attempts = 2 "+
				"AND last_outcome = 'Released' AND last_error = 'Event was released.'"))
			require.Zero(t, tn.Count(t, testnode.BrokenTokens))

			publishCloudEvents(t, tn, "old", 1)
			tn.Exec(t, `UPDATE postrider_internal.deliveries SET time_to_live_since = now() - interval '2 minutes'
				WHERE job_id IS NULL`)
			tn.Subscribe(t, "orders", "pull", func(s *catalog.SubscriptionSpec) {
				queueOf(2)(s)
				s.RetryPolicy.EventTimeToLiveInMinutes = new(1)
			})
			require.Zero(t, receiveOne(t, tn, sub), "its time to live was shortened")
			require.NoError(t, tn.System.Receiver.Tend(t.Context()))
			require.Equal(t, 1, tn.Rows(t, "dead_letters", "event_id = 'old-0' AND reason = 'TimeToLiveExceeded'"))
		})
	}
}

// A queue that was created from an event subscription with attempts hands out none that has had all of them.
func TestAttemptsOfPushCountForTheQueue(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 3, 0)
	pushed(t, tn)
	publishCloudEvents(t, tn, "e", 2)
	tn.Exec(t, `UPDATE postrider_internal.deliveries SET attempts = CASE WHEN id % 2 = 0 THEN 3 ELSE 1 END,
		last_status = 503, last_outcome = 'Busy', not_before = now() + interval '1 day'`)
	tn.Subscribe(t, "orders", "pull", queueOf(3))
	require.NoError(t, tn.System.Releaser.MakeAvailable(t.Context(), sub.ID, nil))
	require.Zero(t, tn.Pending(t, "not_before IS NOT NULL"), "only requests wait for it")
	received := receive(t, tn, sub, 10)
	require.Len(t, received, 1)
	require.Equal(t, 2, received[0].Count)
	require.Equal(t, 1, tn.Rows(t, "dead_letters",
		"reason = 'MaxDeliveryAttemptsExceeded' AND attempts = 3 AND last_outcome = 'Busy' AND last_status = 503"))

	require.NoError(t, tn.System.Receiver.Return(sub, received))
	require.Equal(t, 1, tn.Pending(t, "last_status = 503 AND last_outcome = 'Busy'"), "a returned lock is no attempt")
	settle(t, tn, sub, pull.Release, 0, receive(t, tn, sub, 1)...)
	require.Equal(t, 1, tn.Pending(t, "last_status IS NULL AND last_outcome = 'Released'"), "a consumer has no status")
	tn.Exec(t, "UPDATE postrider_internal.deliveries SET last_status = 503")
	settle(t, tn, sub, pull.Reject, 0, receive(t, tn, sub, 1)...)
	require.Equal(t, 1, tn.Rows(t, "dead_letters",
		"reason = 'RejectedByConsumer' AND attempts = 3 AND last_outcome = 'Rejected' AND last_status IS NULL"))
}

// A token stays valid until its lock ends, whatever happens to the delivery mode.
func TestTokensOutliveTheDeliveryMode(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 7)
	received := receive(t, tn, sub, 7)
	pushed(t, tn)
	ok, err := tn.System.Receiver.Renew(t.Context(), sub, []pull.LockToken{received[0].Token})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, ok)
	const inSQL = "SELECT cardinality(postrider.%s(ARRAY [$1], strict => false))"
	for i, function := range []string{"renew", "acknowledge", "release_locks", "reject"} {
		require.Zero(t, tn.Count(t, fmt.Sprintf(inSQL, function), received[max(i-1, 0)].Token.String()), function)
	}
	for i, how := range []pull.Settlement{pull.Acknowledge, pull.Release, pull.Reject} {
		require.Equal(t, 1, settle(t, tn, sub, how, 0, received[3+i]), how)
	}
	endLocks(t, tn)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'delivered'"))
	require.Equal(t, 2, tn.Rows(t, "deliveries", "state = 'dropped' AND reason = 'RejectedByConsumer'"),
		"as the current configuration says")
	require.NoError(t, tn.System.Receiver.Tend(t.Context()))
	require.Equal(t, 3, tn.Rows(t, "deliveries", "state = 'pending' AND hold = 'rate_limited' AND attempts = 1"))
}

// One response has at most 8 MiB, and at least one event.
func TestReceivesAreBounded(t *testing.T) {
	t.Parallel()
	const most = 8 << 20
	tn, sub := pulled(t, 10, 0)
	publish := func(bytes int, data string) {
		events := make([]event.Event, 10)
		for i := range events {
			head := fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"/s","type":"t","data":[%s`, i, data)
			pad := `"` + strings.Repeat("x", max(bytes-len(head)-4, 0)) + `"]}`
			events[i] = event.Event{
				Schema: event.CloudEvents, ID: fmt.Sprint(i), Type: "t", Source: "/s", Body: []byte(head + pad),
			}
		}
		tn.Send(t, testnode.Of("orders", events...))
	}
	publish(1_048_205, "")
	received := receive(t, tn, sub, 10)
	size := pull.AroundEvent
	for i := range received {
		size += len(received[i].Event) + pull.AroundEvent
	}
	require.Len(t, received, 8)
	require.LessOrEqual(t, size, most)
	require.Equal(t, 2, tn.Rows(t, "deliveries", "waits_for = 'consumer' AND attempts = 0"))
	settle(t, tn, sub, pull.Acknowledge, 0, received...)
	const inSQL = `SELECT count(*) FROM postrider.receive('orders', 'pull', 10)
		HAVING sum(octet_length(event_text)) <= $1 AND sum(octet_length(event::text)) <= $1`
	require.Equal(t, 2, tn.Count(t, inSQL, most))

	publish(0, strings.Repeat("1e1000,", 1000)) // jsonb prints 1 MB of digits
	require.Equal(t, 8, tn.Count(t, inSQL, most))
	require.Equal(t, 2, tn.Count(t, inSQL, most))
	require.Zero(t, tn.Count(t, testnode.BrokenTokens))
	publish(0, strings.Repeat("1e1000,", 10_000))
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.receive('orders', 'pull', 10)"), "at least one event")
}

// A waiting receive ends when nothing more can be received, on every node.
func TestWaitingReceivesEnd(t *testing.T) {
	t.Parallel()
	rows := map[string]struct {
		change func(*testing.T, *testnode.Node)
		want   error
	}{
		"mode": {pushed, pull.ErrPush},
		"deleted": {func(t *testing.T, tn *testnode.Node) {
			require.NoError(t, tn.System.Subscriptions.Delete(t.Context(), "orders", "pull"))
		}, postgres.ErrNotFound},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tn, sub := pulled(t, 10, 0)
			systems := []*node.System{tn.System, tn.Beside(t, node.Options{Node: "node-2"}).System}
			ended := make(chan error, 2*len(systems))
			for _, s := range systems {
				for range 2 {
					go func() { ended <- testnode.ErrorOf(s.Receiver.Receive(t.Context(), sub, 1, time.Hour, "test")) }()
				}
				testnode.Within(t, "two consumers wait", func() bool { return s.Receiver.Waiting() == 2 })
			}
			row.change(t, tn)
			require.NoError(t, systems[1].Cache.Reload(t.Context())) // as each second
			for range cap(ended) {
				require.ErrorIs(t, <-ended, row.want)
			}
		})
	}
}

// During a pause, events that were available before it are on hold in every view, count and list.
func TestPausedQueueIsOnHold(t *testing.T) {
	t.Parallel()
	tn, sub := pulled(t, 10, 4)
	locked := receive(t, tn, sub, 1)
	tn.Pause(t, "orders", "pull")
	publishCloudEvents(t, tn, "new", 1)
	lists := func() map[string]int {
		reader := tn.System.Reader
		details, err := reader.ReadSubscriptionDetails(t.Context(), sub, time.Hour, time.Minute)
		require.NoError(t, err)
		page, err := reader.ReadDeliveries(t.Context(), query.DeliveryFilter{State: "pending"},
			query.Turn[query.DeliveryPlace]{Limit: 10})
		require.NoError(t, err)
		held, due := 0, 0
		for _, d := range page.Rows {
			if d.Hold != nil {
				held++
			} else if d.NextAttemptAt != nil {
				due++
			}
		}
		found, err := reader.CountDeliveries(t.Context(), query.DeliveryFilter{Hold: "paused"})
		require.NoError(t, err)
		overview, err := reader.ReadOverview(t.Context(), time.Hour, time.Minute)
		require.NoError(t, err)
		waits := tn.Rows(t, "deliveries", "hold = 'paused' AND waits_for = 'paused' AND next_attempt_at IS NULL")
		return map[string]int{
			"waits":                waits,
			"held by subscription": tn.Count(t, "SELECT held_deliveries FROM postrider.event_subscriptions"),
			"held by backlog":      tn.Count(t, "SELECT held_deliveries FROM postrider.backlogs"),
			"listed as held":       held, "found as held": int(found.Matched), "held of the details": details.Held,
			"held of all":   int(overview.Current.Held),
			"listed as due": due, "available": details.Queue.Available, "next": len(details.Queue.Next),
			"waiting for a consumer": tn.Rows(t, "deliveries", "waits_for = 'consumer' AND hold IS NULL"),
		}
	}
	require.Equal(t, map[string]int{
		"waits": 4, "held by subscription": 4, "held by backlog": 4, "listed as held": 4, "found as held": 4,
		"held of the details": 4, "held of all": 4,
		"listed as due": 0, "available": 0, "next": 0, "waiting for a consumer": 0,
	}, lists())
	settle(t, tn, sub, pull.Acknowledge, 0, locked...)
	tn.Resume(t, "orders", "pull")
	require.NoError(t, tn.System.Releaser.MakeAvailable(t.Context(), sub.ID, nil))
	require.Equal(t, map[string]int{
		"waits": 0, "held by subscription": 0, "held by backlog": 0, "listed as held": 0, "found as held": 0,
		"held of the details": 0, "held of all": 0,
		"listed as due": 4, "available": 4, "next": 4, "waiting for a consumer": 4,
	}, lists())
}
