package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clientPair is a certificate with its key, in PEM, and a line of the key.
func clientPair(t *testing.T) (certificate, key, planted string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "postrider"}, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
		base64.StdEncoding.EncodeToString(secret)[8:56]
}

// failing responds with the whole request, in every way to fail.
func failing(t *testing.T) (base string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/babble", babble)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).
			Encode(map[string]any{"access_token": "planted-access-token", "expires_in": 3600, "was": string(body)})
	})
	mux.HandleFunc("/no-token", func(w http.ResponseWriter, r *http.Request) {
		_, secret, _ := r.BasicAuth()
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).
			Encode(map[string]string{"error": "invalid_client", "error_description": secret + r.Header.Get("Authorization")})
	})
	e := httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e.URL
}

// Whatever fails, and however much of it an endpoint repeats: no secret is in the log at its finest level, in the
// database, in what its readers see, in a dump of the schema that is the contract, on a page, in a response, an error
// or a metric, in a trace, or in what a verb prints.
func TestPlantedSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	traces := newRawSpans(t)
	n := startNodeWith(t, append(serveEnv(db), "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.url, "OTEL_BSP_SCHEDULE_DELAY=50"),
		"--log-level", "debug", "--log-attempts", "all")
	tail := startProcess(t, n.cliEnv(), program, "tail")
	eventually(t, "it follows", func() bool { return strings.Contains(tail.stderr.String(), "Following") })
	base, closed := failing(t), httptest.NewServer(http.NotFoundHandler())
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	closed.Close()
	certificate, key, plantedKey := clientPair(t)
	topicKey := n.topic("orders")
	endpoints := map[string]string{
		"echo": base + "/echo", "babble": base + "/babble", "redirect": base + "/redirect", "closed": closed.URL + "/",
		"untrusted": secure.URL + "/",
		"unknown":   "https://nowhere.invalid/", "unauthorized": base + "/echo", "batched": base + "/echo",
	}
	for name, endpoint := range endpoints {
		settings := map[string]any{
			"endpointUrl": endpoint + "?code=planted-query-secret", "endpointValidation": "skip",
			"signing": map[string]any{"enabled": true}, "retryPolicy": map[string]any{"maxDeliveryAttempts": 1},
			"deliveryAttributeMappings": []any{map[string]any{
				"name": "X-Long", "type": "Static",
				"properties": map[string]any{"value": "planted-header-secret", "isSecret": true},
			}},
		}
		switch name {
		case "echo", "batched", "babble":
			settings["oauth2"] = map[string]any{
				"tokenUrl": base + "/token", "clientId": "shop", "clientSecret": "planted-client-secret",
			}
		case "unauthorized":
			settings["oauth2"] = map[string]any{
				"tokenUrl": base + "/no-token", "clientId": "shop", "clientSecret": "planted-client-secret",
			}
		case "untrusted":
			settings["clientCertificate"] = map[string]any{"certificate": certificate, "privateKey": key}
		}
		if name == "batched" {
			settings["maxEventsPerBatch"] = 10
		}
		body, err := json.Marshal(settings)
		require.NoError(t, err)
		n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+name, string(body))
	}
	var signing struct{ Value []struct{ Secret string } }
	require.NoError(t,
		json.Unmarshal([]byte(n.manage(http.StatusOK, http.MethodPost,
			"/v1/topics/orders/subscriptions/echo/getSigningSecrets", "")), &signing))
	sas := signature(t, n.api, topicKey)
	apiKey, session := n.people(t)
	var errorsMet strings.Builder
	for header, credential := range map[string]string{
		"aeg-sas-key": topicKey, "aeg-sas-token": sas, "Authorization": "Bearer planted-wrong-credential",
	} {
		_, said, err := call(t.Context(), http.MethodPost,
			n.api+"/topics/orders/api/events?aeg-sas-key="+url.QueryEscape("planted-key-in-query"), cloudEvent(header), header,
			credential, "Content-Type", "application/cloudevents+json")
		require.NoError(t, err)
		errorsMet.WriteString(said)
	}
	for header, credential := range map[string]string{
		"Authorization": "Bearer " + apiKey + "x", "aeg-sas-token": sas + "x", "aeg-sas-key": topicKey + "x",
	} {
		_, said, err := call(t.Context(), http.MethodGet, n.api+"/v1/topics?code=planted-key-in-query", "", header,
			credential)
		require.NoError(t, err)
		errorsMet.WriteString(said)
	}
	eventually(t, "all are dead letters", db.atLeast(2*len(endpoints), "SELECT count(*) FROM postrider.dead_letters"))

	sasSignature, err := url.QueryUnescape(sas[strings.LastIndex(sas, "=")+1:])
	require.NoError(t, err)
	secrets := []string{
		"planted-query-secret", "planted-header-secret", "planted-client-secret", "planted-access-token",
		"planted-wrong-credential", "planted-key-in-query",
		base64.StdEncoding.EncodeToString([]byte("shop:planted-client-secret")), plantedKey, topicKey, sasSignature,
		strings.TrimPrefix(signing.Value[0].Secret, "whsec_"),
		testAdminToken, testEncryptionKey, apiKey, session, plantedPassword, databasePassword(t, db.url),
	}
	clean := func(where, text string) {
		t.Helper()
		require.NotEmpty(t, text, where)
		for _, secret := range secrets {
			require.Zero(t, strings.Count(text, secret), "%s has %s", where, secret)
		}
	}
	dumped := dump(t, db)
	require.Contains(t, dumped, "***", "endpoints have repeated what they were sent")
	clean("the database", dumped)
	clean("a dump by a reader", dumpAsReader(t, db))
	for _, path := range n.pages(t, db) {
		clean(path, n.page(t, path))
	}
	clean("the errors", errorsMet.String())
	for verb, text := range n.verbs(t, db, base, certificate, key) {
		clean(verb, text)
	}
	eventually(t, "the tail shows the attempts", func() bool { return len(tail.linesWith("<-- orders/echo")) > 0 })
	tail.stop()
	clean("the tail", tail.stdout.String()+tail.stderr.String())
	n.stop()
	require.Contains(t, traces.text(), "deliver orders/echo")
	clean("the traces", traces.text())
	require.Contains(t, n.stderr.String(), "delivery attempted", "the log has its finest level")
	clean("the log", n.stderr.String())
}

