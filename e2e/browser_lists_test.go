package e2e

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func testLists(t *testing.T, w *window, _ *shop) {
	w.size(t, 1200, 900, "light")
	w.testKeyboard(t)
	w.testSortAndLocalTime(t)
}

// quietList is a list whose rows do not change.
const quietList = "/ui/deliveries?topic=quiet"

func (w *window) openList(t *testing.T, path string) {
	t.Helper()
	w.do(t, chromedp.Navigate(w.base+path), chromedp.WaitVisible(chromedp.CSS("#keys-open")))
}

func (w *window) press(t *testing.T, keys string) {
	t.Helper()
	for _, key := range strings.Split(keys, "") {
		w.do(t, chromedp.KeyEvent(key))
	}
}

// key sends only the event of a key: chromedp types the text even if the page prevents it.
func (w *window) key(t *testing.T, event string) {
	t.Helper()
	w.value(t, `document.body.dispatchEvent(new KeyboardEvent("keydown", { `+event+`, bubbles: true, cancelable: true }))`)
}

// focusedRow is the number of the row that has the focus; -1 is none.
const focusedRow = `[...document.querySelectorAll(".lines tbody tr")].findIndex((row) => ` +
	`row.contains(document.activeElement))`

func (w *window) testKeyboard(t *testing.T) {
	t.Helper()
	w.openList(t, quietList)
	for _, step := range [][2]string{{"j", "0"}, {"jj", "2"}, {"k", "1"}, {"kkk", "0"}} {
		w.press(t, step[0])
		require.Equal(t, step[1], w.value(t, focusedRow), step[0])
	}
	first := w.value(t, `document.activeElement.getAttribute("href")`)
	w.do(t, chromedp.KeyEvent("\r"))
	w.eventually(t, `location.pathname === "`+first+`"`)
	w.openList(t, "/ui/deliveries")
	w.key(t, `key: "/"`)
	w.press(t, "j")
	require.Equal(t, "topic j", w.value(t, `document.activeElement.name + " " + document.activeElement.value`))
	w.openList(t, quietList)
	w.key(t, `key: "k", ctrlKey: true`)
	require.Equal(t, "find", w.value(t, "document.activeElement.id"))
	w.openList(t, quietList)
	w.press(t, "?")
	require.Equal(t, "true", w.value(t, `document.querySelector("#keys").open`))
	w.requireNoViolations(t, "keys")
	w.value(t, `(document.querySelector("#keys-on").click(), document.querySelector("#keys-close").click(), 1)`)
	require.Equal(t, "false", w.value(t, `document.querySelector("#keys").open`))
	w.press(t, "j")
	require.Equal(t, "-1", w.value(t, focusedRow), "switched off")
	w.openList(t, quietList)
	w.press(t, "j")
	require.Equal(t, "-1", w.value(t, focusedRow), "still switched off")
	w.value(t, `(document.querySelector("#keys-on").click(), 1)`)
	w.press(t, "j")
	require.Equal(t, "0", w.value(t, focusedRow))
	w.requireNoConsoleErrors(t, "keyboard")
}

// A refresh keeps the order, and the times of the browser's time zone.
func (w *window) testSortAndLocalTime(t *testing.T) {
	t.Helper()
	_, err := chromedp.Call(w.ctx, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	require.NoError(t, err)
	w.openList(t, quietList)
	const attempts = `[...document.querySelectorAll('td[data-label="Attempts"]')].map((td) => td.textContent).join("")`
	const order = `document.querySelector("th[aria-sort]").textContent + document.querySelector("th[aria-sort]").ariaSort`
	const local = `((times) => times.length > 1 && times.every((time) => time.title.includes(" UTC") && ` +
		`new Date(new Date(time.dateTime).getTime() + 19800e3).toISOString().slice(11, 19) === time.innerText.slice(-8)))` +
		`([...document.querySelectorAll(".lines time")])`
	w.value(t, `(window.sorter = () => [...document.querySelectorAll("th button")].find((b) => `+
		`b.textContent === "Attempts"), sorter().click(), 1)`)
	require.Equal(t, "0011", w.value(t, attempts))
	require.Equal(t, "Attemptsascending", w.value(t, order))
	w.value(t, `(sorter().click(), 1)`)
	for _, when := range []string{"before", "after a refresh"} {
		require.Equal(t, "1100", w.value(t, attempts), when)
		require.Equal(t, "Attemptsdescending", w.value(t, order), when)
		require.Equal(t, "true", w.value(t, local), when)
		if when == "before" {
			w.refreshed(t)
		}
	}
}
