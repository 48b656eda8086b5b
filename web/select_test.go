package web_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"postrider/query"
	"postrider/web/workbench"
)

// ids are the results of a query that lists texts.
func (b *bundle) ids(t *testing.T, query string) []string {
	t.Helper()
	return strings.Split(b.value(t, "SELECT string_agg(x::text, ' ' ORDER BY x) FROM ("+query+") AS ids(x)"), " ")
}

// The checked dead letters, or all that match, become a selection, whose page shows them before anything is done.
func TestActOnSelectedDeadLetters(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1", "e-2", "e-3")
	ids := b.ids(t, "SELECT dead_letter_id FROM postrider.dead_letters")
	list := b.page(t, "/ui/dead-letters?topic=orders")
	require.Contains(t, list, `action="/ui/dead-letters/select?topic=orders"`)
	require.Contains(t, list, `value="`+ids[0]+`" form="selection"`)
	const form = "/ui/dead-letters/select?topic=orders"
	b.requireRejected(t, form, url.Values{"which": {"checked"}}, http.StatusBadRequest,
		"Nothing was done: no row is checked.")
	b.requireRejected(t, form, url.Values{"id": {"x"}}, http.StatusBadRequest, "an id of the form is invalid")
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, form).Code, "reload of a rejection")
	require.Contains(t, b.requireRedirect(t, form, url.Values{"which": {"checked"}, "id": ids[:1]}, "^/ui/selections/"),
		"1 dead letter selected. Nothing has been changed yet.")
	require.Contains(t, b.requireRedirect(t, "/ui/dead-letters/select?topic=none", url.Values{"which": {"all"}},
		"^/ui/selections/"), "0 dead letters selected.")

	at := b.post(form, url.Values{"which": {"all"}}).Header().Get("Location")
	b.value(t, "SELECT postrider.redeliver('"+ids[0]+"')")
	page := text(b.page(t, at))
	require.Contains(t, page, "3 dead letters selected.")
	require.Contains(t, page, "1 : it was redelivered before. An operation skips these or reports them as failed. "+
		"It acts on the other 2.")
	require.Contains(t, page, "2 orders archive UndeliverableDueToClientError")
	require.Equal(t, 3, strings.Count(b.request(http.MethodGet, at+"/export").Body.String(), "\n"))
	b.requireRejected(t, at+"/redeliver", url.Values{"rate": {"0"}}, http.StatusBadRequest, "a whole number from 1")
	b.requireRejected(t, at+"/redeliver", url.Values{"toSubscription": {"none"}}, http.StatusBadRequest,
		"topic is required")
	b.requireRejected(t, at+"/cancel", nil, http.StatusBadRequest, "has dead letters: they cannot be canceled")
	operation := b.post(at+"/redeliver", url.Values{"rate": {"1000"}}).Header().Get("Location")
	require.Regexp(t, `^/ui/operations/[0-9a-f-]{36}\?done=started$`, operation)
	b.eventually(t, 1, "SELECT count(*) FROM postrider.operations WHERE state = 'done' AND done = 2 AND skipped = 1")
	require.Contains(t, text(b.page(t, operation)), ids[0]+" skipped it was redelivered before Download all")
	results := b.request(http.MethodGet, strings.TrimSuffix(operation, "?done=started")+"/results.csv").Body.String()
	require.Contains(t, results, "1,"+ids[0]+",,redelivered,skipped,it was redelivered before\n")
	_, err := b.pool.Exec(t.Context(), "UPDATE postrider_internal.operation_results SET result = '=1+1'")
	require.NoError(t, err)
	results = b.request(http.MethodGet, strings.TrimSuffix(operation, "?done=started")+"/results.csv").Body.String()
	require.Contains(t, results, "1,"+ids[0]+",,'=1+1,failed,'=1+1\n", "a spreadsheet runs no formula")
	for _, missing := range []string{"/ui/selections/x", "/ui/selections/" + uuid.NewString()} {
		require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, missing).Code)
		require.Equal(t, http.StatusNotFound, b.post(missing+"/purge", nil).Code)
	}
}

