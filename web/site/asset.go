package site

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
)

// Assets are files that pages load. Browsers may keep them forever: their addresses change with their contents.
type Assets struct{ byFile, byPath map[string]*asset }

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

// LoadAssets reads the files of a directory.
func LoadAssets(files fs.FS, dir string) (Assets, error) {
	assets := Assets{map[string]*asset{}, map[string]*asset{}}
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return assets, fmt.Errorf("read the embedded files: %w", err)
	}
	for _, entry := range entries {
		body, err := fs.ReadFile(files, dir+"/"+entry.Name())
		if err != nil {
			return assets, fmt.Errorf("read an embedded file: %w", err)
		}
		sum, ext := sha256.Sum256(body), path.Ext(entry.Name())
		name := strings.TrimSuffix(entry.Name(), ext) + "." + hex.EncodeToString(sum[:])[:hashDigits] + ext
		a := &asset{path: "/ui/static/" + name, kind: mediaTypes[ext], body: body}
		assets.byFile[entry.Name()], assets.byPath[a.path] = a, a
	}
	return assets, nil
}

// Path is the address of a file.
func (a Assets) Path(file string) string { return a.byFile[file].path }

// Serve serves each file under its present name only: an old page beside a new build gets a 404, not a wrong file that
// the browser would keep for a year.
func (a Assets) Serve(c echo.Context) error {
	found, ok := a.byPath["/ui/static/"+c.Param("file")]
	if !ok {
		return echo.ErrNotFound
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "public, max-age=31536000, immutable")
	return c.Blob(http.StatusOK, found.kind, found.body)
}
