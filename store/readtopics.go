package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// TopicLine is one topic as the view shows it.
type TopicLine struct {
	Topic, Kind, InputSchema string
	EventRetentionInDays     *int
	CreatedAt                time.Time
	Subscriptions            int
	// Published and Owed count the last 24 hours, SparkPublished the last hour in twelve steps; LastPublished is the minute of the last event in these 24 hours.
	Published, Owed int64
	SparkPublished  []int64
	LastPublished   *time.Time
}

const topicLines = `
WITH page AS MATERIALIZED (
    SELECT t.topic, t.kind, t.input_schema, t.event_retention_in_days, t.created_at, t.subscriptions::int AS subscriptions FROM postrider.topics t
     WHERE (@name::text IS NULL OR strpos(lower(t.topic), lower(@name)) > 0) AND (@only::text IS NULL OR t.topic = @only) AND (@cursor::text IS NULL OR t.topic %[2]s @cursor)
     ORDER BY t.topic %[1]s LIMIT @limit
), counted AS (
    SELECT c.topic, c.minute, c.kind, sum(c.count)::bigint AS count FROM postrider.delivery_counts c
     WHERE c.minute >= now() - interval '24 hours' AND c.kind IN ('published', 'owed') GROUP BY 1, 2, 3
), sums AS (
    SELECT topic, coalesce(sum(count) FILTER (WHERE kind = 'published'), 0)::bigint AS published, coalesce(sum(count) FILTER (WHERE kind = 'owed'), 0)::bigint AS owed, max(minute) FILTER (WHERE kind = 'published') AS last_published
      FROM counted GROUP BY 1
), spark AS (
    SELECT p.topic, array_agg(coalesce((SELECT sum(c.count) FROM counted c WHERE c.topic = p.topic AND c.kind = 'published' AND c.minute > now() - (g.step + 1) * interval '5 minutes'
               AND c.minute <= now() - g.step * interval '5 minutes'), 0)::bigint ORDER BY g.step DESC) AS spark_published
      FROM page p CROSS JOIN generate_series(0, 11) AS g(step) GROUP BY 1
)
SELECT p.*, coalesce(s.published, 0) AS published, coalesce(s.owed, 0) AS owed, s.last_published, k.spark_published
  FROM page p JOIN spark k USING (topic) LEFT JOIN sums s USING (topic) ORDER BY p.topic %[1]s`

// ReadTopics reads a page of topics by name, of which name is a part: of Turn, Before goes on behind a name. ErrTooSlow, ErrUnavailable.
func (s *Store) ReadTopics(ctx context.Context, name string, t Turn[string]) (page Page[TopicLine], err error) {
	order, compare := "ASC", ">"
	if t.After != nil {
		order, compare = "DESC", "<"
	}
	err = s.reading(ctx, "topics", func(tx pgx.Tx) error {
		rows, err := rowsOf[TopicLine](ctx, tx, fmt.Sprintf(topicLines, order, compare), t.args(pgx.NamedArgs{"name": given(name), "only": nil}))
		page = pageOf(rows, t)
		return err
	})
	return page, err
}

// TopicCourse is a topic with what was published to it.
type TopicCourse struct {
	TopicLine
	LastHour, Day *Counts
}

// ReadTopicCourse reads one topic; ErrNotFound.
func (s *Store) ReadTopicCourse(ctx context.Context, name string) (c *TopicCourse, err error) {
	c = &TopicCourse{}
	err = s.reading(ctx, "a topic", func(tx pgx.Tx) error {
		line, err := rowOf[TopicLine](ctx, tx, fmt.Sprintf(topicLines, "ASC", ">"), pgx.NamedArgs{"only": name, "name": nil, "cursor": nil, "limit": 1})
		if err != nil {
			return err
		}
		c.TopicLine = *line
		if c.LastHour, err = readCounts(ctx, tx, CountsFilter{Topic: name}, time.Hour, time.Minute); err != nil {
			return err
		}
		c.Day, err = readCounts(ctx, tx, CountsFilter{Topic: name}, 24*time.Hour, time.Hour)
		return err
	})
	return c, err
}
