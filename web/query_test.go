package web_test

import (
	"encoding/csv"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testnode"
)

// run posts the form of the query editor, and returns its page and the part with the result.
func (b *dashboard) run(t *testing.T, status int, sql, do string, args ...string) (page, result string) {
	t.Helper()
	response := b.post("/ui/query", url.Values{"sql": {sql}, "do": {do}, "arg": args})
	require.Equal(t, status, response.Code, sql)
	page = response.Body.String()
	return page, resultIn(page)
}

func resultIn(page string) string {
	_, part, _ := strings.Cut(page, `<section id="result"`)
	part, _, _ = strings.Cut(part, "</section>")
	return part
}

// One dashboard serves all, because the login roles of queries take long to create. Package sqlquery has what queries
// may do, and its tests run the documented questions.
func TestQueryPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, unset := b.run(t, http.StatusServiceUnavailable, "select 1", "run")
	require.Contains(t, text(unset), "Queries are not set up: run `postrider migrate up`")
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	require.NoError(t, sqlquery.EnsureLogins(t.Context(), b.System.DB, b.System.DB, sealer))
	for name, test := range map[string]func(*testing.T, *dashboard){
		"results": testQueryResults, "links": testQueryResultLinks, "parameters": testQueryParameters,
		"mistakes": testQueryMistakes, "downloads": testQueryDownloads,
		"saved queries": testSavedQueries, "lists": testOpenInQueryEditor,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

func testQueryResults(t *testing.T, b *dashboard) {
	_, body := b.run(t, 200,
		"select n, null as nothing,\r\n  '{\"b\":[1,true]}' as doc from generate_series(1, 1001) n", "run")
	require.Contains(t, text(body), "First 1,000 rows ; download for all in ")
	for _, want := range []string{
		`<th scope="col" class="number" title="integer">n</th>`,
		`<td data-label="n" class="number"><span>1000</span></td>`, `<span class="null">NULL</span>`,
		"<pre class=\"json\" tabindex=\"0\" role=\"group\" aria-label=\"JSON\">{\n  &#34;b&#34;: [",
	} {
		require.Contains(t, body, want)
	}
	require.NotContains(t, body, `<span>1001</span>`)
	_, none := b.run(t, 200, "select 1 where false", "run")
	require.Contains(t, text(none), "0 rows in ")
	_, plan := b.run(t, 200, "select * from topics", "plan")
	require.Contains(t, plan, `aria-label="Plan">`)
	require.Contains(t, plan, "(cost=")
}

// Ids lead to their pages.
func testQueryResultLinks(t *testing.T, b *dashboard) {
	_, body := b.run(t, 200, `select 'd1' as dead_letter_id, 2 as delivery_id, 's3' as system_id, 'o4' as operation_id,
		5 as batch_id, 'a/b' as topic, 'c d' as subscription, null as oldest_delivery_id`, "run")
	for _, href := range []string{
		"/ui/dead-letters/d1", "/ui/deliveries/2", "/ui/events/s3", "/ui/operations/o4", "/ui/batches/5", "/ui/topics/a%2Fb",
		"/ui/subscriptions/a%2Fb/c%20d",
	} {
		require.Contains(t, body, `<a href="`+href+`">`)
	}
	_, body = b.run(t, 200, "select 'x' as subscription, 'javascript:1' as url", "run")
	require.NotContains(t, body, "href=")
}

func testQueryParameters(t *testing.T, b *dashboard) {
	page := b.page(t, "/ui/query?question=pending&topic=orders&subscription=it%27s")
	for _, want := range []string{
		`<label for="arg-0">topic</label>`, `name="arg" value="orders"`, `name="arg" value="it&#39;s"`,
		`where topic = $1 and subscription = $2`, "<b>pending</b>",
	} {
		require.Contains(t, page, want)
	}
	require.NotContains(t, page, `class="rows result"`, "a link runs nothing")
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/query?question=nothing").Code)

	const sql = "-- $1 = number\nselect $1::int + 1 as next, '$2' as text"
	page, result := b.run(t, http.StatusBadRequest, sql, "run")
	require.Contains(t, text(result), "Enter the values of the parameters, then run the query.")
	require.Contains(t, page, `<label for="arg-0">number</label>`)
	require.NotContains(t, page, "arg-1", "$2 is in a text")
	page, result = b.run(t, 200, sql, "run", "41")
	require.Contains(t, result, "<span>42</span>")
	require.Contains(t, page, `name="arg" value="41"`)
}

func testQueryMistakes(t *testing.T, b *dashboard) {
	page, result := b.run(t, http.StatusBadRequest, "select topic,\n\tnothing_such\nfrom topics", "run")
	require.Contains(t, text(result), `column "nothing_such" does not exist`)
	require.Contains(t, text(result), "line 2, column 2")
	require.Contains(t, result, "\tnothing_such\n\t^</pre>")
	require.Contains(t, result, `data-position="16"`)
	require.Contains(t, page, "select topic,\n\tnothing_such", "the editor keeps the text")
	_, result = b.run(t, http.StatusBadRequest, "select * from postrider_internal.topics", "run")
	require.Contains(t, text(result), "Queries read the views and functions of schema postrider.")
}

func testQueryDownloads(t *testing.T, b *dashboard) {
	const sql = "select n from generate_series(1, 1500) n" // more than a page has
	file := b.post("/ui/query/csv", url.Values{"sql": {sql}})
	require.Equal(t, http.StatusOK, file.Code)
	require.Equal(t, "text/csv; charset=utf-8", file.Header().Get("Content-Type"))
	require.Equal(t, `attachment; filename="query.csv"`, file.Header().Get("Content-Disposition"))
	records, err := csv.NewReader(file.Body).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1501)
	file = b.post("/ui/query/json", url.Values{"sql": {sql}})
	require.Equal(t, "application/json", file.Header().Get("Content-Type"))
	var rows []json.RawMessage
	require.NoError(t, json.Unmarshal(file.Body.Bytes(), &rows))
	require.Len(t, rows, 1500)
	wrong := b.post("/ui/query/csv", url.Values{"sql": {"select nothing_such"}})
	require.Equal(t, http.StatusBadRequest, wrong.Code)
	require.Empty(t, wrong.Header().Get("Content-Disposition"))
	require.Contains(t, text(resultIn(wrong.Body.String())), `column "nothing_such" does not exist`)
	srv := httptest.NewServer(b.echo)
	defer srv.Close()
	response, err := http.PostForm(srv.URL+"/ui/query/csv",
		url.Values{"sql": {"select repeat('x', 100), 1 / (90000 - n) from generate_series(1, 90000) n"}})
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = csv.NewReader(response.Body).ReadAll()
	require.Error(t, err, "an incomplete file is no complete response")
}

