package e2e

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

// clientPair is a certificate with its key, in PEM, and a part of the key.
func clientPair(t *testing.T) (certificate, key, planted string) {
	t.Helper()
	dir := t.TempDir()
	_, err := issue(&x509.Certificate{NotAfter: time.Now().Add(time.Hour)}, nil, dir+"/cert.pem", dir+"/key.pem")
	require.NoError(t, err)
	cert, err := os.ReadFile(dir + "/cert.pem")
	require.NoError(t, err)
	secret, err := os.ReadFile(dir + "/key.pem")
	require.NoError(t, err)
	return string(cert), string(secret), strings.Split(string(secret), "\n")[1][8:56]
}

// people are a program with an API key, who uses it, and a person, who has signed in with her password.
func (n *nodeProcess) people(t *testing.T) (key, session string) {
	t.Helper()
	var made struct{ Key string }
	require.NoError(t,
		json.Unmarshal(
			[]byte(n.manage(http.StatusCreated, http.MethodPost, "/v1/apiKeys", `{"name":"program","scope":"admin"}`)), &made))
	status, _, err := call(t.Context(), http.MethodGet, n.api+"/v1/topics", "", "Authorization", "Bearer "+made.Key)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	n.manage(http.StatusCreated, http.MethodPut, "/v1/users/anna", `{"role":"admin","password":"`+plantedPassword+`"}`)
	form := url.Values{"name": {"anna"}, "password": {plantedPassword}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.api+"/ui/sign-in",
		strings.NewReader(form.Encode()))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Sec-Fetch-Site", "same-origin")
	response, err := caller.Transport.RoundTrip(request) // which follows no redirect
	require.NoError(t, err)
	defer response.Body.Close()
	for _, cookie := range response.Cookies() {
		if cookie.Name == "__Host-postrider" {
			return made.Key, cookie.Value
		}
	}
	require.FailNow(t, "the sign-in failed", response.Status)
	return "", ""
}

// validationCode begins a handshake, which stays open, and returns its code.
func (n *nodeProcess) validationCode(t *testing.T, base string, handshakes <-chan string) string {
	t.Helper()
	n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/grid", "")
	_, _, err := call(t.Context(), http.MethodPut, n.api+"/v1/topics/grid/subscriptions/requested",
		fmt.Sprintf(`{"endpointUrl":%q}`, base+"/handshake?code=planted-handshake"),
		"Authorization", "Bearer "+testAdminToken, "Content-Type", "application/json")
	require.NoError(t, err)
	code := regexp.MustCompile(`"validationCode":"([^"]+)"`).FindStringSubmatch(<-handshakes)
	require.Len(t, code, 2)
	return code[1]
}

// publishPlanted publishes three events, with each credential and with an idempotency key, and returns the errors of
// rejected requests.
func (n *nodeProcess) publishPlanted(t *testing.T, db *database, key, sas, apiKey string) (errorsMet string) {
	t.Helper()
	send := func(status int, method, path, body, header, credential string) {
		got, said, err := call(t.Context(), method, n.api+path, body, header, credential, "Content-Type",
			"application/cloudevents+json", "Idempotency-Key", "planted-idempotency-"+header)
		require.NoError(t, err)
		require.Equal(t, status, got, "%s %s", header, said)
		if status >= http.StatusBadRequest {
			errorsMet += said
		}
	}
	const publish = "/topics/orders/api/events?aeg-sas-key=planted-key-in-query"
	send(http.StatusOK, http.MethodPost, publish, cloudEvent("1"), "aeg-sas-key", key)
	send(http.StatusOK, http.MethodPost, publish, cloudEvent("2"), "aeg-sas-token", sas)
	send(http.StatusUnauthorized, http.MethodPost, publish, cloudEvent("3"), "Authorization",
		"Bearer planted-wrong-credential")
	db.exec("SELECT postrider.publish('orders', '{\"specversion\": \"1.0\", \"id\": \"sql\", \"source\": \"/s\", " +
		"\"type\": \"t\"}', idempotency_key => 'planted-idempotency-sql')")
	const topics = "/v1/topics?code=planted-key-in-query"
	send(http.StatusUnauthorized, http.MethodGet, topics, "", "Authorization", "Bearer "+apiKey+"x")
	send(http.StatusUnauthorized, http.MethodGet, topics, "", "aeg-sas-token", sas+"x")
	send(http.StatusUnauthorized, http.MethodGet, topics, "", "aeg-sas-key", key+"x")
	return errorsMet
}

