package main

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/cmd/postrider/cli/rest"
)

const loginPassword = "correct horse battery staple"

// signedIn is a user's browser without JavaScript: it keeps cookies, and posts forms.
type signedIn struct {
	t      *testing.T
	api    string
	client *http.Client
	cookie string
}

// signInTo adds a user and signs in to the dashboard in their name.
func signInTo(t *testing.T, n *node, name, role string) *signedIn {
	t.Helper()
	n.manage(http.StatusCreated, http.MethodPut, "/v1/users/"+name, `{"role":"`+role+`","password":"`+loginPassword+`"}`)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	s := &signedIn{t: t, api: n.api, client: &http.Client{Jar: jar, Timeout: patience, CheckRedirect: rest.NoRedirect}}
	response, err := s.client.PostForm(n.api+"/ui/sign-in", url.Values{"name": {name}, "password": {loginPassword}})
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusSeeOther, response.StatusCode)
	for _, cookie := range response.Cookies() { // a browser keeps a secure cookie of localhost; a cookie jar does not
		if cookie.Name == "__Host-postrider" {
			s.cookie = cookie.Name + "=" + cookie.Value
		}
	}
	require.NotEmpty(t, s.cookie)
	return s
}

// decide posts the form of a login's page.
func (s *signedIn) decide(how, code string) (status int) {
	s.t.Helper()
	form := url.Values{"code": {code}}.Encode()
	status, _, err := callBy(s.t.Context(), s.client, http.MethodPost, s.api+"/ui/login/"+how, form,
		"Cookie", s.cookie, "Origin", s.api, "Content-Type", "application/x-www-form-urlencoded")
	require.NoError(s.t, err)
	return status
}

var printedCode = regexp.MustCompile(`code: ([B-Z]{4}-[B-Z]{4})\n`)

// beginLogin starts postrider login, and returns the code that it prints.
func beginLogin(t *testing.T, env []string, args ...string) (p *process, code string) {
	t.Helper()
	p = startProcess(t, env, program, append([]string{"login"}, args...)...)
	eventually(t, "the code is printed", func() bool {
		if found := printedCode.FindStringSubmatch(p.stderr.String()); found != nil {
			code = found[1]
		}
		return code != ""
	})
	return p, code
}

func TestLoginVerbs(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	anna := signInTo(t, n, "anna", "operator")
	home := t.TempDir()
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "config")}
	file := filepath.Join(home, "config", "postrider", "servers.json")
	run := func(code int, args ...string) result {
		t.Helper()
		r := postrider(t, env, args...)
		require.Equal(t, code, r.code, r.stderr+r.stdout)
		return r
	}

	p, code := beginLogin(t, env, n.api, "--name", "prod", "--machine", "annas-laptop", "--role", "viewer")
	require.Contains(t, p.stderr.String(), n.api+"/ui/login?code="+code)
	require.Equal(t, http.StatusNotFound, anna.decide("approve", "BBBB-BBBB"))
	require.Equal(t, http.StatusSeeOther, anna.decide("approve", code))
	require.Zero(t, p.wait(), p.stderr.String())
	require.Contains(t, p.stdout.String(), "as anna, with the role viewer, until 20")
	for path, mode := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	key := regexp.MustCompile(`prk_[A-Za-z0-9_-]{43}`).FindString(string(text))
	require.NotEmpty(t, key)
	require.NotContains(t, p.stdout.String()+p.stderr.String(), key[:12])

	var me map[string]any
	require.NoError(t, json.Unmarshal([]byte(run(0, "whoami", "-o", "json").stdout), &me))
	require.Equal(t, "user:anna", me["name"])
	require.Equal(t, "viewer", me["role"])
	require.Equal(t, n.api, me["server"])
	require.NotEmpty(t, me["expiresAt"])
	require.Regexp(t, `(?m)^role +viewer$`, run(0, "whoami", "--server", "prod").stdout)
	run(0, "topic", "list")
	rejected := run(1, "topic", "create", "orders").stderr
	require.Contains(t, rejected, "this needs the role admin; user:anna has the role viewer")

	p, code = beginLogin(t, env, "prod", "-o", "json")
	require.Equal(t, http.StatusSeeOther, anna.decide("approve", code))
	require.Zero(t, p.wait(), p.stderr.String())
	require.Contains(t, p.stdout.String(), `"role": "operator"`)
	require.NotContains(t, p.stdout.String(), "prk_")
	const active = "SELECT count(*)::int FROM postrider.api_keys WHERE state = 'active'"
	require.Equal(t, 1, one[int](db, active), "the one before is revoked")

	require.Contains(t, run(0, "logout", "-o", "json").stdout, `"deleted": true`)
	require.Zero(t, one[int](db, active))
	require.Contains(t, run(0, "server", "list", "-o", "json").stdout, "[]")
	require.Contains(t, run(2, "logout").stderr, "you are not logged in to a server")
	require.Contains(t, run(2, "logout", "prod").stderr, `"prod"`)
	const audited = `SELECT array_agg(action ORDER BY audit_id) FROM postrider.audit
		WHERE actor = 'user:anna' AND action ~ '^(login|api)_'`
	decided := []string{"login_approved", "login_approved", "api_key_revoked", "api_key_revoked"}
	require.Equal(t, decided, one[[]string](db, audited))
}

