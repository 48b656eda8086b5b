package server_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/server"
)

// apiKey creates an API key and returns it.
func (b *bundle) apiKey(name, scope, topic string) string {
	b.t.Helper()
	body := fmt.Sprintf(`{"name":%q,"scope":%q}`, name, scope)
	if topic != "" {
		body = fmt.Sprintf(`{"name":%q,"scope":%q,"topic":%q}`, name, scope, topic)
	}
	return b.manage(http.MethodPost, "/v1/apiKeys", body).json(http.StatusCreated)["key"].(string)
}

// scopeRoles are the roles that API keys of these scopes have: x-access of openapi.yaml is the least scope.
var scopeRoles = map[string]access.Role{
	"read": access.RoleViewer, "operate": access.RoleOperator, "admin": access.RoleAdmin,
}

// Every operation is tried with every kind of credential and obeys x-access of openapi.yaml, which
// docs/reference/rest.md shows.
func TestWhoMayWhat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	accessKey := b.topic("orders", "")
	rights := map[string]access.Role{ // credentials and their roles
		"Bearer " + adminToken:                         access.RoleAdmin,
		"bearer " + b.apiKey("a", "admin", ""):         access.RoleAdmin,
		"Bearer " + b.apiKey("o", "operate", ""):       access.RoleOperator,
		"Bearer " + b.apiKey("r", "read", ""):          access.RoleViewer,
		"Bearer " + b.apiKey("p", "publish", ""):       "",
		"Bearer " + b.apiKey("1", "publish", "orders"): "",
		"Bearer " + b.apiKey("c", "receive", ""):       "",
	}
	revoked := b.apiKey("gone", "admin", "")
	b.manage(http.MethodDelete, "/v1/apiKeys/gone", "").json(http.StatusOK)
	wrongs := []string{
		"", "Bearer wrong", "Bearer " + adminToken[:5], "Bearer " + adminToken + "x", "Basic " + adminToken, adminToken,
		"Bearer " + accessKey, "Bearer " + devKey,
		"Bearer prk_" + strings.Repeat("A", 43), "Bearer " + revoked, "SharedAccessKey " + b.apiKey("scheme", "admin", ""),
	}
	tried := 0
	for _, op := range operations(t) {
		needed, management := scopeRoles[op.Access]
		if !management {
			continue // TestAccessToPublishing
		}
		route := op.method + " " + op.template
		if strings.HasPrefix(op.path, "/v1") {
			tried++
		}
		fresh, err := server.New(server.Options{
			Parts: b.store.API(), AdminToken: adminToken, DevKey: devKey, Logger: slog.New(slog.DiscardHandler),
			DefaultValidation: vouched, ValidationWait: time.Millisecond,
		})
		require.NoError(t, err)
		send := func(who access.Actor, headers ...string) response {
			r := httptest.NewRequestWithContext(access.WithActor(t.Context(), who), op.method, op.path, strings.NewReader("{}"))
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			w := httptest.NewRecorder()
			fresh.Handler().ServeHTTP(w, r)
			return response{t, w.Code, w.Header(), w.Body.String()}
		}
		for _, wrong := range wrongs {
			require.Equal(t, http.StatusUnauthorized, send(access.Actor{}, "Authorization", wrong).status, "%s with %q",
				route, wrong)
		}
		send(access.Actor{}, "aeg-sas-key", adminToken).rejected(401, "Unauthorized")
		check := func(what string, role access.Role, a response) {
			t.Helper()
			if role.Allows(needed) {
				require.NotContains(t, []int{401, 403}, a.status, "%s with %s", route, what)
				return
			}
			rejected := a.rejected(403, "Forbidden")
			require.Contains(t, rejected.Message, "this needs the role "+string(needed))
			require.Contains(t, rejected.Message, string(role))
		}
		for _, shown := range slices.Sorted(maps.Keys(rights)) {
			check(shown, rights[shown], send(access.Actor{}, "Authorization", shown))
		}
		for _, role := range []access.Role{access.RoleViewer, access.RoleOperator, access.RoleAdmin} {
			check("a session", role, send(access.Actor{Name: "user:anna", Role: role}))
		}
	}
	require.Equal(t, 67, tried)
	for header, shown := range map[string]string{"Authorization": "Bearer " + adminToken, "Cookie": "session=x"} {
		require.Equal(t, http.StatusOK, b.send(http.MethodGet, "/healthz", "", header, shown).status)
	}
}

