package server_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/docs"
	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testnode"
)

// queryLogins creates the login roles for queries.
func (s *service) queryLogins() {
	s.t.Helper()
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(s.t, err)
	require.NoError(s.t, sqlquery.EnsureLogins(s.t.Context(), s.store.DB, s.store.DB, sealer))
}

// queryKey creates an API key of a scope, and returns it as a bearer token; query is "", true or false.
func (s *service) queryKey(name, scope, query string) string {
	s.t.Helper()
	body := fmt.Sprintf(`{"name":%q,"scope":%q}`, name, scope)
	if query != "" {
		body = fmt.Sprintf(`{"name":%q,"scope":%q,"query":%s}`, name, scope, query)
	}
	return "Bearer " + s.post("/v1/apiKeys", body).json(201)["key"].(string)
}

func TestQueryAccess(t *testing.T) {
	t.Parallel()
	s := setup(t)
	tried := 0
	for _, op := range operations(t) {
		if op.Access != "query" {
			continue
		}
		tried++
		for _, row := range []struct {
			scope, query string
			status       int
		}{
			{"read", "", 403},
			{"read", "true", 0},
			{"operate", "", 0},
			{"operate", "false", 403},
			{"admin", "", 0},
			{"admin", "false", 403},
			{"publish", "", 403},
		} {
			name := fmt.Sprint("k", tried, row.scope, row.query)
			got := s.send(op.method, op.path, "{}", "Authorization", s.queryKey(name, row.scope, row.query))
			if row.status != 0 {
				got.rejected(row.status, "Forbidden")
				continue
			}
			require.NotContains(t, []int{401, 403}, got.status, "%s %s: %v", op.method, op.path, row)
		}
		s.send(op.method, op.path, "{}").rejected(401, "Unauthorized")
		require.NotContains(t, []int{401, 403}, s.manage(op.method, op.path, "{}").status, "the admin token")
	}
	require.Equal(t, 6, tried)
	s.post("/v1/apiKeys", `{"name":"p","scope":"publish","query":true}`).rejected(400, "InvalidRequest")

	// The flag of a user follows the role until an administrator sets it.
	s.tn.NewUser(t, "anna", access.RoleViewer)
	put := func(body string) any { return s.put("/v1/users/anna", body).json(200)["query"] }
	require.Equal(t, false, put(`{"role":"viewer"}`))
	require.Equal(t, true, put(`{"role":"operator"}`))
	require.Equal(t, false, put(`{"role":"operator","query":false}`))
	require.Equal(t, false, put(`{"role":"admin"}`))
	require.Equal(t, true, put(`{"role":"viewer","query":true}`))
}

func TestQueries(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.post("/v1/queries/run", `{"sql":"select 1"}`).rejected(409, "QueriesNotSetUp")
	s.queryLogins()
	got := s.post("/v1/queries/run", `{"sql":"select n from generate_series(1, 3) n", "limit": 2}`).json(200)
	require.Equal(t, []any{[]any{"1"}, []any{"2"}}, got["rows"])
	require.Equal(t, true, got["more"])
	require.Contains(t, s.post("/v1/queries/run", `{"sql":"select 1","plan":true}`).json(200)["plan"], "cost=")
	wrong := s.post("/v1/queries/run", `{"sql":"select x"}`).rejected(400, "InvalidQuery")
	require.Equal(t, `column "x" does not exist (at character 8)`, wrong.Message)
	s.post("/v1/queries/run", `{"sql":"select 1","limit":1001}`).rejected(400, "InvalidRequest")
	s.post("/v1/queries/run", `{"sql":"select $1::text"}`).rejected(400, "InvalidQuery")

	s.tn.NewUser(t, "anna", access.RoleOperator)
	anna, otto := "Bearer "+s.personalKey("anna"), s.queryKey("otto", "operate", "")
	as := func(who, method, path, body string) response {
		return s.send(method, path, body, "Authorization", who)
	}
	one := `{"sql":"select $1::int + 1 as n","description":"Adds one"}`
	require.Equal(t, false, as(anna, "PUT", "/v1/queries/one", one).json(201)["shared"])
	as(otto, "GET", "/v1/queries/one", "").rejected(404, "NotFound")
	as(otto, "PUT", "/v1/queries/one", one).json(201)
	require.Equal(t, "key:otto", as(otto, "GET", "/v1/queries/one", "").json(200)["owner"], "anna's name is no secret")
	as(otto, "DELETE", "/v1/queries/one", "").is(204)
	as(anna, "PUT", "/v1/queries/two", `{"sql":"select 1"}`).json(201)
	as(anna, "PUT", "/v1/queries/one", `{"sql":"select $1::int + 1 as n","shared":true}`).json(200)
	require.Equal(t, []any{[]any{"41414141"}},
		as(otto, "POST", "/v1/queries/one/run", `{"args":{"1":"41414140"}}`).json(200)["rows"])
	as(otto, "PUT", "/v1/queries/one", `{"sql":"select 1","shared":true}`).rejected(409, "NameTaken")
	as(otto, "POST", "/v1/queries/one/run", `{"args":{"n":"41414140"}}`).rejected(400, "InvalidRequest")
	as(otto, "DELETE", "/v1/queries/one", "").rejected(404, "NotFound")
	for name, status := range map[string]int{"pending": 409, "run": 400, "temporary-x": 400, "a%20b": 400} {
		require.Equal(t, status, as(anna, "PUT", "/v1/queries/"+name, one).status, name)
	}
	as(anna, "PUT", "/v1/queries/two", `{"sql":" "}`).rejected(400, "InvalidRequest")

	// A documented question is a template with named arguments.
	list := as(otto, "GET", "/v1/queries?limit=1000", "").json(200)["value"].([]any)
	require.Len(t, list, len(docs.Questions())+1)
	s.topic("orders", "")
	as(otto, "POST", "/v1/queries/event/run", "{}").rejected(400, "InvalidRequest")
	found := as(otto, "POST", "/v1/queries/event/run", `{"args":{"event-id":"o-1"}}`).json(200)
	require.Equal(t, []any{}, found["rows"])

	// A new user with the name of a removed one gets none of their queries. Shared ones stay for all.
	s.delete("/v1/users/anna").is(204)
	s.tn.NewUser(t, "anna", access.RoleOperator)
	anna = "Bearer " + s.personalKey("anna")
	as(anna, "GET", "/v1/queries/two", "").rejected(404, "NotFound")
	require.Equal(t, "removed:anna", as(anna, "GET", "/v1/queries/one", "").json(200)["owner"])
	as(anna, "DELETE", "/v1/queries/one", "").rejected(404, "NotFound")
	s.delete("/v1/queries/one").is(204)
	const saved = "SELECT count(*) FROM postrider.audit WHERE action = 'query_saved' AND actor = 'user:anna'"
	require.Equal(t, 3, s.count(saved))
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.audit WHERE action = 'query_deleted'"))
	const run = `SELECT count(*) FROM postrider.audit WHERE action = 'query_run' AND actor = 'key:otto'
		AND details ->> 'query' = 'one' AND details ->> 'rows' = '1' AND details ->> 'sha256' ~ '^[0-9a-f]{64}$'
		AND details::text NOT LIKE '%4141%'`
	require.Equal(t, 1, s.count(run))
}