// requireStored opens what is sealed and requires that each of the secrets is there.
func requireStored(t *testing.T, db *database, secrets ...string) {
	t.Helper()
	key, err := postgres.ParseKey(testEncryptionKey)
	require.NoError(t, err)
	sealer, err := postgres.NewSealer(key)
	require.NoError(t, err)
	var stored strings.Builder
	for _, column := range []string{
		"topics.key1_sealed", "topics.key2_sealed", "event_subscriptions.secrets_sealed",
		"event_subscriptions.signing_sealed", "handshakes.secrets_sealed", "handshakes.code_sealed",
	} {
		table, name, _ := strings.Cut(column, ".")
		values := one[[][]byte](db,
			"SELECT array_agg("+name+") FROM postrider_internal."+table+" WHERE "+name+" IS NOT NULL")
		require.NotEmpty(t, values, column)
		for _, sealed := range values {
			plain, err := sealer.Open(column, sealed)
			require.NoError(t, err)
			stored.WriteString(plain)
		}
	}
	// A JSON text has escapes.
	text := strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(stored.String())
	for _, secret := range secrets {
		require.Positive(t, strings.Count(text, secret), "%s is not stored", secret)
	}
}

// sealed is what the database has of secrets, sealed or hashed, and what opens it.
func sealed(db *database) (hidden []string) {
	db.t.Helper()
	raw, err := base64.StdEncoding.DecodeString(testEncryptionKey)
	require.NoError(db.t, err)
	hidden = []string{string(raw), one[string](db, "SELECT password_hash FROM postrider_internal.users LIMIT 1")}
	for _, column := range []string{
		"key1_sealed FROM postrider_internal.topics", "key1_hash FROM postrider_internal.topics",
		"secrets_sealed FROM postrider_internal.event_subscriptions",
		"endpoint_hash FROM postrider_internal.event_subscriptions",
		"signing_sealed FROM postrider_internal.event_subscriptions", "proof FROM postrider_internal.encryption_keys",
		"key_hash FROM postrider_internal.idempotency_keys", "key_hash FROM postrider_internal.api_keys",
		"token_hash FROM postrider_internal.sessions",
	} {
		name, _, _ := strings.Cut(column, " ")
		hidden = append(hidden, hex.EncodeToString(one[[]byte](db,
			"SELECT "+column+" WHERE "+name+" IS NOT NULL LIMIT 1")))
	}
	return hidden
}

// dump is every row of every table and view as text, with the bytes of bytea columns as they are.
func dump(t *testing.T, db *database) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "SET bytea_output = 'escape'")
	require.NoError(t, err)
	tables := queryAll(t, conn,
		`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('postrider', 'postrider_internal') AND c.relkind IN ('r', 'v', 'm') ORDER BY 1`)
	require.Greater(t, len(tables), 25)
	var all strings.Builder
	for _, table := range tables {
		all.WriteString(strings.Join(queryAll(t, conn, "SELECT x::text FROM "+table+" x"), "\n"))
	}
	// Rows as text double what is escaped already.
	return strings.NewReplacer(`\\`, `\`, `""`, `"`).Replace(all.String())
}

// loginAs is a session of a user who has one of our roles and nothing else.
func loginAs(t *testing.T, db *database, role string) *pgx.Conn {
	t.Helper()
	conn := login(t, db, role)
	db.exec("GRANT " + role + " TO " + conn.Config().User)
	return conn
}

// login is a session of a new role without rights; its name begins with prefix.
func login(t *testing.T, db *database, prefix string) *pgx.Conn {
	t.Helper()
	user := fmt.Sprintf("%s_%08x", prefix, rand.Uint32())
	db.exec("CREATE ROLE " + user + " LOGIN PASSWORD 'known'")
	config, err := pgx.ParseConfig(db.url)
	require.NoError(t, err)
	config.User, config.Password = user, "known"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

// queryAll returns the result of a statement as text, row by row.
func queryAll(t *testing.T, conn *pgx.Conn, query string) []string {
	t.Helper()
	rows, _ := conn.Query(t.Context(), query, pgx.QueryExecModeExec)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err, query)
	return list
}

// viewsAs is what a user with the role sees in the views.
func viewsAs(t *testing.T, db *database, role string) (seen string) {
	t.Helper()
	conn := loginAs(t, db, role)
	views := queryAll(t, conn, "SELECT 'postrider.' || viewname FROM pg_views WHERE schemaname = 'postrider'")
	require.Greater(t, len(views), 13)
	for _, view := range views {
		seen += strings.Join(queryAll(t, conn, "SELECT x::text FROM "+view+" x"), "\n")
	}
	return seen
}

