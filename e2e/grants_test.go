package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/postgres"
)

// plantSecrets fills a database with one of each kind, by every interface that accepts them, and returns them.
func plantSecrets(t *testing.T, db *database) (secrets map[string]string) {
	t.Helper()
	n := startNode(t, db)
	requested := make(chan string, 10)
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Aeg-Event-Type") == "SubscriptionValidation" {
			requested <- string(body) // and the code is not returned: an operator opens the URL
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "%s %s", r.RequestURI, r.Header.Get("Authorization"))
	}))
	t.Cleanup(e.Close)
	key := n.topic("orders")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/billing",
		fmt.Sprintf(`{"endpointValidation":"skip","endpointUrl":%q,"signing":{"enabled":true},
		"deliveryAttributeMappings":[{"name":"Authorization","type":"Static","properties":{"value":"Bearer planted-header",`+
			`"isSecret":true}}]}`, e.URL+"?code=planted-query"))
	sas := signature(t, n.api, key)
	for header, credential := range map[string]string{"aeg-sas-key": key, "aeg-sas-token": sas} {
		status, text, err := call(t.Context(), http.MethodPost, n.api+"/topics/orders/api/events", cloudEvent(header), header,
			credential,
			"Content-Type", "application/cloudevents+json", "Idempotency-Key", "planted-idempotency-"+header)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, text)
	}
	db.exec("SELECT postrider.publish_data('orders', 'test', 'sql', '{}', idempotency_key => 'planted-idempotency-sql')")
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/grid", "")
	_, _, err := call(t.Context(), http.MethodPut, n.api+"/v1/topics/grid/subscriptions/requested",
		fmt.Sprintf(`{"endpointUrl":%q}`, e.URL+"?code=planted-handshake"),
		"Authorization", "Bearer "+testAdminToken, "Content-Type", "application/json")
	require.NoError(t, err)
	code := regexp.MustCompile(`"validationCode":"([^"]+)"`).FindStringSubmatch(<-requested)
	require.Len(t, code, 2)
	eventually(t, "all are dead letters", db.atLeast(3, "SELECT count(*) FROM postrider.dead_letters"))

	var keys struct{ Key1, Key2 string }
	require.NoError(t,
		json.Unmarshal([]byte(n.manage(http.StatusOK, http.MethodPost, "/v1/topics/orders/listKeys", "")), &keys))
	var signing struct{ Value []struct{ Secret string } }
	require.NoError(t,
		json.Unmarshal([]byte(n.manage(http.StatusOK, http.MethodPost,
			"/v1/topics/orders/subscriptions/billing/getSigningSecrets", "")), &signing))
	raw, err := base64.StdEncoding.DecodeString(testEncryptionKey)
	require.NoError(t, err)
	var apiKey struct{ Key string }
	require.NoError(t,
		json.Unmarshal(
			[]byte(n.manage(http.StatusCreated, http.MethodPost, "/v1/apiKeys", `{"name":"planted","scope":"admin"}`)), &apiKey))
	n.manage(http.StatusCreated, http.MethodPut, "/v1/users/planted",
		`{"role":"admin","password":"planted-umbrella-giraffe"}`)
	session := signIn(t, db, "planted", "planted-umbrella-giraffe")
	secrets = map[string]string{
		"an endpoint's query": "planted-query", "a handshake's": "planted-handshake", "a header": "planted-header",
		"an idempotency key":  "planted-idempotency",
		"a topic's first key": keys.Key1, "its second key": keys.Key2, "a signature": sas[strings.LastIndex(sas, "=")+1:],
		"a signing secret":  strings.TrimPrefix(signing.Value[0].Secret, "whsec_"),
		"a validation code": code[1], "the encryption key": testEncryptionKey, "the encryption key's bytes": string(raw),
		"the admin token": testAdminToken,
		"an API key":      apiKey.Key[12:], "a password": "planted-umbrella-giraffe",
		"what a password was hashed to": one[string](db, "SELECT password_hash FROM postrider_internal.users"),
		"a session":                     session,
	}
	for _, column := range []string{
		"key1_sealed FROM postrider_internal.topics", "key1_hash FROM postrider_internal.topics",
		"secrets_sealed FROM postrider_internal.event_subscriptions",
		"endpoint_hash FROM postrider_internal.event_subscriptions",
		"signing_sealed FROM postrider_internal.event_subscriptions", "proof FROM postrider_internal.encryption_keys",
		"key_hash FROM postrider_internal.idempotency_keys", "key_hash FROM postrider_internal.api_keys",
		"token_hash FROM postrider_internal.sessions",
	} {
		name, _, _ := strings.Cut(column, " ")
		secrets["what is sealed: "+column] = hex.EncodeToString(one[[]byte](db,
			"SELECT "+column+" WHERE "+name+" IS NOT NULL LIMIT 1"))
	}
	return secrets
}

// signIn begins a session of the dashboard and returns its token.
func signIn(t *testing.T, db *database, name, password string) (token string) {
	t.Helper()
	pool, err := postgres.OpenPool(t.Context(), db.url, 2)
	require.NoError(t, err)
	defer pool.Close()
	token, _, err = access.AccessOf(pool).SignIn(t.Context(), name, password, access.SignInFrom{Address: "192.0.2.7"})
	require.NoError(t, err)
	return token
}

// loginAs is a session of a user who has one of our roles and nothing else.
func loginAs(t *testing.T, db *database, role string) *pgx.Conn {
	t.Helper()
	conn := login(t, db, role)
	db.exec("GRANT " + role + " TO " + conn.Config().User)
	return conn
}

