package web_test

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
)

// queryable creates the login roles that queries run as.
func (b *dashboard) queryable(t *testing.T) *dashboard {
	t.Helper()
	sealer, err := postgres.NewSealer([]byte("0123456789abcdef0123456789abcdef"))
	require.NoError(t, err)
	require.NoError(t, sqlquery.EnsureLogins(t.Context(), b.store.DB, b.store.DB, sealer))
	return b
}

// run posts the form of the query editor.
func (b *dashboard) run(sql, do string, args ...string) *httptest.ResponseRecorder {
	return b.post("/ui/query", url.Values{"sql": {sql}, "do": {do}, "arg": args})
}

// resultIn is the part of a page with the result of a query.
func resultIn(response *httptest.ResponseRecorder) string {
	_, part, _ := strings.Cut(response.Body.String(), `<section id="result"`)
	part, _, _ = strings.Cut(part, "</section>")
	return part
}

// One dashboard serves all, because the login roles of queries take long to create.
func TestQueryPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	unset := b.run("select 1", "run")
	require.Equal(t, http.StatusServiceUnavailable, unset.Code)
	require.Contains(t, text(resultIn(unset)), "Queries are not set up: run `postrider migrate up`")
	b.queryable(t)
	for name, test := range map[string]func(*testing.T, *dashboard){
		"results": testQueryResults, "links": testQueryResultLinks, "parameters": testQueryParameters,
		"questions": testQuestions, "mistakes": testQueryMistakes, "downloads": testQueryDownloads,
		"saved queries": testSavedQueries, "lists": testOpenInQueryEditor,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

func testQueryResults(t *testing.T, b *dashboard) {
	ran := b.run("select n, null as nothing,\r\n  '{\"b\":[1,true]}' as doc from generate_series(1, 1001) n", "run")
	require.Equal(t, http.StatusOK, ran.Code)
	body := resultIn(ran)
	require.Contains(t, text(body), "First 1,000 rows ; download for all in ")
	require.Contains(t, body, `<th scope="col" class="number" title="integer">n</th>`)
	require.Contains(t, body, `<td data-label="n" class="number"><span>1000</span></td>`)
	require.NotContains(t, body, `<span>1001</span>`)
	require.Contains(t, body, `<span class="null">NULL</span>`)
	require.Contains(t, body, "<pre class=\"json\" tabindex=\"0\" role=\"group\" aria-label=\"JSON\">{\n  &#34;b&#34;: [")

	require.Contains(t, text(resultIn(b.run("select", "run"))), "1 row in ")
	require.Contains(t, text(resultIn(b.run("select 1 where false", "run"))), "0 rows in ")
	plan := b.run("select * from topics", "plan")
	require.Equal(t, http.StatusOK, plan.Code)
	require.Contains(t, resultIn(plan), `aria-label="Plan">`)
	require.Contains(t, resultIn(plan), "(cost=")
}

// Ids lead to their pages.
func testQueryResultLinks(t *testing.T, b *dashboard) {
	body := resultIn(b.run(`select 'd1' as dead_letter_id, 2 as delivery_id, 's3' as system_id, 'o4' as operation_id,
		5 as batch_id, 'a/b' as topic, 'c d' as subscription, null as oldest_delivery_id`, "run"))
	for _, href := range []string{
		"/ui/dead-letters/d1", "/ui/deliveries/2", "/ui/events/s3", "/ui/operations/o4", "/ui/batches/5", "/ui/topics/a%2Fb",
		"/ui/subscriptions/a%2Fb/c%20d",
	} {
		require.Contains(t, body, `<a href="`+href+`">`)
	}
	require.NotContains(t, resultIn(b.run("select 'x' as subscription, 'javascript:1' as url", "run")),
		`href="/ui/subscriptions/`)
}

func testQueryParameters(t *testing.T, b *dashboard) {
	b.subscribe(t, "orders", "billing")
	page := b.page(t, "/ui/query?question=pending&topic=orders&subscription=it%27s")
	require.Contains(t, page, `<label for="arg-0">topic</label>`)
	require.Contains(t, page, `name="arg" value="orders"`)
	require.Contains(t, page, `name="arg" value="it&#39;s"`)
	require.Contains(t, page, `where topic = $1 and subscription = $2`)
	require.NotContains(t, page, `class="rows result"`, "a link runs nothing")

	const sql = "-- $1 = number\nselect $1::int + 1 as next, '$2' as text"
	first := b.run(sql, "run")
	require.Equal(t, http.StatusBadRequest, first.Code)
	require.Contains(t, text(resultIn(first)), "Enter the values of the parameters, then run the query.")
	require.Contains(t, first.Body.String(), `<label for="arg-0">number</label>`)
	require.NotContains(t, first.Body.String(), "arg-1", "$2 is in a text")
	second := b.run(sql, "run", "41")
	require.Contains(t, resultIn(second), "<span>42</span>")
	require.Contains(t, second.Body.String(), `name="arg" value="41"`)
	require.Contains(t, text(resultIn(b.run(sql, "run", "many"))), `invalid input syntax for type integer: "many"`)
}

// Each documented question opens in the editor, and runs with its parameters bound.
func testQuestions(t *testing.T, b *dashboard) {
	for _, q := range docs.Questions() {
		require.Contains(t, b.page(t, "/ui/query?question="+q.Name), "<b>"+q.Name+"</b>")
		sql, names := q.Template()
		response := b.run(sql, "run", names...)
		require.Equal(t, http.StatusOK, response.Code, "%s: %s", q.Name, text(resultIn(response)))
	}
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/query?question=nothing").Code)
}

func testQueryMistakes(t *testing.T, b *dashboard) {
	wrong := b.run("select topic,\n\tnothing_such\nfrom topics", "run")
	require.Equal(t, http.StatusBadRequest, wrong.Code)
	body := resultIn(wrong)
	require.Contains(t, text(body), `column "nothing_such" does not exist`)
	require.Contains(t, text(body), "line 2, column 2")
	require.Contains(t, body, "\tnothing_such\n\t^</pre>")
	require.Contains(t, body, `data-position="16"`)
	require.Contains(t, wrong.Body.String(), "select topic,\n\tnothing_such", "the editor keeps the text")
	for sql, want := range map[string]string{
		"select * from postrider_internal.topics": "Queries read the views and functions of schema postrider.",
		"":           "the query is empty",
		"select 1/0": "division by zero",
	} {
		response := b.run(sql, "run")
		require.Equal(t, http.StatusBadRequest, response.Code, sql)
		require.Contains(t, text(resultIn(response)), want, sql)
	}
}

func testQueryDownloads(t *testing.T, b *dashboard) {
	const sql = `select n, null as a, 'x,"y' as a, '{"k":1}'::jsonb as doc, 'NaN'::float8 as f
		from generate_series(1, 1500) n`
	file := b.post("/ui/query/csv", url.Values{"sql": {sql}})
	require.Equal(t, http.StatusOK, file.Code)
	require.Equal(t, "text/csv; charset=utf-8", file.Header().Get("Content-Type"))
	require.Equal(t, `attachment; filename="query.csv"`, file.Header().Get("Content-Disposition"))
	records, err := csv.NewReader(file.Body).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 1501)
	require.Equal(t, []string{"n", "a", "a", "doc", "f"}, records[0])
	require.Equal(t, []string{"1500", "", `x,"y`, `{"k": 1}`, "NaN"}, records[1500])

	file = b.post("/ui/query/json", url.Values{"sql": {sql}})
	require.Equal(t, "application/json", file.Header().Get("Content-Type"))
	var rows []json.RawMessage
	require.NoError(t, json.Unmarshal(file.Body.Bytes(), &rows))
	require.Len(t, rows, 1500)
	require.Equal(t, `{"n":1500,"a":null,"a_2":"x,\"y","doc":{"k": 1},"f":"NaN"}`, string(rows[1499]))
	none := b.post("/ui/query/json", url.Values{"sql": {"select 1 where false"}})
	require.JSONEq(t, "[]", none.Body.String())

	wrong := b.post("/ui/query/csv", url.Values{"sql": {"select nothing_such"}})
	require.Equal(t, http.StatusBadRequest, wrong.Code)
	require.Empty(t, wrong.Header().Get("Content-Disposition"))
	require.Contains(t, text(resultIn(wrong)), `column "nothing_such" does not exist`)
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
	saved := b.post("/ui/query/save", form)
	require.Equal(t, http.StatusSeeOther, saved.Code, text(saved.Body.String()))
	require.Equal(t, "/ui/query?saved=sevens&done=query-saved", saved.Header().Get("Location"))
	page := b.page(t, saved.Header().Get("Location"))
	require.Contains(t, page, "select 7 as seven</textarea>")
	require.Contains(t, page, "All &lt;sevens&gt;")
	require.Contains(t, page, `value="1" checked>Shared with all users`)
	require.Contains(t, page, `<a href="/ui/query?saved=sevens">sevens</a>`)
	require.Contains(t, text(page), "Saved.")
	form.Set("name", "pending")
	taken := b.post("/ui/query/save", form)
	require.Equal(t, http.StatusConflict, taken.Code)
	require.Contains(t, taken.Body.String(), "select 7 as seven</textarea>")
	require.Contains(t, taken.Body.String(), `value="pending"`)
	b.post("/ui/query", url.Values{"sql": {"select 7 as seven"}, "open": {"sevens"}, "do": {"run"}})
	require.Equal(t, "sevens", b.value(t, "SELECT details->>'query' FROM postrider.audit WHERE action = 'query_run' "+
		"AND details->>'query' = 'sevens'"))
	deleted := b.post("/ui/query/delete", url.Values{"open": {"sevens"}})
	require.Equal(t, http.StatusSeeOther, deleted.Code)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/query?saved=sevens").Code)
}

