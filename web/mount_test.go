package web_test

import (
	"context"
	"net/http"
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
	for name, options := range map[string]web.Options{
		"no database":    {AdminToken: token},
		"no admin token": {Parts: web.Parts{DB: &postgres.DB{}}},
		"neither, open":  {Open: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Error(t, web.Mount(echo.New(), options))
		})
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
	for name, row := range map[string]struct {
		on           *dashboard
		method, path string
		status       int
	}{
		"overview":                   {open, "GET", "/ui/", 200},
		"event subscriptions":        {open, "GET", "/ui/subscriptions", 200},
		"dead letters":               {open, "GET", "/ui/dead-letters", 200},
		"HEAD":                       {open, "HEAD", "/ui/dead-letters", 200},
		"redirect":                   {open, "GET", "/ui", 301},
		"no such page":               {open, "GET", "/ui/nothing", 404},
		"below a page":               {open, "GET", "/ui/dead-letters/x", 404},
		"deeper below a page":        {open, "GET", "/ui/dead-letters/x/y", 404},
		"no such delivery":           {open, "GET", "/ui/deliveries/1", 404},
		"no such event":              {open, "GET", "/ui/events/01890a5d-ac96-774b-bcce-b302099a8057", 404},
		"no such operation":          {open, "GET", "/ui/operations/01890a5d-ac96-774b-bcce-b302099a8057", 404},
		"not an operation":           {open, "GET", "/ui/operations/x", 404},
		"purge page, not found":      {open, "GET", "/ui/dead-letters/01890a5d-ac96-774b-bcce-b302099a8057/purge", 404},
		"no such event subscription": {open, "GET", "/ui/subscriptions/a/b", 404},
		"no such topic":              {open, "GET", "/ui/topics/a", 404},
		"no such state":              {open, "GET", "/ui/deliveries?state=lost", 400},
		"not a time":                 {open, "GET", "/ui/events?from=yesterday", 400},
		"no such file":               {open, "GET", "/ui/static/style.css", 404},
		"path traversal":             {open, "GET", "/ui/static/..%2f..%2fgo.mod", 404},
		"invalid paging key":         {open, "GET", "/ui/dead-letters?before=x", 400},
		"POST":                       {open, "POST", "/ui/dead-letters", 405},
		"DELETE at the redirect":     {open, "DELETE", "/ui", 405},
		"PUT at the stylesheet":      {open, "PUT", "/ui/static/style.css", 405},
		"unknown method":             {open, "BREW", "/ui/", 404},
		"no session":                 {shut, "GET", "/ui/", 303},
		"no session, no such page":   {shut, "GET", "/ui/nothing", 303},
		"the sign-in page":           {shut, "GET", "/ui/sign-in", 200},
		"no session, POST":           {shut, "POST", "/ui/", 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := row.on.request(row.method, row.path)
			require.Equal(t, row.status, response.Code)
			require.Equal(t, "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "+
				"'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
				response.Header().Get("Content-Security-Policy"))
			require.Equal(t, "nosniff", response.Header().Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", response.Header().Get("Referrer-Policy"))
			require.Equal(t, "no-store", response.Header().Get("Cache-Control"))
			if row.status != http.StatusMovedPermanently && row.status != http.StatusSeeOther {
				require.Equal(t, "text/html; charset=UTF-8", response.Header().Get("Content-Type"))
			}
			if row.status == http.StatusMethodNotAllowed {
				require.Equal(t, "GET, HEAD", response.Header().Get("Allow"))
			}
		})
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

func TestErrorPagesHideInternals(t *testing.T) {
	t.Parallel()
	t.Run("SQL error", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.pool.Exec(t.Context(), "DROP VIEW postrider.dead_letters, postrider.event_subscriptions CASCADE")
		require.NoError(t, err)
		for _, path := range []string{"/ui/", "/ui/subscriptions", "/ui/dead-letters"} {
			response := b.request(http.MethodGet, path)
			require.Equal(t, http.StatusInternalServerError, response.Code)
			require.Contains(t, response.Body.String(), "Internal error")
			require.NotContains(t, response.Body.String(), "42P01")
			require.NotContains(t, response.Body.String(), "does not exist")
		}
	})
	t.Run("the database is unavailable", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		for _, path := range []string{"/ui/", "/ui/subscriptions", "/ui/dead-letters"} {
			response := b.request(http.MethodGet, path, func(r *http.Request) { *r = *r.WithContext(ctx) })
			require.Equal(t, http.StatusServiceUnavailable, response.Code)
			require.Contains(t, response.Body.String(), "Database unavailable")
			require.NotContains(t, response.Body.String(), "deadline")
		}
	})
}
