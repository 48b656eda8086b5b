package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/node"
	"postrider/internal/testnode"
)

// step is a line of a command line, and what it prints.
type step struct {
	code        int
	line, input string
	says        string // a regular expression
}

// steps runs lines one after the other.
func (d *database) steps(steps ...step) {
	d.t.Helper()
	for _, s := range steps {
		r := postrider(d.t, strings.NewReader(s.input), append(strings.Fields(s.line), "--database-url", d.url)...)
		require.Equal(d.t, s.code, r.code, "%s: %s%s", s.line, r.stderr, r.stdout)
		require.Regexp(d.t, s.says, r.stdout+r.stderr, s.line)
		if s.input != "" {
			require.NotContains(d.t, r.stdout+r.stderr, strings.TrimSpace(s.input))
		}
	}
}

// Packages access and server have what is rejected.
func TestAPIKeyVerbs(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	testnode.Open(t, db.url, node.Options{Node: "test"}).Topic(t, "orders")
	made := db.postrider("apikey", "create", "shop", "--scope", "publish", "--topic", "orders").stdout
	lines := strings.Split(strings.TrimSpace(made), "\n")
	require.Equal(t, "API key shop was created: it publishes to topic orders. It is shown only now:", lines[0])
	require.NotContains(t, db.postrider("apikey", "list").stdout, lines[len(lines)-1])
	db.steps(
		step{0, "apikey create worker --scope receive --topic orders", "", "it receives from topic orders."},
		step{0, "apikey create ci --scope read --expires-in-days 90 -o json", "", `"createdBy": "cli"`},
		step{0, "apikey list", "", `(?m)^ci +read +off +- +- +prk_\S{8}… +active +20\S+Z +never +cli$`},
		step{0, "apikey list", "", `(?m)^shop +publish +off +orders +- +prk_\S{8}… +active +never +never +cli$`},
		step{0, "apikey show shop", "", `(?m)^permissions +it publishes to topic orders$`},
		step{0, "apikey show shop -o json", "", `"state": "active"`},
		step{0, "apikey revoke shop", "", "API key shop was revoked at 20"},
		step{0, "apikey revoke shop -o json", "", `"state": "revoked"`},
		step{0, "apikey list", "", "revoked"},
		step{1, "apikey show never", "", `there is no API key "never"`},
		step{1, "apikey revoke never", "", `there is no API key "never"`},
		step{2, "apikey create x --scope root", "", "--scope must be one of"},
		step{1, "apikey create x --scope publish --topic never", "", `topic "never" does not exist`},
		step{2, "apikey create x --scope read --expires-in-days 4000", "", "must be between 1 and 3650"},
		step{1, "apikey create ci --scope read", "", `there is an API key "ci" already`},
	)
	require.Equal(t, 4,
		one[int](db, "SELECT count(*)::int FROM postrider.audit WHERE actor = 'cli' AND action LIKE 'api_key_%'"))
}

func TestUserVerbs(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const password = testnode.Password
	hash := func() string { return one[string](db, "SELECT password_hash FROM postrider_internal.users") }
	db.steps(step{
		0, "user add anna --role admin --password-stdin", password + "\r\n",
		"^User anna was added, with the role admin.\n$",
	})
	before := hash()
	require.True(t, strings.HasPrefix(before, "$argon2id$"))
	db.steps(
		step{1, "user add anna --role viewer --password-stdin", password, "user anna exists already"},
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
	require.NoError(t, json.Unmarshal([]byte(db.postrider("user", "list", "-o", "json").stdout), &list))
	require.Equal(t, access.RoleViewer, list[0].Role)
	const bob = "user add bob --role viewer --password-stdin"
	db.steps(
		step{0, "user list", "", `(?m)^anna +viewer +off +active +0 +never +cli$`},
		step{2, bob, "short\n", "password must have 12 to 1024 bytes, not 5"},
		step{2, bob, "bob-postrider-1", "password is too easy to guess"},
		step{2, "user add bob --role viewer", password, "--password-stdin"},
		step{2, "user add b --role viewer --password-stdin", password, "name must be"},
		step{1, "user role bob viewer", "", `there is no user "bob"`},
		step{1, "user password bob --password-stdin", password, `there is no user "bob"`},
		step{1, "user disable bob", "", `there is no user "bob"`},
		step{1, "user enable bob", "", `there is no user "bob"`},
		step{1, "user remove bob --yes", "", `there is no user "bob"`},
		step{1, "user show bob", "", `there is no user "bob"`},
		step{0, "user disable anna", "", "^User anna was disabled.\n$"},
		step{0, "user list", "", `(?m)^anna +viewer +off +disabled `},
		step{0, "user enable anna -o json", "", `"disabled": false`},
		step{2, "user remove anna", "", "this cannot be undone"},
		step{0, "user remove anna --yes", "", "^User anna was removed.\n$"},
	)
	require.Equal(t,
		[]string{"user_created", "user_replaced", "user_replaced", "user_replaced", "user_replaced", "user_deleted"},
		one[[]string](db, "SELECT array_agg(action ORDER BY audit_id) FROM postrider.audit WHERE actor = 'cli'"))
}
