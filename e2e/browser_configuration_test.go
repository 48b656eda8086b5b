package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// fill enters text into a field and fires its events.
func (w *window) fill(t *testing.T, name, value string) {
	t.Helper()
	quoted, err := json.Marshal(value)
	require.NoError(t, err)
	require.Equal(t, "true",
		w.value(t,
			fmt.Sprintf(`((field) => { if (!field) return false; field.focus(); field.value = %s; field.dispatchEvent(new `+
				`Event("input", {bubbles: true})); return true })(document.querySelector('.config [name="%s"]'))`,
				quoted, name)), name)
}

// A user creates the first admin of a new installation, a topic and an event subscription, publishes an event and signs
// out.
func testConfiguration(t *testing.T, open opener) {
	db := migratedDatabase(t)
	n := startNode(t, db)
	w := open(t, n)
	w.testFirstAdmin(t)
	w.testTopicForm(t)
	w.testSubscriptionForm(t, endpointWith(t, http.StatusOK))
	w.testPublishing(t, db)
	w.do(t, chromedp.Submit(chromedp.CSS(`.who form`)), chromedp.WaitVisible(chromedp.CSS(`form[action="/ui/sign-in"]`)))
	w.requireNoConsoleErrors(t, "signing out")
}

// The first admin returns to the requested page and stays signed in while it refreshes.
func (w *window) testFirstAdmin(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/subscriptions?topic=orders", `input[name="token"]`)
	require.Equal(t, "Create first admin", w.textOf(t, "h1"))
	require.Empty(t, w.value(t, `document.querySelector("nav").textContent.trim()`), "no menu before sign-in")
	w.do(t, chromedp.SendKeys(chromedp.CSS(`input[name="token"]`), testAdminToken),
		chromedp.SendKeys(chromedp.CSS(`input[name="name"]`), "ann"),
		chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), dashboardPassword),
		chromedp.SendKeys(chromedp.CSS(`input[name="again"]`), dashboardPassword),
		chromedp.Submit(chromedp.CSS(`form[action="/ui/first-admin"]`)), chromedp.WaitReady(chromedp.CSS("#pause")))
	require.Equal(t, w.base+"/ui/subscriptions?topic=orders", w.value(t, "location.href"))
	require.Empty(t, w.value(t, "document.cookie"), "scripts cannot read the cookie")
	w.refreshed(t)
	w.requireNoConsoleErrors(t, "signing in")
}

func (w *window) testTopicForm(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/topics", "#page")
	w.click(t, `a[href="/ui/new-topic"]`, ".config")
	w.requireFitsPhone(t, "new topic")
	w.fill(t, "name", "orders")
	w.click(t, ".save .primary", ".done")
	require.Equal(t, "orders", w.textOf(t, "h1"))
	w.requireFitsPhone(t, "created topic")
}

func (w *window) testSubscriptionForm(t *testing.T, hook string) {
	t.Helper()
	w.click(t, `a[href="/ui/subscriptions/new?topic=orders"]`, ".config")
	w.fill(t, "name", "billing")
	w.fill(t, "endpointUrl", hook)
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
	require.Contains(t, w.textOf(t, ".tested"), "data.total is 5, but must be greater than 10")
	w.value(t, `document.querySelectorAll("details.part").forEach((part) => { part.open = true })`)
	w.click(t, `button[name="add"][value="deliveryAttributeMappings"]`, `[name="deliveryAttributeMappings[0].name"]`)
	w.requireFitsPhone(t, "open form")
	w.fill(t, "retryPolicy.maxDeliveryAttempts", "31")
	w.value(t, `document.querySelector(".config").noValidate = true`)
	w.click(t, ".save .primary", ".rejected")
	w.requireFitsPhone(t, "rejected form")
	w.ignore(t, "400 (Bad Request)")
	w.fill(t, "retryPolicy.maxDeliveryAttempts", "5")
	// Enter saves and presses no other button
	w.do(t, chromedp.KeyEvent("\r"), chromedp.WaitVisible(chromedp.CSS(".done")))
	w.requireFitsPhone(t, "created event subscription")
	w.requireNoConsoleErrors(t, "create an event subscription")
}

func (w *window) testPublishing(t *testing.T, db *database) {
	t.Helper()
	w.visit(t, "/ui/topics/orders/publish", "#commands pre")
	w.fill(t, "event",
		`{"id":"mine","subject":"orders/7","eventType":"T","eventTime":"2026-01-01T00:00:00Z","data":{"total":50}}`)
	// the commands follow the input
	w.eventually(t, `document.querySelector("#commands").textContent.includes("orders/7")`)
	w.click(t, ".save .primary", `[role="status"] .events`)
	w.requireFitsPhone(t, "published event")
	w.click(t, `[role="status"] .events a[href^="/ui/events/"]`, ".filter-results")
	const delivered = "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'"
	eventually(t, "it is delivered", db.atLeast(1, delivered+" AND event_id = 'mine'"))
	w.visit(t, "/ui/subscriptions/orders/billing", ".deliveries")
	require.Contains(t, w.textOf(t, ".deliveries"), "delivered")
	w.click(t, `form[action$="/test"] button`, ".done")
	eventually(t, "the sample is delivered", db.atLeast(2, delivered))
	w.requireNoConsoleErrors(t, "publishing")
}
