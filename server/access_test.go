package server_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

// apiKey creates an API key and returns it.
func (s *service) apiKey(name, scope, topic string) string {
	s.t.Helper()
	body := fmt.Sprintf(`{"name":%q,"scope":%q}`, name, scope)
	if topic != "" {
		body = fmt.Sprintf(`{"name":%q,"scope":%q,"topic":%q}`, name, scope, topic)
	}
	return s.post("/v1/apiKeys", body).json(201)["key"].(string)
}

// scopeRoles are the roles that API keys of these scopes have: x-access of openapi.yaml is the least scope.
var scopeRoles = map[string]access.Role{
	"read": access.RoleViewer, "operate": access.RoleOperator, "admin": access.RoleAdmin,
}

// operationsByAccess states x-access a second time. openapi.yaml has it from the routes: a route that changes would
// change what the other tests expect of it.
var operationsByAccess = map[string]string{
	"none":    "openValidationUrl postValidationUrl health readiness reference specification",
	"publish": "publishEvents publishCloudEvents allowRelay",
	"receive": "acknowledgeEvents receiveEvents rejectEvents releaseEvents renewLocks",
	"read": "listTopics getTopic testFilter listSubscriptions getSubscription testSubscriptionFilter listActivity " +
		"listEvents getEvent listDeliveries getDelivery listDeliveryAttempts listProblems getProblem listBatches getBatch " +
		"listBatchAttempts listBatchMembers exportDeadLetters listDeadLetters getDeadLetter listOperations " +
		"getOperation listPolicies getPolicy listAudit whoAmI metrics listRelayFeeds getRelayFeed",
	"query": "listQueries runSQL getQuery putQuery deleteQuery runQuery",
	"operate": "pauseSubscription probeSubscription releaseSubscription resumeSubscription testDelivery " +
		"validateSubscription eraseEvent eraseSubject redeliverEvent redeliverEvents cancelDeliveries retryDeliveries " +
		"cancelDelivery deadLetterDelivery retryDelivery purgeDeadLetters redeliverDeadLetters repairDeadLetters " +
		"importDeadLetters " +
		"purgeDeadLetter redeliverDeadLetter resolveDeadLetter resolveDeadLetters reopenDeadLetter cancelOperation " +
		"acknowledgeProblem resolveProblem openRelayCallback",
	"admin": "putTopic deleteTopic listTopicKeys regenerateTopicKey putSubscription patchSubscription " +
		"deleteSubscription revealSubscriptionHeaders revealSubscriptionEndpoint getSigningSecrets " +
		"rotateSigningSecret putPolicy deletePolicy listAPIKeys createAPIKey getAPIKey revokeAPIKey listUsers " +
		"getUser putUser deleteUser applyConfiguration",
}

func TestAccessOfOperations(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for _, op := range operations(t) {
		found[op.Access] = append(found[op.Access], op.OperationID)
	}
	require.Len(t, found, len(operationsByAccess))
	for needed, list := range operationsByAccess {
		require.ElementsMatch(t, strings.Fields(list), found[needed], needed)
	}
}

