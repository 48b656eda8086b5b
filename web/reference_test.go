package web_test

import (
	"net/http/httptest"
	"testing"

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
	w.do(t, chromedp.Navigate(srv.URL+"/openapi#putTopic"), chromedp.WaitReady(chromedp.CSS("#putTopic:target")))
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
	w.requireNoConsoleErrors(t, "/openapi")
	w.requireNoViolations(t, "/openapi")
}
