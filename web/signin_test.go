package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/testnode"
)

const password = testnode.Password

// as creates a user, signs in and adds the cookie to requests.
func (b *dashboard) as(t *testing.T, name string, role access.Role) func(*http.Request) {
	t.Helper()
	b.NewUser(t, name, role)
	return withCookie(t, b.signIn(name, password, ""))
}

func (b *dashboard) signIn(name, with, to string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return b.post("/ui/sign-in", url.Values{"name": {name}, "password": {with}, "to": {to}}, change...)
}

// withCookie adds the session of a response to requests.
func withCookie(t *testing.T, response *httptest.ResponseRecorder) func(*http.Request) {
	t.Helper()
	require.Equal(t, http.StatusSeeOther, response.Code, response.Body)
	for _, cookie := range response.Result().Cookies() {
		if cookie.Name == "__Host-postrider" {
			return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value}) }
		}
	}
	t.Fatal("no session was begun")
	return nil
}

// Package access has which names and passwords are rejected.
func TestFirstAdmin(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	first := func(changes ...string) *httptest.ResponseRecorder {
		form := url.Values{
			"token": {token}, "name": {"ann"}, "password": {password}, "again": {password}, "to": {"/ui/dead-letters?topic=a"},
		}
		return b.post("/ui/first-admin", typed(form, changes...))
	}
	require.Equal(t, "/ui/sign-in?to=%2Fui%2Fdead-letters%3Ftopic%3Da",
		b.request(http.MethodGet, "/ui/dead-letters?topic=a").Header().Get("Location"))
	for _, row := range []struct {
		changes []string
		status  int
		want    string
	}{
		{[]string{"token", token + "x"}, 401, "The admin token is wrong"},
		{[]string{"token", ""}, 401, "The admin token is wrong"},
		{[]string{"again", password + "x"}, 400, "the two passwords differ"},
		{[]string{"password", "password1234", "again", "password1234"}, 400, "too easy to guess"},
		{[]string{"name", " "}, 400, "name"},
	} {
		response := first(row.changes...)
		require.Equal(t, row.status, response.Code, row.changes)
		require.Contains(t, text(response.Body.String()), row.want)
		require.NotContains(t, response.Body.String(), token)
		require.NotContains(t, response.Body.String(), password)
	}
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.users"))

	response := first()
	require.Equal(t, "/ui/dead-letters?topic=a", response.Header().Get("Location"))
	require.Equal(t, http.StatusOK, b.request(http.MethodGet, "/ui/users", withCookie(t, response)).Code)
	require.Equal(t, "ann admin", b.value(t, "SELECT name || ' ' || role FROM postrider.users"))
	again := first("name", "bob")
	require.Equal(t, http.StatusConflict, again.Code)
	require.Contains(t, text(again.Body.String()), "An admin exists already")
	require.NotContains(t, b.request(http.MethodGet, "/ui/sign-in").Body.String(), `name="token"`)
}

func TestSessions(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.NewUser(t, "ann", access.RoleViewer)
	for _, row := range [][2]string{{"ann", "wrong"}, {"missing", password}, {"", ""}} {
		response := b.signIn(row[0], row[1], "")
		require.Equal(t, http.StatusUnauthorized, response.Code)
		require.Contains(t, response.Body.String(), "The name or the password is wrong")
		require.Empty(t, response.Header().Values("Set-Cookie"))
	}
	require.Equal(t, http.StatusForbidden, b.signIn("ann", password, "", sentFrom("cross-site")).Code,
		"another site cannot sign a user in")

	response := b.signIn("ann", password, "")
	require.Regexp(t, `^__Host-postrider=[^;]{43,}; Path=/; Max-Age=604800; HttpOnly; Secure; SameSite=Lax `+
		`postrider-tried=1; Path=/ui/sign-in; Max-Age=10; HttpOnly; SameSite=Lax$`,
		strings.Join(response.Header().Values("Set-Cookie"), " "))
	first := withCookie(t, response)
	page := b.request(http.MethodGet, "/ui/account", first)
	require.Equal(t, http.StatusOK, page.Code)
	require.Contains(t, page.Body.String(), `<body class="viewer">`)

	second := withCookie(t, b.signIn("ann", password, "", first))
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, "/ui/", first).Code,
		"the previous session of the browser has ended")
	require.Equal(t, 1, b.Sessions(t, ""))
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, "/ui/sign-in", second).Code,
		"a signed-in user is redirected")

	for range 2 { // it removes the cookie of an ended session, too
		response := b.post("/ui/sign-out", nil, second)
		require.Equal(t, "/ui/sign-in?done=signed-out", response.Header().Get("Location"))
		require.Contains(t, response.Header().Get("Set-Cookie"), "__Host-postrider=; Path=/; Max-Age=0")
	}
	require.Zero(t, b.Sessions(t, ""))
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, "/ui/", second).Code)
	require.Equal(t, http.StatusUnauthorized,
		b.request(http.MethodGet, "/ui/", second, func(r *http.Request) { r.Header.Set("Hx-Request", "true") }).Code,
		"a refresh is not replaced by the sign-in page")
}

