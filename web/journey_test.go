package web_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
)

// A user finds a failure and its reason, fixes the endpoint and redelivers the dead letters.
func TestFixAndRedeliverInBrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := setupRunning(t)
	var fixed atomic.Bool
	hook := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		if !fixed.Load() {
			http.Error(response, "no such route", http.StatusNotFound)
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
	fixed.Store(true)
	w.do(t, chromedp.Click(chromedp.CSS(`.problems a[href^="/ui/dead-letters/redeliver"]`)),
		chromedp.WaitVisible(chromedp.CSS(".action-form button")))
	require.Equal(t, "Redeliver dead letters", title())
	require.Regexp(t, `3\s+dead letters match`, w.value(t, `document.querySelector(".verdict").textContent`))
	w.screenshot(t, "journey-confirm")
	w.do(t, chromedp.Click(chromedp.CSS(".action-form button")), chromedp.WaitVisible(chromedp.CSS(".done")))
	require.Equal(t, "Redeliver dead letters", title())
	w.eventually(t, `document.querySelector(".verdict .badge").textContent === "done"`) // the page refreshes until it is
	require.Contains(t, w.value(t, `document.querySelector(".verdict").textContent`), "3 of 3")
	w.screenshot(t, "journey-done")
	b.eventually(t, 3, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	w.requireNoConsoleErrors(t, "the journey")

	deadLetter := b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters ORDER BY 1 LIMIT 1")
	w.do(t, chromedp.Navigate(srv.URL+"/ui/dead-letters/"+deadLetter), chromedp.WaitReady(chromedp.CSS(".action-form")),
		chromedp.Click(chromedp.CSS(".action-form .primary")), chromedp.WaitVisible(chromedp.CSS(".rejected")))
	require.Contains(t, w.value(t, `document.querySelector(".rejected").textContent`), "was redelivered already")
	w.screenshot(t, "journey-rejected")
	w.do(t, chromedp.Click(chromedp.CSS(`form[action$="/purge"] button`)),
		chromedp.WaitVisible(chromedp.CSS(`form[method="post"][action$="/purge"] button`)),
		chromedp.Click(chromedp.CSS(`form[method="post"][action$="/purge"] button`)),
		chromedp.WaitVisible(chromedp.CSS(".done")))
	require.Equal(t, "2", b.value(t, "SELECT count(*) FROM postrider.dead_letters"))
}
