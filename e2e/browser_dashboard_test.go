package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// TestDashboardInBrowser drives the dashboard in windows of one browser. Its start is slow, and so is a shop.
func TestDashboardInBrowser(t *testing.T) {
	t.Parallel()
	open := startChromium(t)
	s := newShop(t)
	for name, journey := range map[string]func(t *testing.T, w *window, s *shop){
		"accessibility": testAccessibility, "overview": testOverview, "lists": testLists, "query page": testQueryPage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t, s.nodeProcess)
			w.signIn(t)
			journey(t, w, s)
		})
	}
	t.Run("configuration", func(t *testing.T) {
		t.Parallel()
		testConfiguration(t, open)
	})
}

const dashboardPassword = "twelve horses at least"

// signIn signs in as the administrator of the shop.
func (w *window) signIn(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/sign-in", `input[name="name"]`)
	w.do(t, chromedp.SendKeys(chromedp.CSS(`input[name="name"]`), "ann"),
		chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), dashboardPassword),
		chromedp.Submit(chromedp.CSS(`form[action="/ui/sign-in"]`)), chromedp.WaitReady(chromedp.CSS("#pause")))
}

// shop is a node with deliveries in each state. The topic orders has texts with markup.
type shop struct {
	*nodeProcess

	db       *database
	key      string // of topic orders
	endpoint string // of shopEndpoint
}

// shopTexts are event texts with markup or of great width.
var shopTexts = []string{
	`<script>window.__x=1</script>`, `"><img src=x onerror=window.__x=1>`, `</pre></td></table><svg/onload=window.__x=1>`,
	strings.Repeat("W", 900), "e-5",
}

// shopEndpoint responds to /status/{code} with that status and markup.
func shopEndpoint(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Hostile", shopTexts[1])
		code, _ := strconv.Atoi(r.PathValue("code"))
		w.WriteHeader(code)
		_, _ = io.WriteString(w, shopTexts[0]+shopTexts[1])
	})
	endpoint := httptest.NewServer(mux)
	t.Cleanup(endpoint.Close)
	return endpoint.URL
}

// newShop starts a node and waits until deliveries are delivered, dead-lettered, on hold, in a batch or have failed.
func newShop(t *testing.T) *shop {
	t.Helper()
	db := migratedDatabase(t)
	up := postrider(t, append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+testEncryptionKey), "migrate", "up")
	require.Zero(t, up.code, up.stderr) // it creates the logins of queries
	s := &shop{nodeProcess: startNode(t, db), db: db, endpoint: shopEndpoint(t)}
	s.manage(http.StatusCreated, http.MethodPut, "/v1/users/ann", `{"role":"admin","password":"`+dashboardPassword+`"}`)
	subscribe := func(topic, name, path, more string) {
		s.manage(http.StatusCreated, http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+name,
			fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"%s}`, s.endpoint+path, more))
	}
	s.key = s.topic("orders")
	label, _ := json.Marshal(shopTexts[0])
	subscribe("orders", "accounting", "/status/200", "")
	subscribe("orders", "billing", "/status/503", `,"labels":[`+string(label)+`]`)
	subscribe("orders", "archive", "/status/404", "")
	subscribe("orders", "bulk", "/status/202", `,"maxEventsPerBatch":10`)
	subscribe("orders", "choosy", "/status/200", `,"filter":{"subjectBeginsWith":"nothing begins so"}`)
	quiet, empty := s.topic("quiet"), s.topic("empty")
	subscribe("quiet", "accounting", "/status/200", "")
	for _, topic := range []string{"orders", "quiet"} {
		subscribe(topic, "held", "/status/200", "")
		s.manage(http.StatusOK, http.MethodPost, "/v1/topics/"+topic+"/subscriptions/held/pause", "")
	}
	subscribe("empty", "choosy", "/status/200", `,"filter":{"includedEventTypes":["Other"]}`)
	events := make([]string, len(shopTexts))
	for i, text := range shopTexts {
		events[i] = shopEvent(t, text)
	}
	s.publish("orders", s.key, "["+strings.Join(events, ",")+"]")
	s.publish("quiet", quiet, "["+shopEvent(t, "q-1")+","+shopEvent(t, "q-2")+"]")
	s.publish("empty", empty, events[0])
	eventually(t, "each delivery is in its state", db.atLeast(1, `SELECT (count(*) FILTER (WHERE state = 'delivered') = 12
		AND count(*) FILTER (WHERE state = 'dead_lettered') = 5
		AND count(*) FILTER (WHERE subscription = 'billing' AND attempts > 0) = 5)::int FROM postrider.deliveries`))
	return s
}

