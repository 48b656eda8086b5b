package web_test

import (
	"context"
	_ "embed"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var (
	//go:embed testdata/axe-core/axe.min.js
	axe string
	//go:embed testdata/violations.js
	axeViolations string
)

// contrast is the rule of axe-core that depends on the color scheme.
const contrast = `"color-contrast"`

// violations are those of the rules, or of all, that axe-core finds in the open page, one per line.
func (w *browser) violations(t *testing.T, rules ...string) string {
	t.Helper()
	script := axeViolations + "(" + strings.Join(rules, ",") + ")"
	if w.value(t, "typeof axe") == "undefined" {
		script = axe + script
	}
	ctx, cancel := context.WithTimeout(w.ctx, 10*patience)
	defer cancel()
	found, err := chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	return found
}

// Each page in both color schemes has contrast, labels and landmarks, fits a phone and is readable at 3840 pixels.
func TestPagesAreAccessible(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := seeded(t, pageTexts...)
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	w.open(t, srv.URL, "/ui/subscriptions/orders/billing?range=7d", 360, "light")
	for i, path := range append(b.everyPage(t), "/ui/deliveries?outcome=nothing") {
		w.open(t, srv.URL, path, 360, []string{"light", "dark"}[i%2])
		w.screenshot(t, fmt.Sprintf("360-%02d", i))
		if pictures() != "" {
			w.size(t, 1440, 900, "light")
			w.screenshot(t, fmt.Sprintf("1440-%02d", i))
		}
		w.requireAccessible(t, path)
	}
	w.size(t, 1440, 900, "light")
	// the console shows the status of this page as an error
	w.do(t, chromedp.Navigate(srv.URL+"/ui/nowhere"), chromedp.WaitReady(chromedp.CSS("#page")))
	w.requireAccessible(t, "/ui/nowhere")
	//nolint:paralleltest // one window
	t.Run("check can fail", func(t *testing.T) { w.testAccessibilityFails(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("keyboard order", func(t *testing.T) { w.testOrder(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("refresh keeps focus and scroll position", func(t *testing.T) { w.testKeepsPlace(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("without JavaScript", func(t *testing.T) { w.testWithoutScript(t, srv.URL) })
}

// requireAccessible checks the open page with all details unfolded. It leaves the window 1440 pixels wide and light.
func (w *browser) requireAccessible(t *testing.T, path string) {
	t.Helper()
	w.value(t, `(document.querySelectorAll("details").forEach((d) => { d.open = true }), 1)`)
	for _, width := range []int64{360, 1200, 3840} {
		w.size(t, width, 900, "dark")
		w.requireFits(t, path, width)
	}
	size, err := strconv.ParseFloat(w.value(t, `parseFloat(getComputedStyle(document.documentElement).fontSize)`), 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, size, 20.0, path)
	w.size(t, 1440, 900, "dark")
	w.requireFits(t, path, 1440)
	w.requireNoViolations(t, path)
}

// requireNoViolations checks the page, and its contrast also in the dark scheme. It leaves the light one, and only two
// rows of each kind.
func (w *browser) requireNoViolations(t *testing.T, path string) {
	t.Helper()
	w.size(t, w.width, w.height, "dark")
	require.Empty(t, w.violations(t, contrast), "%s, dark", path)
	w.size(t, w.width, w.height, "light")
	require.Empty(t, w.violations(t), "%s, light", path)
}

func (w *browser) testAccessibilityFails(t *testing.T, base string) {
	w.size(t, 1440, 900, "light")
	w.do(t, chromedp.Navigate(base+"/ui/deliveries"), chromedp.WaitReady(chromedp.CSS("#page")))
	w.value(t, `(document.querySelector("#page").insertAdjacentHTML("afterbegin", "<h4><small>pale</small></h4><input `+
		`name=x><input type=text name=y placeholder=pale>"), document.querySelector("#page small").style.color = "#999", `+
		`document.styleSheets[0].insertRule("[name=y]::placeholder { color: #aaa !important }"), 1)`)
	found := w.violations(t)
	require.Contains(t, found, "contrast of 2.64")
	require.Contains(t, found, "contrast of 2.32")
	require.Contains(t, found, "heading-order h4:")
	require.Contains(t, found, `label input[name="x"]:`)
}

// Tab follows the order of the page, and the focus is visible.
func (w *browser) testOrder(t *testing.T, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/dead-letters"), chromedp.WaitReady(chromedp.CSS("#page")))
	const place = `[...document.querySelectorAll("a[href], button, input, select, summary, pre,` +
		` main")].indexOf(document.activeElement)`
	last := -1
	for range 40 {
		w.do(t, chromedp.KeyEvent("\t"))
		at, err := strconv.Atoi(w.value(t, place))
		require.NoError(t, err)
		// parts of the field have the focus; Chromium marks them itself
		if w.value(t, "document.activeElement.type") == "datetime-local" {
			continue
		}
		require.GreaterOrEqual(t, at, last, w.value(t, "document.activeElement.outerHTML"))
		require.NotEqual(t, "none", w.value(t, "getComputedStyle(document.activeElement).outlineStyle"),
			w.value(t, "document.activeElement.outerHTML"))
		last = at
	}
	require.Greater(t, last, 20, "focus stays in the menu")
}

// A refresh keeps the focus and the scroll position.
func (w *browser) testKeepsPlace(t *testing.T, base string) {
	w.size(t, 1440, 500, "light")
	w.do(t, chromedp.Navigate(base+"/ui/"), chromedp.WaitReady(chromedp.CSS(".chart canvas")))
	const here = `document.activeElement.getAttribute("href") + " " + Math.round(scrollY)`
	w.value(t, `(document.querySelector('#page .more a[href="/ui/problems"]').focus(), scrollTo(0, 240), 1)`)
	before := w.value(t, here)
	require.Equal(t, "/ui/problems 240", before)
	at := w.value(t, `document.querySelector("#page").dataset.at`)
	w.eventually(t, `document.querySelector("#page").dataset.at !== "`+at+`"`)
	require.Equal(t, before, w.value(t, here))
}

// Without JavaScript, pages show their figures as tables. TestPagesHaveValidMarkup checks what is hidden on each page.
func (w *browser) testWithoutScript(t *testing.T, base string) {
	_, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	w.do(t, chromedp.Navigate(base+"/ui/tail"), chromedp.WaitReady(chromedp.CSS("#page")))
	require.Contains(t, w.value(t, `document.querySelector("#page").innerText`), "This page needs JavaScript.")
	w.do(t, chromedp.Navigate(base+"/ui/"), chromedp.WaitReady(chromedp.CSS("#page")),
		chromedp.Click(chromedp.CSS(".fold > summary")))
	require.Equal(t, "60", w.value(t, `document.querySelector(".numbers").tBodies[0].rows.length`))
	require.Equal(t, "true", w.value(t, `document.querySelector(".numbers").checkVisibility()`))
	w.do(t, chromedp.Click(chromedp.CSS(`.ranges a[href="/ui/?range=24h"]`)),
		chromedp.WaitVisible(chromedp.CSS(`.ranges a[href="/ui/?range=24h"][aria-current]`)))
	require.Equal(t, "96", w.value(t, `document.querySelector(".numbers").tBodies[0].rows.length`))
}
