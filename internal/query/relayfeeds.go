package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// RelayFeedFilter selects relay feeds; "" = all.
type RelayFeedFilter struct {
	Topic string `query:"topic" label:"Topic"`
}

// RelayFeed is an event subscription of Azure Event Grid that delivers into a relay topic. Its counts are up to 10
// seconds old.
type RelayFeed struct {
	// Id of the feed.
	RelayFeedID int64  `json:"relayFeedId" column:"Feed" list:"/v1/relayFeeds"`
	Topic       string `json:"topic" column:"Topic"`
	// Name of the event subscription in Azure; empty if its handshake has not named it.
	AzureSubscription string `json:"azureSubscription" column:"Azure subscription" title:"AZURE SUBSCRIPTION" class:"long"`
	// The topic in Azure, as its events name it; null while unknown, and for CloudEvents.
	Source *string `json:"source" column:"Source" class:"long"`
	// active: its handshake has succeeded. ended: Azure has reported its deletion. unvalidated: it has sent requests, but
	// no handshake.
	State string `json:"state" enum:"active,ended,unvalidated" column:"State"`
	// Schema of its handshake: EventGridSchema or CloudEventSchemaV1_0; null without one.
	Schema *string `json:"schema" line:"Schema"`
	// Origin of a CloudEvents handshake.
	Origin *string `json:"origin" line:"Origin"`
	// When its first request came.
	CreatedAt time.Time `json:"createdAt" line:"First seen"`
	// When the last handshake succeeded.
	ValidatedAt *time.Time `json:"validatedAt" line:"Validated"`
	// When Azure reported that the event subscription was deleted.
	EndedAt *time.Time `json:"endedAt" line:"Ended"`
	// When its last delivery came.
	LastReceivedAt *time.Time `json:"lastReceivedAt" column:"Last delivery" title:"LAST DELIVERY"`
	// Attempts that Azure made before its last delivery.
	LastDeliveryCount *int `json:"lastDeliveryCount" line:"Last delivery count"`
	// Number of deliveries, in requests, whose response was 200.
	Requests int64 `json:"requests" column:"Requests"`
	// Number of events that were stored.
	Events int64 `json:"events" column:"Events"`
	// Number of events that had been stored before.
	Duplicates int64 `json:"duplicates" column:"Duplicates"`
	// Number of deliveries that were rejected with 400 or 413 because of their content. Azure does not repeat them.
	RejectedRequests int64 `json:"rejectedRequests" column:"Rejected"`
	// Number of deliveries of postrider itself, which were rejected with 400.
	LoopedRequests int64 `json:"loopedRequests" column:"Looped"`
	// State of the callback of the last CloudEvents handshake: awaiting an operator, pending, succeeded or failed; null if
	// none was offered.
	Callback *string `json:"callback" column:"Callback"`
	// Host that the callback requests. Check it before you open the callback.
	CallbackHost *string `json:"callbackHost" line:"Callback host"`
	// State of the callback in words.
	CallbackMessage *string `json:"callbackMessage" line:"Callback result"`
	// Until when openCallback opens it.
	CallbackExpiresAt *time.Time `json:"callbackExpiresAt" line:"Callback until"`
}

// ReadRelayFeeds reads a page of relay feeds, the newest first. ErrTooSlow, ErrUnavailable.
func (r *Reader) ReadRelayFeeds(
	ctx context.Context, f RelayFeedFilter, t Turn[int64],
) (page SearchedPage[RelayFeed, int64], err error) {
	err = read(ctx, r.db, "relay feeds", func(r *reading) {
		page = readPage[RelayFeed](r, "relay_feeds", t, false, pgx.NamedArgs{"topic": given(f.Topic), "id": nil})
	})
	return page, err
}

// ReadRelayFeed reads one relay feed; ErrNotFound.
func (r *Reader) ReadRelayFeed(ctx context.Context, id int64) (*RelayFeed, error) {
	var page SearchedPage[RelayFeed, int64]
	err := read(ctx, r.db, "a relay feed", func(r *reading) {
		page = readPage[RelayFeed](r, "relay_feeds", Turn[int64]{Limit: 1}, false, pgx.NamedArgs{"topic": nil, "id": id})
	})
	if err == nil && len(page.Rows) == 0 {
		err = postgres.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &page.Rows[0], nil
}
