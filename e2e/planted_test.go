package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	plantedToken    = "tok/en&planted<1>"
	plantedShort    = "pl4"
	plantedQuery    = "query/planted=2"
	plantedOpen     = "planted-in-the-open" // no secret
	plantedPassword = "planted phrase of anna, quite long"
)

// plantedLong is longer than an excerpt.
var plantedLong = strings.Repeat("long-planted-3.", 273)

// plantedTexts are the secrets above. Each is searched for in parts, too: what follows the scheme, and the beginning of
// the long one, which no excerpt holds as a whole.
var plantedTexts = []string{
	plantedToken, "tok\\/en", plantedQuery, "query%2Fplanted", plantedLong[:15], "[" + plantedShort + "]",
	"planted-client-secret", "planted-access-token", "planted-wrong-credential", "planted-key-in-query",
	"planted-idempotency", "planted-handshake", base64.StdEncoding.EncodeToString([]byte("shop:planted-client-secret")),
	testAdminToken, testEncryptionKey, plantedPassword,
	"planted-primary-key", "planted-secondary-key", "planted-changed-key", "planted-signature", "planted-nats-password",
}

// echo responds 400 with the whole request in its body and headers, in several encodings.
func echo(w http.ResponseWriter, r *http.Request) {
	header, _ := json.Marshal(r.Header)
	w.Header().Set("X-Echo", r.Header.Get("Authorization"))
	w.Header().Set("Location", r.RequestURI)
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(w, "%s %s %q [%s] %s %s %s\n%s", r.RequestURI, r.URL.Query(), r.Header.Get("Authorization"),
		r.Header.Get("X-Short"), r.Header.Get("X-Open"), url.QueryEscape(r.Header.Get("Authorization")),
		strings.ReplaceAll(string(header), "/", `\/`), strings.Repeat(r.Header.Get("X-Long"), 2))
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

// failing responds with the whole request, in every way to fail. Handshakes are sent to the channel, and not answered:
// an operator opens the URL.
func failing(t *testing.T) (base string, handshakes chan string) {
	t.Helper()
	handshakes = make(chan string, 10)
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/echo/", echo)
	mux.HandleFunc("/devstoreaccount1/", echo)
	mux.HandleFunc("/babble", babble)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere?"+r.URL.RawQuery, http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/handshake", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		handshakes <- string(body)
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
	return e.URL, handshakes
}

// plantedSettings are those of an event subscription with secrets; oauth2 is the token server's path, or "".
func plantedSettings(endpoint, base, oauth2 string) map[string]any {
	static := func(name, value string, secret bool) map[string]any {
		return map[string]any{
			"name": name, "type": "Static", "properties": map[string]any{"value": value, "isSecret": secret},
		}
	}
	headers := []any{
		static("X-Short", plantedShort, true), static("X-Long", plantedLong, true), static("X-Open", plantedOpen, false),
	}
	settings := map[string]any{
		"endpointUrl": endpoint + "?code=" + url.QueryEscape(plantedQuery), "endpointValidation": "skip",
		"signing": map[string]any{"enabled": true}, "retryPolicy": map[string]any{"maxDeliveryAttempts": 1},
	}
	if oauth2 == "" {
		headers = append(headers, static("Authorization", "Bearer "+plantedToken, true))
	} else {
		settings["oauth2"] = map[string]any{
			"tokenUrl": base + oauth2, "clientId": "shop", "clientSecret": "planted-client-secret",
		}
	}
	settings["deliveryAttributeMappings"] = headers
	return settings
}

// plantedDestinations are event subscriptions with keys and passwords of other destinations than webhooks.
func plantedDestinations(base, closed, key string) map[string]map[string]any {
	to := func(kind string, properties map[string]any) map[string]any {
		return map[string]any{
			"destination":         map[string]any{"endpointType": kind, "properties": properties},
			"retryPolicy":         map[string]any{"maxDeliveryAttempts": 1},
			"eventDeliverySchema": "CloudEventSchemaV1_0", "description": plantedOpen,
		}
	}
	all := map[string]map[string]any{
		"bus": to("ServiceBusQueue", map[string]any{
			"endpoint": base, "entityName": "echo/bus", "sharedAccessKeyName": "send", "primaryKey": key,
			"secondaryKey": "planted-secondary-key",
		}),
		"store": to("StorageQueue", map[string]any{
			"endpoint": base + "/devstoreaccount1", "queueName": "orders", "sharedAccessSignature": "sv=1&sig=planted-signature",
		}),
		"nats": to("NatsJetStream", map[string]any{
			"servers": []string{strings.TrimPrefix(closed, "http://")}, "tls": false, "subject": "orders", "username": "shop",
			"password": "planted-nats-password",
		}),
	}
	all["store"]["endpointValidation"], all["nats"]["endpointValidation"] = "skip", "skip"
	return all
}

// Whatever fails, and however much of it an endpoint repeats: no secret is in the log at its finest level, in the
// database, in what its readers see, in a dump of the schema that is the contract, on a page, in a response, an error
// or a metric, in a trace, or in what a verb prints.
func TestPlantedSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	traces := newSpans(t)
	n := startNodeWith(t, append(serveEnv(db), "OTEL_EXPORTER_OTLP_ENDPOINT="+traces.url, "OTEL_BSP_SCHEDULE_DELAY=50"),
		"--log-level", "debug", "--log-attempts", "all")
	tail := startProcess(t, n.cliEnv(), program, "tail")
	eventually(t, "it follows", func() bool { return strings.Contains(tail.stderr.String(), "Following") })
	base, handshakes := failing(t)
	closed, secure := httptest.NewServer(http.NotFoundHandler()), httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	closed.Close()
	certificate, key, plantedKey := clientPair(t)
	var topicKeys struct{ Key1, Key2 string }
	read := func(into any, method, path, body string) {
		status := map[string]int{http.MethodPut: http.StatusCreated, http.MethodPost: http.StatusOK}[method]
		require.NoError(t, json.Unmarshal([]byte(n.manage(status, method, path, body)), into))
	}
	read(&topicKeys, http.MethodPut, "/v1/topics/orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	endpoints := map[string][2]string{
		"echo": {base + "/echo", "/token"}, "batched": {base + "/echo", "/token"}, "static": {base + "/echo/static", ""},
		"babble": {base + "/babble", ""}, "redirect": {base + "/redirect", ""}, "closed": {closed.URL + "/", ""},
		"untrusted": {secure.URL + "/", ""}, "unknown": {"https://nowhere.invalid/", ""},
		"unauthorized": {base + "/echo", "/no-token"},
	}
	for name, endpoint := range endpoints {
		settings := plantedSettings(endpoint[0], base, endpoint[1])
		if name == "untrusted" {
			settings["clientCertificate"] = map[string]any{"certificate": certificate, "privateKey": key}
		}
		if name == "batched" {
			settings["maxEventsPerBatch"] = 10
		}
		body, err := json.Marshal(settings)
		require.NoError(t, err)
		n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+name, string(body))
	}
	destinations := plantedDestinations(base, closed.URL, "planted-primary-key")
	for name, settings := range destinations {
		body, err := json.Marshal(settings)
		require.NoError(t, err)
		n.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+name, string(body))
	}
	letters := 3 * (len(endpoints) + len(destinations))
	var signing struct{ Value []struct{ Secret string } }
	read(&signing, http.MethodPost, "/v1/topics/orders/subscriptions/echo/getSigningSecrets", "")
	code := n.validationCode(t, base, handshakes)
	sas := signature(t, n.api, topicKeys.Key1)
	apiKey, session := n.people(t)
	errorsMet := n.publishPlanted(t, db, topicKeys.Key1, sas, apiKey)
	eventually(t, "all are dead letters", db.atLeast(letters, "SELECT count(*) FROM postrider.dead_letters"))
	n.manage(http.StatusAccepted, http.MethodPost, "/v1/deadLetters/redeliver",
		`{"filter":{"topic":"orders","subscription":"static"}}`)
	eventually(t, "they are dead letters again", db.atLeast(letters+3,
		"SELECT count(*) FROM postrider.dead_letters"))
	const static = "/v1/topics/orders/subscriptions/static/"
	require.Contains(t, n.manage(http.StatusOK, http.MethodPost, static+"getFullUrl", ""), url.QueryEscape(plantedQuery),
		"an administrator is shown it")
	require.Contains(t, n.manage(http.StatusOK, http.MethodPost, static+"getDeliveryAttributes", ""), plantedLong)
	signingSecret := strings.TrimPrefix(signing.Value[0].Secret, "whsec_")
	requireStored(t, db, topicKeys.Key1, topicKeys.Key2, signingSecret, code, plantedKey, plantedToken,
		`"`+plantedShort+`"`, plantedLong, url.QueryEscape(plantedQuery), "planted-client-secret", "planted-handshake",
		"planted-primary-key", "planted-secondary-key", "planted-signature", "planted-nats-password")

	sasSignature, err := url.QueryUnescape(sas[strings.LastIndex(sas, "=")+1:])
	require.NoError(t, err)
	secrets := append([]string{
		plantedKey, topicKeys.Key1, topicKeys.Key2, sasSignature, signingSecret,
		apiKey, session, db.pool.Config().ConnConfig.Password,
	}, plantedTexts...)
	clean := func(t *testing.T, where, text string) {
		t.Helper()
		require.NotEmpty(t, text, where)
		for _, secret := range secrets {
			require.Zero(t, strings.Count(text, secret), "%s has %s", where, secret) // the text itself would fill the screen
		}
	}
	dumped := dump(t, db)
	require.NotZero(t, strings.Count(dumped, "***"), "endpoints have repeated what they were sent")
	require.NotZero(t, strings.Count(dumped, plantedOpen))
	require.Empty(t, regexp.MustCompile(`sig(=|(%25)*%3D)\w+`).FindString(dumped), "the signature of a request")
	require.NotZero(t, one[int](db, "SELECT count(*) FROM postrider.dead_letters WHERE subscription = 'babble' "+
		"AND last_error LIKE '%babble;planted-in-the-open;***;%'"))
	clean(t, "the database", dumped)
	t.Run("a dump by a reader", func(t *testing.T) { // without pg_dump this is skipped, and nothing else
		clean(t, "a dump by a reader", dumpAsReader(t, db))
	})
	for _, role := range []string{"postrider_reader", "postrider_operator"} {
		seen := viewsAs(t, db, role)
		clean(t, "what the "+role+" sees", seen)
		for _, hidden := range append(sealed(db), code) {
			require.Zero(t, strings.Count(seen, hidden), "%s sees %s", role, hidden)
		}
		for _, secret := range secrets {
			require.Zero(t, strings.Count(seen, hex.EncodeToString([]byte(secret))), "%s sees %s", role, secret)
		}
	}
	for path, text := range n.pages(t, db, base, apiKey, session) {
		clean(t, path, text)
		require.Zero(t, strings.Count(text, code), path)
	}
	clean(t, "the errors", errorsMet)
	for verb, text := range n.verbs(t, db, base, certificate, key) {
		clean(t, verb, text)
	}
	eventually(t, "the tail shows the attempts",
		func() bool { return strings.Contains(tail.stdout.String(), "<-- orders/echo") })
	tail.stop()
	clean(t, "the tail", tail.stdout.String()+tail.stderr.String())
	n.stop()
	require.Contains(t, traces.text(), "deliver orders/echo")
	clean(t, "the traces", traces.text())
	require.Contains(t, n.stderr.String(), "delivery attempted", "the log has its finest level")
	require.Contains(t, n.stderr.String(), "secret headers of an event subscription were shown")
	clean(t, "the log", n.stderr.String()+n.stdout.String())
}
