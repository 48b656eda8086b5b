package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
)

// The libraries are vendored as they were published; static/LICENSES.txt has their sources and licenses.
//
//go:embed static
var staticFiles embed.FS

// asset is an embedded file. Browsers may keep it forever: its address changes with its content.
type asset struct {
	path string // with the hash: /ui/static/style.0123456789ab.css
	kind string // media type
	body []byte
}

// hashDigits distinguish the files of different builds (48 bits).
const hashDigits = 12

var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".txt": "text/plain; charset=utf-8",
}

// loadAssets reads the embedded files. The maps find them by the file's name and by the name they are served under.
func loadAssets() (byFile, byName map[string]*asset, err error) {
	files, err := staticFiles.ReadDir("static")
	if err != nil {
		return nil, nil, fmt.Errorf("read the embedded files: %w", err)
	}
	byFile, byName = map[string]*asset{}, map[string]*asset{}
	for _, file := range files {
		body, err := staticFiles.ReadFile("static/" + file.Name())
		if err != nil {
			return nil, nil, fmt.Errorf("read an embedded file: %w", err)
		}
		sum, ext := sha256.Sum256(body), path.Ext(file.Name())
		name := strings.TrimSuffix(file.Name(), ext) + "." + hex.EncodeToString(sum[:])[:hashDigits] + ext
		a := &asset{path: "/ui/static/" + name, kind: mediaTypes[ext], body: body}
		byFile[file.Name()], byName[name] = a, a
	}
	return byFile, byName, nil
}

// static serves each file under its present name only: an old page beside a new build gets a 404, not a wrong file that
// the browser would keep for a year.
func (p *pages) static(c echo.Context) error {
	a, ok := p.assets[c.Param("file")]
	if !ok {
		return echo.ErrNotFound
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=31536000, immutable")
	return c.Blob(http.StatusOK, a.kind, a.body)
}