func TestActOnSelectedDeliveries(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1", "e-2")
	at := b.post("/ui/deliveries/select?subscription=held", url.Values{"which": {"all"}}).Header().Get("Location")
	page := text(b.page(t, at))
	require.Contains(t, page, "2 deliveries selected.")
	require.Contains(t, page, "2 orders held pending paused")
	b.requireRedirect(t, at+"/retry", nil, "^/ui/operations/")
	b.eventually(t, 1, "SELECT count(*) FROM postrider.operations WHERE kind = 'retry' AND state = 'done' AND failed = 2")
	b.requireRedirect(t, at+"/cancel", nil, "^/ui/operations/")
	b.eventually(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'held' AND state = 'canceled'")
	require.Contains(t, text(b.page(t, at)), "2 : the delivery had ended.")
}

// Without JavaScript, a user checks rows, sees what is selected and redelivers it.
func TestSelectInBrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := seeded(t, "e-1", "e-2", "e-3")
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	const boxes = `.pick input`
	w.open(t, srv.URL, "/ui/dead-letters", 1440, "light")
	w.do(t, chromedp.Click(chromedp.CSS("tr:nth-child(2) "+boxes)))
	require.Equal(t, "1 checked", w.value(t, `document.querySelector(".picked").textContent`))
	_, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	w.do(t, chromedp.Navigate(srv.URL+"/ui/dead-letters"), chromedp.WaitVisible(chromedp.CSS(boxes)),
		chromedp.Click(chromedp.CSS("tr:nth-child(1) "+boxes)), chromedp.Click(chromedp.CSS("tr:nth-child(3) "+boxes)),
		chromedp.Click(chromedp.CSS(`#selection button[value="checked"]`)),
		chromedp.WaitVisible(chromedp.CSS(`form[action$="/redeliver"] button`)))
	require.Contains(t, w.value(t, `document.querySelector(".verdict").textContent`), "2 dead letters selected.")
	w.screenshot(t, "selection")
	w.do(t, chromedp.Click(chromedp.CSS(`form[action$="/redeliver"] button`)), chromedp.WaitVisible(chromedp.CSS(".done")))
	b.eventually(t, 1, "SELECT count(*) FROM postrider.operations WHERE state = 'done' AND done = 2")
	require.Equal(t, "2", b.value(t, "SELECT count(DISTINCT redelivered_from) FROM postrider.deliveries"))
}

// selections are the pages of a selection of each kind, and of an operation with a result.
func (b *bundle) selections(t *testing.T) (paths []string) {
	t.Helper()
	o := b.store.Operator
	deliveries, err := o.SelectDeliveryFilter(t.Context(), b.store.Reader, query.DeliveryFilter{})
	require.NoError(t, err)
	letters, err := o.SelectFilter(t.Context(), &query.DeadLetterFilter{})
	require.NoError(t, err)
	operation := uuid.NewString()
	for _, insert := range []string{
		`INSERT INTO postrider_internal.operations (id, kind, state, filter, selection_id, matched, skipped, started_by,
		    finished_at) VALUES ($1, 'purge', 'done', '{}', $1, 1, 1, 'admin', now())`,
		`INSERT INTO postrider_internal.operation_results (operation_id, position, dead_letter_id, result)
		VALUES ($1, 1, $1, 'missing')`,
	} {
		_, err := b.pool.Exec(t.Context(), insert, operation)
		require.NoError(t, err)
	}
	return []string{
		workbench.SelectionPath(deliveries), workbench.SelectionPath(letters), "/ui/operations/" + operation,
		workbench.SelectionPath(letters) + "/repair",
	}
}

// The rows of a query become a selection by the column dead_letter_id or delivery_id; all of them, if the query runs
// again.
func TestActOnQueryResults(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1", "e-2").queryable(t)
	ids := b.ids(t, "SELECT dead_letter_id FROM postrider.dead_letters")
	const both = "select dead_letter_id, delivery_id\nfrom dead_letters where subscription = $1"
	body := resultIn(b.run(both, "run", "archive"))
	require.Contains(t, body, `value="`+ids[0]+`" form="selection"`)
	require.NotContains(t, resultIn(b.run("select 1 as n", "run")), `id="selection"`)
	form := url.Values{"sql": {both}, "arg": {"archive"}, "kind": {"dead_letters"}, "which": {"all"}}
	require.Contains(t, b.requireRedirect(t, "/ui/query/select", form, "^/ui/selections/"), "2 dead letters selected.")
	form.Set("which", "checked")
	form["id"] = ids[:1]
	require.Contains(t, b.requireRedirect(t, "/ui/query/select", form, "^/ui/selections/"), "1 dead letter selected.")
	rejected := func(says string) {
		t.Helper()
		response := b.post("/ui/query/select", form)
		require.Equal(t, http.StatusBadRequest, response.Code)
		require.Contains(t, text(resultIn(response)), says)
	}
	form.Set("id", "")
	rejected("an id of the form is invalid")
	form = url.Values{"sql": {"select delivery_id from deliveries, generate_series(1, 3)"}, "which": {"all"}}
	require.Contains(t, b.requireRedirect(t, "/ui/query/select", form, "^/ui/selections/"), "10 deliveries selected.")
	form.Set("sql", "select n as delivery_id from generate_series(1, 1000001) n")
	rejected("a selection holds at most 1000000 items, this one would have 1000001")
	form.Set("sql", "select 1 as n")
	rejected("no column dead_letter_id or delivery_id")
	form.Set("sql", "select 'x' as delivery_id")
	rejected("which is not an id")
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.audit WHERE details::text LIKE '%archive%' "+
		"AND action = 'selection_created'"))
}
