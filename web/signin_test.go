package web_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

const password = "twelve horses at least"

// user creates a user who can sign in.
func (b *dashboard) user(t *testing.T, name string, role access.Role) {
	t.Helper()
	_, err := b.store.Access.PutUser(t.Context(), name, access.UserSpec{Role: role, Password: ptr(password)})
	require.NoError(t, err)
}

// as creates a user, signs in and adds the cookie to requests.
func (b *dashboard) as(t *testing.T, name string, role access.Role) func(*http.Request) {
	t.Helper()
	b.user(t, name, role)
	return withCookie(t, b.post("/ui/sign-in", url.Values{"name": {name}, "password": {password}}))
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

func TestFirstAdmin(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	first := func(change func(url.Values)) *httptest.ResponseRecorder {
		form := url.Values{
			"token": {token}, "name": {"ann"}, "password": {password}, "again": {password}, "to": {"/ui/dead-letters?topic=a"},
		}
		change(form)
		return b.post("/ui/first-admin", form)
	}
	require.Equal(t, "/ui/sign-in?to=%2Fui%2Fdead-letters%3Ftopic%3Da",
		b.request(http.MethodGet, "/ui/dead-letters?topic=a").Header().Get("Location"))
	for name, row := range map[string]struct {
		change func(url.Values)
		status int
		want   string
	}{
		"a wrong token":    {func(f url.Values) { f.Set("token", token+"x") }, 401, "The admin token is wrong"},
		"no token":         {func(f url.Values) { f.Del("token") }, 401, "The admin token is wrong"},
		"two passwords":    {func(f url.Values) { f.Set("again", password+"x") }, 400, "the two passwords differ"},
		"a short password": {func(f url.Values) { f.Set("password", "short"); f.Set("again", "short") }, 400, "password"},
		"a weak password": {
			func(f url.Values) { f.Set("password", "password1234"); f.Set("again", "password1234") }, 400, "too easy to guess",
		},
		"a name of nothing": {func(f url.Values) { f.Set("name", " ") }, 400, "name"},
	} {
		response := first(row.change)
		require.Equal(t, row.status, response.Code, name)
		require.Contains(t, text(response.Body.String()), row.want, name)
		require.NotContains(t, response.Body.String(), token)
		require.NotContains(t, response.Body.String(), password)
	}
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.users"))

	response := first(func(url.Values) {})
	require.Equal(t, "/ui/dead-letters?topic=a", response.Header().Get("Location"))
	in := withCookie(t, response)
	require.Equal(t, http.StatusOK, b.request(http.MethodGet, "/ui/users", in).Code)
	require.Equal(t, "ann admin", b.value(t, "SELECT name || ' ' || role FROM postrider.users"))

	again := first(func(f url.Values) { f.Set("name", "bob") })
	require.Equal(t, http.StatusConflict, again.Code)
	require.Contains(t, text(again.Body.String()), "An admin exists already")
	require.NotContains(t, b.request(http.MethodGet, "/ui/sign-in").Body.String(), `name="token"`)
}

func TestWrongAdminTokensAreDelayed(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	responses := make(chan int, 40)
	began := time.Now()
	for range cap(responses) {
		go func() { responses <- b.post("/ui/first-admin", url.Values{"token": {"x"}}).Code }()
	}
	slowed := 0
	for range cap(responses) {
		code := <-responses
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests}, code)
		if code == http.StatusTooManyRequests {
			slowed++
		}
	}
	require.Positive(t, slowed)
	require.GreaterOrEqual(t, time.Since(began), time.Second)
}

