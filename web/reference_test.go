package web_test

import (
	"net/http/httptest"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// The page of the REST API belongs to package server and meets the same rules.
func TestAPIReferenceIsAccessible(t *testing.T) {
	t.Parallel()
	b := setup(t)
	srv := httptest.NewServer(b.api)
	t.Cleanup(srv.Close)
	w := newBrowser(t)
	w.do(t, chromedp.Navigate(srv.URL+"/openapi"), chromedp.WaitReady(chromedp.CSS("#schemas")))
	w.value(t, `(document.querySelectorAll("details").forEach((d) => { d.open = true }), 1)`)
	for _, width := range []int64{360, 3840, 1440} {
		w.size(t, width, 900, "dark")
		w.requireFits(t, "/openapi", width)
	}
	require.Empty(t,
		w.value(t, `[...document.querySelectorAll("a[href^='#']")].map((a) => a.hash.slice(1)).filter((id) => `+
			`!document.getElementById(id)).join()`), "broken links")
	require.Empty(t,
		w.value(t,
			`[...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i).join()`),
		"duplicate ids")
	w.do(t, chromedp.Click(chromedp.CSS(`[data-copy="curl-putTopic"]`)))
	w.eventually(t, `document.querySelector('[data-copy="curl-putTopic"]').textContent === "Copied"`)
	for range 10 {
		w.do(t, chromedp.KeyEvent("\t"))
		require.NotEqual(t, "none", w.value(t, "getComputedStyle(document.activeElement).outlineStyle"),
			w.value(t, "document.activeElement.outerHTML"))
	}
	w.requireNoConsoleErrors(t, "/openapi")
	w.requireNoViolations(t, "/openapi")

	_, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	w.do(t, chromedp.Navigate("about:blank"), chromedp.Navigate(srv.URL+"/openapi#putTopic"),
		chromedp.WaitReady(chromedp.CSS("#putTopic:target")))
	require.Equal(t, "0", w.value(t, `document.querySelectorAll("button:not([hidden])").length`))
	require.Contains(t, w.value(t, `document.querySelector("#curl-putTopic").innerText`), "/v1/topics/orders")
}
