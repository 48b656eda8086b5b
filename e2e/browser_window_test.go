package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// opener opens a window of the browser for the dashboard of a node.
type opener func(t *testing.T, n *nodeProcess) *window

// startChromium starts the browser. Without Chromium the test is skipped, except in CI.
func startChromium(t *testing.T) opener {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(name); err == nil && path == "" {
			path = found
		}
	}
	if path == "" {
		missing(t, "no chromium here: apt-get install chromium")
	}
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-dev-shm-usage", true),
		// Threads that compile scripts ahead of time cost 20 % more CPU here, because each page runs its scripts once.
		chromedp.Flag("js-flags", "--single-threaded"))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), flags...)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		stop()
		stopAllocator()
	})
	require.NoError(t, chromedp.Do(ctx))
	return func(t *testing.T, n *nodeProcess) *window {
		t.Helper()
		return newWindow(ctx, t, n)
	}
}

// window is a window of the browser, with its own cookies and console errors.
type window struct {
	ctx  context.Context //nolint:containedctx // chromedp keeps the window in it
	base string          // of the dashboard

	width, height int64
	scheme        string
	checked       int // pages by axe-core

	mu         sync.Mutex
	complaints []string
}

// reports collects violations of the content security policy.
const reports = `window.__reports = []; addEventListener("securitypolicyviolation",` +
	` (e) => window.__reports.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample))`

func newWindow(chromium context.Context, t *testing.T, n *nodeProcess) *window {
	t.Helper()
	ctx, stop := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
	// A browser keeps cookies that require HTTPS for localhost.
	w := &window{ctx: ctx, base: strings.Replace(n.api, "127.0.0.1", "localhost", 1)}
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
		listening.Wait()
	})
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument,
		page.AddScriptToEvaluateOnNewDocumentParams{Source: reports})
	require.NoError(t, err)
	w.size(t, 1440, 900, "light")
	return w
}

// listen collects errors and warnings of the console and exceptions of scripts.
func (w *window) listen(m chromedp.ConsoleMessage) {
	switch m.Type {
	case chromedp.ConsoleError, chromedp.ConsoleWarning, chromedp.ConsoleException:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.complaints = append(w.complaints, m.String()+" "+m.URL)
	default:
	}
}

// ignore removes the console error for the status of a rejection.
func (w *window) ignore(t *testing.T, status string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Len(t, w.complaints, 1)
	require.Contains(t, w.complaints[0], status)
	w.complaints = nil
}

func (w *window) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, actions...))
}

// visit opens a page of the dashboard and waits for an element of it.
func (w *window) visit(t *testing.T, path, selector string) {
	t.Helper()
	w.do(t, chromedp.Navigate(w.base+path), chromedp.WaitReady(chromedp.CSS(selector)))
}

// click clicks an element and waits until another one is visible.
func (w *window) click(t *testing.T, button, then string) {
	t.Helper()
	// the sticky bar must not cover the button
	w.value(t, fmt.Sprintf(`document.querySelector(%q)?.scrollIntoView({block: "center"})`, button))
	w.do(t, chromedp.Click(chromedp.CSS(button)), chromedp.WaitVisible(chromedp.CSS(then)))
}

// value evaluates a script and returns its result as text.
func (w *window) value(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+script+")"))
	require.NoError(t, err)
	return text
}

// textOf is the text of the first element that a selector matches.
func (w *window) textOf(t *testing.T, selector string) string {
	t.Helper()
	return w.value(t, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// eventually waits until a script returns true.
func (w *window) eventually(t *testing.T, script string) {
	t.Helper()
	eventually(t, script, func() bool { return w.value(t, script) == "true" })
}

// refreshed waits until the page has replaced its contents.
func (w *window) refreshed(t *testing.T) {
	t.Helper()
	at := w.value(t, `document.querySelector("#page").dataset.at`)
	w.eventually(t, `document.querySelector("#page").dataset.at !== "`+at+`"`)
}

// size sets the size and the color scheme of the window.
func (w *window) size(t *testing.T, width, height int64, scheme string) {
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

func (w *window) disableScripts(t *testing.T) {
	t.Helper()
	_, err := chromedp.Call(w.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
}

func (w *window) requireNoConsoleErrors(t *testing.T, where string) {
	t.Helper()
	reports := w.value(t, "window.__reports")
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Empty(t, w.complaints, where)
	require.Empty(t, reports, where)
}

// widest are the visible elements that are wider than the window; what is in a cut cell is not visible there.
const widest = `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth ` +
	`+ 1 && e.checkVisibility() && !e.closest(".scroll, thead, .cut > div > *")).slice(0, 3)` +
	`.map((e) => e.outerHTML.slice(0, 120)).join("\n")`

// requireFits checks that no element is wider than the window.
func (w *window) requireFits(t *testing.T, path string, width int64) {
	t.Helper()
	if w.value(t, "document.documentElement.scrollWidth <= innerWidth") != "true" {
		require.Failf(t, "a page is wider than its window", "%s is wider than %d px: %s", path, width, w.value(t, widest))
	}
}

// requireFitsPhone checks the page at the width of a phone, too.
func (w *window) requireFitsPhone(t *testing.T, path string) {
	t.Helper()
	for _, width := range []int64{390, 1440} {
		w.size(t, width, 900, "light")
		w.requireFits(t, path, width)
	}
}

// The editor is what `make editor` builds from web/editor with the versions of package-lock.json.
func TestEditorIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	command := tool(t, "npm", "npm")
	dir := t.TempDir()
	source, built := filepath.Join(dir, "editor"), filepath.Join(dir, "static")
	require.NoError(t, os.Mkdir(built, 0o755))
	require.NoError(t, os.Mkdir(source, 0o755))
	for _, name := range []string{"editor.js", "package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join("..", "web", "editor", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(source, name), content, 0o600))
	}
	for _, args := range [][]string{{"ci", "--ignore-scripts", "--no-audit", "--no-fund"}, {"run", "build"}} {
		npm := exec.Command(command, args...)
		npm.Dir = source
		out, err := npm.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	got, err := os.ReadFile(filepath.Join(built, "editor.min.js"))
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join("..", "web", "static", "editor.min.js"))
	require.NoError(t, err)
	same := string(got) == string(want) // 390 kB are not worth a difference on the screen
	require.True(t, same, "`make editor` builds it anew")
}
