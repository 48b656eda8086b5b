package web_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/access"
)

// login starts a postrider login from 192.0.2.9.
func (b *bundle) login(t *testing.T, role access.Role) (secret, code string) {
	t.Helper()
	ctx := access.WithActor(t.Context(), access.Actor{Address: "192.0.2.9"})
	secret, l, err := b.store.Access.BeginLogin(ctx, access.PersonalKeySpec{Machine: "annas-<b>laptop", Role: role})
	require.NoError(t, err)
	return secret, l.UserCode
}

func (b *bundle) decide(how, code string, in ...func(*http.Request)) *httptest.ResponseRecorder {
	return b.post("/ui/login/"+how, url.Values{"code": {code}}, in...)
}

func TestApproveAndDenyLogin(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	secret, code := b.login(t, access.RoleAdmin)
	page := "/ui/login?code=" + code
	require.Equal(t, "/ui/sign-in?to="+url.QueryEscape(page), b.request(http.MethodGet, page).Header().Get("Location"))
	ann := b.as(t, "ann", access.RoleViewer)
	shown := b.request(http.MethodGet, page, ann)
	require.Equal(t, http.StatusOK, shown.Code)
	texts := []string{
		code, "192.0.2.9", "annas-&lt;b&gt;laptop", "<dd>admin</dd>", "<dd>viewer</dd>", "12 hours",
		"A computer requests a personal key", "Requested role",
	}
	for _, want := range texts {
		require.Contains(t, shown.Body.String(), want)
	}
	require.NotContains(t, shown.Body.String(), secret[:12])

	foreign := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	require.Equal(t, http.StatusForbidden, b.decide("approve", code, ann, foreign).Code)
	require.Equal(t, http.StatusUnauthorized, b.decide("approve", code).Code, "no session")
	_, err := b.store.Access.APIKeyOf(t.Context(), secret)
	require.ErrorIs(t, err, access.ErrWrongCredentials)

	approved := b.decide("approve", code, ann)
	require.Equal(t, "/ui/login?done=login-approved", approved.Header().Get("Location"))
	after := b.request(http.MethodGet, "/ui/login?done=login-approved", ann)
	require.Contains(t, after.Body.String(), "You can close this page. Your terminal continues by itself.")
	key, err := b.store.Access.APIKeyOf(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, access.RoleViewer, key.Actor("").Role)
	require.Equal(t, "user:ann 192.0.2.1 annas-<b>laptop 192.0.2.9", b.value(t, `SELECT concat_ws(' ', actor, address,
		details->>'machine', details->>'requestedFrom') FROM postrider.audit WHERE action = 'login_approved'`))
	require.Equal(t, http.StatusNotFound, b.decide("deny", code, ann).Code, "already decided")

	secret, code = b.login(t, "")
	require.Equal(t, "/ui/login?done=login-denied", b.decide("deny", code, ann).Header().Get("Location"))
	denied := b.request(http.MethodGet, "/ui/login?done=login-denied", ann).Body.String()
	require.Contains(t, denied, "You can close this page. Your terminal gets no key.")
	require.NotContains(t, denied, "continues by itself")
	l, _, err := b.store.Access.LoginOf(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, access.LoginDenied, l.State)
	require.Contains(t, b.request(http.MethodGet, "/ui/login", ann).Body.String(), `name="code"`)

	root := b.as(t, "root", access.RoleAdmin)
	keys := b.request(http.MethodGet, "/ui/api-keys", root).Body.String()
	require.Contains(t, keys, "personal key of ann")
	require.Contains(t, keys, "for annas-&lt;b&gt;laptop")
}

func TestWrongLoginCodes(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	ann, bob := b.as(t, "ann", access.RoleViewer), b.as(t, "bob", access.RoleViewer)
	_, code := b.login(t, "")
	for range 5 {
		wrong := b.request(http.MethodGet, "/ui/login?code=BBBB-BBBB", ann)
		require.Equal(t, http.StatusNotFound, wrong.Code)
		require.Contains(t, wrong.Body.String(), "No pending login has this code")
		require.Equal(t, http.StatusNotFound, b.decide("approve", "", ann).Code)
	}
	require.Equal(t, http.StatusTooManyRequests, b.request(http.MethodGet, "/ui/login?code="+code, ann).Code)
	require.Equal(t, http.StatusTooManyRequests, b.decide("approve", code, ann).Code)
	require.Equal(t, http.StatusOK, b.request(http.MethodGet, "/ui/login?code="+code, bob).Code)
	_, err := b.pool.Exec(t.Context(), "UPDATE postrider_internal.login_requests SET expires_at = now()")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, b.decide("approve", code, bob).Code, "expired")

	open := setup(t)
	require.Contains(t, open.request(http.MethodGet, "/ui/login").Body.String(), "runs without sign-in")
	require.Equal(t, http.StatusConflict, open.decide("approve", code).Code)
}

func TestPersonalKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, withSignIn)
	ann, bob := b.as(t, "ann", access.RoleOperator), b.as(t, "bob", access.RoleAdmin)
	form := b.request(http.MethodGet, "/ui/account", ann).Body.String()
	require.Contains(t, form, `<option value="operator">`)
	require.NotContains(t, form, `<option value="admin">`)
	create := func(machine, role string) *httptest.ResponseRecorder {
		return b.post("/ui/account/keys/create", url.Values{"machine": {machine}, "role": {role}}, ann)
	}
	rejected := create("", "operator")
	require.Equal(t, http.StatusBadRequest, rejected.Code)
	require.Contains(t, rejected.Body.String(), "machine must be 1 to 100 printable characters")
	require.Equal(t, http.StatusBadRequest, create("jump-host", "king").Code)
	created := create("jump-host", "admin")
	require.Equal(t, http.StatusOK, created.Code)
	secret := "prk_" + between(created.Body.String(), "prk_", "<")
	key, err := b.store.Access.APIKeyOf(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, access.RoleOperator, key.Actor("").Role, "at most the role of its owner")
	listed := b.request(http.MethodGet, "/ui/account", ann).Body.String()
	require.Contains(t, listed, "jump-host")
	require.NotContains(t, listed, secret)
	revoke := "/ui/account/keys/" + key.Name + "/revoke"
	require.Equal(t, http.StatusNotFound, b.post(revoke, nil, bob).Code)
	require.Equal(t, "/ui/account?done=key-revoked", b.post(revoke, nil, ann).Header().Get("Location"))
	_, err = b.store.Access.APIKeyOf(t.Context(), secret)
	require.ErrorIs(t, err, access.ErrWrongCredentials)
}