func testSavedQueries(t *testing.T, b *dashboard) {
	form := url.Values{"sql": {"select 7 as seven"}, "name": {"sevens"}, "description": {"All <sevens>"}, "shared": {"1"}}
	const address = "/ui/query?saved=sevens"
	saved := b.post("/ui/query/save", form)
	require.Equal(t, address+"&done=query-saved", saved.Header().Get("Location"), text(saved.Body.String()))
	page := b.page(t, saved.Header().Get("Location"))
	for _, want := range []string{
		"select 7 as seven</textarea>", "All &lt;sevens&gt;", `value="1" checked>Shared with all users`,
		`<a href="/ui/query?saved=sevens">sevens</a>`, "Saved.",
	} {
		require.Contains(t, page, want)
	}
	form.Set("name", "pending")
	taken := b.post("/ui/query/save", form)
	require.Equal(t, http.StatusConflict, taken.Code)
	require.Contains(t, taken.Body.String(), "select 7 as seven</textarea>")
	require.Contains(t, taken.Body.String(), `value="pending"`)
	b.post("/ui/query", url.Values{"sql": {"select 7 as seven"}, "open": {"sevens"}, "do": {"run"}})
	require.Equal(t, "sevens", b.value(t, "SELECT details->>'query' FROM postrider.audit WHERE action = 'query_run' "+
		"AND details->>'query' = 'sevens'"))
	require.Equal(t, http.StatusSeeOther, b.post("/ui/query/delete", url.Values{"open": {"sevens"}}).Code)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, address).Code)
}

// A list's SQL opens in the editor by a name in the address; no SQL is there, and an address runs nothing.
func testOpenInQueryEditor(t *testing.T, b *dashboard) {
	require.Contains(t, b.page(t, "/ui/dead-letters?reason=MaxDeliveryAttemptsExceeded"), `action="/ui/query/open"`)
	opened := b.post("/ui/query/open", url.Values{"sql": {"select * from postrider.dead_letters where reason = 'x'"}})
	address := opened.Header().Get("Location")
	require.Regexp(t, `^/ui/query\?temporary=temporary-[0-9a-f-]{36}$`, address)
	page := b.page(t, address)
	require.Contains(t, page, "where reason = &#39;x&#39;</textarea>")
	require.NotContains(t, page, `class="rows result"`)
	require.NotContains(t, b.page(t, "/ui/query?sql=select+1"), "select 1")
	require.Equal(t, http.StatusBadRequest, b.post("/ui/query/open", url.Values{"sql": {""}}).Code)

	values := b.page(t, "/ui/events?data=it%27s")
	statement := html.UnescapeString(shownSQL.FindStringSubmatch(values)[1])
	require.Contains(t, statement, "postrider.has_value(body, 'it''s')")
	_, result := b.run(t, http.StatusOK, statement, "run")
	require.Contains(t, text(result), "0 rows in ")
}
