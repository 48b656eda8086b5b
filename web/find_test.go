package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/publish"
)

var eventLink = regexp.MustCompile(`href="(/ui/events/[0-9a-f-]{36})"`)

// "Customer C-77 did not receive it": from the customer number to the redelivery of the event are two clicks.
func TestFindByCustomer(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	b.subscribe(t, "orders", "billing", to(endpoint(t)+"/status/200"))
	_, err := b.System.Publisher.Publish(t.Context(), publish.Publication{
		Topic: "orders", Parse: func(*catalog.Topic) ([]event.Event, error) {
			return []event.Event{{
				Schema: event.EventGrid, ID: "e-1", Type: "Order.Placed", Subject: "/orders/481", DataVersion: "1",
				Body: []byte(`{"id":"e-1","subject":"/orders/481","eventType":"Order.Placed","eventTime":"2026-01-01T00:00:00Z",` +
					`"dataVersion":"1","data":{"customer":{"id":"C-77"},"total":[{"n":12.50}]}}`),
			}}, nil
		},
	})
	require.NoError(t, err)
	b.publish(t, "orders", "other C-77") // has the text only as a part
	b.Become(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	for _, q := range []string{"C-77", "/orders/481", "/orders/4", "12.5"} {
		page := b.page(t, "/ui/search?q="+url.QueryEscape(q))
		require.Contains(t, text(page), "Events with this subject or value 1 found in 1 d", q)
		require.Contains(t, page, "<h1>Find "+q+"</h1>")
		require.Contains(t, text(page), "Their deliveries", q)
		require.Contains(t, text(page), "billing of orders", q)
		found := eventLink.FindStringSubmatch(page)
		require.Contains(t, b.page(t, found[1]), `action="`+found[1]+`/redeliver"`)
	}
	found := eventLink.FindStringSubmatch(b.page(t, "/ui/search?q=C-77"))
	b.requireRedirect(t, found[1]+"/redeliver", url.Values{"subscription": {"billing"}}, `done=sent-again$`)
	page := text(b.page(t, "/ui/events?data=C-77"))
	require.Contains(t, page, "1 found.")
	require.NotContains(t, page, "other C-77")
	_, n := b.runShownSQL(t, "/ui/events?data=C-77", b.page(t, "/ui/events?data=C-77"))
	require.Equal(t, 1, n)
	require.NotContains(t, b.page(t, "/ui/events?data=C-77"), `hx-trigger="every 5s`)

	b.insert(t, deadLetter{at: b.System.Clock.Now(), body: `{"data":{"customer":"D-\"1"}}`})
	for _, part := range []string{"D-", `"1`} {
		b.requireTexts(t, "/ui/search?q="+url.QueryEscape(part), "Dead letters with this value 1 found")
	}
	b.requireTexts(t, "/ui/search?q=D.", "Nothing found for D.")
	nothing := b.page(t, "/ui/search?q=C-78")
	for _, next := range []string{
		`href="/ui/search?q=C-78&amp;within=7d"`, `href="/ui/deliveries?eventId=C-78"`,
		`href="/ui/dead-letters?search=data&#43;~&#43;%22C-78%22&amp;state=all"`,
	} {
		require.Contains(t, nothing, next)
	}
	require.Equal(t, http.StatusOK, b.request(http.MethodGet, "/ui/dead-letters?search=data+~+%22C-78%22&state=all").Code)
	require.Equal(t, http.StatusOK, b.request(http.MethodGet, "/ui/search?q="+url.QueryEscape(`a"\(é`)).Code)
}
