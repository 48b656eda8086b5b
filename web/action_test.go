package web_test

import (
	"bufio"
	stdhtml "html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

// post sends a form as a page of this dashboard does; change may alter it.
func (b *dashboard) post(path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return b.request(http.MethodPost, path, append([]func(*http.Request){func(r *http.Request) {
		body := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Body, r.ContentLength = body.Body, body.ContentLength
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}}, change...)...)
}

// requireRedirect posts a form, checks the address that it redirects to, and returns the text of that page.
func (b *dashboard) requireRedirect(t *testing.T, path string, form url.Values, want string) (page string) {
	t.Helper()
	response := b.post(path, form)
	require.Equal(t, http.StatusSeeOther, response.Code, text(response.Body.String()))
	require.Regexp(t, want, response.Header().Get("Location"))
	return text(b.page(t, response.Header().Get("Location")))
}

// requireRejected posts a form and checks that its page shows the rejection.
func (b *dashboard) requireRejected(t *testing.T, path string, form url.Values, status int, want string) (page string) {
	t.Helper()
	response := b.post(path, form)
	require.Equal(t, status, response.Code, text(response.Body.String()))
	require.Contains(t, text(response.Body.String()), want)
	requireValidMarkup(t, path, response.Body.String())
	return response.Body.String()
}

// audited is the actor of all entries of the audit with this action.
func (b *dashboard) audited(t *testing.T, action string) string {
	t.Helper()
	return b.value(t, "SELECT string_agg(DISTINCT actor, ' ') || ': ' || string_agg(action, ' ' ORDER BY action) "+
		"FROM postrider.audit WHERE action LIKE '"+action+"'")
}

// Operators act on one delivery, one dead letter and checked rows, and see the result on its page.
func TestActions(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	b.seed(t, "e-1", "e-2", "e-3")
	b.testDeliveryActions(t)
	b.testDeadLetterActions(t)
	b.testCheckedRows(t)
	b.testTail(t)
}

func (b *dashboard) testDeliveryActions(t *testing.T) {
	t.Helper()
	failing, held := b.deliveryOf(t, "billing"), b.deliveryOf(t, "held")
	last := b.value(t, "SELECT max(delivery_id) FROM postrider.deliveries WHERE subscription = 'held'")
	b.requireTexts(t, "/ui/deliveries/"+failing, "Retry now Makes the next attempt due now")
	require.Contains(t,
		b.requireRedirect(t, "/ui/deliveries/"+failing+"/retry", nil, "^/ui/deliveries/"+failing+`\?done=retried$`),
		"The next attempt is due now.")
	page := b.requireRejected(t, "/ui/deliveries/"+held+"/retry", nil, http.StatusConflict,
		`Nothing was done: event subscription "held" of topic "orders" is paused. Resume the event subscription first.`)
	require.Contains(t, page, `hx-get="/ui/deliveries/`+held+`"`, "the page refreshes as itself, not as its form")

	require.Contains(t, b.requireRedirect(t, "/ui/deliveries/"+held+"/cancel", nil, `\?done=canceled$`), "canceled")
	require.NotContains(t, b.page(t, "/ui/deliveries/"+held), "Retry now")
	for _, verb := range []string{"retry", "cancel", "dead-letter"} {
		b.requireRejected(t, "/ui/deliveries/"+held+"/"+verb, nil, http.StatusConflict,
			"delivery "+held+" has ended: canceled")
		require.Equal(t, http.StatusNotFound, b.post("/ui/deliveries/x/"+verb, nil).Code)
	}
	require.Contains(t,
		b.requireRedirect(t, "/ui/deliveries/"+last+"/dead-letter", nil,
			`^/ui/dead-letters/[0-9a-f-]{36}\?done=dead-lettered$`),
		"dead_lettered DeadLetteredByOperator")
	require.Equal(t, "admin: delivery_canceled delivery_dead_lettered delivery_retried", b.audited(t, "delivery%"))
}

func (b *dashboard) testDeadLetterActions(t *testing.T) {
	t.Helper()
	at := "/ui/dead-letters/" + b.value(t, "SELECT min(dead_letter_id::text) FROM postrider.dead_letters "+
		"WHERE subscription = 'archive'")
	accounting := url.Values{"toSubscription": {"accounting"}}
	b.requireRejected(t, at+"/redeliver", url.Values{"toSubscription": {"missing"}}, http.StatusBadRequest,
		`topic "orders" has no event subscription "missing"`)
	require.Contains(t, b.requireRedirect(t, at+"/redeliver", accounting, `^/ui/deliveries/\d+\?done=redelivered$`),
		"Redelivered. This is the new delivery")
	rejected := b.requireRejected(t, at+"/redeliver", accounting, http.StatusConflict, "was redelivered already")
	require.Contains(t, text(rejected), "Select “redeliver again” to redeliver it once more.")
	require.Contains(t, rejected, `name="toSubscription" value="accounting"`, "the input is kept")
	b.requireRedirect(t, at+"/redeliver",
		url.Values{"toSubscription": {"accounting"}, "toTopic": {"orders"}, "again": {"1"}}, "done=redelivered")

	page := b.page(t, at+"/purge")
	requireValidMarkup(t, at, page)
	require.Contains(t, text(page), "Purging deletes")
	require.Equal(t, "4", b.value(t, "SELECT count(*) FROM postrider.dead_letters"), "the page changes nothing")
	require.Contains(t, b.requireRedirect(t, at+"/purge", nil, `^/ui/dead-letters\?done=purged$`), "3 in total")
	for _, path := range []string{at + "/purge", at + "/redeliver", "/ui/dead-letters/x/purge"} {
		require.Equal(t, http.StatusNotFound, b.post(path, nil).Code, path)
	}
	require.Equal(t, "admin: dead_letter_purged dead_letter_redelivered dead_letter_redelivered",
		b.audited(t, "dead_letter%"))
}

// Checked rows are acted on alone, and nothing if none is checked.
func (b *dashboard) testCheckedRows(t *testing.T) {
	t.Helper()
	list := b.page(t, "/ui/deliveries?topic=orders")
	requireValidMarkup(t, "/ui/deliveries", list)
	require.Contains(t, list, `href="/ui/deliveries/cancel?topic=orders"`)
	ended := b.page(t, "/ui/deliveries?state=dead_lettered")
	require.Contains(t, ended, `href="/ui/subscriptions/orders/archive"`, "it has rows")
	for _, action := range []string{"all …", "checked …", "Select delivery"} {
		require.NotContains(t, ended, action, "the filter matches no pending delivery")
	}
	held := b.value(t, "SELECT delivery_id FROM postrider.deliveries WHERE subscription = 'held' AND state = 'pending'")
	require.Contains(t, list, `value="`+held+`" form="checked"`)
	require.Contains(t, b.request("GET", "/ui/deliveries/cancel?checked=1").Body.String(), "no row is checked")
	require.Equal(t, http.StatusBadRequest, b.request("GET", "/ui/deliveries/cancel?checked=1&id=x").Code)
	at := "/ui/deliveries/cancel?checked=1&id=" + held
	b.requireTexts(t, at, "1 pending delivery matches .",
		"Deliveries that end before the operation reaches them are omitted.")
	// One of two counted deliveries has ended.
	running := b.requireRedirect(t, b.confirmAddress(t, at), url.Values{"matched": {"2"}}, `done=started$`)
	require.Contains(t, running, "Selected by id 1")
	b.Become(t, 1, "SELECT count(*) FROM postrider.operations WHERE kind = 'cancel' AND state = 'done' AND done = 1")
	require.Equal(t, "canceled", b.value(t, "SELECT state FROM postrider.deliveries WHERE delivery_id = "+held))
}

var formAction = regexp.MustCompile(`<form class="action-form" method="post" action="([^"]+)"`)

// confirmAddress is the address of the form on a confirmation page.
func (b *dashboard) confirmAddress(t *testing.T, path string) string {
	t.Helper()
	page := b.page(t, path)
	requireValidMarkup(t, path, page)
	found := formAction.FindStringSubmatch(page)
	require.NotNil(t, found, text(page))
	return stdhtml.UnescapeString(found[1])
}

// The tail sends new events and attempts once, until the browser disconnects.
func (b *dashboard) testTail(t *testing.T) {
	t.Helper()
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/ui/tail/stream?topic=empty", nil)
	require.NoError(t, err)
	response, err := srv.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	b.subscribe(t, "empty", "accepting", to(endpoint(t)+"/status/200"))
	b.publish(t, "empty", "<b>after</b>")
	var messages []string
	for lines := bufio.NewScanner(response.Body); len(messages) < 2 && lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "data: ") {
			require.Contains(t, line, "after")
			messages = append(messages, line)
		}
	}
	require.Len(t, messages, 2)
	require.Contains(t, messages[0], `"kind":"published"`)
	require.Contains(t, messages[1], `"label":"Delivered"`)
	require.Contains(t, messages[1], `attempt 1, 200 OK`)
}