// dumpAsReader is what pg_dump writes of schema postrider for a user who may read it and nothing else.
func dumpAsReader(t *testing.T, db *database) string {
	t.Helper()
	conn := loginAs(t, db, "postrider_reader")
	program := filepath.Join(one[string](db, "SELECT setting FROM pg_config WHERE name = 'BINDIR'"), "pg_dump")
	if _, err := os.Stat(program); err != nil {
		t.Skip("this PostgreSQL has no pg_dump")
	}
	u, err := url.Parse(db.url)
	require.NoError(t, err)
	u.User = url.UserPassword(conn.Config().User, "known")
	out, err := exec.CommandContext(t.Context(), program, "--schema", "postrider", "--dbname", u.String()).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "CREATE VIEW postrider.dead_letters")
	return string(out)
}

// ofEcho are a dead letter of event subscription echo, and its delivery.
func ofEcho(db *database) (letter, delivery string) {
	ids := strings.Fields(one[string](db,
		"SELECT dead_letter_id || ' ' || delivery_id FROM postrider.dead_letters WHERE subscription = 'echo' LIMIT 1"))
	return ids[0], ids[1]
}

// pages are the texts of what shows settings, events and their deliveries, by path: responses of the API to the
// program's key, and the dashboard's pages in anna's session. Each has a text that proves it to be that page.
func (n *nodeProcess) pages(t *testing.T, db *database, base, apiKey, session string) map[string]string {
	t.Helper()
	letter, delivery := ofEcho(db)
	event := one[string](db, "SELECT system_id::text FROM postrider.deliveries WHERE delivery_id = $1", delivery)
	batch := one[string](db, "SELECT min(batch_id)::text FROM postrider.batches WHERE subscription = 'batched'")
	operation := one[string](db, "SELECT operation_id::text FROM postrider.operations LIMIT 1")
	want := map[string]string{
		"/openapi.yaml": "openapi: 3", "/openapi": "<html", "/healthz": "ok", "/readyz": "{",
		"/metrics": `destination_type="NatsJetStream",`,

		"/v1/topics": `"orders"`, "/v1/topics/orders": `"orders"`, "/v1/policies": `"ga-2021"`, "/v1/me": `"program"`,
		"/v1/topics/orders/subscriptions": `"untrusted"`, "/v1/topics/grid/subscriptions": `"AwaitingManualAction"`,
		"/v1/events": event, "/v1/events/" + event: event,
		"/v1/deliveries": `"dead_lettered"`, "/v1/deliveries/" + delivery: `"dead_lettered"`,
		"/v1/deliveries/" + delivery + "/attempts": plantedOpen, "/v1/activity": `"nextLink"`, "/v1/problems": `"babble"`,
		"/v1/batches": `"batched"`, "/v1/batches/" + batch: `"batched"`, "/v1/batches/" + batch + "/attempts": plantedOpen,
		"/v1/deadLetters": letter, "/v1/deadLetters/" + letter: letter, "/v1/deadLetterExport": `"deadletterreason"`,
		"/v1/apiKeys": `"program"`, "/v1/users": `"anna"`, "/v1/audit": `"subscription_created"`,
		"/v1/operations": operation, "/v1/operations/" + operation: operation, "/v1/queries": `"value"`,

		"/ui/": "<title>Overview", "/ui/problems": "babble", "/ui/tail": "<title>Live tail", "/ui/events": event,
		"/ui/events/" + event: event, "/ui/deliveries": "dead_lettered", "/ui/deliveries/" + delivery: plantedOpen,
		"/ui/batches": "batched", "/ui/batches/" + batch: plantedOpen,
		"/ui/dead-letters": letter, "/ui/dead-letters/" + letter: letter, "/ui/dead-letters/" + letter + "/purge": letter,
		"/ui/dead-letters/" + letter + "/repair": letter, "/ui/dead-letters/redeliver?topic=orders": "<title>Redeliver",
		"/ui/operations": operation, "/ui/operations/" + operation: operation,
		"/ui/topics": "<title>Topics", "/ui/topics/orders": "untrusted", "/ui/topics/orders/edit": "CloudEventSchemaV1_0",
		"/ui/topics/orders/keys": "<title>Access keys", "/ui/topics/orders/publish": "<title>Publish",
		"/ui/subscriptions": "untrusted", "/ui/subscriptions/grid/requested": base + "/handshake",
		"/ui/policies": "ga-2021", "/ui/policies/new?from=ga-2021": "<title>New retry policy", "/ui/jobs": "<title>Jobs",
		"/ui/storage": "dead_letters", "/ui/audit": "subscription_created", "/ui/users": "<title>Users",
		"/ui/api-keys": "<title>API keys", "/ui/account": "<title>Your account", "/ui/query": `id="sql"`,
		"/ui/search?q=e": "/ui/subscriptions/orders/echo",
	}
	for _, name := range one[[]string](db, "SELECT array_agg(DISTINCT subscription) FROM postrider.dead_letters") {
		want["/v1/topics/orders/subscriptions/"+name] = plantedOpen
		want["/ui/subscriptions/orders/"+name] = plantedOpen
		want["/ui/subscriptions/orders/"+name+"/edit"] = plantedOpen
	}
	for _, id := range one[[]string](db, "SELECT array_agg(delivery_id::text) FROM postrider.dead_letters") {
		want["/v1/deliveries/"+id+"/attempts"], want["/ui/deliveries/"+id] = `"outcome"`, "Attempt 1"
	}
	texts := map[string]string{}
	for path, text := range want {
		texts[path] = n.page(t, path, apiKey, session)
		require.Contains(t, texts[path], text, path)
	}
	return texts
}

