package e2e

import (
	"testing"

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
func (w *window) write(t *testing.T, sql string) {
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
func (w *window) runSQL(t *testing.T, sql, selector string) {
	t.Helper()
	w.write(t, sql)
	w.value(t, `(document.querySelector("#result").replaceChildren(), 1)`)
	w.do(t, chromedp.KeyEvent("\r", chromedp.KeyModifiers(ctrl)), chromedp.WaitReady(chromedp.CSS(selector)))
}

func testQueryPage(t *testing.T, w *window, s *shop) {
	w.testQuestion(t)
	w.testResult(t)
	w.testCompletion(t)
	w.testCancelQuery(t, s.db)
	w.requireNoConsoleErrors(t, "query editor")
	w.testMistake(t)
}

func (w *window) testQuestion(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/query?question=pending&topic=quiet&subscription=held", ".editor")
	require.Equal(t, "false", w.value(t, `document.querySelector("#sql").checkVisibility()`))
	require.Contains(t, w.value(t, editorRoot+`.querySelector(".cm-content").textContent`), "topic = $1")
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="run"]`)), chromedp.WaitReady(chromedp.CSS(".result")))
	require.Equal(t, "2", w.value(t, `document.querySelector(".result").tBodies[0].rows.length`))
	require.Equal(t, "8", w.value(t, `document.querySelectorAll(".sort").length`))
	w.requireAccessible(t, "/ui/query")
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="plan"]`)), chromedp.WaitReady(chromedp.CSS(".plan")))
	require.Contains(t, w.textOf(t, ".plan"), "cost=")
}

// Results are sorted by value, NULL last. JSON is colored, and its text is unchanged.
func (w *window) testResult(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/query", ".editor")
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
	w.requireAccessible(t, "/ui/query")
	require.Equal(t, "undefined", w.value(t, "window.__x"))
}

func (w *window) testCompletion(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/query", ".editor")
	w.write(t, "select dead")
	w.do(t, chromedp.KeyEvent("_"))
	w.eventually(t, `!!`+editorRoot+`.querySelector(".cm-completionInfo")`)
	require.Equal(t, "dead_letters", w.value(t, editorRoot+`.querySelector("[aria-selected]").textContent`))
	require.Contains(t, w.value(t, editorRoot+`.querySelector(".cm-completionInfo").textContent`),
		"Deliveries that failed")
	require.Equal(t, "rgb(224, 241, 236)",
		w.value(t, `getComputedStyle(`+editorRoot+`.querySelector("[aria-selected]")).backgroundColor`), "styles apply")
	require.Equal(t, "true", w.value(t, editorRoot+`.querySelector(".cm-content").dispatchEvent(`+
		`new KeyboardEvent("keydown", { key: "x", bubbles: true, composed: true, cancelable: true }))`),
		"no shortcut while typing")
}

// Cancel ends the query in PostgreSQL.
func (w *window) testCancelQuery(t *testing.T, db *database) {
	t.Helper()
	running := func() int {
		return one[int](db, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'FETCH%' "+
			"AND datname = current_database()")
	}
	w.visit(t, "/ui/query", ".editor")
	w.write(t, "select count(*) from generate_series(1, 1e12)")
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="run"]`)), chromedp.WaitVisible(chromedp.CSS("#cancel-query")),
		chromedp.Click(chromedp.CSS(`button[value="run"]`))) // cancels the first
	eventually(t, "one query runs", func() bool { return running() == 1 })
	w.do(t, chromedp.Click(chromedp.CSS("#cancel-query")))
	w.eventually(t, `document.querySelector("#result").textContent === "Canceled."`)
	require.Equal(t, "false", w.value(t, `document.querySelector("#cancel-query").checkVisibility()`))
	eventually(t, "no query runs", func() bool { return running() == 0 })
}

// The place of a mistake is counted in characters.
func (w *window) testMistake(t *testing.T) {
	t.Helper()
	w.runSQL(t, "select '𝛿',\n  nothing_such\nfrom topics", "[data-position]")
	w.eventually(t, editorRoot+`.querySelector(".cm-mistake")?.textContent === "nothing_such"`)
	require.Contains(t, w.textOf(t, ".mistake-title"), "line 2, column 3")
	require.Empty(t, w.violations(t))
	w.write(t, "select 1")
	w.eventually(t, editorRoot+`.querySelector(".cm-mistake") === null`)
}
