package openapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
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

var referencePage = sync.OnceValues(func() ([]byte, error) {
	var page bytes.Buffer
	err := template.Must(template.New("reference").Parse(referenceHTML)).Execute(&page, struct {
		Groups []referenceGroup
		Style  template.CSS
	}{read().groups(), template.CSS(referenceCSS)}) //nolint:gosec // it is this package's own file
	return page.Bytes(), err
})

// Reference returns the handler of GET /openapi: a page with the operations of the document, which the first request
// renders.
func Reference() echo.HandlerFunc {
	sum := sha256.Sum256([]byte(referenceCSS))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
	return func(c echo.Context) error {
		html, err := referencePage()
		if err != nil {
			return fmt.Errorf("render the page of the API: %w", err)
		}
		c.Response().Header().Set(echo.HeaderContentSecurityPolicy, policy)
		c.Response().Header().Set(echo.HeaderCacheControl, "no-cache") // another version of the program has another page
		return c.HTMLBlob(http.StatusOK, html)
	}
}

// groups are the operations of each tag, by path and method.
func (f file) groups() []referenceGroup {
	groups := []referenceGroup{}
	for _, tag := range f.Tags {
		group := referenceGroup{
			Name: tag.Name, Anchor: "tag-" + strings.ReplaceAll(tag.Name, " ", "-"), Description: tag.Description,
		}
		for _, path := range slices.Sorted(maps.Keys(f.Paths)) {
			for _, method := range []string{"get", "put", "post", "patch", "delete", "options"} {
				if op := f.Paths[path][method]; slices.Contains(op.Tags, tag.Name) {
					group.Operations = append(group.Operations,
						referenceOperation{op.ID, strings.ToUpper(method), path, op.Summary, op.Access})
				}
			}
		}
		groups = append(groups, group)
	}
	return groups
}