// Refreshes and the tail do not extend a session.
func TestRefreshDoesNotExtendSession(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	ann := b.as(t, "ann", access.RoleViewer)
	ages := 0
	age := func() {
		t.Helper()
		ages++
		b.NewUser(t, fmt.Sprint("other", ages), access.RoleViewer) // with which this node forgets what it found of sessions
		b.Exec(t, "UPDATE postrider_internal.sessions SET last_seen_at = now() - interval '11 hours'")
	}
	const alive = "last_seen_at > now() - interval '1 minute'"
	refreshed := func(r *http.Request) { r.Header.Set("Hx-Request", "true") }
	request := func(method, path string, change ...func(*http.Request)) {
		t.Helper()
		require.Equal(t, http.StatusOK, b.request(method, path, append(change, ann)...).Code)
	}
	require.Contains(t, b.request(http.MethodGet, "/ui/", ann).Body.String(), `hx-trigger="every 5s, shown"`,
		"the page exists")
	age()
	request(http.MethodGet, "/ui/", refreshed)
	request(http.MethodHead, "/ui/tail/stream", func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") })
	require.Zero(t, b.Sessions(t, alive))
	request(http.MethodGet, "/ui/")
	require.Equal(t, 1, b.Sessions(t, alive), "a page view extends the session")

	root := b.as(t, "root", access.RoleAdmin)
	b.hook(t)
	age()
	typed := b.post("/ui/topics/orders/publish", url.Values{"preview": {"1"}}, root, refreshed)
	require.Equal(t, http.StatusOK, typed.Code, typed.Body)
	require.Equal(t, 1, b.Sessions(t, alive), "form input extends the session")
}

func TestSignInRedirectsOnlyToDashboard(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.NewUser(t, "ann", access.RoleViewer)
	require.Equal(t, "/ui/events?topic=a",
		b.signIn("ann", password, "/ui/events?topic=a").Header().Get("Location"))
	for _, to := range []string{
		"", "/v1/topics", "https://example.com/ui/", "//example.com/ui/", `/\example.com/ui/`, `/ui/\example.com`,
		"/ui/../v1", "/ui/%2e%2e/v1", "javascript:alert(1)", "/ui/events\r\nSet-Cookie:x",
	} {
		require.Equal(t, "/ui/", b.signIn("ann", password, to).Header().Get("Location"), to)
	}
}

func TestPasswordGuessesAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.NewUser(t, "ann", access.RoleAdmin)
	var last *httptest.ResponseRecorder
	for range 14 {
		last = b.signIn("ann", "wrong wrong wrong", "")
	}
	require.Equal(t, http.StatusTooManyRequests, last.Code)
	require.Contains(t, text(last.Body.String()), "Too many wrong passwords. Try again in")
	require.Equal(t, http.StatusTooManyRequests, b.signIn("ann", password, "").Code)
}

// formPath is the path of a configuration form.
var formPath = regexp.MustCompile(`/(new|new-topic|edit|keys|delete|publish)$`)

