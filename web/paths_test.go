package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Path traversal finds neither hidden files nor pages without sign-in. The router decodes once, and files come from a
// list.
func TestPathTraversal(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	for _, path := range []string{
		"/ui/static/../main.go", "/ui/static/..%2fmain.go", "/ui/static/%2e%2e/main.go",
		"/ui/static/%2e%2e%2f%2e%2e%2fgo.mod", "/ui/static/..%5cgo.mod", "/ui/static/%252e%252e%252fgo.mod",
		"/ui/static//etc/passwd", "/ui/static/%2fetc%2fpasswd", "/ui/static/", "/ui/static", "/ui/static/style.css%00.js",
		"/ui/static/templates/layout.html",
		"/ui//", "/ui/./dead-letters", "/ui/%2e/dead-letters", "/ui/static/../dead-letters", "/ui/static/..%2fdead-letters",
		"/ui%2fdead-letters", "/ui%2F..", "/UI/dead-letters", "//ui/dead-letters",
		"/ui/;/dead-letters", "/ui/dead-letters;x=/static/style.css", "/ui/dead-letters%00", "/ui/dead-letters/",
	} {
		response := b.request(http.MethodGet, path)
		// 303 redirects to the sign-in page
		require.Contains(t,
			[]int{http.StatusUnauthorized, http.StatusNotFound, http.StatusMovedPermanently, http.StatusSeeOther},
			response.Code, path)
		require.NotContains(t, response.Body.String(), "module postrider", path)
		require.NotContains(t, response.Body.String(), "{{", path)
		require.NotContains(t, response.Body.String(), "root:x:", path)
	}
}