// The operations of publishers, of consumers and of clients without a credential.
func TestAccessToPublishing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	accessKey := b.topic("orders", "")
	other := b.topic("parcels", "")
	always := []string{
		"Bearer " + adminToken, "Bearer " + accessKey, "SharedAccessKey " + accessKey, "Bearer " + b.apiKey("a", "admin", ""),
	}
	never := []string{"Bearer " + b.apiKey("r", "read", ""), "Bearer " + b.apiKey("o", "operate", "")}
	keys := map[string][]string{} // of a scope
	for _, scope := range []string{"publish", "receive"} {
		keys[scope] = []string{
			"Bearer " + b.apiKey(scope, scope, ""), "SharedAccessKey " + b.apiKey(scope+"-1", scope, "orders"),
		}
		never = append(never, "Bearer "+b.apiKey(scope+"-2", scope, "parcels"))
	}
	wrong := []string{
		"", "Bearer wrong", "Bearer " + other, "SharedAccessKey " + adminToken, "Bearer prk_" + strings.Repeat("A", 43),
	}
	tried := map[string]int{}
	for _, op := range operations(t) {
		route := op.method + " " + op.template
		send := func(credential string) int {
			return b.send(op.method, op.path, "{}", "Authorization", credential).status
		}
		switch op.Access {
		case "publish", "receive":
			another := map[string]string{"publish": "receive", "receive": "publish"}[op.Access]
			for _, credential := range slices.Concat(always, keys[op.Access]) {
				require.NotContains(t, []int{401, 403, 429}, send(credential), "%s with %s", route, credential)
			}
			for _, credential := range slices.Concat(never, keys[another]) {
				require.Equal(t, http.StatusForbidden, send(credential), "%s with %s", route, credential)
			}
			for _, credential := range wrong {
				require.Equal(t, http.StatusUnauthorized, send(credential), "%s with %q", route, credential)
			}
		case "query": // TestQueryAccess
		case "none":
			require.NotContains(t, []int{401, 403, 429}, b.send(op.method, op.path, "").status, route)
		default:
			require.Contains(t, scopeRoles, op.Access, "%s: x-access", route)
		}
		tried[op.Access]++
	}
	require.Equal(t, 2, tried["publish"])
	require.Equal(t, 5, tried["receive"])
	require.Equal(t, 6, tried["none"])
}

// No spelling of a path avoids authentication.
func TestNoPathAvoidsAuthentication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	for _, path := range []string{
		"/v1/%74opics", "/%76%31/topics", "/v1%2Ftopics", "//v1/topics", "/v1//topics", "/./v1/topics", "/x/../v1/topics",
		"/V1/topics", "/v1/topics?", "/v1/topics%00", "/v1;x/topics", "/v1/topics/.", "/%5cv1/topics",
		"/topics/../v1/topics", "/healthz/../v1/topics", "/healthz%2f..%2fv1/topics", "/v1/topics/orders/..",
	} {
		status := b.send(http.MethodGet, path, "").status
		require.Contains(t, []int{400, 401, 404, 405}, status, path)
	}
	require.Equal(t, http.StatusUnauthorized,
		b.send(http.MethodGet, "/v1/topics", "", "X-HTTP-Method-Override", "HEAD").status)
	require.NotEqual(t, http.StatusOK, b.send(http.MethodHead, "/v1/topics", "").status)
	require.NotEqual(t, http.StatusOK, b.send(http.MethodOptions, "/v1/topics", "").status)
}

func eventNamed(id string) string {
	return fmt.Sprintf(
		`[{"id":%q,"subject":"s","eventType":"t","eventTime":"2026-11-22T09:30:00Z","dataVersion":"1","data":{}}]`, id)
}

func TestPublishingWithAPIKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	b.topic("bills", "")
	b.topic("wide", `{"kind":"namespace"}`)
	keys := map[string]string{}
	for _, scope := range []string{"publish", "read", "operate", "admin"} {
		keys[scope] = b.apiKey(scope, scope, "")
	}
	keys["orders"] = b.apiKey("orders", "publish", "orders")
	for _, row := range []struct {
		key, topic string
		status     int
	}{
		{"publish", "orders", 200},
		{"publish", "bills", 200},
		{"admin", "bills", 200},
		{"orders", "orders", 200},
		{"orders", "bills", 403},
		{"orders", "never", 403},
		{"publish", "never", 404},
		{"read", "orders", 403},
		{"operate", "orders", 403},
	} {
		for name, header := range map[string][]string{
			"aeg-sas-key": {"aeg-sas-key", keys[row.key]}, "bearer": {"Authorization", "Bearer " + keys[row.key]},
			"shared": {"Authorization", "SharedAccessKey " + keys[row.key]},
		} {
			a := b.send(http.MethodPost, "/topics/"+row.topic+"/api/events", eventNamed(row.key+name),
				append(header, "Content-Type", "application/json")...)
			require.Equal(t, row.status, a.status, "%s to %s by %s: %s", row.key, row.topic, name, a.body)
			if row.status == 403 {
				require.Contains(t, a.rejected(403, "Forbidden").Message, "API key "+row.key)
			}
		}
	}
	wide := b.send(http.MethodPost, "/topics/wide:publish", `{"specversion":"1.0","id":"1","source":"s","type":"t"}`,
		"Authorization", "SharedAccessKey "+keys["publish"], "Content-Type", "application/cloudevents+json")
	require.Equal(t, http.StatusOK, wide.status, wide.body)
	require.Equal(t, 13, b.count("SELECT count(*) FROM postrider.events"))

	b.manage(http.MethodDelete, "/v1/apiKeys/orders", "").json(http.StatusOK)
	for name, key := range map[string]string{
		"revoked": keys["orders"], "unknown": "prk_" + strings.Repeat("A", 43), "cut": keys["publish"][:40],
	} {
		require.Contains(t, b.publish("orders", key, eventNamed(name)).rejected(401, "Unauthorized").Message,
			"the API key does not exist", name)
	}
	require.Equal(t, 13, b.count("SELECT count(*) FROM postrider.events"))
}

// Guesses under /v1 are limited, except with a credential that was valid before.
func TestGuessingAtTheAPI(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.apiKey("ci", "read", "")
	get := func(token string) response {
		return b.send(http.MethodGet, "/v1/topics", "", "Authorization", "Bearer "+token)
	}
	require.Equal(t, http.StatusOK, get(key).status)
	status := map[int]int{}
	for i := range 60 {
		status[get(fmt.Sprintf("prk_%043d", i)).status]++
		status[get(fmt.Sprintf("guess-%d", i)).status]++
	}
	require.Equal(t, 120, status[401]+status[429])
	require.InDelta(t, 35, status[401], 6, "thirty, and one a second")
	rejected := get("prk_another")
	require.Contains(t, rejected.rejected(429, "TooManyRequests").Message, "from your address")
	require.NotEmpty(t, rejected.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, get(key).status)
	require.Equal(t, http.StatusOK, get(adminToken).status)
}

