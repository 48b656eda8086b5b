package web_test

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
)

// A relay topic's page shows who delivers into it, and opens the callback of a handshake once.
func TestRelayFeedsOfTopic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	require.NotContains(t, b.page(t, "/ui/topics/orders"), "Relay feeds")
	form := formOf(t, b.page(t, "/ui/topics/orders/edit"))
	require.Equal(t, "none", form.Get("relay"))
	b.requireRedirect(t, "/ui/topics/orders/edit", typed(form, "relay", "azure"), "topic-saved$")
	page := b.page(t, "/ui/topics/orders")
	requireValidMarkup(t, "/ui/topics/orders", page)
	require.Contains(t, text(page), "No event subscription of Azure Event Grid has called yet")

	topic, ok := b.System.Cache.Snapshot().Topic("orders")
	require.True(t, ok)
	callback, err := url.Parse("https://rp.eventgrid.azure.net:553/eventsubscriptions/feed/validate?token=hush-hush")
	require.NoError(t, err)
	_, err = b.System.Relays.NoteHandshake(t.Context(), &catalog.RelayHandshake{
		TopicID: topic.ID, Subscription: "<feed>", Schema: event.CloudEvents, Origin: "eventgrid.azure.net",
		Callback: callback,
	})
	require.NoError(t, err)
	page = b.page(t, "/ui/topics/orders")
	requireValidMarkup(t, "/ui/topics/orders", page)
	require.Contains(t, text(page), "<feed> active validated")
	require.Contains(t, text(page), "awaiting an operator may open it")
	require.Contains(t, text(page), "Open callback at rp.eventgrid.azure.net:553")
	require.NotContains(t, page, "hush-hush")
	id := b.Text(t, "SELECT relay_feed_id FROM postrider.relay_feeds")
	path := "/ui/topics/orders/relay-feeds/" + id + "/open-callback"
	require.Contains(t, page, path)
	require.Contains(t, page, `<button type="submit">Open callback</button>`)
	page = b.requireRedirect(t, path, url.Values{}, "done=callback-opened$")
	require.Contains(t, text(page), "The callback is requested")
	require.NotContains(t, page, path)
	require.Equal(t, "admin: relay_callback_opened", b.audited(t, "relay_callback_opened"))
}
