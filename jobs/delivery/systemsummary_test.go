package delivery_test

import (
	"strings"
	"testing"

	"postrider/internal/testnode"

	"github.com/stretchr/testify/require"
)

// Few notices become one event each; more than 20 of an event subscription as a sum; sums of too many event
// subscriptions by topic; of too many topics all in one.
func TestManyNoticesAreSummed(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.SubscribeToNotices(t)
	tn.Exec(t,
		`INSERT INTO postrider_internal.topics (name, kind, input_schema, key1_sealed, key2_sealed, key1_hash, key2_hash)
		SELECT 'topic-' || to_char(i, 'FM000'), 'basic', 'EventGridSchema', '', '', '', '' FROM generate_series(1, 150) i`)
	tn.Exec(t, `INSERT INTO postrider_internal.event_subscriptions (topic_id, name, settings, secrets_sealed,
		    endpoint_base_url, endpoint_hash, event_delivery_schema, retry_policy)
		SELECT t.id, 'sub-' || to_char(i, 'FM000'), o.settings, o.secrets_sealed, '', '', 'EventGridSchema', 'ga-2021'
		  FROM postrider_internal.topics t, generate_series(1, 150) i, postrider_internal.event_subscriptions o
		 WHERE t.name = 'topic-001' OR i = 1 AND t.name LIKE 'topic-%'`)
	for name, row := range map[string]struct {
		where   string // of topics t and event subscriptions s
		flushes int
		count   int // of each
		want    map[string]float64
	}{
		"one by one": {"t.name = 'topic-001' AND s.name = 'sub-001'", 4, 5, map[string]float64{
			"/topics/topic-001/subscriptions/sub-001": 20,
		}},
		"a sum": {"t.name = 'topic-001' AND s.name = 'sub-001'", 3, 7, map[string]float64{
			"/topics/topic-001/subscriptions/sub-001": 21,
		}},
		"by topic": {
			"t.name IN ('topic-001', 'topic-002')", 2, 3, map[string]float64{"/topics/topic-001": 900, "/topics/topic-002": 6},
		},
		"all":              {"s.name = 'sub-001'", 2, 1000, map[string]float64{"/topics": 300_000}},
		"one by one again": {"t.name = 'topic-002'", 1, 2, map[string]float64{"/topics/topic-002/subscriptions/sub-001": 2}},
	} {
		tn.Exec(t, "DELETE FROM postrider_internal.events")
		tn.Count(t, `WITH noted AS (INSERT INTO postrider_internal.notices (type, topic_id, subscription_id, reason, count,
			    deliveries, dead_letters)
			SELECT 'postrider.deadLetter.created', t.id, s.id, CASE flush WHEN 1 THEN 'MaxDeliveryAttemptsExceeded'
			    ELSE 'TimeToLiveExceeded' END, $2,
			       (SELECT array_agg(i) FROM generate_series(1, least($2, 20)) i), (SELECT array_agg(gen_random_uuid())
			           FROM generate_series(1, least($2, 20)) i WHERE s.id > 0 AND flush > 0)
			  FROM postrider_internal.topics t JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id,
			      generate_series(1, $1::int) flush
			 WHERE t.name LIKE 'topic-%' AND `+row.where+` RETURNING 1) SELECT count(*) FROM noted`, row.flushes, row.count)
		notices := tn.PublishNotices(t)
		require.LessOrEqual(t, len(notices), 100, name)
		got, ids := map[string]float64{}, map[string]bool{}
		for _, n := range notices {
			count := n.Data["count"].(float64)
			got[n.Subject] += count
			ids[n.ID] = true
			require.Equal(t, strings.Split(n.Subject, "/subscriptions")[0], n.Source, name)
			if strings.HasPrefix(name, "one by one") {
				require.Equal(t, n.ID, n.Data["deadLetterId"], name)
				continue
			}
			require.Equal(t, true, n.Data["summed"], name)
			var reasons float64
			for _, of := range n.Data["reasons"].(map[string]any) {
				reasons += of.(float64)
			}
			require.Equal(t, count, reasons, name)
			require.NotEmpty(t, n.Data["firstAt"])
			require.NotEmpty(t, n.Data["lastAt"])
		}
		require.Len(t, ids, len(notices), name)
		require.Equal(t, row.want, got, name)
	}
}

// Text of a failure cannot make an event too large to be published.
func TestLongReasonsAreCut(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	fail(t, tn, "orders", sub, 1, rejected)
	tn.PublishNotices(t)
	tn.Count(t, `SELECT count(*) FROM (SELECT postrider_internal.note_exports_abandoned(array_agg(l.id),
		    i || repeat('x', 100000), jsonb_build_object('error', repeat('x', 100000)))
		FROM postrider_internal.dead_letters l, generate_series(1, 30) i GROUP BY i OFFSET 0) noted`)
	require.Equal(t, 30, tn.Noted(t))
	notices := tn.PublishNotices(t)
	require.Len(t, notices, 2)
	require.EqualValues(t, 30, notices[1].Data["count"])
	require.Len(t, notices[1].Data["reasons"], 20)
}

// Many dead letters write one small row for each flush and event subscription, and not one for each dead letter.
func TestManyDeadLettersAreFewNotices(t *testing.T) {
	t.Parallel()
	tn := testnode.WithTopic(t)
	tn.SubscribeToNotices(t)
	sub := tn.Subscribe(t, "orders", "billing", nil)
	fail(t, tn, "orders", sub, 1000, rejected)
	require.Equal(t, 1000, tn.Count(t, "SELECT sum(count) FROM postrider_internal.notices"))
	require.Less(t, tn.Noted(t), 500)
	require.Equal(t, 20, tn.Count(t, "SELECT max(least(cardinality(dead_letters), cardinality(deliveries))) "+
		"FROM postrider_internal.notices WHERE count >= 20"))
	notices := tn.PublishNotices(t)
	require.Len(t, notices, 1)
	require.EqualValues(t, 1000, notices[0].Data["count"])
	require.Equal(t, map[string]any{"UndeliverableDueToHttpBadRequest": 1000.0}, notices[0].Data["reasons"])
}
