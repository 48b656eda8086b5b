package web_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"regexp"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/web"
)

const token = "correct horse battery staple ✓"

func withSignIn(o *web.Options) { o.Open, o.AdminToken = false, token }

func TestMountRejectsMissingOptions(t *testing.T) {
	t.Parallel()
	for _, options := range []web.Options{
		{AdminToken: token}, {Parts: web.Parts{DB: &postgres.DB{}}}, {Open: true},
	} {
		require.Error(t, web.Mount(echo.New(), options))
	}
}

func TestRoutesAreBelowUI(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	for _, route := range b.echo.Routes() {
		require.Regexp(t, `^/ui(/|$)`, route.Path)
	}
	response := b.request(http.MethodGet, "/ui")
	require.Equal(t, http.StatusMovedPermanently, response.Code)
	require.Equal(t, "/ui/", response.Header().Get("Location"))
}

// Every kind of response has the headers: pages, files, redirects, rejections and errors.
func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	open, shut := setup(t), setup(t, withSignIn)
	for _, row := range []struct {
		on           *dashboard
		method, path string
		status       int
	}{
		{open, "GET", "/ui/", 200},
		{open, "GET", "/ui/dead-letters", 200},
		{open, "HEAD", "/ui/dead-letters", 200},
		{open, "GET", "/ui", 301},
		{open, "GET", "/ui/nothing", 404},
		{open, "GET", "/ui/dead-letters/x", 404},
		{open, "GET", "/ui/deliveries/1", 404},
		{open, "GET", "/ui/operations/01890a5d-ac96-774b-bcce-b302099a8057", 404},
		{open, "GET", "/ui/operations/x", 404},
		{open, "GET", "/ui/dead-letters/01890a5d-ac96-774b-bcce-b302099a8057/purge", 404},
		{open, "GET", "/ui/subscriptions/a/b", 404},
		{open, "GET", "/ui/deliveries?state=lost", 400},
		{open, "GET", "/ui/events?from=yesterday", 400},
		{open, "GET", "/ui/static/style.css", 404},
		{open, "GET", "/ui/static/..%2f..%2fgo.mod", 404},
		{open, "GET", "/ui/dead-letters?before=x", 400},
		{open, "POST", "/ui/dead-letters", 405},
		{open, "DELETE", "/ui", 405},
		{open, "PUT", "/ui/static/style.css", 405},
		{open, "BREW", "/ui/", 404},
		{shut, "GET", "/ui/", 303},
		{shut, "GET", "/ui/nothing", 303},
		{shut, "GET", "/ui/sign-in", 200},
		{shut, "POST", "/ui/", 401},
	} {
		response := row.on.request(row.method, row.path)
		what := row.method + " " + row.path
		require.Equal(t, row.status, response.Code, what)
		require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "+
			"'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			response.Header().Get("Content-Security-Policy"), what)
		require.Equal(t, "nosniff", response.Header().Get("X-Content-Type-Options"), what)
		require.Equal(t, "no-referrer", response.Header().Get("Referrer-Policy"), what)
		require.Equal(t, "no-store", response.Header().Get("Cache-Control"), what)
		if row.status != http.StatusMovedPermanently && row.status != http.StatusSeeOther {
			require.Equal(t, "text/html; charset=UTF-8", response.Header().Get("Content-Type"), what)
		}
		if row.status == http.StatusMethodNotAllowed {
			require.Equal(t, "GET, HEAD", response.Header().Get("Allow"), what)
		}
	}
}

func TestStaticFilesAreCachedByHash(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	page := b.request(http.MethodGet, "/ui/sign-in")
	path := regexp.MustCompile(`/ui/static/style\.[0-9a-f]{12}\.css`).FindString(page.Body.String())
	require.NotEmpty(t, path)
	response := b.request(http.MethodGet, path)
	require.Equal(t, http.StatusOK, response.Code, "the sign-in page has the stylesheet")
	require.Equal(t, "public, max-age=31536000, immutable", response.Header().Get("Cache-Control"))
	require.Equal(t, "text/css; charset=utf-8", response.Header().Get("Content-Type"))
	require.Contains(t, response.Header().Get("Content-Security-Policy"), "default-src 'none'")
	require.NotContains(t, response.Body.String(), "url(", "the policy lets a stylesheet load nothing")
	for _, script := range []string{
		`htmx\.min\.[0-9a-f]{12}\.js`, `uPlot\.min\.[0-9a-f]{12}\.js`, `app\.[0-9a-f]{12}\.js`,
	} {
		path := regexp.MustCompile(`/ui/static/` + script).FindString(page.Body.String())
		require.NotEmpty(t, path, script)
		response := b.request(http.MethodGet, path)
		require.Equal(t, http.StatusOK, response.Code)
		require.Equal(t, "text/javascript; charset=utf-8", response.Header().Get("Content-Type"))
	}
}

// A site whose name was pointed at 127.0.0.1 must not read a dashboard without sign-in.
func TestOpenDashboardChecksHost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for host, status := range map[string]int{
		"localhost": 200, "LocalHost:8080": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200, "192.168.1.7": 200,
		"example.com": 421, "example.com:8080": 421, "localhost.example.com": 421, "127.0.0.1.example.com:80": 421, "": 421,
	} {
		response := b.request(http.MethodGet, "/ui/dead-letters", func(r *http.Request) { r.Host = host })
		require.Equal(t, status, response.Code, host)
	}
}

// TestPagesDuringAnOutage has the errors of an unavailable database.
func TestErrorPagesHideInternals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Exec(t, "DROP VIEW postrider.dead_letters, postrider.event_subscriptions, postrider.backlogs CASCADE")
	for _, path := range []string{"/ui/", "/ui/subscriptions", "/ui/dead-letters"} {
		response := b.request(http.MethodGet, path)
		require.Equal(t, http.StatusInternalServerError, response.Code)
		require.Contains(t, response.Body.String(), "Internal error")
		require.NotContains(t, response.Body.String(), "42P01")
		require.NotContains(t, response.Body.String(), "does not exist")
	}
}

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

// Vendored files have known hashes. Compare a new version with its project's release before you change a hash here.
func TestVendoredFilesAreUnchanged(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"static/htmx.min.js":   "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
		"static/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"static/uPlot.min.js":  "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
	} {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		sum := sha256.Sum256(content)
		require.Equal(t, want, hex.EncodeToString(sum[:]), name)
	}
}