// roleFor is the role that a route requires; "" if the test does not request it.
func roleFor(method, path string) access.Role {
	begins := func(prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	}
	switch {
	case strings.HasSuffix(path, "*"), path == "/ui", strings.HasSuffix(path, "/stream"),
		begins("/ui/static/", "/ui/sign-in", "/ui/first-admin", "/ui/sign-out", "/ui/account/"):
		return ""
	case begins("/ui/query", "/ui/dead-letters/:id/repair"):
		return access.RoleOperator
	case begins("/ui/users", "/ui/api-keys"), formPath.MatchString(path):
		return access.RoleAdmin
	case begins("/ui/columns"): // each role chooses columns
		return access.RoleViewer
	case method == http.MethodPost, strings.HasSuffix(path, "/test"):
		return access.RoleOperator
	default:
		return access.RoleViewer
	}
}

// Each role requests every page and form.
func TestRoles(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.hook(t)
	roles := map[access.Role]func(*http.Request){}
	for _, role := range []access.Role{access.RoleViewer, access.RoleOperator, access.RoleAdmin} {
		roles[role] = b.as(t, string(role), role)
	}
	requests := 0
	for _, route := range b.echo.Routes() {
		needed := roleFor(route.Method, route.Path)
		if needed == "" || route.Method != http.MethodGet && route.Method != http.MethodPost {
			continue
		}
		for role, in := range roles {
			var response *httptest.ResponseRecorder
			if route.Method == http.MethodPost {
				response = b.post(route.Path, nil, in)
			} else {
				response = b.request(route.Method, route.Path, in)
			}
			rejected := response.Code == http.StatusForbidden
			require.Equal(t, !role.Allows(needed), rejected, "%s %s as %s: %d", route.Method, route.Path, role, response.Code)
			if rejected {
				why := "This requires the role " + string(needed)
				if strings.HasPrefix(route.Path, "/ui/query") {
					why = "You may not run queries"
				}
				require.Contains(t, text(response.Body.String()), why)
			}
			requests++
		}
	}
	require.Greater(t, requests, 100)
}

// Admins add, change and remove users. Package access has what is rejected and what ends sessions.
func TestUsers(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	root, ann := b.as(t, "root", access.RoleAdmin), func(*http.Request) {}
	change := func(status int, path string, fields ...string) (page string) {
		t.Helper()
		response := b.post("/ui/users/"+path, typed(url.Values{}, fields...), root)
		require.Equal(t, status, response.Code, fields)
		return response.Body.String()
	}
	requests := func(status int, path string) (page string) {
		t.Helper()
		response := b.request(http.MethodGet, path, ann)
		require.Equal(t, status, response.Code, path)
		return response.Body.String()
	}
	change(303, "add", "name", "ann", "role", "viewer", "password", password)
	change(409, "add", "name", "ann", "role", "viewer", "password", password)
	require.Contains(t, change(400, "add", "name", "<b>", "role", "king", "password", "short"), `value="&lt;b&gt;"`,
		"what was typed is there still")
	ann = withCookie(t, b.signIn("ann", password, ""))
	require.NotContains(t, requests(200, "/ui/audit"), `href="/ui/query"`)
	requests(403, "/ui/query")
	change(303, "ann/change", "change", "allow-queries")
	require.Contains(t, requests(200, "/ui/audit"), `<body class="viewer queries">`)
	require.Contains(t, requests(200, "/ui/query"), `href="/ui/query"`, "the menu")
	change(303, "ann/change", "change", "role", "role", "operator")
	requests(303, "/ui/") // a new role ends the session
	change(303, "ann/change", "change", "disable")
	require.Equal(t, http.StatusUnauthorized, b.signIn("ann", password, "").Code)
	change(303, "ann/change", "change", "enable")
	require.Contains(t, change(400, "ann/change", "change", "password", "password", "ann-postrider"), "too easy to guess")

	const fresh = "an entirely new one"
	ann = withCookie(t, b.signIn("ann", password, ""))
	for _, old := range []string{"x", password} {
		form := url.Values{"old": {old}, "password": {fresh}, "again": {fresh}}
		require.Equal(t, old == password, b.post("/ui/account/password", form, ann).Code == http.StatusSeeOther)
	}
	requests(303, "/ui/") // a new session
	withCookie(t, b.signIn("ann", fresh, ""))
	require.Contains(t, text(change(409, "root/change", "change", "role", "role", "viewer")), "the last enabled admin")
	change(303, "ann/remove")
	require.Equal(t, "user:root 192.0.2.1",
		b.value(t, "SELECT actor || ' ' || host(address::inet) FROM postrider.audit WHERE action = 'user_deleted'"))
}

