package web_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

func TestListsInBrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := seeded(t, "e-1", "e-2")
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	w.size(t, 1200, 900, "light")
	//nolint:paralleltest // one window
	t.Run("keyboard", func(t *testing.T) { w.testKeyboard(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("sort", func(t *testing.T) { w.testSort(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("local time", func(t *testing.T) { w.testLocalTime(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("columns", func(t *testing.T) { w.testColumns(t, srv.URL) })
}

func (w *browser) openList(t *testing.T, address string) {
	t.Helper()
	w.do(t, chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("#keys-open")))
}

func (w *browser) press(t *testing.T, keys string) {
	t.Helper()
	for _, key := range strings.Split(keys, "") {
		w.do(t, chromedp.KeyEvent(key))
	}
}

// key sends only the event of a key: chromedp types the text even if the page prevents it.
func (w *browser) key(t *testing.T, event string) {
	t.Helper()
	w.value(t, `document.body.dispatchEvent(new KeyboardEvent("keydown", { `+event+`, bubbles: true, cancelable: true }))`)
}

// row is the number of the row that has the focus; -1 is none.
const row = `[...document.querySelectorAll(".lines tbody tr")].findIndex((row) => row.contains(document.activeElement))`

func (w *browser) testKeyboard(t *testing.T, base string) {
	w.openList(t, base+"/ui/deliveries")
	for _, step := range [][2]string{{"j", "0"}, {"jj", "2"}, {"k", "1"}, {"kkk", "0"}} {
		w.press(t, step[0])
		require.Equal(t, step[1], w.value(t, row), step[0])
	}
	first := w.value(t, `document.activeElement.getAttribute("href")`)
	w.do(t, chromedp.KeyEvent("\r"))
	w.eventually(t, `location.pathname === "`+first+`"`)
	w.openList(t, base+"/ui/deliveries")
	w.key(t, `key: "/"`)
	w.press(t, "j")
	require.Equal(t, "topic j", w.value(t, `document.activeElement.name + " " + document.activeElement.value`))
	w.openList(t, base+"/ui/deliveries")
	w.key(t, `key: "k", ctrlKey: true`)
	require.Equal(t, "find", w.value(t, "document.activeElement.id"))
	w.openList(t, base+"/ui/deliveries")
	w.press(t, "?")
	require.Equal(t, "true", w.value(t, `document.querySelector("#keys").open`))
	w.requireNoViolations(t, "keys")
	w.value(t, `(document.querySelector("#keys-on").click(), document.querySelector("#keys-close").click(), 1)`)
	require.Equal(t, "false", w.value(t, `document.querySelector("#keys").open`))
	w.press(t, "j")
	require.Equal(t, "-1", w.value(t, row), "switched off")
	w.openList(t, base+"/ui/deliveries")
	w.press(t, "j")
	require.Equal(t, "-1", w.value(t, row), "still switched off")
	w.value(t, `(document.querySelector("#keys-on").click(), 1)`)
	w.press(t, "j")
	require.Equal(t, "0", w.value(t, row))
	w.requireNoConsoleErrors(t, "keyboard")
}

func (w *browser) testSort(t *testing.T, base string) {
	w.openList(t, base+"/ui/deliveries")
	const attempts = `[...document.querySelectorAll('td[data-label="Attempts"]')].map((td) => td.textContent).join("")`
	const order = `document.querySelector("th[aria-sort]").textContent + document.querySelector("th[aria-sort]").ariaSort`
	w.value(t, `(window.sorter = () => [...document.querySelectorAll("th button")].find((b) => `+
		`b.textContent === "Attempts"), sorter().click(), 1)`)
	require.Equal(t, "0011111111", w.value(t, attempts))
	require.Equal(t, "Attemptsascending", w.value(t, order))
	w.value(t, `(sorter().click(), 1)`)
	require.Equal(t, "1111111100", w.value(t, attempts))
	at := w.value(t, `document.querySelector("#page").dataset.at`)
	w.eventually(t, `document.querySelector("#page").dataset.at !== "`+at+`"`)
	require.Equal(t, "1111111100", w.value(t, attempts), "after a refresh")
	require.Equal(t, "Attemptsdescending", w.value(t, order))
}

func (w *browser) testLocalTime(t *testing.T, base string) {
	_, err := chromedp.Call(w.ctx, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kolkata"})
	require.NoError(t, err)
	const utc = `((time) => new Date(new Date(time.dateTime).getTime() + 19800e3).toISOString().slice(11, 19) === ` +
		`time.innerText.slice(-8) && time.title.includes(" UTC"))`
	times := `[...document.querySelectorAll(".lines time")].length > 5 && [...document.querySelectorAll(".lines time")]` +
		`.every(` + utc + `)`
	w.openList(t, base+"/ui/deliveries")
	require.Equal(t, "true", w.value(t, times))
	at := w.value(t, `document.querySelector("#page").dataset.at`)
	w.eventually(t, `document.querySelector("#page").dataset.at !== "`+at+`"`)
	require.Equal(t, "true", w.value(t, times), "after a refresh")
}

func (w *browser) testColumns(t *testing.T, base string) {
	w.openList(t, base+"/ui/dead-letters")
	w.do(t, chromedp.Click(chromedp.CSS(".choose > summary")),
		chromedp.Click(chromedp.CSS(`.choose input[value="reason"]`)),
		chromedp.Click(chromedp.CSS(`.choose input[value="last_error"]`)),
		chromedp.Click(chromedp.CSS(`.choose button[type="submit"]`)), chromedp.WaitVisible(chromedp.CSS(".lines.chosen")))
	const names = `[...document.querySelectorAll(".lines th")].map((th) => th.textContent.trim()).join(", ")`
	require.Equal(t, "Select, Dead-lettered, Type, Subject, Event subscription, Last outcome, Attempts, Last error",
		w.value(t, names))
	w.value(t, `(document.querySelectorAll(".choose input").forEach((box) => { box.checked = box.value !== "wrap" }), 1)`)
	w.do(t, chromedp.Click(chromedp.CSS(".choose > summary")),
		chromedp.Click(chromedp.CSS(`.choose button[type="submit"]`)), chromedp.WaitVisible(chromedp.CSS(`th:nth-child(20)`)))
	w.requireFits(t, "all columns", 1200)
}
