package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// TopicLine is one topic in a list.
type TopicLine struct {
	Topic, Kind, InputSchema string
	EventRetentionInDays     *int
	CreatedAt                time.Time
	Subscriptions            int
	// Published and Matched count events and deliveries of the last 24 hours, SparkPublished the events of the last hour in
	// twelve steps. LastPublished is the minute of the last event in these 24 hours.
	Published, Matched int64
	SparkPublished     []int64
	LastPublished      *time.Time
}

var topicList = list[string]{page: sqlFile("topics.sql")}

// TopicPage is a page of topics.
type TopicPage = SearchedPage[TopicLine, string]

// ReadTopics reads a page of topics whose names contain name, in the order of their names: Before of the turn continues
// after a name. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadTopics(ctx context.Context, name string, t Turn[string]) (TopicPage, error) {
	return read(ctx, r, "topics", func(tx pgx.Tx) (TopicPage, error) {
		return readPage[TopicLine](ctx, tx, &topicList, t, false, pgx.NamedArgs{"name": given(name)})
	})
}

// TopicDetails is a topic with its counts.
type TopicDetails struct {
	TopicLine
	Range, Day *Counts // of the requested span; of 24 hours by the hour
}

// ReadTopicDetails reads one topic and its counts of a span, see ReadCounts; ErrNotFound.
func (r *Reader) ReadTopicDetails(
	ctx context.Context, name string, span, step time.Duration,
) (c *TopicDetails, err error) {
	c = &TopicDetails{}
	err = r.db.Read(ctx, "a topic", func(tx pgx.Tx) error {
		line, err := postgres.Row[TopicLine](ctx, tx, topicList.page, pgx.NamedArgs{"only": name, "limit": 1})
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
