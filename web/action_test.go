package web_test

import (
	stdhtml "html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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

func TestDeliveryAndDeadLetterActions(t *testing.T) {
	t.Parallel()
	b := seededRunning(t, "e-1", "e-2", "e-3")
	of := func(end, subscription string) string {
		return b.value(t, "SELECT "+end+"(delivery_id) FROM postrider.deliveries WHERE subscription = '"+subscription+"'")
	}
	failing, held, last := of("min", "billing"), of("min", "held"), of("max", "held")

	require.Contains(t, text(b.page(t, "/ui/deliveries/"+failing)), "Retry now Makes the next attempt due now")
	require.Contains(t,
		b.requireRedirect(t, "/ui/deliveries/"+failing+"/retry", nil, "^/ui/deliveries/"+failing+`\?done=retried$`),
		"The next attempt is due now.")
	b.eventually(t, 2, "SELECT attempts FROM postrider.deliveries WHERE delivery_id = "+failing)
	page := b.requireRejected(t, "/ui/deliveries/"+held+"/retry", nil, http.StatusConflict,
		`Nothing was done: event subscription "held" of topic "orders" is paused. Resume the event subscription first.`)
	require.Contains(t, page, `hx-get="/ui/deliveries/`+held+`"`, "the page refreshes as itself, not as its form")

	require.Contains(t, b.requireRedirect(t, "/ui/deliveries/"+held+"/cancel", nil, `\?done=canceled$`), "canceled")
	require.Equal(t, "canceled", b.value(t, "SELECT state FROM postrider.deliveries WHERE delivery_id = "+held))
	require.NotContains(t, b.page(t, "/ui/deliveries/"+held), "Retry now")
	for _, verb := range []string{"retry", "cancel", "dead-letter"} {
		b.requireRejected(t, "/ui/deliveries/"+held+"/"+verb, nil, http.StatusConflict,
			"delivery "+held+" has ended: canceled")
		for _, missing := range []string{"987654321", "x", "0"} {
			require.Equal(t, http.StatusNotFound, b.post("/ui/deliveries/"+missing+"/"+verb, nil).Code)
		}
	}

	require.Contains(t,
		b.requireRedirect(t, "/ui/deliveries/"+last+"/dead-letter", nil,
			`^/ui/dead-letters/[0-9a-f-]{36}\?done=dead-lettered$`),
		"dead_lettered DeadLetteredByOperator")
	b.requireRejected(t, "/ui/deliveries/"+last+"/cancel", nil, http.StatusConflict, "Redeliver its dead letter instead.")
	require.Equal(t, "admin: delivery_canceled delivery_dead_lettered delivery_retried", b.value(t,
		"SELECT string_agg(DISTINCT actor, ' ') || ': ' || string_agg(action, ' ' ORDER BY action) FROM postrider.audit "+
			"WHERE action LIKE 'delivery%'"))
	b.testDeadLetterActions(t)
	b.testCheckedRows(t)
}

func (b *dashboard) testDeadLetterActions(t *testing.T) {
	t.Helper()
	at := "/ui/dead-letters/" + b.value(t, "SELECT min(dead_letter_id::text) FROM postrider.dead_letters "+
		"WHERE subscription = 'archive'")
	accounting := url.Values{"toSubscription": {"accounting"}}

	b.requireRejected(t, at+"/redeliver", url.Values{"toSubscription": {"missing"}}, http.StatusBadRequest,
		`topic "orders" has no event subscription "missing"`)
	b.requireRejected(t, at+"/redeliver", url.Values{"toTopic": {"orders"}}, http.StatusBadRequest,
		"subscription is required with topic")
	b.requireRejected(t, at+"/redeliver", url.Values{"toSubscription": {"\x00"}}, http.StatusBadRequest,
		"names must be text")
	require.Contains(t, b.requireRedirect(t, at+"/redeliver", accounting, `^/ui/deliveries/\d+\?done=redelivered$`),
		"Redelivered. This is the new delivery")
	b.eventually(t, 4,
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'accounting' AND state = 'delivered'")
	rejected := b.requireRejected(t, at+"/redeliver", accounting, http.StatusConflict, "was redelivered already")
	require.Contains(t, text(rejected), "Select “redeliver again” to redeliver it once more.")
	require.Contains(t, rejected, `name="toSubscription" value="accounting"`, "the input is kept")
	b.requireRedirect(t, at+"/redeliver",
		url.Values{"toSubscription": {"accounting"}, "toTopic": {"orders"}, "again": {"1"}},
		"done=redelivered")
	b.eventually(t, 5,
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'accounting' AND state = 'delivered'")

	page := b.page(t, at+"/purge")
	requireValidMarkup(t, at, page)
	require.Contains(t, text(page), "Purging deletes")
	require.Equal(t, "4", b.value(t, "SELECT count(*) FROM postrider.dead_letters"), "the page changes nothing")
	require.Contains(t, b.requireRedirect(t, at+"/purge", nil, `^/ui/dead-letters\?done=purged$`), "3 in total")
	for _, path := range []string{
		at + "/purge", at + "/redeliver", "/ui/dead-letters/x/purge", "/ui/dead-letters/x/redeliver",
	} {
		require.Equal(t, http.StatusNotFound, b.post(path, nil).Code, path)
	}
	require.Equal(t, "admin: dead_letter_purged dead_letter_redelivered dead_letter_redelivered", b.value(t,
		"SELECT string_agg(DISTINCT actor, ' ') || ': ' || string_agg(action, ' ' ORDER BY action) FROM postrider.audit "+
			"WHERE action LIKE 'dead_letter%'"))
}

// Checked rows are acted on alone, and nothing if none is checked.
func (b *dashboard) testCheckedRows(t *testing.T) {
	t.Helper()
	list := b.page(t, "/ui/deliveries?topic=orders")
	requireValidMarkup(t, "/ui/deliveries", list)
	require.Contains(t, list, `href="/ui/deliveries/cancel?topic=orders"`)
	require.Contains(t, b.page(t, "/ui/deliveries?state=pending"), `>Cancel all …</a>`)
	ended := b.page(t, "/ui/deliveries?state=dead_lettered")
	require.Contains(t, ended, `href="/ui/subscriptions/orders/archive"`, "it has rows")
	for _, action := range []string{"all …", "checked …", "Select delivery"} {
		require.NotContains(t, ended, action, "the filter matches no pending delivery")
	}
	held := b.value(t, "SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'held' "+
		"AND state = 'pending'")
	require.Contains(t, list, `value="`+held+`" form="checked"`)
	for _, path := range []string{"/ui/deliveries/cancel", "/ui/dead-letters/purge"} {
		require.Contains(t, b.request("GET", path+"?checked=1").Body.String(), "no row is checked")
		require.Equal(t, http.StatusBadRequest, b.request("GET", path+"?checked=1&id=x").Code)
	}
	at := "/ui/deliveries/cancel?checked=1&id=" + held
	require.Contains(t, text(b.page(t, at)), "1 pending delivery matches .")
	require.Contains(t, text(b.page(t, at)), "Deliveries that end before the operation reaches them are omitted.")
	// One of two counted deliveries has ended.
	running := b.requireRedirect(t, b.confirmAddress(t, at), url.Values{"matched": {"2"}}, `done=started$`)
	require.Contains(t, running, "Selected by id 1")
	b.eventually(t, 1, "SELECT count(*) FROM postrider.operations WHERE kind = 'cancel' AND state = 'done' AND done = 1")
	require.Equal(t, "canceled", b.value(t, "SELECT state FROM postrider.deliveries WHERE delivery_id = "+held))

	letter := b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters ORDER BY 1 LIMIT 1")
	all := b.value(t, "SELECT count(*) FROM postrider.dead_letters")
	b.requireRedirect(t, b.confirmAddress(t, "/ui/dead-letters/purge?checked=1&id="+letter), nil, `done=started$`)
	b.eventually(t, 1, "SELECT count(*) FROM postrider.operations WHERE kind = 'purge' AND state = 'done' AND done = 1")
	require.Equal(t, "true", b.value(t, "SELECT count(*) = "+all+" - 1 FROM postrider.dead_letters"))
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

func TestBulkRedeliverAndPurge(t *testing.T) {
	t.Parallel()
	b := seededRunning(t, "e-1", "e-2", "e-3")
	const redeliver, purge = "/ui/dead-letters/redeliver?outcome=NotFound&subscription=archive&topic=orders",
		"/ui/dead-letters/purge?subscription=archive&topic=orders"
	require.Contains(t, b.page(t, "/ui/problems"),
		stdhtml.EscapeString("/ui/dead-letters/redeliver?topic=orders&subscription=archive&outcome=NotFound"))
	require.Contains(t, b.page(t, "/ui/dead-letters?topic=orders&subscription=archive&outcome=NotFound"),
		stdhtml.EscapeString(redeliver))
	require.Contains(t, text(b.page(t, redeliver)), "3 dead letters match .")
	require.Contains(t, text(b.page(t, "/ui/dead-letters/redeliver?topic=none")), "0 dead letters match .")
	require.NotContains(t, b.page(t, "/ui/dead-letters/redeliver?topic=none"), `class="action-form"`)
	form := b.confirmAddress(t, redeliver)
	counted := func(n string) url.Values { return url.Values{"matched": {n}, "counted": {"0"}} }
	require.Contains(t, b.page(t, redeliver), `name="matched" value="3"`)
	b.requireRedirect(t, form, counted("4"), `done=started$`)
	b.eventually(t, 1, `SELECT count(*) FROM postrider.operations
		WHERE state = 'failed' AND last_error = 'expected 4, found 3; nothing was changed'`)
	_, err := b.pool.Exec(t.Context(), "DELETE FROM postrider_internal.operations; DELETE FROM postrider_internal.audit")
	require.NoError(t, err)
	// created after the confirmation page
	b.insert(t, deadLetter{at: time.Now().Add(time.Minute), subscription: "archive", outcome: ptr("NotFound")})
	for _, rate := range []string{"0", "1.5", "1000001"} {
		b.requireRejected(t, form, url.Values{"rate": {rate}}, http.StatusBadRequest,
			"the rate must be a whole number from 1 to 1,000,000")
	}
	rejected := b.requireRejected(t, form, url.Values{"rate": {"7"}, "toSubscription": {"missing"}}, http.StatusBadRequest,
		`topic "orders" has no event subscription "missing"`)
	require.Contains(t, rejected, `name="rate" min="1" max="1000000" value="7"`, "the input is kept")
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.operations"))

	b.requireRedirect(t, form, url.Values{"toSubscription": {"accounting"}, "matched": {"3"}, "counted": {"0"}},
		`^/ui/operations/[0-9a-f-]{36}\?done=started$`)
	b.eventually(t, 1, "SELECT count(*) FROM postrider.operations WHERE state = 'done'")
	b.eventually(t, 6,
		"SELECT count(*) FROM postrider.deliveries WHERE subscription = 'accounting' AND state = 'delivered'")
	done := "/ui/operations/" + b.value(t, "SELECT operation_id FROM postrider.operations")
	page := b.page(t, done)
	requireValidMarkup(t, done, page)
	for _, want := range []string{
		"done 3 of 3", "Redelivered 3", "To accounting of orders", "Last outcome NotFound", "Redelivered before no",
		"Started by admin", "Delivered 3 of its redeliveries",
	} {
		require.Contains(t, text(page), want)
	}
	require.NotContains(t, page, `class="action-form"`, "what is over cannot be canceled")
	require.Contains(t, b.requireRedirect(t, done+"/cancel", nil, `\?done=over$`), "The operation had already finished.")

	require.Contains(t, text(b.page(t, redeliver)), "3 dead letters match , 3 of them already redelivered.")
	// 60 dead letters at 1/s take a minute
	b.insert(t, slices.Repeat([]deadLetter{{at: time.Now().Add(-time.Hour), subscription: "lost"}}, 60)...)
	running := b.requireRedirect(t, b.confirmAddress(t, "/ui/dead-letters/redeliver?topic=orders&subscription=lost"),
		url.Values{"rate": {"1"}, "toSubscription": {"held"}}, `done=started$`)
	require.Contains(t, running, "limit 1/s")
	b.eventually(t, 60, "SELECT matched FROM postrider.operations WHERE state = 'running' AND NOT counting")
	id := "/ui/operations/" + b.value(t, "SELECT operation_id FROM postrider.operations WHERE state = 'running'")
	require.Contains(t, b.requireRedirect(t, id+"/cancel", nil, `\?done=stopped$`), "Canceled. Completed changes stay.")
	require.Equal(t, http.StatusNotFound,
		b.post("/ui/operations/"+"01890a5d-ac96-774b-bcce-b302099a8057/cancel", nil).Code)

	require.Contains(t, text(b.page(t, purge)),
		"postrider deadletter export --topic orders --subscription archive --until ")
	b.requireRedirect(t, b.confirmAddress(t, purge), url.Values{"redelivered": {"true"}}, `done=started$`)
	b.eventually(t, 1, "SELECT count(*) FROM postrider.operations WHERE kind = 'purge' AND state = 'done'")
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'archive'"),
		"later dead letters stay")
	list := b.page(t, "/ui/operations")
	requireValidMarkup(t, "/ui/operations", list)
	require.Regexp(t, `Purge dead letters done 3 of 3 .* canceled .* accounting done 3 of 3 0 admin`, text(list))
	require.Equal(t, "admin: operation_canceled operation_started operation_started operation_started", b.value(t,
		"SELECT string_agg(DISTINCT actor, ' ') || ': ' || string_agg(action, ' ' ORDER BY action) FROM postrider.audit "+
			"WHERE action IN ('operation_started', 'operation_canceled')"))
}

// The shown command is safe to paste into a shell.
func TestExportCommandIsQuoted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, deadLetter{at: time.Now(), topic: "it's; rm -rf $HOME"})
	page := text(b.page(t, "/ui/dead-letters?eventId=e-1&from=2026-01-02&topic="+url.QueryEscape("it's; rm -rf $HOME")))
	require.Contains(t, page,
		`postrider deadletter export --topic 'it'\''s; rm -rf $HOME' --from 2026-01-02T00:00:00Z -o dead.ndjson`)
	require.Contains(t, page, "it exports more than this list")
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
		foreign := open.post(route.Path, nil, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
		require.Equal(t, http.StatusForbidden, foreign.Code, route.Path)
		require.Equal(t, http.StatusUnauthorized, shut.post(route.Path, nil).Code, route.Path)
	}
	require.Equal(t, 44, forms)
}

// An incomplete count is shown as a minimum; the operation includes all matches.
func TestBulkOperationWithIncompleteCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, deadLetter{at: time.Now()})
	_, err := b.pool.Exec(t.Context(), `CREATE OR REPLACE FUNCTION postrider_internal.measure_dead_letters(filter jsonb,
		    until timestamptz, timeout interval, OUT matched bigint, OUT redelivered bigint, OUT at_least boolean)
		LANGUAGE sql STABLE AS 'SELECT 40000::bigint, 0::bigint, true'`)
	require.NoError(t, err)
	page := text(b.page(t, "/ui/dead-letters/redeliver"))
	require.Contains(t, page, "At least 40,000 dead letters match")
	require.Contains(t, page, "Counting stopped")
}
