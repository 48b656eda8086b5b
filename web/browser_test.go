package web_test

import (
	"context"
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

// chromium is the path of the browser. Without one the test is skipped, but not in CI.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("POSTRIDER_CI") != "" {
		require.Fail(t, "chromium not found")
	}
	t.Skip("no chromium on this machine: the dashboard is not tried in a browser")
	return ""
}

// browser is a window with its console errors.
type browser struct {
	ctx context.Context //nolint:containedctx // chromedp keeps the window in it

	width, height int64
	scheme        string

	mu         sync.Mutex
	complaints []string
}

// reports collects violations of the content security policy.
const reports = `window.__reports = []; addEventListener("securitypolicyviolation",` +
	` (e) => window.__reports.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample))`

func newBrowser(t *testing.T) *browser {
	t.Helper()
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium(t)),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true),
		// Threads that compile scripts ahead of time cost 20 % more CPU here, because each page runs its scripts once.
		chromedp.Flag("js-flags", "--single-threaded"))
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

// listen collects errors and warnings of the console and exceptions of scripts.
func (w *browser) listen(m chromedp.ConsoleMessage) {
	switch m.Type {
	case chromedp.ConsoleError, chromedp.ConsoleWarning, chromedp.ConsoleException:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.complaints = append(w.complaints, m.String()+" "+m.URL)
	default:
	}
}

// patience is the timeout of a step in the browser.
const patience = 40 * time.Second

func (w *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, actions...))
}

// value evaluates a script and returns its result as text.
func (w *browser) value(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+script+")"))
	require.NoError(t, err)
	return text
}

// size sets the size and the color scheme of the window.
func (w *browser) size(t *testing.T, width, height int64, scheme string) {
	t.Helper()
	if width != w.width || height != w.height {
		w.do(t, chromedp.EmulateViewport(width, height))
	}
	if scheme != w.scheme {
		feature := emulation.MediaFeature{Name: "prefers-color-scheme", Value: scheme}
		_, err := chromedp.Call(w.ctx, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{&feature}})
		require.NoError(t, err)
	}
	w.width, w.height, w.scheme = width, height, scheme
}

func (w *browser) requireNoConsoleErrors(t *testing.T, where string) {
	t.Helper()
	reports := w.value(t, "window.__reports")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.complaints, where)
	require.Empty(t, reports, where)
}

// pictures is the directory for pictures; without one, none are taken.
func pictures() string { return os.Getenv("POSTRIDER_SCREENSHOTS") }

// screenshot writes a picture into the directory for pictures.
func (w *browser) screenshot(t *testing.T, name string) {
	t.Helper()
	if pictures() == "" {
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(pictures(), name+".png"), png, 0o600))
}

// pageTexts are event texts with markup or of great width.
var pageTexts = []string{
	`<script>window.__x=1</script>`, `"><img src=x onerror=window.__x=1>`, `</pre></td></table><svg/onload=window.__x=1>`,
	strings.Repeat("W", 900), "e-5",
}

// open opens a page with hostile texts and checks that it runs none of them and fits the window.
func (w *browser) open(t *testing.T, base, path string, width int64, scheme string) {
	t.Helper()
	w.size(t, width, 900, scheme)
	w.do(t, chromedp.Navigate(base+path), chromedp.WaitReady(chromedp.CSS("#page")))
	w.requireNoConsoleErrors(t, path)
	require.Equal(t, "undefined", w.value(t, "window.__x"), path)
	require.Equal(t, "1", w.value(t, `document.querySelectorAll("h1").length`), path)
	w.requireFits(t, path, width)
}

// requireFits checks that no element is wider than the window.
func (w *browser) requireFits(t *testing.T, path string, width int64) {
	t.Helper()
	if w.value(t, "document.documentElement.scrollWidth <= innerWidth") != "true" {
		require.Failf(t, "a page is wider than its window", "%s is wider than %d px: %s", path, width, w.value(t, widest))
	}
}

