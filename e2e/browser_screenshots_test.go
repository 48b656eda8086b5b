package e2e

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var screenshots = flag.String("screenshots", "",
	"write the pictures of the guides into this `folder` (make screenshots)")

// largestPicture limits a picture in bytes; the set is below 1.5 MB.
const largestPicture = 150_000

// TestScreenshots takes the pictures of the documentation.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("run make screenshots")
	}
	t.Parallel()
	db := migratedDatabase(t)
	up := postrider(t, append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+testEncryptionKey), "migrate", "up")
	require.Zero(t, up.code, up.stderr)
	fillDemo(t, db)
	one[int](db, "SELECT postrider_internal.observe_problems()")         // as a node that delivers
	n := startNode(t, db, "--role", "api", "--keep-attempts-days", "14") // it delivers nothing: the state does not change
	n.manage(http.StatusCreated, http.MethodPut, "/v1/users/ann", `{"role":"admin","password":"`+dashboardPassword+`"}`)
	w := startChromium(t)(t, n)
	w.signIn(t)
	delivery := "/ui/deliveries/" + one[string](db,
		"SELECT delivery_id::text FROM postrider.delivery_attempts WHERE number = 4 ORDER BY started_at DESC LIMIT 1")
	deadLetter := "/ui/dead-letters/" + one[string](db, "SELECT dead_letter_id::text FROM postrider.dead_letters "+
		"WHERE reason = 'MaxDeliveryAttemptsExceeded' ORDER BY dead_lettered_at DESC LIMIT 1")
	for _, picture := range []struct {
		name, path    string
		width, height int64
		scheme        string
	}{
		{"overview-light", "/ui/", 1440, 1300, "light"},
		{"overview-dark", "/ui/", 1440, 1300, "dark"},
		{"problems", "/ui/problems?within=1h", 1440, 760, "light"},
		{"dead-letters", "/ui/dead-letters", 1440, 900, "light"},
		{"dead-letter", deadLetter, 1440, 900, "light"},
		{"delivery", delivery, 1440, 1060, "light"},
		{"subscription", "/ui/subscriptions/customers/billing?range=24h", 1440, 1180, "light"},
		{"storage", "/ui/storage", 1440, 820, "dark"},
		{"phone", "/ui/", 390, 844, "light"},
	} {
		w.size(t, picture.width, picture.height, picture.scheme)
		w.visit(t, picture.path, "#page")
		w.eventually(t, `[...document.querySelectorAll(".chart")].every((c) => c.querySelector("canvas"))`)
		w.requireNoConsoleErrors(t, picture.path)
		w.value(t, `(document.querySelectorAll(".storage details:not([open])").forEach((d, i) => { d.open = i === 1 }), 1)`)
		w.value(t, `(document.querySelectorAll(".label").forEach((e) => { if (e.textContent.startsWith("Database ")) `+
			`e.textContent = "Database postrider" }), 1)`)
		w.picture(t, picture.name)
	}
	w.queryPictures(t)
}

// queryPictures takes pictures of the result of a query, and of the review of a repair.
func (w *window) queryPictures(t *testing.T) {
	t.Helper()
	w.size(t, 1440, 920, "light")
	w.visit(t, "/ui/query", ".editor")
	w.runSQL(t, `select dead_letter_id, subject, data ->> 'currency' as currency, data -> 'total' as total, data
  from dead_letters
 where last_status = 400 and last_response ~ 'currency' and data @> '{"currency": "EUR"}'
 order by dead_lettered_at desc limit 10`, ".result")
	w.picture(t, "query")
	letter := w.value(t, `document.querySelector('.result a[href^="/ui/dead-letters/"]').getAttribute("href")`)
	w.visit(t, letter+"/repair", ".editor")
	w.value(t, `((e) => { e.value = e.value.replace('"EUR"', '"CHF"'); return 1 })(document.querySelector("#event"))`)
	w.size(t, 1440, 900, "light")
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="review"]`)), chromedp.WaitReady(chromedp.CSS(".diff")))
	w.picture(t, "repair")
	w.requireNoConsoleErrors(t, "query and repair")
}

// picture writes a picture for the documentation.
func (w *window) picture(t *testing.T, name string) {
	t.Helper()
	small := w.shot(t)
	require.Less(t, len(small), largestPicture, name)
	require.NoError(t, os.WriteFile(filepath.Join(*screenshots, name+".png"), small, 0o644))
}

// shot is a picture of the window.
func (w *window) shot(t *testing.T) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	raw, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	full, err := png.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, reduced(full)))
	return out.Bytes()
}

// reduced has 256 colors: the most frequent color of each group of similar colors.
func reduced(full image.Image) image.Image {
	bounds, counts := full.Bounds(), map[color.RGBA]int{}
	//nolint:forcetypeassert // the model has this type
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(full.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	palette := paletteOf(counts)
	nearest := map[color.RGBA]uint8{}
	for c := range counts {
		nearest[c] = uint8(palette.Index(c))
	}
	out := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			out.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	return out
}

// paletteOf has the most frequent colors and one color of each group of the others, sorted, so that the same page has
// the same picture.
func paletteOf(counts map[color.RGBA]int) (palette color.Palette) {
	const asTheyAre, all = 96, 256
	sorted := slices.SortedFunc(maps.Keys(counts),
		func(a, b color.RGBA) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), byColor(a, b)) })
	groups := map[color.RGBA]bool{}
	for i, c := range sorted {
		group := color.RGBA{c.R >> 4, c.G >> 4, c.B >> 4, 0}
		if len(palette) < all && (i < asTheyAre || !groups[group]) {
			palette, groups[group] = append(palette, c), true
		}
	}
	return palette
}

func byColor(a, b color.RGBA) int {
	return cmp.Or(cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
}