// A list's SQL opens in the editor by a name in the address; no SQL is there, and an address runs nothing.
func testOpenInQueryEditor(t *testing.T, b *dashboard) {
	list := b.page(t, "/ui/dead-letters?reason=MaxDeliveryAttemptsExceeded")
	require.Contains(t, list, `action="/ui/query/open"`)
	const sql = "select * from postrider.dead_letters where reason = 'x'"
	opened := b.post("/ui/query/open", url.Values{"sql": {sql}})
	require.Equal(t, http.StatusSeeOther, opened.Code)
	address := opened.Header().Get("Location")
	require.Regexp(t, `^/ui/query\?temporary=temporary-[0-9a-f-]{36}$`, address)
	page := b.page(t, address)
	require.Contains(t, page, "where reason = &#39;x&#39;</textarea>")
	require.NotContains(t, page, `class="rows result"`)
	require.NotContains(t, b.page(t, "/ui/query?sql=select+1"), "select 1")
	require.Equal(t, http.StatusBadRequest, b.post("/ui/query/open", url.Values{"sql": {""}}).Code)
}

// Only a form of the dashboard runs a query, and only for users who may query.
func TestQueriesOfOtherSitesAndViewers(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn).queryable(t)
	foreign := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	ann, eve := b.as(t, "ann", access.RoleOperator), b.as(t, "eve", access.RoleViewer)
	form := url.Values{"sql": {"select 1"}, "do": {"run"}}
	require.Equal(t, http.StatusOK, b.post("/ui/query", form, ann).Code)
	for _, path := range []string{"/ui/query", "/ui/query/csv", "/ui/query/json", "/ui/query/open", "/ui/query/save"} {
		require.Equal(t, http.StatusForbidden, b.post(path, form, ann, foreign).Code, path)
		require.Equal(t, http.StatusForbidden, b.post(path, form, eve).Code, path)
	}
	for who, in := range map[string]func(*http.Request){`class="operator queries"`: ann, `class="viewer"`: eve} {
		page := b.request(http.MethodGet, "/ui/audit", in).Body.String()
		require.Contains(t, page, "<body "+who+">")
		require.Equal(t, strings.Contains(who, "queries"), strings.Contains(page, `href="/ui/query"`), "the menu")
	}
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider.audit WHERE action = 'query_run'"))
}