// One browser serves all subtests because its start is slow. TestPagesAreAccessible opens each page.
func TestDashboardInBrowser(t *testing.T) {
	t.Parallel()
	w := newBrowser(t)
	b := seededRunning(t, pageTexts...)
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	w.size(t, 1440, 900, "light")
	//nolint:paralleltest // one window
	t.Run("focus is visible", func(t *testing.T) { w.testFocus(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("charts", func(t *testing.T) { w.testChart(t, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("refresh", func(t *testing.T) { w.testRefresh(t, b, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("form", func(t *testing.T) { w.testForm(t, b, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("tail", func(t *testing.T) { w.testTail(t, b, srv.URL) })
	//nolint:paralleltest // one window
	t.Run("content security policy", func(t *testing.T) { w.testPolicyForbids(t, b, srv.URL) })
}

// widest are the elements that are wider than the window.
const widest = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth ` +
	`+ 1 && !e.closest(".scroll, thead, nav")).slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join("\n")`

// eventually waits until a script returns true.
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
		"one row for each ended minute")
	require.Equal(t, "3", w.value(t, `document.querySelectorAll(".chart canvas").length`))
	w.do(t, chromedp.Navigate(base+"/ui/subscriptions/orders/billing?range=7d"),
		chromedp.WaitReady(chromedp.CSS(".chart canvas")))
	require.Equal(t, "84", w.value(t, `document.querySelector(".numbers").tBodies[0].rows.length`))
	require.Equal(t, "7 d", w.value(t, `document.querySelector(".ranges [aria-current]").textContent`))
	w.testIsolatedPoint(t)
	w.requireNoConsoleErrors(t, "charts")
}

// A measurement between gaps is drawn as a dot.
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

// A refresh keeps open details, and a pause stops it.
func (w *browser) testRefresh(t *testing.T, b *bundle, base string) {
	w.do(t, chromedp.Navigate(base+"/ui/events"), chromedp.WaitReady(chromedp.CSS("#page")),
		chromedp.Navigate(base+"/ui/"), chromedp.WaitReady(chromedp.CSS(".chart canvas")))
	w.value(t, `(document.querySelector(".fold").open = true, document.body.dataset.mark = "same")`)
	at := w.value(t, `document.querySelector("#page").dataset.at`)
	w.eventually(t, `document.querySelector("#page").dataset.at !== "`+at+`"`)
	require.Equal(t, "true", w.value(t, `document.querySelector(".fold").open`))
	require.Equal(t, "same", w.value(t, `document.body.dataset.mark`), "the page was not reloaded")
	w.do(t, chromedp.Click(chromedp.CSS("#pause")))
	w.value(t, `(window.requests = 0, document.addEventListener("htmx:before:request", (e) => { window.requests++;`+
		` window.stopped = e.defaultPrevented }))`)
	w.eventually(t, `window.requests > 0`)
	require.Equal(t, "true", w.value(t, `window.stopped`))
	w.requireNoConsoleErrors(t, "after refresh")
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

// The check can fail: a violation is reported.
func (w *browser) testPolicyForbids(t *testing.T, b *bundle, base string) {
	require.NotEmpty(t, b.page(t, "/ui/"))
	w.do(t, chromedp.Navigate(base+"/ui/audit"), chromedp.WaitReady(chromedp.CSS("#page")))
	w.value(t, `((s) => { s.textContent = "window.__x = 1"; document.body.append(s) })(document.createElement("script"))`)
	w.eventually(t, `window.__reports.length > 0`)
	require.Equal(t, "undefined", w.value(t, "window.__x"))
}

// A user creates the first admin, returns to the requested page and stays signed in while it refreshes.
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
	require.Empty(t, w.value(t, `document.querySelector("nav").textContent.trim()`), "no menu before sign-in")
	w.screenshot(t, "first-admin")
	w.do(t, chromedp.SendKeys(chromedp.CSS(`input[name="token"]`), token),
		chromedp.SendKeys(chromedp.CSS(`input[name="name"]`), "ann"),
		chromedp.SendKeys(chromedp.CSS(`input[name="password"]`), password),
		chromedp.SendKeys(chromedp.CSS(`input[name="again"]`), password),
		chromedp.Submit(chromedp.CSS(`form[action="/ui/first-admin"]`)), chromedp.WaitReady(chromedp.CSS("#pause")))
	require.Equal(t, base+"/ui/subscriptions?topic=orders", w.value(t, "location.href"))
	require.Empty(t, w.value(t, "document.cookie"), "scripts cannot read the cookie")
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