// shopEvent is a CloudEvent whose id, type and subject are one text.
func shopEvent(t *testing.T, text string) string {
	t.Helper()
	quoted, err := json.Marshal(text)
	require.NoError(t, err)
	return fmt.Sprintf(`{"specversion":"1.0","id":%[1]s,"source":"/shop","type":%[1]s,"subject":%[1]s,`+
		`"data":{"n":12345678901234567890.10}}`, quoted)
}

// Charts, the refresh, the tail, the content security policy, and all of it without JavaScript.
func testOverview(t *testing.T, w *window, s *shop) {
	w.testChart(t)
	w.testRefresh(t)
	w.testTail(t, s)
	w.testFailingEndpoint(t, s)
	w.testPolicyForbids(t)
	w.testWithoutScript(t)
}

func (w *window) testChart(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/", ".chart canvas")
	require.Equal(t, "60,60,60",
		w.value(t, `[...document.querySelectorAll(".numbers")].map((table) => table.tBodies[0].rows.length).join()`),
		"one row for each ended minute")
	require.Equal(t, "3", w.value(t, `document.querySelectorAll(".chart canvas").length`))
	w.visit(t, "/ui/subscriptions/orders/billing?range=7d", ".chart canvas")
	require.Equal(t, "84", w.value(t, `document.querySelector(".numbers").tBodies[0].rows.length`))
	require.Equal(t, "7 d", w.textOf(t, ".ranges [aria-current]"))
	w.requireNoConsoleErrors(t, "charts")
}

// A refresh keeps open details, the focus and the scroll position. A pause stops it.
func (w *window) testRefresh(t *testing.T) {
	t.Helper()
	w.size(t, 1440, 500, "light")
	w.visit(t, "/ui/events", "#page")
	w.visit(t, "/ui/", ".chart canvas")
	w.value(t, `(document.querySelector(".fold").open = true, document.body.dataset.mark = "same")`)
	const here = `document.activeElement.getAttribute("href") + " " + Math.round(scrollY)`
	w.value(t, `(document.querySelector('#page a.tile[href="/ui/problems"]').focus(), scrollTo(0, 240), 1)`)
	require.Equal(t, "/ui/problems 240", w.value(t, here))
	w.refreshed(t)
	require.Equal(t, "/ui/problems 240", w.value(t, here))
	require.Equal(t, "true", w.value(t, `document.querySelector(".fold").open`))
	require.Equal(t, "same", w.value(t, `document.body.dataset.mark`), "the page was not reloaded")
	w.do(t, chromedp.Click(chromedp.CSS("#pause")))
	w.value(t, `(window.requests = 0, document.addEventListener("htmx:before:request", (e) => { window.requests++;`+
		` window.stopped = e.defaultPrevented }))`)
	w.eventually(t, `window.requests > 0`)
	require.Equal(t, "true", w.value(t, `window.stopped`))
	w.requireNoConsoleErrors(t, "after refresh")
	w.size(t, 1440, 900, "light")
}