// Wrong tokens of other clients do not delay the right one.
func TestWrongAdminTokensDoNotDelayRightOne(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	wrongTokens := make(chan int, 60)
	for range cap(wrongTokens) {
		go func() { wrongTokens <- b.post("/ui/first-admin", url.Values{"token": {"x"}}).Code }()
	}
	require.Equal(t, http.StatusTooManyRequests, <-wrongTokens, "the others are delayed or rejected")
	form := url.Values{"token": {token}, "name": {"ann"}, "password": {password}, "again": {password}}
	require.Equal(t, http.StatusSeeOther, b.post("/ui/first-admin", form).Code)
	for range cap(wrongTokens) - 1 {
		<-wrongTokens
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.user(t, "ann", access.RoleViewer)
	signIn := func(name, with, to string, change ...func(*http.Request)) *httptest.ResponseRecorder {
		return b.post("/ui/sign-in", url.Values{"name": {name}, "password": {with}, "to": {to}}, change...)
	}
	for _, row := range [][2]string{
		{"ann", "wrong"}, {"ann", ""}, {"missing", password}, {"", ""}, {"ann", password + " "},
	} {
		response := signIn(row[0], row[1], "")
		require.Equal(t, http.StatusUnauthorized, response.Code)
		require.Contains(t, response.Body.String(), "The name or the password is wrong")
		require.Empty(t, response.Header().Values("Set-Cookie"))
	}
	foreign := signIn("ann", password, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	require.Equal(t, http.StatusForbidden, foreign.Code, "another site cannot sign a user in")

	response := signIn("ann", password, "")
	require.Regexp(t, `^__Host-postrider=[^;]{43,}; Path=/; Max-Age=604800; HttpOnly; Secure; SameSite=Lax$`,
		response.Header().Get("Set-Cookie"))
	first := withCookie(t, response)
	page := b.request(http.MethodGet, "/ui/account", first)
	require.Equal(t, http.StatusOK, page.Code)
	require.Contains(t, page.Body.String(), `<body class="viewer">`)

	second := withCookie(t, signIn("ann", password, "", first))
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, "/ui/", first).Code,
		"the previous session of the browser has ended")
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider_internal.sessions"))
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, "/ui/sign-in", second).Code,
		"a signed-in user is redirected")

	for range 2 { // it removes the cookie of an ended session, too
		response := b.post("/ui/sign-out", nil, second)
		require.Equal(t, "/ui/sign-in?done=signed-out", response.Header().Get("Location"))
		require.Contains(t, response.Header().Get("Set-Cookie"), "__Host-postrider=; Path=/; Max-Age=0")
	}
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider_internal.sessions"))
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
		b.user(t, fmt.Sprint("other", ages), access.RoleViewer) // with which this node forgets what it has found of sessions
		_, err := b.pool.Exec(t.Context(),
			"UPDATE postrider_internal.sessions SET last_seen_at = now() - interval '11 hours'")
		require.NoError(t, err)
	}
	const alive = "SELECT count(*) FROM postrider_internal.sessions WHERE last_seen_at > now() - interval '1 minute'"
	refreshed := func(r *http.Request) { r.Header.Set("Hx-Request", "true") }
	streamed := func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") }
	request := func(method, path string, change ...func(*http.Request)) {
		t.Helper()
		require.Equal(t, http.StatusOK, b.request(method, path, append(change, ann)...).Code)
	}
	require.Contains(t, b.request(http.MethodGet, "/ui/", ann).Body.String(), `hx-trigger="every 5s"`,
		"the page exists")
	age()
	request(http.MethodGet, "/ui/", refreshed)
	request(http.MethodHead, "/ui/tail/stream", streamed)
	require.Equal(t, "0", b.value(t, alive))
	request(http.MethodGet, "/ui/")
	require.Equal(t, "1", b.value(t, alive), "a page view extends the session")

	root := b.as(t, "root", access.RoleAdmin)
	b.subscribe(t, "orders", "billing")
	age()
	typed := b.post("/ui/topics/orders/publish", url.Values{"preview": {"1"}}, root, refreshed)
	require.Equal(t, http.StatusOK, typed.Code, typed.Body)
	require.Equal(t, "1", b.value(t, alive), "form input extends the session")
}

func TestSignInRedirectsOnlyToDashboard(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.user(t, "ann", access.RoleViewer)
	for to, want := range map[string]string{
		"/ui/events?topic=a":         "/ui/events?topic=a",
		"":                           "/ui/",
		"/v1/topics":                 "/ui/",
		"https://example.com/ui/":    "/ui/",
		"//example.com/ui/":          "/ui/",
		`/\example.com/ui/`:          "/ui/",
		`/ui/\example.com`:           "/ui/",
		"/ui/../v1":                  "/ui/",
		"/ui/%2e%2e/v1":              "/ui/",
		"javascript:alert(1)":        "/ui/",
		"/ui/events\r\nSet-Cookie:x": "/ui/",
	} {
		response := b.post("/ui/sign-in", url.Values{"name": {"ann"}, "password": {password}, "to": {to}})
		require.Equal(t, want, response.Header().Get("Location"), to)
	}
}

func TestPasswordGuessesAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.user(t, "ann", access.RoleAdmin)
	var last *httptest.ResponseRecorder
	for range 14 {
		last = b.post("/ui/sign-in", url.Values{"name": {"ann"}, "password": {"wrong wrong wrong"}})
	}
	require.Equal(t, http.StatusTooManyRequests, last.Code)
	require.Contains(t, text(last.Body.String()), "Too many wrong passwords. Try again in")
	require.Equal(t, http.StatusTooManyRequests,
		b.post("/ui/sign-in", url.Values{"name": {"ann"}, "password": {password}}).Code)
}

