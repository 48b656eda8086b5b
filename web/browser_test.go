package web_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// chromium is where the browser is; the test is skipped where there is none, but not in CI.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("POSTRIDER_CI") != "" {
		require.Fail(t, "chromium is missing")
	}
	t.Skip("no chromium on this machine: the dashboard is not tried in a browser")
	return ""
}

// browser is a window, and what it complained about.
type browser struct {
	ctx context.Context //nolint:containedctx // chromedp keeps the window in it

	mu         sync.Mutex
	complaints []string
}

// reports collects what the content security policy forbade.
const reports = `window.__reports = []; addEventListener("securitypolicyviolation",` +
	` (e) => window.__reports.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample))`

func newBrowser(t *testing.T) *browser {
	t.Helper()
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium(t)),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), flags...)
	ctx, stop := chromedp.NewContext(allocator)
	w := &browser{ctx: ctx}
	messages := chromedp.Console(ctx)
	var listening sync.WaitGroup
	listening.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			w.listen(m)
		}
	})
	t.Cleanup(func() {
		stop()
		stopAllocator()
		listening.Wait()
	})
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: reports})
	require.NoError(t, err)
	return w
}

// listen collects what the console shows as an error or a warning, and what scripts threw.
func (w *browser) listen(m chromedp.ConsoleMessage) {
	switch m.Type {
	case chromedp.ConsoleError, chromedp.ConsoleWarning, chromedp.ConsoleException:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.complaints = append(w.complaints, m.String()+" "+m.URL)
	default:
	}
}

// patience is how long one step in the browser may take: the machine may be busy.
const patience = 20 * time.Second

func (w *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, actions...))
}

// value is what a script makes of the page, as text.
func (w *browser) value(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+script+")"))
	require.NoError(t, err)
	return text
}

// size sets the window's size and its color scheme.
func (w *browser) size(t *testing.T, width, height int64, scheme string) {
	t.Helper()
	w.do(t, chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(t, err)
}

func (w *browser) requireNoConsoleErrors(t *testing.T, where string) {
	t.Helper()
	reports := w.value(t, "window.__reports")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.complaints, where)
	require.Empty(t, reports, where)
}

// picture keeps a screenshot where POSTRIDER_SCREENSHOTS names a directory.
func (w *browser) screenshot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("POSTRIDER_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600))
}

// pageTexts are events' texts that would like to be markup, or to push a page apart.
var pageTexts = []string{
	`<script>window.__x=1</script>`, `"><img src=x onerror=window.__x=1>`, `</pre></td></table><svg/onload=window.__x=1>`,
	strings.Repeat("W", 900), "e-5",
}

// look opens a page with hostile texts in it: it runs none of them, and is no wider than the window.
func (w *browser) open(t *testing.T, base, path string, width int64, scheme string) {
	t.Helper()
	w.size(t, width, 900, scheme)
	w.do(t, chromedp.Navigate(base+path), chromedp.WaitReady(chromedp.CSS("#page")))
	w.requireNoConsoleErrors(t, path)
	require.Equal(t, "undefined", w.value(t, "window.__x"), path)
	require.Equal(t, "1", w.value(t, `document.querySelectorAll("h1").length`), path)
	w.requireFits(t, path, width)
}

// requireFits asks what sticks out only of a page that something sticks out of.
func (w *browser) requireFits(t *testing.T, path string, width int64) {
	t.Helper()
	if w.value(t, "document.documentElement.scrollWidth <= innerWidth") != "true" {
		require.Failf(t, "a page is wider than its window", "%s is wider than %d px: %s", path, width, w.value(t, widest))
	}
}

