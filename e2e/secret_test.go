package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The secrets that are planted. Each is looked for in parts, too: what follows the scheme, and the beginning of the
// long one, which no excerpt holds as a whole.
const (
	plantedToken = "tok/en&planted<1>"
	plantedShort = "pl4"
	plantedQuery = "query/planted=2"
	plantedOpen  = "planted-in-the-open"
)

var plantedLong = strings.Repeat("long-planted-3.", 273)

func planted() []string {
	return []string{plantedToken, plantedQuery, "query%2Fplanted", plantedLong[:15], "[" + plantedShort + "]", "tok\\/en"}
}

// echo responds 400 with the whole request in its body and headers, in several encodings.
func echo(w http.ResponseWriter, r *http.Request) {
	header, _ := json.Marshal(r.Header)
	w.Header().Set("X-Echo", r.Header.Get("Authorization"))
	w.Header().Set("Location", r.RequestURI)
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(w, "%s %s %q [%s] %s %s %s\n%s", r.RequestURI, r.URL.Query(), r.Header.Get("Authorization"),
		r.Header.Get("X-Short"), r.Header.Get("X-Open"),
		url.QueryEscape(r.Header.Get("Authorization")), strings.ReplaceAll(string(header), "/", `\/`),
		strings.Repeat(r.Header.Get("X-Long"), 2))
}

// babble is not HTTP: the text of net/http's error contains it.
func babble(w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	_, _ = io.WriteString(conn, "babble;"+r.Header.Get("X-Open")+";"+token+";"+r.RequestURI+"\r\n\r\n")
}

// An endpoint that repeats what it is sent must not bring the secrets of an event subscription into the database, the
// log, or any response but the two that are for them.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--log-level", "debug")
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/babble", babble)
	e := httptest.NewServer(mux)
	defer e.Close()

	key := n.topic("orders")
	names := []string{"echoed", "batched", "babbled"}
	for i, path := range []string{"/echo", "/echo", "/babble"} {
		more := []string{"", `"maxEventsPerBatch":10,`, `"retryPolicy":{"maxDeliveryAttempts":1},`}[i]
		n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+names[i],
			fmt.Sprintf(`{%s"endpointValidation":"skip","endpointUrl":%q,"deliveryAttributeMappings":[
			{"name":"Authorization","type":"Static","properties":{"value":%q,"isSecret":true}},
			{"name":"X-Short","type":"Static","properties":{"value":%q,"isSecret":true}},
			{"name":"X-Long","type":"Static","properties":{"value":%q,"isSecret":true}},
			{"name":"X-Open","type":"Static","properties":{"value":%q}}]}`,
				more, e.URL+path+"?code="+url.QueryEscape(plantedQuery), "Bearer "+plantedToken, plantedShort, plantedLong,
				plantedOpen))
	}
	n.publish("orders", key, "["+cloudEvent("1")+","+cloudEvent("2")+"]")
	eventually(t, "all are dead letters", db.atLeast(6, "SELECT count(*) FROM postrider.dead_letters"))

	dumped := dump(t, db)
	require.NotZero(t, strings.Count(dumped, plantedOpen), "the excerpts are there")
	require.NotZero(t, strings.Count(dumped, "***"), "with something left out")
	require.NotZero(t, one[int](db, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'babbled' "+
		"AND last_error LIKE '%babble;planted-in-the-open;***;%'"))
	requireNothingPlanted(t, "the database", dumped)
	for _, page := range []string{"/v1/topics", "/v1/topics/orders", "/v1/topics/orders/subscriptions", "/v1/policies"} {
		requireNothingPlanted(t, page, n.manage(http.StatusOK, http.MethodGet, page, ""))
	}
	for _, name := range names {
		page := "/v1/topics/orders/subscriptions/" + name
		requireNothingPlanted(t, page, n.manage(http.StatusOK, http.MethodGet, page, ""))
		require.Contains(t, n.manage(http.StatusOK, http.MethodPost, page+"/getFullUrl", ""), url.QueryEscape(plantedQuery))
		n.manage(http.StatusOK, http.MethodPost, page+"/getDeliveryAttributes", "")
	}
	requireNothingPlanted(t, "the database after they were shown", dump(t, db))
	n.stop()
	require.Contains(t, n.stderr.String(), "secret headers of an event subscription were shown")
	require.Contains(t, n.stderr.String(), "delivery attempted", "the log has its finest level")
	requireNothingPlanted(t, "the log", n.stderr.String()+n.stdout.String())
}

func requireNothingPlanted(t *testing.T, where, text string) {
	t.Helper()
	for _, secret := range planted() {
		require.Zero(t, strings.Count(text, secret), "%s has %s", where, secret) // the text itself would fill the screen
	}
}

// dump is every row of every table and view as text, with the bytes of bytea columns as they are.
func dump(t *testing.T, db *database) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "SET bytea_output = 'escape'")
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(),
		`SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname IN ('postrider', 'postrider_internal') AND c.relkind IN ('r', 'v', 'm') ORDER BY 1`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 25)
	var all strings.Builder
	for _, table := range tables {
		rows, err := conn.Query(t.Context(), "SELECT x::text FROM "+table+" x")
		require.NoError(t, err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err, table)
		all.WriteString(strings.Join(list, "\n"))
	}
	// Rows as text double what is escaped already.
	return strings.NewReplacer(`\\`, `\`, `""`, `"`).Replace(all.String())
}

// The limits of custom headers are the node's, at its API and at its deliveries.
func TestHeaderLimitsOfANode(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db, "--max-delivery-headers", "1", "--max-delivery-header-bytes", "5")
	sent := make(chan string, 2)
	e := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent <- strings.Join(r.Header["X-Id"], ",")
	}))
	defer e.Close()
	key := n.topic("orders")
	put := func(status int, mappings string) string {
		return n.manage(status, http.MethodPut, "/v1/topics/orders/subscriptions/all",
			fmt.Sprintf(`{"endpointValidation":"skip","endpointUrl":%q,"deliveryAttributeMappings":[%s]}`, e.URL, mappings))
	}
	require.Contains(t, put(http.StatusBadRequest, `{},{}`), "must have at most 1 entries, has 2")
	require.Contains(t, put(http.StatusBadRequest, `{"name":"X-Id","type":"Static","properties":{"value":"123456"}}`),
		"must be 1 to 5 bytes long, is 6")
	put(http.StatusCreated, `{"name":"X-Id","type":"Dynamic","properties":{"sourceField":"id"}}`)
	for _, id := range []string{"12345", "123456"} {
		n.publish("orders", key, cloudEvent(id))
	}
	require.ElementsMatch(t, []string{"12345", ""}, []string{<-sent, <-sent})
}