// page reads a page, which must not redirect.
func (n *nodeProcess) page(t *testing.T, path, apiKey, session string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.api+path, nil)
	require.NoError(t, err)
	if strings.HasPrefix(path, "/ui") {
		request.Header.Set("Cookie", "__Host-postrider="+session) // a cookie jar keeps Secure cookies to https
	} else {
		request.Header.Set("Authorization", "Bearer "+apiKey)
	}
	response, err := caller.Transport.RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s %s %s", path, response.Header.Get("Location"), body)
	return fmt.Sprint(response.Header, " ", string(body))
}

// verbs are what the program prints where secrets are not far.
func (n *nodeProcess) verbs(t *testing.T, db *database, endpoint, certificate, key string) map[string]string {
	t.Helper()
	named := func(name string, settings map[string]any) map[string]any {
		settings["topic"], settings["name"] = "orders", name
		return settings
	}
	secure := plantedSettings("https://example.com/", endpoint, "")
	secure["clientCertificate"] = map[string]any{"certificate": certificate, "privateKey": key}
	text, err := json.Marshal(map[string]any{"subscriptions": []any{
		named("fresh", plantedSettings(endpoint+"/echo", endpoint, "/token")), named("secure", secure),
		named("bus", plantedDestinations(endpoint, "", "planted-changed-key")["bus"]),
		named("echo", plantedSettings(endpoint+"/echo?changed=planted-key-in-query&", endpoint, "/token")),
	}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "file.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	letter, delivery := ofEcho(db)
	remote := n.cliEnv()
	local := []string{"POSTRIDER_DATABASE_URL=" + db.url, "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey}
	at, err := url.Parse(db.url)
	require.NoError(t, err)
	at.Host = "127.0.0.1:1"
	broken := []string{"POSTRIDER_DATABASE_URL=" + at.String(), "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey}
	query := "?code=" + url.QueryEscape(plantedQuery)
	said := map[string]string{}
	for _, v := range []struct {
		env  []string
		code int
		line string
	}{
		{remote, 3, "apply -f " + file + " --dry-run"},
		{remote, 3, "apply -f " + file + " --dry-run -o json"},
		{remote, 0, "apply -f " + file + " --yes"},
		{remote, 0, "subscription list"},
		{remote, 0, "subscription show orders echo -o json"},
		{remote, 0, "subscription show orders untrusted"},
		{remote, 0, "subscription show orders bus"},
		{remote, 0, "subscription show orders bus -o json"},
		{remote, 0, "subscription reveal orders bus"},
		{remote, 0, "topic show orders -o json"},
		{remote, 0, "apikey list -o json"},
		{remote, 0, "user list -o json"},
		{remote, 0, "delivery show " + delivery + " -o json"},
		{remote, 0, "deadletter show " + letter + " -o json"},
		{local, 1, "doctor --endpoint " + endpoint + "/echo" + query + " --allow-cidr 127.0.0.0/8 -o json"},
		{local, 1, "doctor"},
		{broken, 1, "doctor --endpoint https://nowhere.invalid/" + query},
		{append(remote, "POSTRIDER_API_KEY=planted-wrong-credential"), 1, "subscription list"},
	} {
		done := postrider(t, v.env, strings.Fields(v.line)...)
		require.Equal(t, v.code, done.code, "%s %s %s", v.line, done.stdout, done.stderr)
		said[strings.Split(v.line, "?")[0]] += done.stdout + done.stderr
	}
	return said
}
