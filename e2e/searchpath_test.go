package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/local"
)

// plantedLock is the advisory lock that a planted function takes. It outlasts errors and rollbacks, until its session
// ends.
const plantedLock = 424242

// plantFunctions creates, as a login with CREATE on schema public, functions and operators that PostgreSQL prefers to
// its own: the types of their parameters are exactly those of calls to functions with any types.
func plantFunctions(t *testing.T, db *database) {
	t.Helper()
	conn := login(t, db, "planter")
	db.exec("GRANT CREATE ON SCHEMA public TO " + conn.Config().User)
	plant := func(function, parameters, returns string) {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`CREATE FUNCTION public.%q(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN
			PERFORM pg_catalog.pg_advisory_lock_shared(%d); RAISE EXCEPTION '%[1]s(%[2]s) was run by %%', current_user; END $$`,
			function, parameters, returns, plantedLock))
		require.NoError(t, err)
	}
	for n := 1; n <= 8; n++ {
		texts := strings.TrimSuffix(strings.Repeat("text, ", n), ", ")
		for function, returns := range map[string]string{
			"format": "text", "concat": "text", "concat_ws": "text", "jsonb_build_object": "jsonb",
			"jsonb_build_array": "jsonb", "json_build_object": "json", "num_nonnulls": "integer",
		} {
			plant(function, texts, returns)
		}
		plant("format", strings.TrimSuffix(strings.Repeat("text, ", n), "text, ")+"bigint", "text")
	}
	for _, keys := range []string{
		"text, bigint", "text, bigint, text, bigint, text, integer", "text, uuid",
		"text, bigint, text, uuid",
	} {
		plant("jsonb_build_object", keys, "jsonb")
	}
	plant("num_nonnulls", "bigint, text", "integer")
	plant("num_nonnulls", "bigint, bigint, text", "integer")
	for _, element := range []string{"text", "uuid", "bigint", "integer", "bytea", "jsonb", "timestamptz"} {
		plant("unnest", element+"[]", "SETOF "+element)
		plant("cardinality", element+"[]", "integer")
		plant("array_position", element+"[], "+element, "integer")
		plant("array_append", element+"[], "+element, element+"[]")
		plant("to_jsonb", element, "jsonb")
		plant("planted_equal", element+"[], "+element+"[]", "boolean")
		plant("planted_concat", "text, "+element, "text")
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`CREATE OPERATOR public.= (LEFTARG = %s[], RIGHTARG = %[1]s[],
			FUNCTION = public.planted_equal)`, element))
		require.NoError(t, err)
		if element != "text" {
			_, err = conn.Exec(t.Context(), fmt.Sprintf(`CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = %s,
				FUNCTION = public.planted_concat)`, element))
			require.NoError(t, err)
		}
	}
}

// A login with CREATE on schema public cannot make the service, or a user who calls its SQL functions, run a function.
func TestPlantedFunctionsAreNotRun(t *testing.T) {
	t.Parallel()
	db := emptyDatabase(t)
	plantFunctions(t, db)
	user := login(t, db, "user")
	_, err := user.Exec(t.Context(), "SELECT format('%s'::text, 'a'::text)")
	require.ErrorContains(t, err, "was run by", "PostgreSQL prefers the planted functions")
	require.NoError(t, user.Close(t.Context())) // which releases plantedLock
	db.migrate()
	env := serveEnv(db)
	run := func(args ...string) {
		t.Helper()
		r := postrider(t, env, args...)
		require.NotContains(t, r.stdout+r.stderr, "was run by", args)
		require.True(t, r.code == 0 || args[0] == "doctor", "%s%s", r.stdout, r.stderr) // fsync is off
	}
	run("migrate", "up")
	retriesAfter(db, "quick", 200*time.Millisecond)
	sink := httptest.NewServer(local.NewDemoSink(nil))
	t.Cleanup(sink.Close)
	n := startNode(t, db)
	key := n.topic("orders")
	for name, path := range map[string]string{"accepted": "/ok", "flaky": "/flaky", "rejected": "/status/400"} {
		n.subscribeUnder("quick", "orders", name, sink.URL+path)
	}
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/validated",
		fmt.Sprintf(`{"endpointUrl":%q}`, permits(t)))
	n.publish("orders", key, cloudEvent("e1"))
	db.drained()

	// Sessions of users have public in their path.
	db.exec("SELECT postrider.publish_data('orders', 'test', 'sql', '{\"n\": 1}', idempotency_key => 'k1')")
	db.exec("CREATE TABLE changes (id integer PRIMARY KEY, name text)")
	db.exec("CREATE TRIGGER publish AFTER INSERT OR UPDATE ON changes FOR EACH ROW EXECUTE FUNCTION " +
		"postrider.publish_row_change('orders')")
	db.exec("INSERT INTO changes VALUES (1, 'a')")
	db.exec("UPDATE changes SET name = 'b'")
	db.drained()
	operator := loginAs(t, db, "postrider_operator")
	require.NotEmpty(t, viewsAs(t, db, "postrider_reader"))
	for _, call := range []string{
		"pause('orders', 'accepted')", "resume('orders', 'accepted')", "count_dead_letters('{\"topic\": \"orders\"}')",
		"count_dead_letters('{\"match\": [{\"field\": \"data.n\", \"op\": \"=\", \"value\": 1}]}')",
		"redeliver_all('{\"subject\": \"nothing\"}')", "redeliver((SELECT min(dead_letter_id::text)::uuid " +
			"FROM postrider.dead_letters))",
	} {
		_, err := operator.Exec(t.Context(), "SELECT postrider."+call)
		require.NoError(t, err, call)
	}
	require.Equal(t, operator.Config().User,
		one[string](db, "SELECT actor FROM postrider.audit WHERE action = 'subscription_paused'"), "it is who logged in")
	db.drained()
	run("doctor")
	run("sql", "SELECT format('%s %s', 1, 2), * FROM postrider.dead_letters")
	run("sql", "--question", "pending", "--topic", "orders", "--subscription", "rejected")
	for _, list := range []string{
		"/events", "/deliveries", "/deadLetters", "/topics", "/topics/orders/subscriptions", "/audit",
		"/batches", "/problems", "/activity", "/operations",
	} {
		n.manage(http.StatusOK, http.MethodGet, "/v1"+list, "")
	}
	require.Zero(t, one[int](db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND "+
		"database = (SELECT oid FROM pg_database WHERE datname = current_database())", plantedLock))
	n.stop()
	require.Empty(t, complaints(n))
}
