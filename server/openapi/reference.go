package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"
)

var (
	//go:embed reference.html
	referenceHTML string
	//go:embed reference.css
	referenceCSS string
)

type referenceGroup struct {
	Name, Anchor, Description string
	Operations                []referenceOperation
}

type referenceOperation struct{ ID, Method, Path, Summary, Access string }

// Reference returns the handler of GET /openapi: a page with the operations of a document, which the first request
// renders.
func Reference(document func() ([]byte, error)) echo.HandlerFunc {
	page := sync.OnceValues(func() ([]byte, error) {
		text, err := document()
		if err != nil {
			return nil, err
		}
		var file yaml.Node
		if err := yaml.Unmarshal(text, &file); err != nil {
			return nil, fmt.Errorf("read the OpenAPI document: %w", err)
		}
		t, err := template.New("reference").Parse(referenceHTML)
		if err != nil {
			return nil, fmt.Errorf("parse the page of the API: %w", err)
		}
		var page bytes.Buffer
		err = t.Execute(&page, struct {
			Groups []referenceGroup
			Style  template.CSS
		}{referenceGroups(file.Content[0]), template.CSS(referenceCSS)}) //nolint:gosec // it is this package's own file
		if err != nil {
			return nil, fmt.Errorf("render the page of the API: %w", err)
		}
		return page.Bytes(), nil
	})
	sum := sha256.Sum256([]byte(referenceCSS))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
	return func(c echo.Context) error {
		html, err := page()
		if err != nil {
			return err
		}
		c.Response().Header().Set(echo.HeaderContentSecurityPolicy, policy)
		c.Response().Header().Set(echo.HeaderCacheControl, "no-cache") // another version of the program has another page
		return c.HTMLBlob(http.StatusOK, html)
	}
}

// referenceGroups are the operations of each tag, in the order of the document.
func referenceGroups(root *yaml.Node) []referenceGroup {
	groups := []referenceGroup{}
	for _, tag := range find(root, "tags").Content {
		name := textAt(tag, "name")
		groups = append(groups, referenceGroup{
			Name: name, Anchor: "tag-" + strings.ReplaceAll(name, " ", "-"), Description: textAt(tag, "description"),
		})
	}
	for path, methods := range members(find(root, "paths")) {
		for method, op := range members(methods) {
			tags := find(op, "tags")
			if tags == nil { // parameters of all methods
				continue
			}
			i := slices.IndexFunc(groups, func(g referenceGroup) bool { return g.Name == tags.Content[0].Value })
			groups[i].Operations = append(groups[i].Operations, referenceOperation{
				textAt(op, "operationId"), strings.ToUpper(method), path, textAt(op, "summary"), textAt(op, "x-access"),
			})
		}
	}
	return groups
}
