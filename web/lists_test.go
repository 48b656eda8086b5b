package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// The chosen columns are kept in the browser; the SQL selects them.
func TestChosenColumns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, deadLetter{at: time.Now(), subject: "/orders/1", eventID: "e-7"})
	choose := func(form url.Values) []*http.Cookie {
		response := b.post("/ui/columns", form)
		require.Equal(t, http.StatusSeeOther, response.Code)
		require.Equal(t, "/ui/dead-letters?topic=orders", response.Header().Get("Location"))
		return response.Result().Cookies()
	}
	form := url.Values{
		"list": {"dead-letters"}, "back": {"/ui/dead-letters?topic=orders"},
		"column": {"event_id", "last_error", "wrap", "nonsense"},
	}
	cookies := choose(form)
	require.Len(t, cookies, 1)
	page := b.request(http.MethodGet, "/ui/dead-letters", func(r *http.Request) { r.AddCookie(cookies[0]) }).Body.String()
	require.Contains(t, page, `<div class="lines wrap chosen">`)
	require.Equal(t, []string{"Select", "Dead-lettered", "Event id", "Last error"}, heads(page))
	statement := html.UnescapeString(shownSQL.FindStringSubmatch(page)[1])
	require.Contains(t, statement, "select dead_lettered_at, event_id, last_error\n  from postrider.dead_letters")
	_, err := b.pool.Exec(t.Context(), statement)
	require.NoError(t, err)
	form.Set("default", "1")
	require.Negative(t, choose(form)[0].MaxAge, "the default columns need no cookie")
	require.Contains(t, heads(b.page(t, "/ui/dead-letters")), "Subject")
	form.Set("back", "//example.com")
	require.Equal(t, "/ui/", b.post("/ui/columns", form).Header().Get("Location"))
}

var headCell = regexp.MustCompile(`(?s)<th scope="col"[^>]*>(.*?)</th>`)

// heads are the names of the columns of a list.
func heads(page string) (names []string) {
	_, page, _ = strings.Cut(page, "data-list=")
	for _, cell := range headCell.FindAllStringSubmatch(page, -1) {
		names = append(names, text(cell[1]))
	}
	return names
}

func TestQuickRanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, deadLetter{at: time.Now().Add(-2 * time.Hour)}, deadLetter{at: time.Now()})
	for path, rows := range map[string]int{"": 2, "?within=24h": 2, "?within=1h": 1, "?within=15m&from=2026-01-01": 2} {
		page := b.page(t, "/ui/dead-letters"+path)
		require.Len(t, deadLetterLink.FindAllString(page, -1), rows, path)
		require.Equal(t, path == "?within=1h", strings.Contains(page, "interval &#39;60 minutes&#39;"), path)
	}
	for _, list := range []string{"events", "deliveries", "audit", "dead-letters"} {
		require.Contains(t, b.page(t, "/ui/"+list), `/ui/`+list+`?within=15m`)
	}
	require.Equal(t, http.StatusBadRequest, b.request(http.MethodGet, "/ui/events?within=1y").Code)
	confirm := b.page(t, "/ui/dead-letters/redeliver?within=1h")
	require.Contains(t, text(confirm), "1 dead letter matches")
	require.Regexp(t, `action="/ui/dead-letters/redeliver\?from=20[^"]+&amp;to=20[^"]+"`, confirm, "the counted span")
}

// The search of the menu opens the page of an id or a name, or lists what it found.
func testSearch(t *testing.T, b *dashboard) {
	one := func(query string) string { return b.value(t, query) }
	event := one("SELECT system_id FROM postrider.events WHERE event_id = 'e-2'")
	deadLetter := one("SELECT min(dead_letter_id::text) FROM postrider.dead_letters")
	batch := one("SELECT max(batch_id) + 100000 FROM postrider.batches")
	mustExec(t, b, "UPDATE postrider_internal.batches SET id = "+batch+
		" WHERE id = (SELECT max(id) FROM postrider_internal.batches)")
	operation := one(`SELECT postrider.purge_all('{"topic": "none"}')`)
	for q, want := range map[string]string{
		"2": "/ui/deliveries/2", batch: "/ui/batches/" + batch, event: "/ui/events/" + event, "e-2": "/ui/events/" + event,
		" " + strings.ToUpper(deadLetter): "/ui/dead-letters/" + deadLetter, operation: "/ui/operations/" + operation,
		"orders": "/ui/topics/orders", "billing": "/ui/subscriptions/orders/billing",
		"BILL": "/ui/subscriptions/orders/billing",
	} {
		response := b.request(http.MethodGet, "/ui/search?q="+url.QueryEscape(q))
		require.Equal(t, http.StatusSeeOther, response.Code, q)
		require.Equal(t, want, response.Header().Get("Location"), q)
	}
	several := b.page(t, "/ui/search?q=choosy")
	require.Contains(t, several, `href="/ui/subscriptions/orders/choosy"`)
	require.Contains(t, several, `href="/ui/subscriptions/empty/choosy"`)
	twice := b.page(t, "/ui/search?q=e-1")
	require.Equal(t, 2, strings.Count(twice, `href="/ui/events/`))
	for _, q := range []string{"", uuid.NewString(), "999999999999999999999999", "<script>"} {
		require.Contains(t, b.page(t, "/ui/search?q="+url.QueryEscape(q)), `<div class="empty">`, q)
	}
	require.Equal(t, http.StatusBadRequest, b.request(http.MethodGet, "/ui/search?q=%00").Code)
}