// Every operation is tried with every kind of credential and obeys x-access of openapi.yaml, which
// docs/reference/rest.md shows.
func TestAccessTable(t *testing.T) {
	t.Parallel()
	s := setup(t)
	accessKey := s.topic("orders", "")
	rights := map[string]access.Role{ // credentials and their roles
		"Bearer " + adminToken:                         access.RoleAdmin,
		"bearer " + s.apiKey("a", "admin", ""):         access.RoleAdmin,
		"Bearer " + s.apiKey("o", "operate", ""):       access.RoleOperator,
		"Bearer " + s.apiKey("r", "read", ""):          access.RoleViewer,
		"Bearer " + s.apiKey("p", "publish", ""):       "",
		"Bearer " + s.apiKey("1", "publish", "orders"): "",
		"Bearer " + s.apiKey("c", "receive", ""):       "",
	}
	revoked := s.apiKey("gone", "admin", "")
	s.delete("/v1/apiKeys/gone").json(200)
	wrongs := []string{
		"", "Bearer wrong", "Bearer " + adminToken[:5], "Bearer " + adminToken + "x", "Basic " + adminToken, adminToken,
		"Bearer " + accessKey, "Bearer " + devKey,
		"Bearer prk_" + strings.Repeat("A", 43), "Bearer " + revoked, "SharedAccessKey " + s.apiKey("scheme", "admin", ""),
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
		fresh := s.with() // wrong credentials are limited
		send := func(who access.Actor, headers ...string) response {
			return fresh.serve(who, op.method, op.path, "{}", headers...)
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
	require.Equal(t, 79, tried)
	for header, shown := range map[string]string{"Authorization": "Bearer " + adminToken, "Cookie": "session=x"} {
		s.send(http.MethodGet, "/healthz", "", header, shown).is(200)
	}
}

// The operations of publishers, of consumers and of clients without a credential.
func TestAccessToPublishing(t *testing.T) {
	t.Parallel()
	s := setup(t)
	accessKey := s.topic("orders", "")
	other := s.topic("parcels", "")
	always := []string{
		"Bearer " + adminToken, "Bearer " + accessKey, "SharedAccessKey " + accessKey, "Bearer " + s.apiKey("a", "admin", ""),
	}
	never := []string{"Bearer " + s.apiKey("r", "read", ""), "Bearer " + s.apiKey("o", "operate", "")}
	keys := map[string][]string{} // of a scope
	for _, scope := range []string{"publish", "receive"} {
		keys[scope] = []string{
			"Bearer " + s.apiKey(scope, scope, ""), "SharedAccessKey " + s.apiKey(scope+"-1", scope, "orders"),
		}
		never = append(never, "Bearer "+s.apiKey(scope+"-2", scope, "parcels"))
	}
	wrong := []string{
		"", "Bearer wrong", "Bearer " + other, "SharedAccessKey " + adminToken, "Bearer prk_" + strings.Repeat("A", 43),
	}
	tried := map[string]int{}
	for _, op := range operations(t) {
		route := op.method + " " + op.template
		send := func(credential string) int {
			return s.send(op.method, op.path, "{}", "Authorization", credential).status
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
			require.NotContains(t, []int{401, 403, 429}, s.send(op.method, op.path, "").status, route)
		default:
			require.Contains(t, scopeRoles, op.Access, "%s: x-access", route)
		}
		tried[op.Access]++
	}
	require.Equal(t, 3, tried["publish"])
	require.Equal(t, 5, tried["receive"])
	require.Equal(t, 6, tried["none"])

	// The dashboard publishes without a key for users with the role admin only.
	for role, status := range map[access.Role]int{
		access.RoleAdmin: http.StatusOK, access.RoleOperator: http.StatusUnauthorized,
		access.RoleViewer: http.StatusUnauthorized, "": http.StatusUnauthorized,
	} {
		s.serve(access.Actor{Name: "anna", Role: role}, http.MethodPost, publishPath, gridEvents("1")).is(status)
	}
}

// No spelling of a path avoids authentication.
func TestNoPathAvoidsAuthentication(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	for _, path := range []string{
		"/v1/%74opics", "/%76%31/topics", "/v1%2Ftopics", "//v1/topics", "/v1//topics", "/./v1/topics", "/x/../v1/topics",
		"/V1/topics", "/v1/topics?", "/v1/topics%00", "/v1;x/topics", "/v1/topics/.", "/%5cv1/topics",
		"/topics/../v1/topics", "/healthz/../v1/topics", "/healthz%2f..%2fv1/topics", "/v1/topics/orders/..",
	} {
		status := s.send(http.MethodGet, path, "").status
		require.Contains(t, []int{400, 401, 404, 405}, status, path)
	}
	s.send(http.MethodGet, "/v1/topics", "", "X-HTTP-Method-Override", "HEAD").is(401)
	require.NotEqual(t, http.StatusOK, s.send(http.MethodHead, "/v1/topics", "").status)
	require.NotEqual(t, http.StatusOK, s.send(http.MethodOptions, "/v1/topics", "").status)
}

// internal/access has the rules of keys and users.
func TestAPIKeysAndUsersByREST(t *testing.T) {
	t.Parallel()
	s := setup(t)
	admin := "Bearer " + s.apiKey("root", "admin", "")
	s.audited()
	as := func(method, path, body string) response { return s.send(method, path, body, "Authorization", admin) }
	for body, target := range map[string]string{
		`{"name":"a b","scope":"read"}`:                          "name",
		`{"name":"x","scope":"root"}`:                            "scope",
		`{"name":"x","scope":"read","role":"admin"}`:             "role",
		`{"name":"x","scope":"read","expiresInDays":9999999999}`: "expiresInDays",
	} {
		require.Equal(t, target, as("POST", "/v1/apiKeys", body).rejected(400, "InvalidRequest").Details[0].Target, body)
	}
	as("POST", "/v1/apiKeys", `{"name":"x","scope":"publish","topic":"never"}`).rejected(404, "NotFound")
	as("POST", "/v1/apiKeys", `{"name":"root","scope":"read"}`).rejected(409, "NameTaken")
	made := as("POST", "/v1/apiKeys", `{"name":"ci","scope":"read","expiresInDays":1}`)
	require.Equal(t, "key:root", made.json(201)["createdBy"])
	names, pages := s.listAll("/v1/apiKeys?limit=1", "name")
	require.Equal(t, []any{"ci", "root"}, names)
	require.Equal(t, 2, pages)
	require.NotContains(t, s.get("/v1/apiKeys").is(200).body, made.json(201)["key"])
	for _, path := range []string{"/v1/apiKeys/never", "/v1/users/never", "/v1/apiKeys/%00", "/v1/users/%ff"} {
		as("GET", path, "").rejected(404, "NotFound")
		as("DELETE", path, "").rejected(404, "NotFound")
	}
	require.Equal(t, "revoked", as("DELETE", "/v1/apiKeys/ci", "").json(200)["state"])

	const anna = "/v1/users/anna"
	for body, message := range map[string]string{
		`{"role":"admin"}`: "password", `{"role":"admin","password":"password1234"}`: "too easy to guess",
	} {
		require.Contains(t, as("PUT", anna, body).rejected(400, "InvalidRequest").Message, message, body)
	}
	as("PUT", anna, `{"role":"admin","password":"correct horse battery"}`).json(201)
	as("PUT", anna, `{"role":"viewer"}`).rejected(409, "LastAdmin")
	as("DELETE", anna, "").rejected(409, "LastAdmin")
	require.Equal(t, []string{
		`api_key_created -/- {"expiresAt":"…","key":"ci","scope":"read"}`, `api_key_revoked -/- {"key":"ci"}`,
		`user_created -/- {"role":"admin","user":"anna"}`,
	}, s.auditedBy("key:root"))
}

// personalKey is what a user creates on the account page.
func (s *service) personalKey(user string) (key string) {
	s.t.Helper()
	key, _ = s.tn.NewPersonalKey(s.t, user, access.RoleOperator)
	return key
}

// A personal key is its owner's in every operation and in the audit. internal/access has when it ends.
func TestPersonalKey(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	s.tn.NewUser(t, "anna", access.RoleOperator)
	key := s.personalKey("anna")
	as := func(method, path, body string) response {
		return s.send(method, path, body, "Authorization", "Bearer "+key)
	}
	s.change("WITH gone AS (DELETE FROM postrider_internal.audit) SELECT 1")
	as("POST", billing+"/pause", "{}").is(200)
	require.Len(t, s.auditedBy("user:anna"), 1)
	as("PUT", "/v1/topics/bills", "").rejected(403, "Forbidden")
	published := s.publish("orders", key, gridEvents("1")).rejected(403, "Forbidden")
	require.Contains(t, published.Message, "publishing needs scope publish, or admin")
	s.put("/v1/users/anna", `{"role":"viewer"}`).json(200)
	as("POST", billing+"/resume", "{}").rejected(403, "Forbidden")
	me := as("GET", "/v1/me", "").json(200)
	require.Equal(t, []any{"user:anna", "viewer"}, []any{me["name"], me["role"]})
	require.NotNil(t, me["expiresAt"])
	listed := s.get("/v1/apiKeys/" + me["apiKey"].(string)).json(200)
	require.Equal(t, []any{"anna", "laptop"}, []any{listed["owner"], listed["machine"]})
	require.NotContains(t, listed, "key")
	s.put("/v1/users/anna", `{"role":"viewer","disabled":true}`).json(200)
	as("GET", "/v1/me", "").rejected(401, "Unauthorized")
}
