package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

//go:embed static/*.css
var staticFiles embed.FS

// asset is a file that browsers may keep for good: its address changes with its content.
type asset struct {
	name string // with the hash: style.0123456789ab.css
	path string // where it is served
	body []byte
}

// hashDigits are enough to tell one build's stylesheet from another's (48 bits).
const hashDigits = 12

func loadAsset(file string) (asset, error) {
	body, err := staticFiles.ReadFile("static/" + file)
	if err != nil {
		return asset{}, fmt.Errorf("read an embedded file: %w", err)
	}
	sum := sha256.Sum256(body)
	stem, ext, _ := strings.Cut(file, ".")
	name := stem + "." + hex.EncodeToString(sum[:])[:hashDigits] + "." + ext
	return asset{name: name, path: "/ui/static/" + name, body: body}, nil
}

// static serves the stylesheet under its present name only: an old page next to a new build gets a 404 rather than a
// wrong file that it would keep for a year.
func (p *pages) static(c echo.Context) error {
	if c.Param("file") != p.stylesheet.name {
		return echo.ErrNotFound
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=31536000, immutable")
	return c.Blob(http.StatusOK, "text/css; charset=utf-8", p.stylesheet.body)
}