// Operators act on all dead letters that a filter matches, by an operation whose page shows its progress.
func TestBulkOperations(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	b.seed(t, "e-1", "e-2", "e-3")
	b.testRepairOfMany(t)
	b.Exec(t, "UPDATE postrider_internal.dead_letters SET redelivered_at = NULL")
	b.Exec(t, "DELETE FROM postrider_internal.operations")
	b.Exec(t, "DELETE FROM postrider_internal.audit")
	b.testBulkRedelivery(t)
	// 60 dead letters at 1/s take a minute
	b.insert(t, slices.Repeat([]deadLetter{{at: time.Now().Add(-time.Hour), subscription: "lost"}}, 60)...)
	running := b.requireRedirect(t, b.confirmAddress(t, "/ui/dead-letters/redeliver?topic=orders&subscription=lost"),
		url.Values{"rate": {"1"}, "toSubscription": {"held"}}, `done=started$`)
	require.Contains(t, running, "limit 1/s")
	id := "/ui/operations/" + b.value(t, "SELECT operation_id FROM postrider.operations WHERE state = 'running'")
	require.Contains(t, b.requireRedirect(t, id+"/cancel", nil, `\?done=stopped$`), "Canceled. Completed changes stay.")

	const purge = "/ui/dead-letters/purge?state=redelivered&subscription=archive&topic=orders"
	b.requireTexts(t, purge, "postrider deadletter export --topic orders --subscription archive --until ")
	b.requireRedirect(t, b.confirmAddress(t, purge), nil, `done=started$`)
	b.Become(t, 1, "SELECT count(*) FROM postrider.operations WHERE kind = 'purge' AND state = 'done'")
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'archive'"),
		"later dead letters stay")
	list := b.page(t, "/ui/operations")
	requireValidMarkup(t, "/ui/operations", list)
	require.Regexp(t, `Started by admin in all rows\. .*Purge dead letters done 3 of 3 .* canceled .* `+
		`accounting done 3 of 3 0`, text(list))
	require.Equal(t, "admin: operation_canceled", b.audited(t, "operation_canceled"))
	require.Equal(t, "admin: operation_started operation_started operation_started", b.audited(t, "operation_started"))
}

