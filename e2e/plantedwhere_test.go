package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const plantedPassword = "planted phrase of anna, quite long"

// rawSpans is a collector of traces that keeps what it was sent as it came: texts stand in it as they are.
type rawSpans struct {
	mu   sync.Mutex
	kept strings.Builder
	url  string
}

func newRawSpans(t *testing.T) *rawSpans {
	t.Helper()
	s := &rawSpans{}
	e := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kept.Write(raw)
	}))
	t.Cleanup(e.Close)
	s.url = e.URL
	return s
}

func (s *rawSpans) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept.String()
}

// databasePassword is the one that the server of the tests has drawn.
func databasePassword(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	password, _ := u.User.Password()
	require.Greater(t, len(password), 8)
	return password
}

// elsewhere is the URL of a database that is not there.
func elsewhere(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.Host = "127.0.0.1:1"
	return u.String()
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

// verbs are what the program prints where secrets are not far.
func (n *nodeProcess) verbs(t *testing.T, db *database, endpoint, certificate, key string) map[string]string {
	t.Helper()
	settings := map[string]any{
		"topic": "orders", "name": "fresh", "endpointUrl": endpoint + "/echo?code=planted-query-secret",
		"endpointValidation": "skip",
		"oauth2": map[string]any{
			"tokenUrl": endpoint + "/token", "clientId": "shop", "clientSecret": "planted-client-secret",
		},
		"deliveryAttributeMappings": []any{map[string]any{
			"name": "X-Long", "type": "Static", "properties": map[string]any{"value": "planted-header-secret", "isSecret": true},
		}},
	}
	secure := map[string]any{
		"topic": "orders", "name": "secure", "endpointUrl": "https://example.com/?code=planted-query-secret",
		"endpointValidation": "skip",
		"clientCertificate":  map[string]any{"certificate": certificate, "privateKey": key},
	}
	changed := map[string]any{
		"topic": "orders", "name": "echo", "endpointUrl": endpoint + "/echo?code=planted-key-in-query",
		"endpointValidation": "skip", "oauth2": settings["oauth2"],
	}
	text, err := json.Marshal(map[string]any{"subscriptions": []any{settings, secure, changed}})
	require.NoError(t, err)
	file := writtenFile(t, string(text))
	letter := one[string](db,
		"SELECT dead_letter_id::text FROM postrider.dead_letters WHERE subscription = 'echo' LIMIT 1")
	delivery := one[string](db, "SELECT delivery_id::text FROM postrider.dead_letters WHERE subscription = 'echo' LIMIT 1")
	remote := []string{"POSTRIDER_URL=" + n.api, "POSTRIDER_API_KEY=" + testAdminToken}
	local := []string{"POSTRIDER_DATABASE_URL=" + db.url, "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey}
	broken := []string{"POSTRIDER_DATABASE_URL=" + elsewhere(t, db.url), "POSTRIDER_ENCRYPTION_KEY=" + testEncryptionKey}
	said := map[string]string{}
	for _, v := range []struct {
		env  []string
		code int
		args []string
	}{
		{remote, 3, []string{"apply", "-f", file, "--dry-run"}},
		{remote, 3, []string{"apply", "-f", file, "--dry-run", "-o", "json"}},
		{remote, 0, []string{"apply", "-f", file, "--yes"}},
		{remote, 0, []string{"subscription", "list"}},
		{remote, 0, []string{"subscription", "show", "orders", "echo", "-o", "json"}},
		{remote, 0, []string{"subscription", "show", "orders", "untrusted"}},
		{remote, 0, []string{"topic", "show", "orders", "-o", "json"}},
		{local, 0, []string{"apikey", "list", "-o", "json"}},
		{local, 0, []string{"user", "list", "-o", "json"}},
		{remote, 0, []string{"delivery", "show", delivery, "-o", "json"}},
		{remote, 0, []string{"deadletter", "show", letter, "-o", "json"}},
		{local, 1, []string{
			"doctor", "--endpoint", endpoint + "/echo?code=planted-query-secret", "--allow-cidr", "127.0.0.0/8", "-o", "json",
		}},
		{local, 1, []string{"doctor"}},
		{broken, 1, []string{"doctor", "--endpoint", "https://nowhere.invalid/?code=planted-query-secret"}},
		{append(remote, "POSTRIDER_API_KEY=planted-wrong-credential"), 1, []string{"subscription", "list"}},
	} {
		done := postrider(t, v.env, v.args...)
		require.Equal(t, v.code, done.code, "%v %s %s", v.args, done.stdout, done.stderr)
		said[strings.Join(v.args, " ")] += done.stdout + done.stderr
	}
	return said
}

func writtenFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file.json")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}
