package web_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"postrider/catalog"
)

// What the dashboard is for: something fails, a person finds what and why, mends it, and makes it right.
func TestMainJourneyInABrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := alive(t)
	var mended atomic.Bool
	hook := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
		if !mended.Load() {
			http.Error(answer, "no such route", http.StatusNotFound)
		}
	}))
	t.Cleanup(hook.Close)
	b.subscribe(t, "orders", "billing",
		func(s *catalog.SubscriptionSpec) { s.EndpointURL = hook.URL })
	b.publish(t, "orders", "e-1", "e-2", "e-3")
	b.eventually(t, 3, "SELECT count(*) FROM postrider.dead_letters")
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	title := func() string { return w.value(t, `document.querySelector("h1").textContent`) }

	w.do(t, chromedp.Navigate(srv.URL+"/ui/problems"), chromedp.WaitReady(chromedp.CSS(".problems")))
	require.Contains(t, w.value(t, `document.querySelector(".problems").textContent`), "no such route")
	mended.Store(true)
	w.do(t, chromedp.Click(chromedp.CSS(`.problems a[href^="/ui/dead-letters/redeliver"]`)),
		chromedp.WaitVisible(chromedp.CSS(".deeds button")))
	require.Equal(t, "Redeliver all that match?", title())
	require.Contains(t, w.value(t, `document.querySelector(".verdict").textContent`), "3 dead letters match")
	w.picture(t, "journey-ask")
	w.do(t, chromedp.Click(chromedp.CSS(".deeds button")), chromedp.WaitVisible(chromedp.CSS(".done")))
	require.Equal(t, "Redelivers dead letters", title())
	w.eventually(t, `document.querySelector(".verdict .badge").textContent === "done"`) // the page refreshes until it is
	require.Contains(t, w.value(t, `document.querySelector(".verdict").textContent`), "3 of 3")
	w.picture(t, "journey-done")
	b.eventually(t, 3, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	w.requireNoComplaints(t, "the journey")

	letter := b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters ORDER BY 1 LIMIT 1")
	w.do(t, chromedp.Navigate(srv.URL+"/ui/dead-letters/"+letter), chromedp.WaitReady(chromedp.CSS(".deeds")),
		chromedp.Click(chromedp.CSS(".deeds .primary")), chromedp.WaitVisible(chromedp.CSS(".refused")))
	require.Contains(t, w.value(t, `document.querySelector(".refused").textContent`), "was redelivered already")
	w.picture(t, "journey-refused")
	w.do(t, chromedp.Click(chromedp.CSS(`form[action$="/purge"] button`)),
		chromedp.WaitVisible(chromedp.CSS(`form[method="post"][action$="/purge"] button`)),
		chromedp.Click(chromedp.CSS(`form[method="post"][action$="/purge"] button`)),
		chromedp.WaitVisible(chromedp.CSS(".done")))
	require.Equal(t, "2", b.value(t, "SELECT count(*) FROM postrider.dead_letters"))
}
