package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
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

// renderedPage is a page as it is sent. It is kept compressed: that is a tenth of it, and what browsers ask for.
type renderedPage struct {
	zipped []byte
	etag   string
	policy string // its content security policy
}

// Reference is the specification as a page to read. It is rendered on the first request: most nodes never get one.
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
	t, err := template.New("reference").Funcs(template.FuncMap{"lower": strings.ToLower}).Parse(referenceHTML)
	if err != nil {
		return nil, fmt.Errorf("parse the page of the API: %w", err)
	}
	var page bytes.Buffer
	//nolint:gosec // they are this package's own files
	view := struct {
		referencePage
		Style  template.CSS
		Script template.JS
	}{file.view(), template.CSS(referenceCSS), template.JS(referenceJS)}
	if err := t.Execute(&page, view); err != nil {
		return nil, fmt.Errorf("make the page of the API: %w", err)
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) // the level is a sound one
	_, _ = w.Write(page.Bytes())                               // into memory
	_ = w.Close()
	return &renderedPage{
		zipped: bytes.Clone(zipped.Bytes()), etag: `"` + hashOf(page.String()) + `"`, policy: policyOf(),
	}, nil
}

// policyOf lets the page have its own style and its own script, and nothing else at all.
func policyOf() string {
	return "default-src 'none'; style-src 'sha256-" + hashOf(referenceCSS) + "'; script-src 'sha256-" +
		hashOf(referenceJS) + "'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Answer answers GET /openapi.
func (ref *Reference) Answer(c echo.Context) error {
	page, err := ref.page()
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set(echo.HeaderContentSecurityPolicy, page.policy)
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
	plain, err := gzip.NewReader(bytes.NewReader(page.zipped))
	if err != nil {
		return fmt.Errorf("unpack the page of the API: %w", err)
	}
	text, err := io.ReadAll(plain)
	if err != nil {
		return fmt.Errorf("unpack the page of the API: %w", err)
	}
	return c.Blob(http.StatusOK, echo.MIMETextHTMLCharsetUTF8, text)
}