// formPath is the path of a configuration form.
var formPath = regexp.MustCompile(`/(new|new-topic|edit|keys|delete|publish)$`)

// Each role requests every page and form.
func TestRoles(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	b.subscribe(t, "orders", "billing")
	roles := map[access.Role]func(*http.Request){}
	for _, role := range []access.Role{access.RoleViewer, access.RoleOperator, access.RoleAdmin} {
		roles[role] = b.as(t, string(role), role)
	}
	admins := []string{"/ui/users", "/ui/api-keys"}
	own := []string{"/ui/sign-in", "/ui/first-admin", "/ui/sign-out", "/ui/account/"}
	workbench := []string{"/ui/query", "/ui/dead-letters/:id/repair"}
	begins := func(path string, list []string) bool {
		for _, prefix := range list {
			if strings.HasPrefix(path, prefix) {
				return true
			}
		}
		return false
	}
	requests := 0
	for _, route := range b.echo.Routes() {
		if strings.HasSuffix(route.Path, "*") || strings.HasPrefix(route.Path, "/ui/static/") || route.Path == "/ui" ||
			begins(route.Path, own) {
			continue
		}
		needed := access.RoleViewer
		switch {
		case begins(route.Path, workbench):
			needed = access.RoleOperator
		case begins(route.Path, admins), formPath.MatchString(route.Path):
			needed = access.RoleAdmin
		case begins(route.Path, []string{"/ui/columns"}): // each role chooses columns
		case route.Method == http.MethodPost, strings.HasSuffix(route.Path, "/test"):
			needed = access.RoleOperator
		case route.Method != http.MethodGet && route.Method != http.MethodPost || strings.HasSuffix(route.Path, "/stream"):
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
				if begins(route.Path, []string{"/ui/query"}) {
					why = "You may not run queries"
				}
				require.Contains(t, text(response.Body.String()), why)
			}
			requests++
		}
	}
	require.Greater(t, requests, 100)
}

