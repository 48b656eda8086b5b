package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// TopicLine is one topic as the view shows it.
type TopicLine struct {
	Topic, Kind, InputSchema string
	EventRetentionInDays     *int
	CreatedAt                time.Time
	Subscriptions            int
	// Published and Owed count the last 24 hours, SparkPublished the last hour in twelve steps; LastPublished is the
	// minute of the last event in these 24 hours.
	Published, Owed int64
	SparkPublished  []int64
	LastPublished   *time.Time
}

const topicLines = `
WITH page AS MATERIALIZED (
    SELECT t.topic, t.kind, t.input_schema, t.event_retention_in_days, t.created_at,
           t.subscriptions::int AS subscriptions FROM postrider.topics t
     WHERE (@name::text IS NULL OR strpos(lower(t.topic), lower(@name)) > 0) AND (@only::text IS NULL
         OR t.topic = @only) AND (@cursor::text IS NULL OR t.topic %[2]s @cursor)
     ORDER BY t.topic %[1]s LIMIT @limit
), quarters AS (
    SELECT c.topic_id, c.begins, c.kind, c.count FROM postrider_internal.rollup_sums c WHERE c.span = 15
        AND c.begins > now() - interval '24 hours' AND c.topic_id > 0 AND c.subscription_id = 0
        AND c.kind IN ('published', 'owed')
     UNION ALL
    SELECT e.topic_id, e.minute, e.kind, e.count FROM postrider_internal.rollup_deltas d, unnest(d.entries) AS e
    WHERE e.kind IN ('published', 'owed')
), sums AS (
    SELECT t.name AS topic, coalesce(sum(q.count) FILTER (WHERE q.kind = 'published'), 0)::bigint AS published,
           coalesce(sum(q.count) FILTER (WHERE q.kind = 'owed'), 0)::bigint AS owed,
           max(q.begins) FILTER (WHERE q.kind = 'published') AS last_quarter, array_agg(DISTINCT t.id) AS ids
      FROM quarters q JOIN postrider_internal.topics t ON t.id = q.topic_id GROUP BY 1
), minutes AS (
    SELECT t.name AS topic, least(11, floor(extract(epoch FROM now() - m.minute) / 300))::int AS step,
           sum(m.count)::bigint AS count
      FROM (SELECT minute, topic_id, count FROM postrider_internal.rollups WHERE minute > now() - interval '1 hour'
          AND subscription_id = 0 AND kind = 'published'
             UNION ALL SELECT e.minute, e.topic_id, e.count FROM postrider_internal.rollup_deltas d,
                 unnest(d.entries) AS e WHERE e.kind = 'published' AND e.minute > now() - interval '1 hour') m
      JOIN postrider_internal.topics t ON t.id = m.topic_id GROUP BY 1, 2
), spark AS (
    SELECT p.topic, array_agg(coalesce(m.count, 0) ORDER BY g.step DESC) AS spark_published
      FROM page p CROSS JOIN generate_series(0, 11) AS g(step) LEFT JOIN minutes m ON m.topic = p.topic
          AND m.step = g.step GROUP BY 1
)
SELECT p.*, coalesce(s.published, 0) AS published, coalesce(s.owed, 0) AS owed,
       coalesce(latest.at, s.last_quarter) AS last_published, k.spark_published
  FROM page p JOIN spark k USING (topic) LEFT JOIN sums s USING (topic)
  LEFT JOIN LATERAL (SELECT g.at FROM generate_series(s.last_quarter + interval '14 minutes', s.last_quarter,
      interval '-1 minute') AS g(at)
                      WHERE EXISTS (SELECT FROM postrider_internal.rollups r WHERE r.minute = g.at
                          AND r.topic_id = ANY (s.ids) AND r.subscription_id = 0 AND r.kind = 'published')
                      LIMIT 1) latest ON true
 ORDER BY p.topic %[1]s`

// ReadTopics reads a page of topics by name, of which name is a part: of Turn, Before goes on behind a name.
// ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadTopics(ctx context.Context, name string, t Turn[string]) (page Page[TopicLine], err error) {
	order, compare := "ASC", ">"
	if t.After != nil {
		order, compare = "DESC", "<"
	}
	err = r.db.Read(ctx, "topics", func(tx pgx.Tx) error {
		rows, err := postgres.Rows[TopicLine](ctx, tx, fmt.Sprintf(topicLines, order, compare),
			t.args(pgx.NamedArgs{"name": given(name), "only": nil}))
		page = pageOf(rows, t)
		return err
	})
	return page, err
}

// TopicCourse is a topic with what was published to it.
type TopicCourse struct {
	TopicLine
	Range, Day *Counts // what was asked for; by the hour
}

// ReadTopicCourse reads one topic, and what was counted in a span as ReadCounts does; ErrNotFound.
func (r *Reader) ReadTopicCourse(
	ctx context.Context, name string, span, step time.Duration,
) (c *TopicCourse, err error) {
	c = &TopicCourse{}
	err = r.db.Read(ctx, "a topic", func(tx pgx.Tx) error {
		line, err := postgres.Row[TopicLine](ctx, tx, fmt.Sprintf(topicLines, "ASC", ">"),
			pgx.NamedArgs{"only": name, "name": nil, "cursor": nil, "limit": 1})
		if err != nil {
			return err
		}
		c.TopicLine = *line
		if c.Range, err = readCounts(ctx, tx, CountsFilter{Topic: name}, span, step); err != nil {
			return err
		}
		c.Day, err = readCounts(ctx, tx, CountsFilter{Topic: name}, 24*time.Hour, time.Hour)
		return err
	})
	return c, err
}
