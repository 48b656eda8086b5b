package server_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/access"
	"postrider/server"
)

func (b *bundle) beginLogin(body string) map[string]any {
	b.t.Helper()
	return b.send(http.MethodPost, "/v1/logins", body).json(http.StatusCreated)
}

func (b *bundle) pollLogin(deviceCode string) response {
	return b.send(http.MethodPost, "/v1/logins/poll", `{"deviceCode":"`+deviceCode+`"}`)
}

// personalKey is what a user gets who approves a login.
func (b *bundle) personalKey(user, role string) (key string) {
	b.t.Helper()
	begun := b.beginLogin(`{"machine":"laptop","role":"` + role + `"}`)
	ctx := access.WithActor(b.t.Context(), access.Actor{Name: "admin", Address: "127.0.0.1"})
	_, err := b.store.Access.ApproveLogin(ctx, begun["userCode"].(string), user)
	require.NoError(b.t, err)
	polled := b.pollLogin(begun["deviceCode"].(string)).json(http.StatusOK)
	require.Equal(b.t, "approved", polled["state"])
	return polled["apiKey"].(map[string]any)["key"].(string)
}

func TestLoginByREST(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.manage("PUT", "/v1/users/anna", `{"role":"operator","password":"correct horse battery"}`).json(201)
	begun := b.beginLogin(`{"machine":"laptop"}`)
	require.Regexp(t, "^http://127.0.0.1:[0-9]+/ui/login$", begun["verificationUri"])
	withCode := begun["verificationUri"].(string) + "?code=" + begun["userCode"].(string)
	require.Equal(t, withCode, begun["verificationUriComplete"])
	require.InDelta(t, 600, begun["expiresInSeconds"], 0)
	device := begun["deviceCode"].(string)
	pending := b.pollLogin(device)
	require.Equal(t, map[string]any{"state": "pending"}, pending.json(200))
	require.Equal(t, "no-store", pending.header.Get("Cache-Control"))
	require.Equal(t, http.StatusUnauthorized, b.send("GET", "/v1/me", "", "Authorization", "Bearer "+device).status)
	require.NoError(t, b.store.Access.DenyLogin(t.Context(), begun["userCode"].(string)))
	require.Equal(t, map[string]any{"state": "denied"}, b.pollLogin(device).json(200))

	key := b.personalKey("anna", "admin")
	me := b.send("GET", "/v1/me", "", "Authorization", "Bearer "+key).json(200)
	require.Equal(t, "user:anna", me["name"])
	require.Equal(t, "operator", me["role"], "no more than its owner")
	require.NotNil(t, me["expiresAt"])
	listed := b.manage("GET", "/v1/apiKeys/"+me["apiKey"].(string), "").json(200)
	require.Equal(t, "anna", listed["owner"])
	require.Equal(t, "laptop", listed["machine"])
	require.NotContains(t, listed, "key")

	b.pollLogin("prk_unknown").rejected(404, "NotFound")
	for body, target := range map[string]string{
		`{}`: "machine", `{"machine":"a\u0000b"}`: "machine", `{"machine":"laptop","role":"king"}`: "role",
		`{"machine":"laptop","scope":"read"}`: "scope",
	} {
		require.Equal(t, target, b.send("POST", "/v1/logins", body).rejected(400, "InvalidRequest").Details[0].Target, body)
	}
	for _, body := range []string{`{}`, `{"deviceCode":"` + begun["userCode"].(string) + `"}`} {
		rejected := b.send("POST", "/v1/logins/poll", body).rejected(400, "InvalidRequest")
		require.Equal(t, "deviceCode", rejected.Details[0].Target)
	}
}

// A personal key is its owner's in every operation and in the audit, and revokes itself.
func TestPersonalKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.subscription("orders", "billing", `{"endpointUrl":"https://example.com"}`)
	b.manage("PUT", "/v1/users/anna", `{"role":"operator","password":"correct horse battery"}`).json(201)
	key := b.personalKey("anna", "operator")
	as := func(method, path, body string) response {
		return b.send(method, path, body, "Authorization", "Bearer "+key)
	}
	b.audited()
	require.Equal(t, 200, as("POST", "/v1/topics/orders/subscriptions/billing/pause", "{}").status)
	require.Len(t, b.auditedBy("user:anna"), 1)
	as("PUT", "/v1/topics/bills", "").rejected(403, "Forbidden")
	published := b.publish("orders", key, eventNamed("1")).rejected(403, "Forbidden")
	require.Contains(t, published.Message, "publishing needs scope publish, or admin")
	b.manage("PUT", "/v1/users/anna", `{"role":"viewer"}`).json(200)
	as("POST", "/v1/topics/orders/subscriptions/billing/resume", "{}").rejected(403, "Forbidden")
	require.Equal(t, "viewer", as("GET", "/v1/me", "").json(200)["role"])

	b.audited()
	require.Equal(t, 204, as("DELETE", "/v1/me/key", "").status)
	as("GET", "/v1/me", "").rejected(401, "Unauthorized")
	require.Len(t, b.auditedBy("user:anna"), 1)
	other := "Bearer " + b.apiKey("ci", "admin", "")
	rejected := b.send("DELETE", "/v1/me/key", "", "Authorization", other).rejected(409, "NotPersonalKey")
	require.Contains(t, rejected.Message, "key:ci did not send a personal key")
	b.manage("DELETE", "/v1/me/key", "").rejected(409, "NotPersonalKey")
	key = b.personalKey("anna", "viewer")
	b.manage("PUT", "/v1/users/anna", `{"role":"viewer","disabled":true}`).json(200)
	as("GET", "/v1/me", "").rejected(401, "Unauthorized")
}

func TestLoginsAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	status := map[int]int{}
	for range 12 {
		status[b.send("POST", "/v1/logins", `{"machine":"laptop"}`).status]++
	}
	require.Equal(t, map[int]int{201: 10, 429: 2}, status)
	rejected := b.send("POST", "/v1/logins", `{"machine":"laptop"}`)
	require.Contains(t, rejected.rejected(429, "TooManyRequests").Message, "too many logins from your address")
	seconds, err := strconv.Atoi(rejected.header.Get("Retry-After"))
	require.NoError(t, err)
	require.InDelta(t, 30, seconds, 5)

	fresh := setup(t)
	fresh.change(`WITH made AS (
		INSERT INTO postrider_internal.login_requests (key_hash, hint, user_code, machine, expires_at)
		SELECT sha256(n::text::bytea), 'x', n, 'm', now() + interval '1 minute' FROM generate_series(1, $1) n) SELECT 1`,
		access.MaxPendingLogins)
	fresh.send("POST", "/v1/logins", `{"machine":"laptop"}`).json(201) // one of the others is removed

	open := setup(t, func(o *server.Options) { o.NoSignIn = true })
	none := open.send("POST", "/v1/logins", `{"machine":"laptop"}`).rejected(409, "NoSignIn")
	require.Contains(t, none.Message, "no user can sign in to this server")
}