func (w *window) testTail(t *testing.T, s *shop) {
	t.Helper()
	w.visit(t, "/ui/tail", "#tail")
	w.eventually(t, `document.querySelector("#tail-state").textContent === "Following."`)
	const image = `<img src=x onerror=window.__x=1>`
	s.publish("orders", s.key, shopEvent(t, image))
	w.eventually(t, `document.querySelector("#tail-rows").textContent.includes("`+image+`")`)
	require.Equal(t, "undefined", w.value(t, "window.__x"))
	w.requireNoConsoleErrors(t, "/ui/tail")
}

// cutOff are the parts of the list of problems that a user acts on and that are outside of their cells, or the list if
// it is wider than the page.
const cutOff = `[...document.querySelectorAll(".problems :is(.word, .badge, time, .needs-operator a), .problems")]` +
	`.filter((e) => { const part = e.getBoundingClientRect(), ` +
	`cell = e.parentElement.closest(".cut > div, td, #page").getBoundingClientRect(); ` +
	`return part.right > cell.right + 1 || part.bottom > cell.bottom + 1 })` +
	`.map((e) => e.outerHTML.slice(0, 80)).join("\n")`

// "The endpoint of payments fails": from the overview to the acknowledgment are two clicks, and nothing is cut off.
func (w *window) testFailingEndpoint(t *testing.T, s *shop) {
	t.Helper()
	key := s.topic("payments")
	s.manage(http.StatusCreated, http.MethodPut, "/v1/topics/payments/subscriptions/billing",
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip"}`, s.endpoint+"/status/503"))
	events := make([]string, 20)
	for i := range events {
		events[i] = shopEvent(t, fmt.Sprint("p-", i))
	}
	s.publish("payments", key, "["+strings.Join(events, ",")+"]")
	eventually(t, "the circuit breaker is open and the problem is stored", s.db.atLeast(1, `SELECT count(*)::int
		FROM postrider.problems p JOIN postrider.event_subscriptions e USING (subscription_id)
		WHERE p.topic = 'payments' AND e.hold = 'probation'`))
	w.visit(t, "/ui/", ".attention")
	w.click(t, `tr:has([href="/ui/subscriptions/payments/billing"]) a[href^="/ui/problems/"]`, `[action$="/acknowledge"]`)
	require.Contains(t, w.textOf(t, ".verdict"), "503 Service Unavailable Busy from")
	w.click(t, `[action$="/acknowledge"] button`, ".verdict.waiting")
	w.click(t, `nav [href="/ui/problems"]`, ".problems .badge.waiting")
	require.Contains(t, w.textOf(t, ".problems"), "probation")
	for _, width := range []int64{1366, 1440} {
		w.size(t, width, 900, "light")
		require.Empty(t, w.value(t, cutOff), width)
	}
	w.requireNoConsoleErrors(t, "/ui/problems")
}

// The check can fail: a violation is reported.
func (w *window) testPolicyForbids(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/audit", "#page")
	w.value(t, `((s) => { s.textContent = "window.__x = 1"; document.body.append(s) })(document.createElement("script"))`)
	w.eventually(t, `window.__reports.length > 0`)
	require.Equal(t, "undefined", w.value(t, "window.__x"))
}

// Without JavaScript, pages show their figures as tables. Tests of package web check what is hidden on each page.
func (w *window) testWithoutScript(t *testing.T) {
	t.Helper()
	w.disableScripts(t)
	w.visit(t, "/ui/tail", "#page")
	require.Contains(t, w.value(t, `document.querySelector("#page").innerText`), "This page needs JavaScript.")
	w.visit(t, "/ui/", "#page")
	w.do(t, chromedp.Click(chromedp.CSS(".fold > summary")))
	require.Equal(t, "60", w.value(t, `document.querySelector(".numbers").tBodies[0].rows.length`))
	require.Equal(t, "true", w.value(t, `document.querySelector(".numbers").checkVisibility()`))
	w.click(t, `.ranges a[href="/ui/?range=24h"]`, `.ranges a[href="/ui/?range=24h"][aria-current]`)
	require.Equal(t, "96", w.value(t, `document.querySelector(".numbers").tBodies[0].rows.length`))
}
