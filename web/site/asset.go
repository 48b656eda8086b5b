package site

import (
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"
)

// Assets are the files that pages load, by name and by the path that serves them. Browsers may keep them forever: the
// path changes with the contents.
type Assets map[string]asset

type asset struct {
	path string // with the hash: /ui/static/style.0123456789ab.css
	body []byte
	gzip []byte // compressed once; nil if that is not shorter
}

var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".svg": "image/svg+xml",
	".txt": "text/plain; charset=utf-8",
}

// LoadAssets reads the files of a directory.
func LoadAssets(files fs.FS, dir string) (Assets, error) {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return nil, fmt.Errorf("read the embedded files: %w", err)
	}
	assets := Assets{}
	for _, entry := range entries {
		body, err := fs.ReadFile(files, dir+"/"+entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read an embedded file: %w", err)
		}
		sum, ext := sha256.Sum256(body), path.Ext(entry.Name())
		// 48 bits of the hash distinguish the files of different builds
		address := fmt.Sprintf("/ui/static/%s.%x%s", strings.TrimSuffix(entry.Name(), ext), sum[:6], ext)
		file := asset{address, body, compressed(body, gzip.BestCompression)}
		assets[entry.Name()], assets[address] = file, file
	}
	return assets, nil
}

// Path is the address of a file.
func (a Assets) Path(file string) string { return a[file].path }

// Serve serves files under their current addresses only. A page of an older build gets 404 instead of a file that the
// browser would keep for a year.
func (a Assets) Serve(c echo.Context) error {
	found, ok := a["/ui/static/"+c.Param("file")]
	if !ok {
		return echo.ErrNotFound
	}
	header := c.Response().Header()
	header.Set(echo.HeaderCacheControl, "public, max-age=31536000, immutable")
	header.Add(echo.HeaderVary, echo.HeaderAcceptEncoding)
	if found.gzip != nil && acceptsGzip(c.Request()) {
		header.Set(echo.HeaderContentEncoding, "gzip")
		found.body = found.gzip
	}
	return c.Blob(http.StatusOK, mediaTypes[path.Ext(found.path)], found.body)
}
