package web_test

import (
	"net/http/httptest"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const (
	// editorRoot is the root of the SQL editor's elements.
	editorRoot = `document.querySelector(".editor").shadowRoot`
	// ctrl is the modifier of a key.
	ctrl = 2
)

// write replaces the SQL in the editor.
func (w *browser) write(t *testing.T, sql string) {
	t.Helper()
	w.value(t, `(`+editorRoot+`.querySelector(".cm-content").focus(), 1)`)
	w.do(t, chromedp.KeyEvent("a", chromedp.KeyModifiers(ctrl)))
	w.do(t, chromedp.KeyEvent("x")) // over the whole text
	w.eventually(t, `document.querySelector("#sql").value === "x"`)
	require.Empty(t, w.value(t, "window.__reports"), "no inline style")
	w.do(t, chromedp.KeyEvent("\b"))
	w.value(t, "document.execCommand('insertText', false, `"+sql+"`)")
	w.eventually(t, "document.querySelector('#sql').value === `"+sql+"`")
}

// runSQL runs SQL in the editor and waits for an element of the result.
func (w *browser) runSQL(t *testing.T, sql, selector string) {
	t.Helper()
	w.write(t, sql)
	w.value(t, `(document.querySelector("#result").replaceChildren(), 1)`)
	w.do(t, chromedp.KeyEvent("\r", chromedp.KeyModifiers(ctrl)), chromedp.WaitReady(chromedp.CSS(selector)))
}

// One browser serves all subtests because its start is slow.
func TestQueryEditorInBrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := seeded(t, pageTexts...).queryable(t)
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	w.size(t, 1440, 900, "light")
	//nolint:paralleltest // one window
	t.Run("question", func(t *testing.T) { w.testQuestion(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("result", func(t *testing.T) { w.testResult(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("completion", func(t *testing.T) { w.testCompletion(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("cancel", func(t *testing.T) { w.testCancelQuery(t, b, srv.URL) })
	w.requireNoConsoleErrors(t, "query editor")
	//nolint:paralleltest // one window
	t.Run("mistake", func(t *testing.T) { w.testMistake(t) })
	//nolint:paralleltest // one window
	t.Run("without JavaScript", func(t *testing.T) { w.testQueryWithoutScript(t, srv.URL) })
}

func (w *browser) testQuestion(t *testing.T, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/query?question=pending&topic=orders&subscription=held"),
		chromedp.WaitReady(chromedp.CSS(".editor")))
	require.Equal(t, "false", w.value(t, `document.querySelector("#sql").checkVisibility()`))
	require.Contains(t, w.value(t, editorRoot+`.querySelector(".cm-content").textContent`), "topic = $1")
	w.screenshot(t, "query-question")
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="run"]`)), chromedp.WaitReady(chromedp.CSS(".result")))
	require.Equal(t, "5", w.value(t, `document.querySelector(".result").tBodies[0].rows.length`))
	require.Equal(t, "8", w.value(t, `document.querySelectorAll(".sort").length`))
	w.screenshot(t, "query-result")
	w.requireAccessible(t, "/ui/query")
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="plan"]`)), chromedp.WaitReady(chromedp.CSS(".plan")))
	require.Contains(t, w.value(t, `document.querySelector(".plan").textContent`), "cost=")
}

// Results are sorted by value, NULL last. JSON is colored, and its text is unchanged.
func (w *browser) testResult(t *testing.T, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/query"), chromedp.WaitReady(chromedp.CSS(".editor")))
	w.runSQL(t, "values (2, 'b', null), (null, 'c', null), (10, 'a', '{\"a\": [1, true, \"<i>\"]}')", ".sort")
	const first = `[...document.querySelector(".result").tBodies[0].rows].map((r) => r.cells[0].textContent).join()`
	require.Equal(t, "2,NULL,10", w.value(t, first), "the server's order")
	w.do(t, chromedp.Click(chromedp.CSS("th:nth-child(1) .sort")))
	require.Equal(t, "2,10,NULL", w.value(t, first))
	w.do(t, chromedp.Click(chromedp.CSS("th:nth-child(1) .sort")))
	require.Equal(t, "10,2,NULL", w.value(t, first))
	require.Equal(t, "descending", w.value(t, `document.querySelector("th").getAttribute("aria-sort")`))
	w.do(t, chromedp.Click(chromedp.CSS("th:nth-child(2) .sort")))
	require.Equal(t, "10,2,NULL", w.value(t, first))
	w.do(t, chromedp.Click(chromedp.CSS(".long > summary")), chromedp.WaitReady(chromedp.CSS(".json-name")))
	require.Equal(t, `"a" 1 true "<i>"`,
		w.value(t, `[...document.querySelectorAll(".long pre span")].map((e) => e.textContent).join(" ")`))
	require.Equal(t, `{"a":[1,true,"<i>"]}`,
		w.value(t, `JSON.stringify(JSON.parse(document.querySelector(".long pre").textContent))`))
	w.runSQL(t, "select * from events order by published_at", ".result")
	if pictures() != "" {
		w.size(t, 3840, 900, "light")
		w.screenshot(t, "query-3840")
		w.size(t, 360, 800, "light")
		w.screenshot(t, "query-phone")
		w.size(t, 1440, 900, "dark")
		w.screenshot(t, "query-dark")
	}
	w.requireAccessible(t, "/ui/query")
	require.Equal(t, "undefined", w.value(t, "window.__x"))
}

func (w *browser) testCompletion(t *testing.T, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/query"), chromedp.WaitReady(chromedp.CSS(".editor")))
	w.write(t, "select dead")
	w.do(t, chromedp.KeyEvent("_"))
	w.eventually(t, `!!`+editorRoot+`.querySelector(".cm-completionInfo")`)
	require.Equal(t, "dead_letters", w.value(t, editorRoot+`.querySelector("[aria-selected]").textContent`))
	require.Contains(t, w.value(t, editorRoot+`.querySelector(".cm-completionInfo").textContent`),
		"Deliveries that failed")
	require.Equal(t, "rgb(224, 241, 236)",
		w.value(t, `getComputedStyle(`+editorRoot+`.querySelector("[aria-selected]")).backgroundColor`), "styles apply")
	w.screenshot(t, "query-completion")
	require.Equal(t, "true", w.value(t, editorRoot+`.querySelector(".cm-content").dispatchEvent(`+
		`new KeyboardEvent("keydown", { key: "x", bubbles: true, composed: true, cancelable: true }))`),
		"no shortcut while typing")
}

// Cancel ends the query in PostgreSQL.
func (w *browser) testCancelQuery(t *testing.T, b *bundle, base string) {
	const running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'FETCH%' " +
		"AND datname = current_database()"
	w.do(t, chromedp.Navigate(base+"/ui/query"), chromedp.WaitReady(chromedp.CSS(".editor")))
	w.write(t, "select count(*) from generate_series(1, 1e12)")
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="run"]`)), chromedp.WaitVisible(chromedp.CSS("#cancel-query")),
		chromedp.Click(chromedp.CSS(`button[value="run"]`))) // cancels the first
	b.eventually(t, 1, running)
	w.do(t, chromedp.Click(chromedp.CSS("#cancel-query")))
	w.eventually(t, `document.querySelector("#result").textContent === "Canceled."`)
	require.Equal(t, "false", w.value(t, `document.querySelector("#cancel-query").checkVisibility()`))
	b.eventually(t, 0, running)
}

// The place of a mistake is counted in characters.
func (w *browser) testMistake(t *testing.T) {
	w.runSQL(t, "select '𝛿',\n  nothing_such\nfrom topics", "[data-position]")
	w.eventually(t, editorRoot+`.querySelector(".cm-mistake")?.textContent === "nothing_such"`)
	require.Contains(t, w.value(t, `document.querySelector(".mistake-title").textContent`), "line 2, column 3")
	require.Empty(t, w.violations(t))
	w.screenshot(t, "query-mistake")
	w.write(t, "select 1")
	w.eventually(t, editorRoot+`.querySelector(".cm-mistake") === null`)
}

func (w *browser) testQueryWithoutScript(t *testing.T, base string) {
	_, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	w.do(t, chromedp.Navigate(base+"/ui/query"), chromedp.WaitVisible(chromedp.CSS("#sql")),
		chromedp.SendKeys(chromedp.CSS("#sql"), "select $1 as answer"), chromedp.Click(chromedp.CSS(`button[value="run"]`)),
		chromedp.WaitVisible(chromedp.CSS("#arg-0")), chromedp.SendKeys(chromedp.CSS("#arg-0"), "42"),
		chromedp.Click(chromedp.CSS(`button[value="run"]`)), chromedp.WaitVisible(chromedp.CSS(".result")))
	require.Equal(t, "42", w.value(t, `document.querySelector(".result td").textContent`))
	require.Equal(t, base+"/ui/query", w.value(t, "location.href"))
	w.screenshot(t, "query-without-script")
	w.do(t, chromedp.Navigate(base+"/ui/events"), chromedp.Click(chromedp.CSS(".fold:has(.needs-query) > summary")),
		chromedp.Click(chromedp.CSS(".needs-query button")), chromedp.WaitVisible(chromedp.CSS("#sql")))
	require.Contains(t, w.value(t, `document.querySelector("#sql").value`), "from postrider.events")
}