func TestUsers(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	root := b.as(t, "root", access.RoleAdmin)
	do := func(path string, form url.Values, who func(*http.Request)) *httptest.ResponseRecorder {
		return b.post(path, form, who)
	}
	require.Equal(t, http.StatusSeeOther,
		do("/ui/users/add", url.Values{"name": {"ann"}, "role": {"viewer"}, "password": {password}}, root).Code)
	require.Equal(t, http.StatusConflict,
		do("/ui/users/add", url.Values{"name": {"ann"}, "role": {"viewer"}, "password": {password}}, root).Code)
	rejected := do("/ui/users/add", url.Values{"name": {"<b>"}, "role": {"king"}, "password": {"short"}}, root)
	require.Equal(t, http.StatusBadRequest, rejected.Code)
	require.Contains(t, rejected.Body.String(), `value="&lt;b&gt;"`, "what was typed is there still")

	ann := withCookie(t, b.post("/ui/sign-in", url.Values{"name": {"ann"}, "password": {password}}))
	require.Equal(t, http.StatusForbidden, b.request(http.MethodGet, "/ui/query", ann).Code)
	require.Equal(t, http.StatusSeeOther,
		do("/ui/users/ann/change", url.Values{"change": {"allow-queries"}}, root).Code)
	require.Equal(t, http.StatusOK, b.request(http.MethodGet, "/ui/query", ann).Code)
	require.Equal(t, http.StatusSeeOther,
		do("/ui/users/ann/change", url.Values{"change": {"role"}, "role": {"operator"}}, root).Code)
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, "/ui/", ann).Code, "a new role ends the session")
	require.Equal(t, http.StatusSeeOther, do("/ui/users/ann/change", url.Values{"change": {"disable"}}, root).Code)
	require.Equal(t, http.StatusUnauthorized,
		b.post("/ui/sign-in", url.Values{"name": {"ann"}, "password": {password}}).Code)
	require.Equal(t, http.StatusSeeOther, do("/ui/users/ann/change", url.Values{"change": {"enable"}}, root).Code)
	require.Contains(t,
		do("/ui/users/ann/change", url.Values{"change": {"password"}, "password": {"ann-postrider"}}, root).Body.String(),
		"too easy to guess")
	const fresh = "an entirely new one"
	ann = withCookie(t, b.post("/ui/sign-in", url.Values{"name": {"ann"}, "password": {password}}))
	wrong := b.post("/ui/account/password", url.Values{"old": {"x"}, "password": {fresh}, "again": {fresh}}, ann)
	require.Equal(t, http.StatusForbidden, wrong.Code)
	require.Equal(t, http.StatusSeeOther,
		b.post("/ui/account/password", url.Values{"old": {password}, "password": {fresh}, "again": {fresh}}, ann).Code)
	require.Equal(t, http.StatusSeeOther, b.request(http.MethodGet, "/ui/", ann).Code, "a new session")
	withCookie(t, b.post("/ui/sign-in", url.Values{"name": {"ann"}, "password": {fresh}}))

	last := do("/ui/users/root/change", url.Values{"change": {"role"}, "role": {"viewer"}}, root)
	require.Equal(t, http.StatusConflict, last.Code)
	require.Contains(t, text(last.Body.String()), "the last enabled admin")
	require.Equal(t, http.StatusSeeOther, do("/ui/users/ann/remove", nil, root).Code)
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider.users"))
	require.Equal(t, "user:root 192.0.2.1",
		b.value(t, "SELECT actor || ' ' || host(address::inet) FROM postrider.audit WHERE action = 'user_deleted'"))
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	root := b.as(t, "root", access.RoleAdmin)
	created := b.post("/ui/api-keys/create", url.Values{"name": {"billing"}, "scope": {"read"}, "days": {"30"}}, root)
	require.Equal(t, http.StatusOK, created.Code, created.Body)
	key := between(created.Body.String(), "prk_", "<")
	require.NotEmpty(t, key)
	require.NotContains(t, b.request(http.MethodGet, "/ui/api-keys", root).Body.String(), key, "it is shown once")
	require.Equal(t, http.StatusBadRequest,
		b.post("/ui/api-keys/create", url.Values{"name": {"x y"}, "scope": {"king"}, "days": {"soon"}}, root).Code)
	require.Equal(t, http.StatusConflict,
		b.post("/ui/api-keys/create", url.Values{"name": {"billing"}, "scope": {"read"}}, root).Code)
	require.Equal(t, http.StatusSeeOther, b.post("/ui/api-keys/billing/revoke", nil, root).Code)
	require.Contains(t, b.request(http.MethodGet, "/ui/api-keys", root).Body.String(), "revoked")
	require.Equal(t, http.StatusNotFound, b.post("/ui/api-keys/missing/revoke", nil, root).Code)
}

func TestPersonalKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	anna := b.as(t, "anna", access.RoleOperator)
	created := b.post("/ui/account/keys/create",
		url.Values{"machine": {"bastion"}, "role": {"viewer"}, "days": {"7"}}, anna)
	require.Equal(t, http.StatusOK, created.Code, created.Body)
	_, err := b.store.Access.APIKeyOf(t.Context(), "prk_"+between(created.Body.String(), "prk_", "<"))
	require.NoError(t, err)
	keys, err := b.store.Access.PersonalKeys(t.Context(), "anna")
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, 7*24*time.Hour, keys[0].ExpiresAt.Sub(keys[0].CreatedAt))
	require.Contains(t, b.request(http.MethodGet, "/ui/account", anna).Body.String(), "bastion")
	rejected := b.post("/ui/account/keys/create",
		url.Values{"machine": {"kept"}, "role": {"viewer"}, "days": {"91"}}, anna)
	require.Equal(t, http.StatusBadRequest, rejected.Code)
	require.Contains(t, rejected.Body.String(), "days must be a whole number from 1 to 90")
	require.Contains(t, rejected.Body.String(), `value="kept"`)
	require.Equal(t, http.StatusSeeOther, b.post("/ui/account/keys/"+keys[0].Name+"/revoke", nil, anna).Code)
	require.NotContains(t, b.request(http.MethodGet, "/ui/account", anna).Body.String(), "bastion")
}

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	inner, _, _ := strings.Cut(rest, to)
	return inner
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
	require.Equal(t, http.StatusUnauthorized, shut.post("/ui/sign-in", long(17<<10), streamed).Code,
		"large bodies are not read")
	require.Equal(t, http.StatusUnauthorized, shut.post("/ui/sign-in", long(10<<10)).Code)
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
	require.NoError(t, b.store.Access.DeleteUser(t.Context(), "ann"))
	_, err = io.ReadAll(response.Body) // blocks while the stream is open
	require.NoError(t, err)
}
