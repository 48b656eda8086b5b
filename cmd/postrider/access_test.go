package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/node"
	"postrider/internal/testnode"
	"postrider/server"
)

// step is a line of a command line, and what it prints.
type step struct {
	code        int
	line, input string
	says        string // a regular expression
}

// way is how verbs reach users and keys: in a database, or through the REST API of a service.
type way struct {
	*database
	flags []string
	actor string // in the audit
}

// eachWay runs a test with a database of its own for each way. The test has the topic orders.
func eachWay(t *testing.T, test func(way)) {
	t.Helper()
	for _, remote := range []bool{false, true} {
		t.Run(map[bool]string{false: "database", true: "service"}[remote], func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			tn := testnode.Open(t, db.url, node.Options{Node: "test"})
			tn.Topic(t, "orders")
			if !remote {
				test(way{db, []string{"--database-url", db.url}, "cli"})
				return
			}
			const token = "admin-token-of-the-tests-7f3b91c2d05e"
			api, err := server.New(server.Options{
				Parts: tn.System.API(), AdminToken: token, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			listener := httptest.NewServer(api.Handler())
			t.Cleanup(listener.Close)
			test(way{db, []string{"--url", listener.URL, "--api-key", token}, "admin"})
		})
	}
}

// steps runs lines one after the other.
func (d *way) steps(steps ...step) {
	d.t.Helper()
	for _, s := range steps {
		r := postrider(d.t, strings.NewReader(s.input), append(strings.Fields(s.line), d.flags...)...)
		require.Equal(d.t, s.code, r.code, "%s: %s%s", s.line, r.stderr, r.stdout)
		require.Regexp(d.t, s.says, r.stdout+r.stderr, s.line)
		if s.input != "" {
			require.NotContains(d.t, r.stdout+r.stderr, strings.TrimSpace(s.input))
		}
	}
}

// prints is what a line prints.
func (d *way) prints(line string) string {
	d.t.Helper()
	return postrider(d.t, nil, append(strings.Fields(line), d.flags...)...).stdout
}

// Without a service or a valid key, the error names the way in that needs neither.
func TestErrorsOfAccountsNameTheDatabase(t *testing.T) {
	t.Parallel()
	unauthorized := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(unauthorized.Close)
	for url, says := range map[string]string{"http://127.0.0.1:1": "cannot connect", unauthorized.URL: "401"} {
		for _, verb := range []string{"user list", "user add anna --role viewer", "apikey show ci"} {
			r := postrider(t, strings.NewReader(""), append(strings.Fields(verb), "--url", url, "--api-key", "k")...)
			require.Equal(t, 1, r.code, verb)
			require.Contains(t, r.stderr, says, verb)
			require.Contains(t, r.stderr, "; or change the database itself with --database-url\n", verb)
		}
		r := postrider(t, nil, "topic", "list", "--url", url, "--api-key", "k")
		require.Contains(t, r.stderr, says)
		require.NotContains(t, r.stderr, "--database-url")
	}
}

// Packages access and server have what is rejected.
func TestAPIKeyVerbs(t *testing.T) {
	t.Parallel()
	eachWay(t, testAPIKeyVerbs)
}

func testAPIKeyVerbs(db way) {
	t := db.t
	made := db.prints("apikey create shop --scope publish --topic orders")
	lines := strings.Split(strings.TrimSpace(made), "\n")
	require.Equal(t, "API key shop was created: it publishes to topic orders. It is shown only now:", lines[0])
	require.NotContains(t, db.prints("apikey list"), lines[len(lines)-1])
	db.steps(
		step{0, "apikey create worker --scope receive --topic orders", "", "it receives from topic orders."},
		step{0, "apikey create ci --scope read --expires-in-days 90 -o json", "", `"createdBy": "` + db.actor + `"`},
		step{0, "apikey list", "", `(?m)^ci +read +no +every +every +prk_\S+ +active +20\S+ \S+Z +never +` + db.actor + `$`},
		step{0, "apikey list", "", `(?m)^shop +publish +no +orders +every +prk_\S{8} +active +never +never +` + db.actor},
		step{0, "apikey show shop", "", `(?m)^topic +orders$`},
		step{0, "apikey show shop -o json", "", `"state": "active"`},
		step{0, "apikey revoke shop", "", "API key shop was revoked at 20"},
		step{0, "apikey revoke shop -o json", "", `"state": "revoked"`},
		step{0, "apikey list", "", "revoked"},
		step{1, "apikey show never", "", `there is no API key "never"`},
		step{1, "apikey revoke never", "", `there is no API key "never"`},
		step{2, "apikey create x --scope root", "", "--scope must be one of"},
		step{1, "apikey create ci --scope read", "", `there is an API key "ci" already`},
	)
	require.Equal(t, 4,
		one[int](db.database, "SELECT count(*)::int FROM postrider.audit WHERE actor = $1 AND action LIKE 'api_key_%'",
			db.actor))
}

func TestUserVerbs(t *testing.T) {
	t.Parallel()
	eachWay(t, testUserVerbs)
}

func testUserVerbs(db way) {
	t := db.t
	const password = testnode.Password
	hash := func() string { return one[string](db.database, "SELECT password_hash FROM postrider_internal.users") }
	db.steps(step{
		0, "user add anna --role admin --password-stdin", password + "\r\n",
		"^User anna was added, with the role admin.\n$",
	})
	before := hash()
	require.True(t, strings.HasPrefix(before, "$argon2id$"))
	db.steps(
		step{1, "user add anna --role viewer --password-stdin", password, "user anna exists already"},
		step{1, "user add anna --role viewer", "", "user anna exists already"}, // before the password is requested
		step{0, "user role anna viewer", "", "^User anna has the role viewer.\n$"},
		step{0, "user role anna viewer -o json", "", `"role": "viewer"`},
		step{0, "user show anna", "", `(?m)^role +viewer$`},
	)
	require.Equal(t, before, hash())
	db.steps(step{
		0, "user password anna --password-stdin", "another " + password, "^User anna has a new password.\n$",
	})
	require.NotEqual(t, before, hash())
	var list []access.User
	require.NoError(t, json.Unmarshal([]byte(db.prints("user list -o json")), &list))
	require.Equal(t, access.RoleViewer, list[0].Role)
	db.steps(
		step{0, "user list", "", `(?m)^anna +viewer +no +no +0 +never +` + db.actor + `$`},
		step{2, "user add bob --role viewer --password-stdin", "short\n", "password must have 12 to 1024 bytes, not 5"},
		step{2, "user add bob --role viewer", password, "--password-stdin"},
		step{2, "user add b --role viewer --password-stdin", password, "name must be"},
		step{1, "user role bob viewer", "", `there is no user "bob"`},
		step{1, "user password bob --password-stdin", password, `there is no user "bob"`},
		step{1, "user disable bob", "", `there is no user "bob"`},
		step{1, "user enable bob", "", `there is no user "bob"`},
		step{1, "user remove bob --yes", "", `there is no user "bob"`},
		step{1, "user show bob", "", `there is no user "bob"`},
		step{0, "user disable anna", "", "^User anna was disabled.\n$"},
		step{0, "user list", "", `(?m)^anna +viewer +no +yes `},
		step{0, "user enable anna -o json", "", `"disabled": false`},
		step{2, "user remove anna", "", "this cannot be undone"},
		step{0, "user remove anna --yes", "", "^User anna was removed.\n$"},
	)
	require.Equal(t,
		[]string{"user_created", "user_replaced", "user_replaced", "user_replaced", "user_replaced", "user_deleted"},
		one[[]string](db.database, "SELECT array_agg(action ORDER BY audit_id) FROM postrider.audit "+
			"WHERE actor = $1 AND action LIKE 'user_%'", db.actor))
}