func TestLoginsThatFail(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNode(t, db)
	bob := signInTo(t, n, "bob", "admin")
	home := t.TempDir()
	env := []string{"HOME=" + home}
	for _, row := range []struct{ args, says string }{
		{"http://192.0.2.1", "a personal key is sent over https only"},
		{"ftp://192.0.2.1", "not a URL such as https://"},
		{"prod", `--server "prod": must be a URL`},
		{n.api + " --name a/b", `--name "a/b": must be 1 to 63`},
		{n.api + " --role king", `--role "king": must be viewer, operator or admin`},
	} {
		r := postrider(t, env, append([]string{"login"}, strings.Fields(row.args)...)...)
		require.Equal(t, 2, r.code, row.args)
		require.Contains(t, r.stderr, row.says)
	}

	p, code := beginLogin(t, env, n.api)
	require.Equal(t, http.StatusSeeOther, bob.decide("deny", code))
	require.Equal(t, 1, p.wait())
	require.Contains(t, p.stderr.String(), "the login was denied")
	p, code = beginLogin(t, env, n.api)
	db.exec("UPDATE postrider_internal.login_requests SET expires_at = now()")
	require.Equal(t, http.StatusNotFound, bob.decide("approve", code))
	require.Equal(t, 1, p.wait())
	require.Contains(t, p.stderr.String(), "the login was not approved in time")
	require.Contains(t, postrider(t, env, "server", "list", "-o", "json").stdout, "[]")

	p, code = beginLogin(t, env, n.api, "--name", "prod")
	require.Equal(t, http.StatusSeeOther, bob.decide("approve", code))
	require.Zero(t, p.wait(), p.stderr.String())
	n.manage(http.StatusOK, http.MethodPut, "/v1/users/bob", `{"role":"admin","disabled":true}`)
	rejected := postrider(t, env, "topic", "list")
	require.Equal(t, 1, rejected.code)
	require.Contains(t, rejected.stderr, "log in again: postrider login prod")
	require.NotEqual(t, http.StatusSeeOther, bob.decide("approve", code), "the session is over, too")

	n.stop()
	gone := postrider(t, env, "logout", "prod")
	require.Equal(t, 1, gone.code)
	require.Contains(t, gone.stderr, "the key for prod is removed from this computer, but could not be revoked")
	require.Contains(t, gone.stderr, "It works until 20")
	require.Contains(t, postrider(t, env, "server", "list", "-o", "json").stdout, "[]")
}