// login is a session of a new role without rights.
func login(t *testing.T, db *database, name string) *pgx.Conn {
	t.Helper()
	user := pgx.Identifier{name + "_" + one[string](db, "SELECT current_database()")}
	db.exec("CREATE ROLE " + user.Sanitize() + " LOGIN PASSWORD 'known'")
	config, err := pgx.ParseConfig(db.url)
	require.NoError(t, err)
	config.User, config.Password = user[0], "known"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// queryAll returns the result of a statement as text, row by row.
func queryAll(t *testing.T, conn *pgx.Conn, query string) (string, error) {
	t.Helper()
	rows, _ := conn.Query(t.Context(), query, pgx.QueryExecModeExec)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return strings.Join(list, "\n"), err
}

func named(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	text, err := queryAll(t, conn, query)
	require.NoError(t, err)
	return strings.Fields(text)
}

const (
	viewsQuery  = "SELECT 'postrider.' || viewname FROM pg_views WHERE schemaname = 'postrider'"
	tablesQuery = "SELECT 'postrider_internal.' || relname FROM pg_class WHERE relnamespace = (SELECT oid " +
		"FROM pg_namespace WHERE nspname = 'postrider_internal') AND relkind IN ('r', 'p', 'S')"
	actingQuery = "SELECT proname FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace " +
		"WHERE nspname = 'postrider') AND prosecdef AND has_function_privilege(oid, 'EXECUTE') ORDER BY 1"
	allActingQuery = "SELECT proname FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace " +
		"WHERE nspname = 'postrider') AND prosecdef ORDER BY 1"
)

// requireLocked: schema postrider_internal is closed, and so is what PostgreSQL's statistics keep of its values.
func requireLocked(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	tables := named(t, conn, tablesQuery)
	require.Greater(t, len(tables), 25)
	for _, table := range tables {
		_, err := queryAll(t, conn, "SELECT x::text FROM "+table+" x")
		require.ErrorContains(t, err, "permission denied", table)
	}
	for _, statement := range []string{
		"SELECT postrider_internal.note_audit('a', '', 'b', '', '', '{}')::text",
		"SELECT postrider_internal.cancel(1, 'a', 'b')", "CREATE TABLE postrider.mine (n integer)",
		"DELETE FROM postrider.events", "UPDATE postrider.audit SET actor = 'me'",
	} {
		_, err := queryAll(t, conn, statement)
		require.Error(t, err, statement)
		require.Regexp(t, "permission denied|cannot (update|delete)", err.Error(), statement)
	}
	statistics, err := queryAll(t, conn, "SELECT count(*)::text FROM pg_stats WHERE schemaname = 'postrider_internal'")
	require.NoError(t, err)
	require.Equal(t, "0", statistics)
}

// A user with one of the SQL roles has the rights of that role, and sees no secret.
func TestWhatEachRoleMay(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	secrets := plantSecrets(t, db)
	require.Contains(t, dump(t, db), "***", "the endpoint has repeated what it was sent")
	reader, publisher := loginAs(t, db, "postrider_reader"), loginAs(t, db, "postrider_publisher")
	consumer, operator := loginAs(t, db, "postrider_consumer"), loginAs(t, db, "postrider_operator")
	for name, conn := range map[string]*pgx.Conn{"reader": reader, "operator": operator} {
		views := named(t, conn, viewsQuery)
		require.Greater(t, len(views), 13)
		var seen strings.Builder
		for _, view := range views {
			text, err := queryAll(t, conn, "SELECT x::text FROM "+view+" x")
			require.NoError(t, err, view)
			seen.WriteString(text)
		}
		for what, secret := range secrets {
			require.NotEmpty(t, secret, what)
			require.Zero(t, strings.Count(seen.String(), secret), "the %s sees %s", name, what)
			require.Zero(t, strings.Count(seen.String(), hex.EncodeToString([]byte(secret))), "the %s sees %s", name, what)
		}
	}
	for _, conn := range []*pgx.Conn{publisher, consumer} {
		for _, view := range named(t, conn, viewsQuery) {
			_, err := queryAll(t, conn, "SELECT x::text FROM "+view+" x")
			require.ErrorContains(t, err, "permission denied", view)
		}
	}
	for _, conn := range []*pgx.Conn{reader, publisher, consumer, operator} {
		requireLocked(t, conn)
	}
	publishing := []string{"publish", "publish_batch", "publish_data"}
	receiving := []string{"acknowledge", "receive", "reject", "release_locks", "renew"}
	require.Empty(t, named(t, reader, actingQuery))
	require.Equal(t, publishing, named(t, publisher, actingQuery))
	require.Equal(t, receiving, named(t, consumer, actingQuery))
	all := named(t, operator, allActingQuery)
	require.ElementsMatch(t, all, slices.Concat(named(t, operator, actingQuery), publishing, receiving),
		"the operator may do all but publish and receive")
	require.Subset(t, all,
		[]string{"cancel", "dead_letter_now", "erase_event", "erase_subject", "pause", "release", "resume", "retry_now"})

	_, err := queryAll(t, operator, "SELECT coalesce(postrider.pause('orders', 'billing')::text, '')")
	require.NoError(t, err)
	require.Equal(t, operator.Config().User,
		one[string](db, "SELECT actor FROM postrider.audit WHERE action = 'subscription_paused'"), "it is who logged in")
	_, err = queryAll(t, reader, "SELECT postrider.resume('orders', 'billing')::text")
	require.ErrorContains(t, err, "permission denied for function resume")
	_, err = queryAll(t, publisher, "SELECT postrider.publish_data('orders', 'test', 'sql', '{}')::text")
	require.NoError(t, err)
}
