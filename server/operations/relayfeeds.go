package operations

import (
	"context"

	"postrider/internal/query"
	"postrider/server/api"
)

type listRelayFeedsRequest struct {
	api.PageParams
	query.RelayFeedFilter
}

// ListRelayFeeds lists the feeds of relay topics.
//
// Lists the event subscriptions of Azure Event Grid that deliver into topics with `relay` azure, the newest first. A
// feed appears with its handshake, or with its first delivery. Counts are up to 10 seconds old.
func (m *Handlers) ListRelayFeeds(ctx context.Context, r *listRelayFeedsRequest) (*api.List[query.RelayFeed], error) {
	list, err := newestFirst(ctx, r, r.RelayFeedFilter, m.Parts.Reader.ReadRelayFeeds,
		func(f *query.RelayFeed) int64 { return f.RelayFeedID })
	return named(ctx, m, list, err, r.Topic, "")
}

// RelayFeedPath names a relay feed.
type RelayFeedPath struct {
	ID int64 `path:"relayFeedId" example:"17"`
}

// GetRelayFeed reads a relay feed.
//
// Returns a feed with its counts.
func (m *Handlers) GetRelayFeed(ctx context.Context, r *RelayFeedPath) (*query.RelayFeed, error) {
	return m.Parts.Reader.ReadRelayFeed(ctx, r.ID)
}

// OpenRelayCallback opens the callback of a relay feed.
//
// Requests by GET the URL that the last CloudEvents handshake of the feed offered, within 10 minutes of it. That
// completes the validation in Azure if its check of the response failed. A node makes the request; the feed then shows
// the result. The URL is never shown.
func (m *Handlers) OpenRelayCallback(ctx context.Context, r *RelayFeedPath) (*query.RelayFeed, error) {
	if err := m.Parts.Operator.OpenRelayCallback(ctx, r.ID); err != nil {
		return nil, err
	}
	return m.GetRelayFeed(ctx, r)
}
