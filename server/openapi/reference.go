package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
)

var (
	//go:embed reference/page.html
	referenceHTML string
	//go:embed reference/style.css
	referenceCSS string
	//go:embed reference/copy.js
	referenceJS string
)

// renderedPage is the page, plain and in gzip.
type renderedPage struct {
	plain, zipped []byte
	etag          string
}

// Reference is the page that shows the OpenAPI document. The first request renders it.
type Reference struct {
	page func() (*renderedPage, error)
}

// NewReference returns the page of a document in YAML.
func NewReference(document func() ([]byte, error)) *Reference {
	return &Reference{page: sync.OnceValues(func() (*renderedPage, error) {
		text, err := document()
		if err != nil {
			return nil, err
		}
		file, err := readAPIFile(text)
		if err != nil {
			return nil, err
		}
		return renderReference(file)
	})}
}

func renderReference(file *apiFile) (*renderedPage, error) {
	t, err := template.New("reference").Funcs(file.functions()).Parse(referenceHTML)
	if err != nil {
		return nil, fmt.Errorf("parse the page of the API: %w", err)
	}
	var page bytes.Buffer
	//nolint:gosec // they are this package's own files
	view := struct {
		*apiFile
		Style  template.CSS
		Script template.JS
	}{file, template.CSS(referenceCSS), template.JS(referenceJS)}
	if err := t.Execute(&page, view); err != nil {
		return nil, fmt.Errorf("render the page of the API: %w", err)
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // a valid level
	_, _ = w.Write(page.Bytes())                               // cannot fail in memory
	_ = w.Close()
	return &renderedPage{plain: page.Bytes(), zipped: zipped.Bytes(), etag: `"` + hashOf(page.String()) + `"`}, nil
}

// contentPolicy allows the page's own style and script only.
func contentPolicy() string {
	return "default-src 'none'; style-src 'sha256-" + hashOf(referenceCSS) + "'; script-src 'sha256-" +
		hashOf(referenceJS) + "'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Respond responds to GET /openapi.
func (ref *Reference) Respond(c echo.Context) error {
	page, err := ref.page()
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set(echo.HeaderContentSecurityPolicy, contentPolicy())
	header.Set(echo.HeaderCacheControl, "no-cache") // another version of the program has another page
	header.Set(echo.HeaderVary, echo.HeaderAcceptEncoding)
	header.Set("ETag", page.etag)
	if strings.Contains(c.Request().Header.Get("If-None-Match"), page.etag) {
		return c.NoContent(http.StatusNotModified)
	}
	if strings.Contains(c.Request().Header.Get(echo.HeaderAcceptEncoding), "gzip") {
		header.Set(echo.HeaderContentEncoding, "gzip")
		return c.Blob(http.StatusOK, echo.MIMETextHTMLCharsetUTF8, page.zipped)
	}
	return c.Blob(http.StatusOK, echo.MIMETextHTMLCharsetUTF8, page.plain)
}