func (b *dashboard) testBulkRedelivery(t *testing.T) {
	t.Helper()
	const redeliver = "/ui/dead-letters/redeliver?lastOutcome=NotFound&subscription=archive&topic=orders"
	require.Contains(t, b.page(t, "/ui/problems"),
		stdhtml.EscapeString("/ui/dead-letters/redeliver?topic=orders&subscription=archive")+`"`)
	require.Contains(t, b.page(t, "/ui/dead-letters?topic=orders&subscription=archive&lastOutcome=NotFound"),
		stdhtml.EscapeString(redeliver))
	b.requireTexts(t, redeliver, "3 dead letters match .")
	require.NotContains(t, b.page(t, "/ui/dead-letters/redeliver?topic=none"), `class="action-form"`)
	form := b.confirmAddress(t, redeliver)
	require.Contains(t, b.page(t, redeliver), `name="matched" value="3"`)
	// created after the confirmation page
	b.insert(t, deadLetter{at: time.Now().Add(time.Minute), subscription: "archive", outcome: "NotFound"})
	rejected := b.requireRejected(t, form, url.Values{"rate": {"1000001"}}, http.StatusBadRequest,
		"the rate must be a whole number from 1 to 1,000,000")
	require.Contains(t, rejected, `name="rate" min="1" max="1000000" value="1000001"`, "the input is kept")
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.operations"))

	b.requireRedirect(t, form, url.Values{"toSubscription": {"accounting"}, "matched": {"3"}},
		`^/ui/operations/[0-9a-f-]{36}\?done=started$`)
	b.Become(t, 1, "SELECT count(*) FROM postrider.operations WHERE state = 'done'")
	b.Become(t, 3, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'accounting' "+
		"AND redelivered_from IS NOT NULL AND edit IS NULL AND state = 'delivered'")
	done := "/ui/operations/" + b.value(t, "SELECT operation_id FROM postrider.operations")
	page := b.page(t, done)
	requireValidMarkup(t, done, page)
	for _, want := range []string{
		"done 3 of 3", "Redelivered 3", "To accounting of orders", "Last outcome NotFound", "State open",
		"Started by admin", "Delivered 3 of its redeliveries",
	} {
		require.Contains(t, text(page), want)
	}
	require.NotContains(t, page, `class="action-form"`, "what is over cannot be canceled")
	require.Contains(t, b.requireRedirect(t, done+"/cancel", nil, `\?done=over$`), "The operation had already finished.")
	b.requireTexts(t, redeliver+"&state=redelivered", "3 dead letters match .")
}

