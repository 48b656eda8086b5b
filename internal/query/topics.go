package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// TopicLine is one topic in a list.
type TopicLine struct {
	Topic       string `column:"Topic" class:"long"`
	InputSchema string `column:"Input schema"`
	// SparkPublished counts the events of the last hour in twelve steps.
	SparkPublished []int64 `column:"Last hour"`
	// Published and Matched count events and deliveries of the last 24 hours.
	Published int64 `column:"Published, 24 h"`
	Matched   int64 `column:"Matched, 24 h"`
	// LastPublished is the minute of the last event in these 24 hours.
	LastPublished        *time.Time `column:"Last event" none:"none in 24 h"`
	Subscriptions        int        `column:"Event subscriptions"`
	Kind                 string     `column:"Kind" off:""`
	EventRetentionInDays *int       `column:"Retention" class:"" off:""`
	CreatedAt            time.Time  `column:"Created" off:""`
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