// One test and one browser: to start it takes longer than to look at a page. TestPagesAreAccessible looks at the
// pages on a desk.
func TestDashboardInBrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := seeded(t, pageTexts...)
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	for i, path := range b.everyPage(t) {
		w.open(t, srv.URL, path, 360, []string{"light", "dark"}[i%2])
		w.screenshot(t, fmt.Sprintf("360-%02d", i))
	}
	w.size(t, 1440, 900, "light")
	//nolint:paralleltest // one window
	t.Run("focus is seen", func(t *testing.T) { w.testFocus(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("charts are drawn", func(t *testing.T) { w.testChart(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("the page refreshes", func(t *testing.T) { w.testRefresh(t, b, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("a form acts", func(t *testing.T) { w.testForm(t, b, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("the tail follows", func(t *testing.T) { w.testTail(t, b, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("the policy forbids", func(t *testing.T) { w.testPolicyForbids(t, b, srv.URL) })
}

// widest names an element that sticks out of the page, for whoever has to find it.
const widest = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth ` +
	`+ 1 && !e.closest(".scroll, thead, nav")).slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join("\n")`

// eventually waits until a script says true.
func (w *browser) eventually(t *testing.T, script string) {
	t.Helper()
	require.Eventually(t, func() bool { return w.value(t, script) == "true" }, 20*time.Second,
		100*time.Millisecond, script)
}

func (w *browser) testFocus(t *testing.T, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/deliveries"), chromedp.WaitReady(chromedp.CSS("#page")))
	for range 20 { // the skip link, the menu, the filters
		w.do(t, chromedp.KeyEvent("\t"))
		require.NotEqual(t, "none", w.value(t, "getComputedStyle(document.activeElement).outlineStyle"),
			w.value(t, "document.activeElement.outerHTML"))
	}
}

func (w *browser) testChart(t *testing.T, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/"), chromedp.WaitReady(chromedp.CSS(".chart canvas")))
	require.Equal(t, "60,60,60",
		w.value(t, `[...document.querySelectorAll(".numbers")].map((table) => table.tBodies[0].rows.length).join()`),
		"the tables have each minute that is over")
	require.Equal(t, "3", w.value(t, `document.querySelectorAll(".chart canvas").length`))
	w.do(t, chromedp.Navigate(base+"/ui/subscriptions/orders/billing?range=7d"),
		chromedp.WaitReady(chromedp.CSS(".chart canvas")))
	require.Equal(t, "84", w.value(t, `document.querySelector(".numbers").tBodies[0].rows.length`))
	require.Equal(t, "7 d", w.value(t, `document.querySelector(".ranges [aria-current]").textContent`))
	w.testIsolatedPoint(t)
	w.requireNoConsoleErrors(t, "charts")
}

// A single measurement between gaps has no line to be seen by.
func (w *browser) testIsolatedPoint(t *testing.T) {
	const latency = `[...document.querySelectorAll(".numbers")].find((table) => table.dataset.unit === "ms")`
	const colored = `((at) => { const c = at.closest(".card").querySelector("canvas"),
		copy = Object.assign(document.createElement("canvas"), { width: c.width, height: c.height }),
		context = copy.getContext("2d", { willReadFrequently: true });
		context.drawImage(c, 0, 0);
		const { data } = context.getImageData(0, 0, c.width, c.height);
		let n = 0;
		for (let i = 0; i < data.length; i += 4) {
			n += data[i + 3] > 128 && Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + ` +
		`2]) > 60;
		}
		return n; })(` + latency + `)`
	show := func(values string) {
		w.value(t, `((rows) => { rows.forEach((row, i) => [...row.cells].slice(1).forEach((cell) => { cell.textContent = (`+
			values+`)(i) }));
			document.dispatchEvent(new CustomEvent("htmx:after:swap")); return 1 })([...`+latency+`.tBodies[0].rows])`)
	}
	show(`() => ""`)
	w.eventually(t, colored+` === 0`)
	show(`(i) => i === 30 ? "100" : ""`)
	w.eventually(t, colored+` > 5`)
}

// A page asks for itself again; what is open stays open, and a pause is obeyed.
func (w *browser) testRefresh(t *testing.T, b *bundle, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/events"), chromedp.WaitReady(chromedp.CSS("#page")),
		chromedp.Navigate(base+"/ui/"), chromedp.WaitReady(chromedp.CSS(".chart canvas")))
	w.value(t, `(document.querySelector(".fold").open = true, document.body.dataset.mark = "same")`)
	at := w.value(t, `document.querySelector("#page").dataset.at`)
	w.eventually(t, `document.querySelector("#page").dataset.at !== "`+at+`"`)
	require.Equal(t, "true", w.value(t, `document.querySelector(".fold").open`))
	require.Equal(t, "same", w.value(t, `document.body.dataset.mark`), "the page itself was not loaded again")
	w.do(t, chromedp.Click(chromedp.CSS("#pause")))
	w.value(t, `(window.asked = 0, document.addEventListener("htmx:before:request", (e) => { window.asked++;`+
		` window.stopped = e.defaultPrevented }))`)
	w.eventually(t, `window.asked > 0`)
	require.Equal(t, "true", w.value(t, `window.stopped`))
	w.requireNoConsoleErrors(t, "after refreshing")
}

func (w *browser) testForm(t *testing.T, b *bundle, base string) {
	const at = "/ui/subscriptions/orders/accounting"
	w.do(t, chromedp.Navigate(base+at), chromedp.WaitReady(chromedp.CSS("#page")),
		chromedp.Click(chromedp.CSS(`form[action$="/pause"] button`)), chromedp.WaitVisible(chromedp.CSS(".done")))
	require.Contains(t, w.value(t, `document.querySelector(".done").textContent`), "Paused.")
	sub, err := b.store.Subscriptions.Get(t.Context(), "orders", "accounting")
	require.NoError(t, err)
	require.Equal(t, "paused", sub.Hold.Reason)
	w.do(t, chromedp.Click(chromedp.CSS(`form[action$="/resume"] button`)),
		chromedp.WaitVisible(chromedp.CSS(`form[action$="/pause"] button`)))
	w.requireNoConsoleErrors(t, at)
}

func (w *browser) testTail(t *testing.T, b *bundle, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/tail"), chromedp.WaitVisible(chromedp.CSS("#tail")))
	w.eventually(t, `document.querySelector("#tail-state").textContent === "Following."`)
	const image = `<img src=x onerror=window.__x=1>`
	b.publish(t, "orders", image)
	w.eventually(t, `document.querySelectorAll("#tail-rows tr").length >= 3`)
	require.Contains(t, w.value(t, `document.querySelector("#tail-rows").textContent`), image)
	require.Equal(t, "undefined", w.value(t, "window.__x"))
	w.requireNoConsoleErrors(t, "/ui/tail")
}

// The check of reports must be able to fail: what the policy forbids is reported.
func (w *browser) testPolicyForbids(t *testing.T, b *bundle, base string) {
	require.NotEmpty(t, b.page(t, "/ui/"))
	w.do(t, chromedp.Navigate(base+"/ui/audit"), chromedp.WaitReady(chromedp.CSS("#page")))
	w.value(t, `((s) => { s.textContent = "window.__x = 1"; document.body.append(s) })(document.createElement("script"))`)
	w.eventually(t, `window.__reports.length > 0`)
	require.Equal(t, "undefined", w.value(t, "window.__x"))
}

// A person makes the first account, is led back to the page that was asked for, and stays in while the page refreshes.
func TestSignInInBrowser(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	w := newBrowser(t)
	base := strings.Replace(srv.URL, "127.0.0.1", "localhost", 1) // where a browser keeps a cookie that is for HTTPS
	w.do(t, chromedp.Navigate(base+"/ui/subscriptions?topic=orders"),
		chromedp.WaitVisible(chromedp.CSS(`input[name="token"]`)))
	require.Equal(t, "Create first admin", w.value(t, `document.querySelector("h1").textContent`))
	require.Empty(t, w.value(t, `document.querySelector("nav").textContent.trim()`), "whoever is not in sees no menu")
	w.screenshot(t, "first-admin")
	w.do(t, chromedp.SendKeys(chromedp.CSS(`input[name="token"]`), token),
		chromedp.SendKeys(chromedp.CSS(`input[name="name"]`), "ann"),
		chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), password),
		chromedp.SendKeys(chromedp.CSS(`input[name="again"]`), password),
		chromedp.Submit(chromedp.CSS(`form[action="/ui/first-admin"]`)), chromedp.WaitReady(chromedp.CSS("#pause")))
	require.Equal(t, base+"/ui/subscriptions?topic=orders", w.value(t, "location.href"))
	require.Empty(t, w.value(t, "document.cookie"), "no script can read it")
	at := w.value(t, `document.querySelector("#page").dataset.at`)
	w.eventually(t, `document.querySelector("#page").dataset.at !== "`+at+`"`)

	w.do(t, chromedp.Navigate(base+"/ui/users"), chromedp.WaitReady(chromedp.CSS(".users")))
	w.screenshot(t, "users")
	w.do(t, chromedp.Navigate(base+"/ui/api-keys"), chromedp.SendKeys(chromedp.CSS(`input[name="name"]`), "billing"),
		chromedp.Submit(chromedp.CSS(`form[action="/ui/api-keys/create"]`)),
		chromedp.WaitVisible(chromedp.CSS(".verdict.good")))
	require.Contains(t, w.value(t, `document.querySelector(".verdict pre").textContent`), "prk_")
	w.screenshot(t, "api-keys")
	w.do(t, chromedp.Submit(chromedp.CSS(`.who form`)), chromedp.WaitVisible(chromedp.CSS(`form[action="/ui/sign-in"]`)))
	w.screenshot(t, "sign-in")
	w.requireNoConsoleErrors(t, "signing in")
}