func (b *dashboard) testRepairOfMany(t *testing.T) {
	t.Helper()
	at := "/ui/dead-letters/repair?subscription=archive&topic=orders"
	page := b.page(t, at)
	requireValidMarkup(t, at, page)
	require.Contains(t, text(page), "3 dead letters match .")
	form := func(patch, do string) url.Values {
		return url.Values{
			"patch": {patch}, "do": {do}, "matched": {"3"}, "toSubscription": {"accounting"},
		}
	}
	rejected := b.requireRejected(t, at, form("7", "preview"), 400, "mergePatch must be a JSON object")
	require.Contains(t, rejected, "\n7</textarea>", "the input is kept")
	preview := b.post(at, form("{\r\n\"data\":{\"currency\":\"EUR\"}}", "preview"))
	require.Equal(t, http.StatusOK, preview.Code, text(preview.Body.String()))
	requireValidMarkup(t, at, preview.Body.String())
	for _, want := range []string{"3 changed, 0 unchanged.", `/data/currency "EUR"`, "Repair and redeliver 3"} {
		require.Contains(t, text(preview.Body.String()), want)
	}
	b.requireRedirect(t, at, form(`{"data":{"currency":"EUR"}}`, "start"), "done=started")
	b.Become(t, 3, `SELECT count(*) FROM postrider.deliveries WHERE edit = '{"data": {"currency": "EUR"}}'`)
	require.Equal(t, "3", b.value(t, "SELECT expected_count FROM postrider.operations"))
}

// A bulk operation changes what the list shows: the open ones, unless the address names another state. A parameter that
// the page does not know, such as a misspelled one, would let the operation change more than the user meant.
func TestFilterOfBulkOperations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, slices.Repeat([]deadLetter{{at: time.Now().Add(-time.Hour), reason: "Kept"}}, 3)...)
	b.Exec(t, "UPDATE postrider_internal.dead_letters SET redelivered_at = now() "+
		"WHERE id = (SELECT min(id::text)::uuid FROM postrider_internal.dead_letters)")
	for _, row := range []struct{ kind, state, stored, expected string }{
		{"purge", "", "open", "2"},
		{"purge", "redelivered", "redelivered", "1"},
		{"purge", "all", "", "3"},
		{"redeliver", "", "open", "2"},
		{"redeliver", "all", "open", "2"},
		{"redeliver", "redelivered", "redelivered", "1"},
		{"repair", "", "open", "2"},
		{"resolve", "all", "open", "2"},
	} {
		path := "/ui/dead-letters/" + row.kind + "?topic=orders&state=" + row.state
		page := b.page(t, path)
		form := url.Values{"do": {"start"}, "patch": {`{"data":{"a":1}}`}}
		form.Set("matched", regexp.MustCompile(`name="matched"\s+value="(\d+)"`).FindStringSubmatch(page)[1])
		b.requireRedirect(t, path, form, "done=started$")
		b.requireRedirect(t, stdhtml.UnescapeString(regexp.MustCompile(`method="post" action="(/ui/dead-letters/[^"]+)"`).
			FindStringSubmatch(page)[1]), form, "done=started$")
		require.Equal(t, strings.Repeat(row.stored+" "+row.expected+";", 2), b.value(t, "SELECT "+
			"string_agg(concat(filter ->> 'state', ' ', expected_count, ';'), '') FROM postrider.operations"), row)
		b.Exec(t, "DELETE FROM postrider_internal.operations")
	}
	require.Equal(t, http.StatusBadRequest, b.request(http.MethodGet, "/ui/dead-letters?state=closed").Code)

	for _, path := range []string{
		"/ui/dead-letters/purge?topic=orders&outcome=NotFound", "/ui/dead-letters/repair?topic=orders&outcome=x",
		"/ui/deliveries/cancel?topic=orders&outcome=Busy",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			response := b.request(method, path)
			if method == http.MethodPost {
				response = b.post(path, nil)
			}
			require.Equal(t, http.StatusBadRequest, response.Code, path)
			require.Contains(t, text(response.Body.String()), "outcome is no parameter of this page", path)
		}
	}
	b.requireTexts(t, "/ui/dead-letters?topic=orders&outcome=NotFound", "2 match") // lists ignore it
}

