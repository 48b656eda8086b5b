package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

// The libraries are vendored as they were published; static/LICENSES.txt says from where and under which terms.
//
//go:embed static
var staticFiles embed.FS

// asset is a file that browsers may keep for good: its address changes with its content.
type asset struct {
	name string // with the hash: style.0123456789ab.css
	path string // where it is served
	kind string // media type
	body []byte
}

// hashDigits are enough to tell one build's file from another's (48 bits).
const hashDigits = 12

var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".txt": "text/plain; charset=utf-8",
}

// loadAssets reads the embedded files; the maps find them by their file's name and by the name they are served under.
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
		a := newAsset(file.Name(), body)
		byFile[file.Name()], byName[a.name] = a, a
	}
	return byFile, byName, nil
}

func newAsset(file string, body []byte) *asset {
	sum := sha256.Sum256(body)
	ext := path.Ext(file)
	name := strings.TrimSuffix(file, ext) + "." + hex.EncodeToString(sum[:])[:hashDigits] + ext
	return &asset{name: name, path: "/ui/static/" + name, kind: mediaTypes[ext], body: body}
}