// API keys of the installation, and those of a user, are shown once.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	root, anna := b.as(t, "root", access.RoleAdmin), b.as(t, "anna", access.RoleOperator)
	created := b.post("/ui/api-keys/create", url.Values{"name": {"billing"}, "scope": {"read"}, "days": {"30"}}, root)
	require.Equal(t, http.StatusOK, created.Code, created.Body)
	list := func() string { return b.request(http.MethodGet, "/ui/api-keys", root).Body.String() }
	require.NotContains(t, list(), keyIn(t, created), "it is shown once")
	taken := b.post("/ui/api-keys/create", url.Values{"name": {"billing"}, "scope": {"read"}}, root)
	require.Equal(t, http.StatusConflict, taken.Code)
	require.Equal(t, http.StatusSeeOther, b.post("/ui/api-keys/billing/revoke", nil, root).Code)
	require.Contains(t, list(), "revoked")
	require.Equal(t, http.StatusNotFound, b.post("/ui/api-keys/missing/revoke", nil, root).Code)

	const create = "/ui/account/keys/create"
	created = b.post(create, url.Values{"machine": {"bastion"}, "role": {"viewer"}, "days": {"7"}}, anna)
	key, err := b.System.Access.APIKeyOf(t.Context(), keyIn(t, created))
	require.NoError(t, err)
	account := func() string { return b.request(http.MethodGet, "/ui/account", anna).Body.String() }
	require.Contains(t, account(), "bastion")
	rejected := b.post(create, url.Values{"machine": {"kept"}, "role": {"viewer"}, "days": {"91"}}, anna)
	require.Equal(t, http.StatusBadRequest, rejected.Code)
	require.Contains(t, rejected.Body.String(), "days must be a whole number from 1 to 90")
	require.Contains(t, rejected.Body.String(), `value="kept"`)
	require.Equal(t, http.StatusSeeOther, b.post("/ui/account/keys/"+key.Name+"/revoke", nil, anna).Code)
	require.NotContains(t, account(), "bastion")
}

// keyIn is the new key that a page shows.
func keyIn(t *testing.T, page *httptest.ResponseRecorder) string {
	t.Helper()
	key := regexp.MustCompile(`prk_[^<"]+`).FindString(page.Body.String())
	require.NotEmpty(t, key)
	return key
}

// Without a session only small forms are read, and none is written to disk.
func TestFormBodyLimits(t *testing.T) {
	t.Parallel()
	open, shut := setup(t), setup(t, withSignIn)
	multipart := func(r *http.Request) { r.Header.Set("Content-Type", "multipart/form-data; boundary=x") }
	long := func(n int) url.Values { return url.Values{"name": {strings.Repeat("x", n)}} }
	streamed := func(r *http.Request) { r.ContentLength = -1 }
	for _, path := range []string{"/ui/sign-in", "/ui/first-admin", "/ui/users/add"} {
		require.Equal(t, http.StatusUnsupportedMediaType, shut.post(path, long(10), multipart).Code, path)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, shut.post("/ui/sign-in", long(17<<10)).Code)
	shut.NewUser(t, "ann", access.RoleViewer)
	for size, status := range map[int]int{10 << 10: http.StatusSeeOther, 17 << 10: http.StatusRequestEntityTooLarge} {
		form := url.Values{"name": {"ann"}, "password": {password}, "to": {strings.Repeat("x", size)}}
		require.Equal(t, status, shut.post("/ui/sign-in", form, streamed).Code, "large bodies are not read")
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, open.post("/ui/users/add", long(5<<20)).Code)
	require.Equal(t, http.StatusNotFound, open.request(http.MethodGet, "/ui/sign-in").Code,
		"no first admin without sign-in")
	require.NotEqual(t, http.StatusOK, open.post("/ui/first-admin", url.Values{"token": {token}}).Code)
}

// The end of a session ends its open tail.
func TestTailEndsWithTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	ann := b.as(t, "ann", access.RoleViewer)
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/ui/tail/stream", nil)
	require.NoError(t, err)
	ann(request)
	response, err := srv.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, b.System.Access.DeleteUser(t.Context(), "ann"))
	_, err = io.ReadAll(response.Body) // blocks while the stream is open
	require.NoError(t, err)
}