// The shown command is safe to paste into a shell.
func TestExportCommandIsQuoted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, deadLetter{at: time.Now(), topic: "it's; rm -rf $HOME"})
	b.requireTexts(t, "/ui/dead-letters?eventId=e-1&from=2026-01-02&topic="+url.QueryEscape("it's; rm -rf $HOME"),
		`postrider deadletter export --topic 'it'\''s; rm -rf $HOME' --from 2026-01-02T00:00:00Z --state open -o dead.ndjson`,
		"The command exports more than this list. It has no flag for: Event id.")
}

func TestFormsRequireSessionAndOrigin(t *testing.T) {
	t.Parallel()
	open, shut := setup(t), setup(t, withSignIn)
	forms := 0
	for _, route := range open.echo.Routes() {
		if route.Method != http.MethodPost || strings.HasSuffix(route.Path, "*") || route.Path == "/ui" {
			continue
		}
		forms++
		require.Equal(t, http.StatusForbidden, open.post(route.Path, nil, sentFrom("cross-site")).Code, route.Path)
		require.Equal(t, http.StatusUnauthorized, shut.post(route.Path, nil).Code, route.Path)
	}
	require.Equal(t, 51, forms)
}

// sentFrom says where a form was sent from.
func sentFrom(site string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", site) }
}

// A browser may send the session cookie with a form of another site.
func TestCrossSiteFormsAreRejected(t *testing.T) {
	t.Parallel()
	open, shut := setup(t), setup(t, withSignIn)
	open.hook(t)
	shut.hook(t)
	login := shut.as(t, "ann", access.RoleOperator)
	origin := func(of string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", of)
		}
	}
	for name, row := range map[string]struct {
		on     *dashboard
		change []func(*http.Request)
		want   int
	}{
		"own page":            {open, nil, http.StatusSeeOther},
		"another site":        {open, []func(*http.Request){sentFrom("cross-site")}, http.StatusForbidden},
		"same site":           {open, []func(*http.Request){sentFrom("same-site")}, http.StatusForbidden},
		"another origin":      {open, []func(*http.Request){origin("http://example.com")}, http.StatusForbidden},
		"own origin":          {open, []func(*http.Request){origin("http://localhost:8080")}, http.StatusSeeOther},
		"no session":          {shut, nil, http.StatusUnauthorized},
		"session":             {shut, []func(*http.Request){login}, http.StatusSeeOther},
		"session, other site": {shut, []func(*http.Request){login, sentFrom("cross-site")}, http.StatusForbidden},
	} {
		response := row.on.post("/ui/subscriptions/orders/billing/resume", nil, row.change...)
		require.Equal(t, row.want, response.Code, name)
	}
}

// Checked dead letters that are not open are counted as skipped, whatever state the list shows.
func TestCheckedDeadLettersThatAreNotOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, slices.Repeat([]deadLetter{{at: time.Now().Add(-time.Hour)}}, 3)...)
	b.Exec(t, "UPDATE postrider_internal.dead_letters SET redelivered_at = now() "+
		"WHERE id <> (SELECT min(id::text)::uuid FROM postrider_internal.dead_letters)")
	ids := strings.Fields(b.value(t, "SELECT string_agg(dead_letter_id::text, ' ' ORDER BY state) "+
		"FROM postrider.dead_letters"))
	checked := "?state=all&checked=1&id=" + strings.Join(ids, "&id=")
	for _, kind := range []string{"redeliver", "repair", "resolve"} {
		path := "/ui/dead-letters/" + kind
		b.requireTexts(t, path+checked, "1 of 3 is open; 2 are skipped : redelivered, resolved or purged.")
		requireValidMarkup(t, path, b.page(t, path+checked))
		b.requireTexts(t, path+"?state=all&checked=1&id="+ids[0], "1 dead letter matches .")
		b.requireTexts(t, path+"?state=all&checked=1&id="+ids[1], "0 of 1 are open; 1 is skipped")
		b.requireTexts(t, path+"?state=redelivered&checked=1&id="+ids[1], "1 dead letter matches .")
	}
	b.requireTexts(t, "/ui/dead-letters/purge"+checked, "3 dead letters match .")
}