func TestAPIKeysAndUsersByREST(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.topic("orders", "")
	admin := b.apiKey("root", "admin", "")
	b.audited()
	as := func(key, method, path, body string) response {
		return b.send(method, path, body, "Authorization", "Bearer "+key)
	}
	for body, target := range map[string]string{
		`{"name":"a b","scope":"read"}`:                          "name",
		`{"scope":"read"}`:                                       "name",
		`{"name":"x","scope":"root"}`:                            "scope",
		`{"name":"x","scope":"read","topic":"orders"}`:           "topic",
		`{"name":"x","scope":"read","expiresInDays":0}`:          "expiresInDays",
		`{"name":"x","scope":"read","expiresInDays":3651}`:       "expiresInDays",
		`{"name":"x","scope":"read","role":"admin"}`:             "role",
		`{"name":"x","scope":"read","expiresInDays":9999999999}`: "expiresInDays",
	} {
		require.Equal(t, target,
			as(admin, "POST", "/v1/apiKeys", body).rejected(400, "InvalidRequest").Details[0].Target, body)
	}
	as(admin, "POST", "/v1/apiKeys", `{"name":"x","scope":"publish","topic":"never"}`).rejected(404, "NotFound")
	as(admin, "POST", "/v1/apiKeys", `{"name":"root","scope":"read"}`).rejected(409, "NameTaken")
	made := as(admin, "POST", "/v1/apiKeys", `{"name":"ci","scope":"read","expiresInDays":1}`)
	require.Equal(t, "no-store", made.header.Get("Cache-Control"))
	require.Equal(t, "key:root", made.json(201)["createdBy"])
	page := as(admin, "GET", "/v1/apiKeys?limit=1", "").json(200)
	require.Len(t, page["value"], 1)
	require.NotContains(t, fmt.Sprint(page), made.json(201)["key"])
	last := as(admin, "GET", page["nextLink"].(string), "").json(200)
	require.Contains(t, fmt.Sprint(last["value"]), "root")
	require.Nil(t, last["nextLink"])
	for _, name := range []string{"never", "%00", "%ff"} {
		for _, where := range []string{"/v1/apiKeys/", "/v1/users/"} {
			as(admin, "GET", where+name, "").rejected(404, "NotFound")
			as(admin, "DELETE", where+name, "").rejected(404, "NotFound")
		}
	}
	require.Equal(t, "revoked", as(admin, "DELETE", "/v1/apiKeys/ci", "").json(200)["state"])

	as(admin, "PUT", "/v1/users/anna", `{"role":"admin"}`).rejected(400, "InvalidRequest")
	as(admin, "PUT", "/v1/users/anna", `{"role":"admin","password":"short"}`).rejected(400, "InvalidRequest")
	weak := as(admin, "PUT", "/v1/users/anna", `{"role":"admin","password":"password1234"}`).
		rejected(400, "InvalidRequest")
	require.Contains(t, weak.Message, "too easy to guess")
	as(admin, "PUT", "/v1/users/anna", `{"password":"correct horse battery"}`).rejected(400, "InvalidRequest")
	as(admin, "PUT", "/v1/users/%00", `{"role":"admin","password":"correct horse battery"}`).
		rejected(400, "InvalidRequest")
	as(admin, "PUT", "/v1/users/anna", `{"role":"admin","password":"correct horse battery"}`).json(201)
	as(admin, "PUT", "/v1/users/anna", `{"role":"admin","disabled":false}`).json(200)
	as(admin, "PUT", "/v1/users/anna", `{"role":"viewer"}`).rejected(409, "LastAdmin")
	as(admin, "DELETE", "/v1/users/anna", "").rejected(409, "LastAdmin")
	require.Equal(t, []string{
		`api_key_created -/- {"expiresAt":"…","key":"ci","scope":"read"}`, `api_key_revoked -/- {"key":"ci"}`,
		`user_created -/- {"role":"admin","user":"anna"}`,
	}, mapped(b.auditedBy("key:root"),
		func(s string) string { return regexp.MustCompile(`"20[^"]*"`).ReplaceAllString(s, `"…"`) }))
	b.manage("PUT", "/v1/users/anna", `{"role":"viewer"}`).json(200)
	require.Equal(t, http.StatusNoContent, b.manage("DELETE", "/v1/users/anna", "").status)
	require.Equal(t, []string{`user_replaced -/- {"role":"viewer","user":"anna"}`, `user_deleted -/- {"user":"anna"}`},
		b.audited())
}

// If-Match limits changes of a user to one version.
func TestEtagsOfUsers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	with := func(method, body string, headers ...string) response {
		return b.send(method, "/v1/users/anna", body, append(headers, "Authorization", "Bearer "+adminToken)...)
	}
	const anna = `{"role":"viewer","password":"correct horse battery"}`
	with("PUT", anna, "If-Match", "*").rejected(412, "PreconditionFailed")
	made := with("PUT", anna, "If-None-Match", "*")
	first := made.json(201)["etag"].(string)
	require.Equal(t, first, made.header.Get("ETag"))
	require.Contains(t, with("PUT", anna, "If-None-Match", "*").rejected(412, "PreconditionFailed").Message,
		`user "anna" exists already`)
	require.Equal(t, first, with("PUT", `{"role":"viewer"}`).json(200)["etag"], "nothing differs")
	changed := with("PUT", `{"role":"operator"}`, "If-Match", first)
	second := changed.json(200)["etag"].(string)
	require.NotEqual(t, first, second)
	require.Equal(t, second, changed.header.Get("ETag"))
	require.Equal(t, second, with("GET", "").header.Get("ETag"))
	with("PUT", `{"role":"admin"}`, "If-Match", first).rejected(412, "PreconditionFailed")
	with("DELETE", "", "If-Match", first).rejected(412, "PreconditionFailed")
	with("DELETE", "", "If-Match", "x").rejected(400, "InvalidRequest")
	require.Equal(t, "operator", with("GET", "").json(200)["role"])
	require.Equal(t, 204, with("DELETE", "", "If-Match", second).status)
}

func mapped(list []string, change func(string) string) (changed []string) {
	for _, s := range list {
		changed = append(changed, change(s))
	}
	return changed
}
