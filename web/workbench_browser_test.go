package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/publish"
)

// publishOrders publishes orders in one currency.
func (b *bundle) publishOrders(t *testing.T, topic, currency string, count int) {
	t.Helper()
	_, err := b.store.Publisher.Publish(t.Context(),
		publish.Publication{Topic: topic, Parse: func(*catalog.Topic) ([]event.Event, error) {
			events := make([]event.Event, count)
			for i := range events {
				id := fmt.Sprint(currency, "-", i)
				events[i] = event.Event{
					Schema: event.EventGrid, ID: id, Type: "order.paid", Subject: id, DataVersion: "1",
					Body: fmt.Appendf(nil, `{"id":%[1]q,"subject":%[1]q,"eventType":"order.paid","dataVersion":"1",`+
						`"eventTime":"2026-01-01T00:00:00Z","data":{"order":{"id":%[2]d,"currency":%[3]q,"total":1.10}}}`, id, i,
						currency),
				}
			}
			return events, nil
		}})
	require.NoError(t, err)
}

// currencyEndpoint accepts only orders in EUR.
func currencyEndpoint(t *testing.T) string {
	t.Helper()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); !strings.Contains(string(body), `"EUR"`) {
			http.Error(w, "unknown currency", http.StatusBadRequest)
		}
	}))
	t.Cleanup(e.Close)
	return e.URL
}

// An operator finds 500 dead letters by their content, repairs them with a merge patch and redelivers them. All are
// delivered, and the originals stay.
func TestRepairWhatASearchFinds(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := setupRunning(t).queryable(t)
	url := currencyEndpoint(t)
	b.subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.EndpointValidation = url, catalog.ValidationSkip
	})
	const wrong = 500
	b.publishOrders(t, "orders", "XXX", wrong)
	b.publishOrders(t, "orders", "YYY", 10)
	b.publishOrders(t, "orders", "EUR", 20)
	b.eventually(t, wrong+10, "SELECT count(*) FROM postrider.dead_letters")
	b.eventually(t, 20, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	w.size(t, 1440, 900, "light")

	w.do(t, chromedp.Navigate(srv.URL+"/ui/dead-letters"), chromedp.WaitReady(chromedp.CSS("#page")),
		chromedp.SendKeys(chromedp.CSS(`input[name="search"]`), `data.order.currency = "XXX"`+"\r"),
		chromedp.WaitReady(chromedp.CSS(`input[name="search"][value*="XXX"]`)))
	// A search that took a second counts what it has found: "At least 300 match".
	w.eventually(t, `/[1-9][0-9]* match/.test(document.querySelector("#page .total")?.textContent.replace(/\s+/g, " "))`)
	w.screenshot(t, "dead-letter-search")
	w.do(t, chromedp.Click(chromedp.CSS(`a[href^="/ui/dead-letters/repair?"]`)),
		chromedp.WaitReady(chromedp.CSS(".editor")))
	require.Contains(t, w.value(t, `document.querySelector(".verdict").textContent`), "500")
	w.value(t, `((e) => { e.value = '{"data":{"order":{"currency":"EUR"}}}'; e.form.noValidate = true; return 1 })`+
		`(document.querySelector("#patch"))`)
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="preview"]`)),
		chromedp.WaitReady(chromedp.CSS(`button[value="start"]`)))
	require.Contains(t, w.value(t, `document.querySelector("[role=status]").textContent`), "500 changed, 0 unchanged")
	w.screenshot(t, "repair")
	w.requireAccessible(t, "repair of many")
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.deliveries WHERE redelivered_from IS NOT NULL"))
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="start"]`)), chromedp.WaitReady(chromedp.CSS("#page")))
	b.eventually(t, wrong, `SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'
		AND edited_by IS NOT NULL AND edit = '{"data": {"order": {"currency": "EUR"}}}'`)
	b.eventually(t, wrong, `SELECT count(*) FROM postrider.dead_letters WHERE redelivered_at IS NOT NULL
		AND data @> '{"order": {"currency": "XXX"}}'`)
	w.requireNoConsoleErrors(t, "repair")
}
