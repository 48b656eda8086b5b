package e2e

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var (
	//go:embed testdata/browser/axe-core/axe.min.js
	axe string
	//go:embed testdata/browser/violations.js
	axeViolations string
)

const (
	// axeHash is of axe.min.js. Compare a new version with the project's release before you change it.
	axeHash = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
	// contrast is the rule of axe-core that depends on the color scheme.
	contrast = `"color-contrast"`
)

// violations are those of the rules, or of all, that axe-core finds in the open page, one per line.
func (w *window) violations(t *testing.T, rules ...string) string {
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

// widths are those at which no page scrolls sideways, from a small phone to 4K. The menu is behind a button below 1150.
var widths = []int64{360, 390, 768, 1024, 1150, 1366, 1920, 3840}

// tallest is the height of the tallest row of the lists, whose values follow each other on a phone.
const tallest = `Math.max(0, ...[...document.querySelectorAll("table[data-list] tbody tr")].map((row) => ` +
	`row.getBoundingClientRect().height))`

// requireShortRows checks that a row of a list has at most four lines on a phone.
func (w *window) requireShortRows(t *testing.T, path string) {
	t.Helper()
	w.size(t, 390, 900, "light")
	height, err := strconv.ParseFloat(w.value(t, tallest), 64)
	require.NoError(t, err)
	const line, padding = 24.0, 22.0
	require.LessOrEqual(t, height, 4*line+padding, path)
}

// requireAccessible checks the open page with all details unfolded. It leaves the window 1440 pixels wide and light.
func (w *window) requireAccessible(t *testing.T, path string) {
	t.Helper()
	w.requireShortRows(t, path)
	w.value(t, `(document.querySelectorAll("details").forEach((d) => { d.open = true }), 1)`)
	for _, width := range widths {
		w.size(t, width, 300, "dark") // it is painted, too
		w.requireFits(t, path, width)
	}
	size, err := strconv.ParseFloat(w.value(t, `parseFloat(getComputedStyle(document.documentElement).fontSize)`), 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, size, 20.0, path)
	w.size(t, 1440, 900, "dark")
	w.requireFits(t, path, 1440)
	w.requireNoViolations(t, path)
}

// requireNoViolations checks the page, and the contrast of every third one also in the dark scheme: all have the same
// style sheet. It leaves the light scheme, and only two rows of each kind.
func (w *window) requireNoViolations(t *testing.T, path string) {
	t.Helper()
	if w.checked++; w.checked%3 == 1 {
		w.size(t, w.width, w.height, "dark")
		require.Empty(t, w.violations(t, contrast), "%s, dark", path)
	}
	w.size(t, w.width, w.height, "light")
	require.Empty(t, w.violations(t), "%s, light", path)
}

// Each page has contrast, labels and landmarks, runs no text of an event, fits a phone and is readable at 3840 pixels.
func testAccessibility(t *testing.T, w *window, s *shop) {
	sum := sha256.Sum256([]byte(axe))
	require.Equal(t, axeHash, hex.EncodeToString(sum[:]))
	for i, path := range s.everyPage() {
		w.size(t, 360, 900, []string{"light", "dark"}[i%2])
		w.visit(t, path, "#page")
		w.requireNoConsoleErrors(t, path)
		require.Equal(t, "undefined", w.value(t, "window.__x"), path)
		require.Equal(t, "1", w.value(t, `document.querySelectorAll("h1").length`), path)
		w.requireFits(t, path, 360)
		w.requireAccessible(t, path)
	}
	w.testReference(t)
	w.testOrder(t)
	w.testAccessibilityFails(t)
	w.visit(t, "/ui/nowhere", "#page") // the console shows its status as an error
	w.requireAccessible(t, "/ui/nowhere")
}

// everyPage is an address for each kind of page.
func (s *shop) everyPage() []string {
	s.t.Helper()
	id := func(query string) string { return one[string](s.db, "SELECT ("+query+")::text") }
	delivery := func(of string) string {
		return "/ui/deliveries/" + id("SELECT min(delivery_id) FROM postrider.deliveries WHERE topic = 'orders' "+
			"AND subscription = '"+of+"'")
	}
	deadLetter := "/ui/dead-letters/" +
		id("SELECT dead_letter_id FROM postrider.dead_letters WHERE topic = 'orders' ORDER BY 1 LIMIT 1")
	return []string{
		"/ui/", "/ui/problems", "/ui/tail", "/ui/events",
		"/ui/events/" + id("SELECT system_id FROM postrider.events WHERE topic = 'orders' ORDER BY 1 LIMIT 1"),
		"/ui/deliveries", "/ui/deliveries?lastOutcome=nothing", delivery("billing"), delivery("bulk"), delivery("held"),
		delivery("archive"), "/ui/batches", "/ui/batches/" + id("SELECT min(batch_id) FROM postrider.batches"),
		"/ui/dead-letters", deadLetter, deadLetter + "/purge", deadLetter + "/repair",
		"/ui/dead-letters/redeliver?topic=orders", "/ui/dead-letters/purge", "/ui/dead-letters/repair?topic=orders",
		"/ui/deliveries/retry?topic=orders", "/ui/deliveries/cancel", "/ui/operations", "/ui/topics", "/ui/topics/orders",
		"/ui/subscriptions", "/ui/subscriptions/orders/billing?range=7d", "/ui/subscriptions/orders/held", "/ui/new-topic",
		"/ui/topics/orders/edit", "/ui/topics/orders/delete", "/ui/topics/empty/keys", "/ui/topics/orders/publish",
		"/ui/subscriptions/new", "/ui/subscriptions/new?topic=orders", "/ui/subscriptions/orders/billing/edit",
		"/ui/subscriptions/orders/choosy/edit", "/ui/subscriptions/orders/billing/delete", "/ui/policies/new?from=ga-2021",
		"/ui/policies", "/ui/jobs", "/ui/storage", "/ui/audit", "/ui/query?question=failing", "/ui/users", "/ui/api-keys",
		"/ui/account", "/ui/dead-letters?search=%3D+1",
	}
}

// The page of the REST API meets the same rules.
func (w *window) testReference(t *testing.T) {
	t.Helper()
	w.visit(t, "/openapi#putTopic", "#putTopic:target")
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

// Tab follows the order of the page, and the focus is visible.
func (w *window) testOrder(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/dead-letters", "#page")
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

// The check can fail.
func (w *window) testAccessibilityFails(t *testing.T) {
	t.Helper()
	w.visit(t, "/ui/deliveries", "#page")
	w.value(t, `(document.querySelector("#page").insertAdjacentHTML("afterbegin", "<h4><small>pale</small></h4>"), `+
		`document.querySelector("#page small").style.color = "#999", 1)`)
	found := w.violations(t)
	require.Contains(t, found, "contrast of 2.64")
	require.Contains(t, found, "heading-order h4:")
}
