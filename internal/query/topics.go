package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// TopicLine is one topic in a list.
type TopicLine struct {
	Topic, Kind, InputSchema string
	EventRetentionInDays     *int
	CreatedAt                time.Time
	Subscriptions            int
	// Published and Matched count events and deliveries of the last 24 hours; SparkPublished counts the events of the last
	// hour in twelve steps. LastPublished is the minute of the last event in these 24 hours.
	Published, Matched int64
	SparkPublished     []int64
	LastPublished      *time.Time
}

// ReadTopics reads a page of topics whose names contain name, in the order of their names: Before of the turn continues
// after a name. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadTopics(
	ctx context.Context, name string, t Turn[string],
) (page SearchedPage[TopicLine, string], err error) {
	err = read(ctx, r.db, "topics", func(r *reading) {
		page = readPage[TopicLine](r, "topics", t, false, pgx.NamedArgs{"name": given(name)})
	})
	return page, err
}

// TopicDetails is a topic with its counts.
type TopicDetails struct {
	TopicLine
	Range, Day *Counts // of the requested span; of 24 hours by the hour
}

// ReadTopicDetails reads one topic and its counts of a span; ErrNotFound.
func (r *Reader) ReadTopicDetails(
	ctx context.Context, name string, span, step time.Duration,
) (*TopicDetails, error) {
	var d TopicDetails
	filter := countsFilter{Topic: name}
	err := read(ctx, r.db, "a topic", func(r *reading) {
		d.TopicLine = row[TopicLine](r, "topics", pgx.NamedArgs{"only": name, "limit": 1})
		d.Range, d.Day = readCounts(r, filter, span, step), readCounts(r, filter, 24*time.Hour, time.Hour)
	})
	return &d, err
}
