package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// fill enters text into a field and fires its events.
func (w *browser) fill(t *testing.T, name, value string) {
	t.Helper()
	require.Equal(t, "true",
		w.value(t,
			fmt.Sprintf(`((field) => { if (!field) return false; field.focus(); field.value = %s; field.dispatchEvent(new `+
				`Event("input", {bubbles: true})); return true })(document.querySelector('.config [name="%s"]'))`,
				quoteJSON(t, value), name)), name)
}

func (w *browser) click(t *testing.T, button, then string) {
	t.Helper()
	// the sticky bar must not cover the field
	w.value(t, fmt.Sprintf(`document.querySelector(%q)?.scrollIntoView({block: "center"})`, button))
	w.do(t, chromedp.Click(chromedp.CSS(button)), chromedp.WaitVisible(chromedp.CSS(then)))
}

// ignore removes the console error for the status of a rejection.
func (w *browser) ignore(t *testing.T, status string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, w.complaints, 1)
	require.Contains(t, w.complaints[0], status)
	w.complaints = nil
}

// screenshots checks that the page fits both widths and takes pictures of it, also in the other color scheme. It leaves
// the window 1440 pixels wide and light.
func (w *browser) screenshots(t *testing.T, name string) {
	t.Helper()
	for _, width := range []int64{390, 1440} {
		if pictures() != "" {
			w.size(t, width, 900, "dark")
			w.screenshot(t, fmt.Sprintf("%s-%d-dark", name, width))
		}
		w.size(t, width, 900, "light")
		w.requireFits(t, name, width)
		w.screenshot(t, fmt.Sprintf("%s-%d-light", name, width))
	}
}

// A user creates a topic and an event subscription, tests its filter and publishes an event.
func TestConfigurationInBrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := setupRunning(t)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(hook.Close)
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)

	w.do(t, chromedp.Navigate(srv.URL+"/ui/topics"), chromedp.WaitReady(chromedp.CSS(".empty .primary")))
	w.click(t, ".empty .primary", ".config")
	w.screenshots(t, "form-topic")
	w.fill(t, "name", "orders")
	w.click(t, ".save .primary", ".done")
	require.Equal(t, "orders", w.value(t, `document.querySelector("h1").textContent`))
	w.screenshots(t, "form-topic-created")

	w.click(t, `a[href="/ui/subscriptions/new?topic=orders"]`, ".config")
	w.fill(t, "name", "billing")
	w.fill(t, "endpointUrl", hook.URL)
	w.fill(t, "endpointValidation", "skip")
	w.fill(t, "filter.subjectBeginsWith", "orders/")
	w.value(t, `document.body.dataset.mark = "same"`)
	w.click(t, `button[name="add"][value="filter.advancedFilters"]`, `[name="filter.advancedFilters[0].key"]`)
	require.Equal(t, "same", w.value(t, `document.body.dataset.mark`), "the page was not reloaded")
	require.Equal(t, "filter.advancedFilters[0].key", w.value(t, `document.activeElement.name`),
		"the new row has the focus")
	require.Equal(t, "billing orders/",
		w.value(t, `document.querySelector("[name=name]").value + " " + `+
			`document.querySelector("[name='filter.subjectBeginsWith']").value`))
	w.fill(t, "filter.advancedFilters[0].key", "data.total")
	w.fill(t, "filter.advancedFilters[0].operatorType", "NumberGreaterThan")
	w.fill(t, "filter.advancedFilters[0].value", "10")
	w.value(t, `document.querySelector(".tester").open = true`)
	w.fill(t, "event",
		`{"id":"1","subject":"orders/1","eventType":"T","eventTime":"2026-01-01T00:00:00Z","data":{"total":5}}`)
	w.click(t, `button[name="test"]`, ".tested")
	require.Contains(t, w.value(t, `document.querySelector(".tested").textContent`),
		"data.total is 5, but must be greater than 10")
	w.screenshots(t, "form-tested")
	w.value(t, `document.querySelectorAll("details.part").forEach((part) => { part.open = true })`)
	w.click(t, `button[name="add"][value="deliveryAttributeMappings"]`, `[name="deliveryAttributeMappings[0].name"]`)
	w.screenshots(t, "form-open")
	w.fill(t, "retryPolicy.maxDeliveryAttempts", "31")
	w.value(t, `document.querySelector(".config").noValidate = true`)
	w.click(t, ".save .primary", ".rejected")
	w.screenshots(t, "form-rejected")
	w.ignore(t, "400 (Bad Request)")
	w.fill(t, "retryPolicy.maxDeliveryAttempts", "5")
	// Enter saves and presses no other button
	w.do(t, chromedp.KeyEvent("\r"), chromedp.WaitVisible(chromedp.CSS(".done")))
	w.screenshots(t, "form-subscription-created")
	w.requireNoConsoleErrors(t, "create an event subscription")

	w.do(t, chromedp.Navigate(srv.URL+"/ui/topics/orders/publish"), chromedp.WaitReady(chromedp.CSS("#commands pre")))
	w.screenshots(t, "form-publish")
	w.fill(t, "event",
		`{"id":"mine","subject":"orders/7","eventType":"T","eventTime":"2026-01-01T00:00:00Z","data":{"total":50}}`)
	// the commands follow the input
	w.eventually(t, `document.querySelector("#commands").textContent.includes("orders/7")`)
	w.click(t, ".save .primary", `[role="status"] .events`)
	require.Equal(t, "same", w.value(t, `(document.body.dataset.mark || "same")`))
	w.screenshots(t, "form-published")
	w.click(t, `[role="status"] .events a[href^="/ui/events/"]`, ".filter-results")
	b.eventually(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered' AND event_id = 'mine'")
	w.do(t, chromedp.Navigate(srv.URL+"/ui/subscriptions/orders/billing"), chromedp.WaitReady(chromedp.CSS(".deliveries")))
	require.Contains(t, w.value(t, `document.querySelector(".deliveries").textContent`), "delivered")
	w.click(t, `form[action$="/test"] button`, ".done")
	b.eventually(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	w.requireNoConsoleErrors(t, "publishing")

	w.do(t, chromedp.Navigate(srv.URL+"/ui/policies/new?from=ga-2021"), chromedp.WaitReady(chromedp.CSS(".config")))
	w.screenshots(t, "form-policy")
	w.do(t, chromedp.Navigate(srv.URL+"/ui/topics/orders/keys"), chromedp.WaitReady(chromedp.CSS("#page")))
	w.click(t, `.card .primary`, ".keys")
	w.screenshots(t, "form-keys")
}
