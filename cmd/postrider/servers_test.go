package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/cli/rest"
)

// savedHome is a home directory with the servers given in it, as an environment.
func savedHome(t *testing.T, saved rest.SavedServers) (env []string, file string) {
	t.Helper()
	home := t.TempDir()
	file = filepath.Join(home, "config", "postrider", "servers.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	text, err := json.Marshal(saved)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))
	return []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "config")}, file
}

// keyEcho is a server without topics that remembers the Authorization header of its last request.
func keyEcho(t *testing.T) (url string, last func() string) {
	t.Helper()
	shown := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown <- r.Header.Get("Authorization")
		_, _ = w.Write([]byte(`{"value":[],"nextLink":null}`))
	}))
	t.Cleanup(srv.Close)
	return srv.URL, func() string { return <-shown }
}

func TestStoredServers(t *testing.T) {
	t.Parallel()
	prod, lastOfProd := keyEcho(t)
	staging, lastOfStaging := keyEcho(t)
	later := time.Now().Add(time.Hour)
	env, file := savedHome(t, rest.SavedServers{Default: "prod", Servers: []rest.SavedServer{
		{Name: "prod", URL: prod, Key: "prk_prod", User: "anna", Role: "admin", ExpiresAt: later},
		{Name: "staging", URL: staging, Key: "prk_staging", User: "anna", Role: "viewer", ExpiresAt: later},
		{Name: "far", URL: "http://192.0.2.1", Key: "prk_far"},
	}})
	run := func(code int, more []string, args ...string) result {
		t.Helper()
		r := postrider(t, append(env, more...), args...)
		require.Equal(t, code, r.code, r.stderr)
		return r
	}
	list := []string{"topic", "list"}
	for _, row := range []struct {
		name      string
		env, args []string
		last      func() string
		key       string
	}{
		{"the default server", nil, nil, lastOfProd, "prk_prod"},
		{"by name", nil, []string{"--server", "staging"}, lastOfStaging, "prk_staging"},
		{"by name in the environment", []string{"POSTRIDER_SERVER=staging"}, nil, lastOfStaging, "prk_staging"},
		{"the flag first", []string{"POSTRIDER_SERVER=staging"}, []string{"--server", "prod"}, lastOfProd, "prk_prod"},
		{"by URL", nil, []string{"--server", staging + "/"}, lastOfStaging, "prk_staging"},
		{"another key", nil, []string{"--server", "prod", "--api-key", "prk_flag"}, lastOfProd, "prk_flag"},
		{
			"a key in the environment",
			[]string{"POSTRIDER_API_KEY=prk_env"},
			[]string{"--server", "staging"},
			lastOfStaging, "prk_env",
		},
	} {
		run(0, row.env, append(list, row.args...)...)
		require.Equal(t, "Bearer "+row.key, row.last(), row.name)
	}
	require.Contains(t, run(2, nil, "topic", "list", "--server", "test").stderr, `(prod, staging, far)`)
	require.Contains(t, run(2, nil, "topic", "list", "--server", "far").stderr, "over https only")

	shown := run(0, nil, "server", "list").stdout
	require.Regexp(t, `(?m)^\* prod +\S+ +anna +admin +20`, shown)
	require.NotContains(t, shown, "prk_")
	require.NotContains(t, run(0, nil, "server", "list", "-o", "json").stdout, "prk_")
	require.Contains(t, run(0, nil, "server", "use", "staging").stdout, "staging ("+staging+") is the default server.")
	run(0, nil, list...)
	require.Equal(t, "Bearer prk_staging", lastOfStaging())
	require.Contains(t, run(2, nil, "server", "use", "test").stderr, `"test"`)
	for path, mode := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	require.Contains(t, run(1, nil, list...).stderr, "remove "+file+" and log in again")
	run(0, []string{"POSTRIDER_API_KEY=prk_env", "POSTRIDER_SERVER=" + prod}, list...)
	require.Equal(t, "Bearer prk_env", lastOfProd(), "a broken file does not matter where the environment says it all")
}

// Without a default, no stored server is chosen in silence.
func TestStoredServersWithoutADefault(t *testing.T) {
	t.Parallel()
	prod := rest.SavedServer{Name: "prod", URL: "https://events.example.com", Key: "prk_prod"}
	env, _ := savedHome(t, rest.SavedServers{Servers: []rest.SavedServer{prod}})
	r := postrider(t, env, "topic", "list")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "no default server: set --server (or POSTRIDER_SERVER) to one of prod")
}

// A key of the flags or the environment may be for another server than the default one.
func TestGivenKeysAndStoredServers(t *testing.T) {
	t.Parallel()
	keys := []struct{ env, args []string }{
		{env: []string{"POSTRIDER_API_KEY=prk_given"}},
		{env: []string{"POSTRIDER_ADMIN_TOKEN=prk_given"}},
		{args: []string{"--api-key", "prk_given"}},
		{env: []string{"POSTRIDER_TOPIC_KEY=prk_given"}},
	}
	verb := func(i int) []string {
		if i == 3 {
			return []string{"publish", "orders", "--sample", "--retry-for", "0s"}
		}
		return append([]string{"topic", "list"}, keys[i].args...)
	}
	staging, _ := keyEcho(t)
	saved := rest.SavedServers{
		Default: "staging", Servers: []rest.SavedServer{{Name: "staging", URL: staging, Key: "prk_staging"}},
	}
	withDefault, _ := savedHome(t, saved)
	for i, row := range keys {
		r := postrider(t, append(withDefault, row.env...), verb(i)...)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.stderr,
			"set --server (or POSTRIDER_SERVER) to staging ("+staging+"), to http://127.0.0.1:7480 or to another")
		require.NotContains(t, r.stderr, "prk_given")
	}
}