// pages are those that show what was made and what became of it.
func (n *nodeProcess) pages(t *testing.T, db *database) []string {
	t.Helper()
	letter := one[string](db,
		"SELECT dead_letter_id::text FROM postrider.dead_letters WHERE subscription = 'echo' LIMIT 1")
	delivery := one[string](db, "SELECT delivery_id::text FROM postrider.dead_letters WHERE subscription = 'echo' LIMIT 1")
	event := one[string](db, "SELECT system_id::text FROM postrider.events LIMIT 1")
	paths := []string{
		"/v1/topics", "/v1/topics/orders", "/v1/topics/orders/subscriptions", "/v1/topics/orders/subscriptions/echo",
		"/v1/topics/orders/subscriptions/untrusted", "/v1/deadLetters",
		"/v1/deadLetters/" + letter, "/v1/deliveries/" + delivery, "/v1/deliveries/" + delivery + "/attempts", "/v1/apiKeys",
		"/v1/users", "/v1/operations", "/openapi.yaml", "/openapi", "/v1/events", "/v1/deliveries", "/v1/batches",
		"/v1/audit", "/healthz", "/metrics",
		"/ui/", "/ui/problems", "/ui/events", "/ui/deliveries", "/ui/dead-letters", "/ui/dead-letters/" + letter,
		"/ui/deliveries/" + delivery, "/ui/events/" + event,
		"/ui/subscriptions", "/ui/subscriptions/orders/echo", "/ui/subscriptions/orders/untrusted", "/ui/topics", "/ui/audit",
		"/ui/system", "/ui/jobs",
	}
	found := 0
	for _, path := range paths {
		if !strings.Contains(n.page(t, path), "404 ") {
			found++
		}
	}
	require.Greater(t, found, 20)
	return paths
}

func (n *nodeProcess) page(t *testing.T, path string) string {
	t.Helper()
	credential := "Bearer " + testAdminToken
	if strings.HasPrefix(path, "/ui") {
		credential = "Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+testAdminToken))
	}
	status, text, err := call(t.Context(), http.MethodGet, n.api+path, "", "Authorization", credential)
	require.NoError(t, err)
	return fmt.Sprint(status, " ", text)
}

// dumpAsReader is what pg_dump writes of schema postrider for a user who may read it and nothing else, and what is in
// its views.
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
	text := string(out)
	for _, view := range named(t, conn, viewsQuery) {
		rows, err := queryAll(t, conn, "SELECT x::text FROM "+view+" x")
		require.NoError(t, err, view)
		text += rows
	}
	return text
}
