package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

func TestAPIKeyVerbs(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	sealer, err := postgres.NewSealer(testnode.Key)
	require.NoError(t, err)
	system, err := node.New(t.Context(), node.Options{Pool: db.pool, Sealer: sealer, Node: "test"})
	require.NoError(t, err)
	_, _, err = system.Topics.Put(t.Context(), "orders",
		catalog.TopicSpec{Kind: catalog.TopicBasic, InputSchema: event.EventGrid})
	require.NoError(t, err)
	run := func(code int, args ...string) result {
		t.Helper()
		r := db.postrider(append([]string{"apikey"}, args...)...)
		require.Equal(t, code, r.code, r.stderr+r.stdout)
		return r
	}
	lines := strings.Split(strings.TrimSpace(run(0, "create", "shop", "--scope", "publish", "--topic", "orders").stdout),
		"\n")
	require.Equal(t, "API key shop was created: it publishes to topic orders. It is shown only now:", lines[0])
	shop := lines[len(lines)-1]
	require.Contains(t, run(0, "create", "worker", "--scope", "receive", "--topic", "orders").stdout,
		"API key worker was created: it receives from topic orders.")
	var made access.APIKey
	require.NoError(t,
		json.Unmarshal([]byte(run(0, "create", "ci", "--scope", "read", "--expires-in-days", "90", "-o", "json").stdout),
			&made))
	require.Equal(t, "cli", made.CreatedBy)
	require.NotNil(t, made.ExpiresAt)

	list := run(0, "list")
	require.Regexp(t, `(?m)^ci +read +off +- +- +prk_\S{8}… +active +20\S+Z +never +cli$`, list.stdout)
	require.Regexp(t, `(?m)^shop +publish +off +orders +- +prk_\S{8}… +active +never +never +cli$`, list.stdout)
	require.NotContains(t, list.stdout, shop)
	require.Regexp(t, `(?m)^permissions +it publishes to topic orders$`, run(0, "show", "shop").stdout)
	var shown access.APIKey
	require.NoError(t, json.Unmarshal([]byte(run(0, "show", "shop", "-o", "json").stdout), &shown))
	require.Equal(t, "active", shown.State)
	require.Contains(t, run(0, "revoke", "shop").stdout, "API key shop was revoked at 20")
	require.NoError(t, json.Unmarshal([]byte(run(0, "revoke", "shop", "-o", "json").stdout), &shown))
	require.Equal(t, "revoked", shown.State)
	require.Contains(t, run(1, "show", "never").stderr, `there is no API key "never"`)
	require.Contains(t, run(0, "list").stdout, "revoked")

	require.Contains(t, run(1, "revoke", "never").stderr, `there is no API key "never"`)
	require.Contains(t, run(2, "create", "x", "--scope", "root").stderr, "--scope must be one of")
	require.Contains(t, run(1, "create", "x", "--scope", "publish", "--topic", "never").stderr,
		`topic "never" does not exist`)
	require.Contains(t, run(2, "create", "x", "--scope", "read", "--expires-in-days", "4000").stderr,
		"must be between 1 and 3650")
	require.Contains(t, run(1, "create", "ci", "--scope", "read").stderr, `there is an API key "ci" already`)
	require.Equal(t, 4,
		one[int](db, "SELECT count(*)::int FROM postrider.audit WHERE actor = 'cli' AND action LIKE 'api_key_%'"))
}

func TestUserVerbs(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	run := func(code int, input string, args ...string) result {
		t.Helper()
		args = slices.Concat([]string{"user"}, args, []string{"--database-url", db.url})
		r := postrider(t, strings.NewReader(input), args...)
		require.Equal(t, code, r.code, r.stderr+r.stdout)
		return r
	}
	const password = "correct horse battery"
	require.Equal(t, "User anna was added, with the role admin.\n",
		run(0, password+"\r\n", "add", "anna", "--role", "admin", "--password-stdin").stdout)
	before := one[string](db, "SELECT password_hash FROM postrider_internal.users")
	require.True(t, strings.HasPrefix(before, "$argon2id$v=19$m=19456,t=2,p=1$"))
	require.Contains(t, run(1, password, "add", "anna", "--role", "viewer", "--password-stdin").stderr,
		"user anna exists already")
	require.Equal(t, "User anna has the role viewer.\n", run(0, "", "role", "anna", "viewer").stdout)
	require.Equal(t, run(0, "", "show", "anna", "-o", "json").stdout,
		run(0, "", "role", "anna", "viewer", "-o", "json").stdout)
	require.Regexp(t, `(?m)^role +viewer$`, run(0, "", "show", "anna").stdout)
	require.Equal(t, before, one[string](db, "SELECT password_hash FROM postrider_internal.users"))
	require.Equal(t, "User anna has a new password.\n",
		run(0, "another "+password, "password", "anna", "--password-stdin").stdout)
	require.NotEqual(t, before, one[string](db, "SELECT password_hash FROM postrider_internal.users"))
	require.Regexp(t, `(?m)^anna +viewer +off +active +0 +never +cli$`, run(0, "", "list").stdout)
	var list []access.User
	require.NoError(t, json.Unmarshal([]byte(run(0, "", "list", "-o", "json").stdout), &list))
	require.Equal(t, access.RoleViewer, list[0].Role)

	require.Contains(t, run(2, "short\n", "add", "bob", "--role", "viewer", "--password-stdin").stderr,
		"password must have 12 to 1024 bytes, not 5")
	require.Contains(t, run(2, strings.Repeat("a", 5000), "add", "bob", "--role", "viewer", "--password-stdin").stderr,
		"password must have 12 to 1024 bytes")
	for _, weak := range []string{"password1234", "bob-postrider-1"} {
		r := run(2, weak, "add", "bob", "--role", "viewer", "--password-stdin")
		require.Contains(t, r.stderr, "password is too easy to guess")
		require.NotContains(t, r.stderr, weak)
	}
	require.Contains(t, run(2, password, "add", "bob", "--role", "viewer").stderr, "--password-stdin")
	require.Contains(t, run(2, password, "add", "b b", "--role", "viewer", "--password-stdin").stderr, "name must be")
	for _, verb := range [][]string{
		{"role", "bob", "viewer"},
		{"password", "bob", "--password-stdin"},
		{"disable", "bob"},
		{"enable", "bob"},
		{"remove", "bob", "--yes"},
		{"show", "bob"},
	} {
		require.Contains(t, run(1, password, verb...).stderr, `there is no user "bob"`)
	}
	require.Equal(t, "User anna was disabled.\n", run(0, "", "disable", "anna").stdout)
	require.Regexp(t, `(?m)^anna +viewer +off +disabled `, run(0, "", "list").stdout)
	require.Contains(t, run(0, "", "enable", "anna", "-o", "json").stdout, `"disabled": false`)
	require.Contains(t, run(2, "", "remove", "anna").stderr, "this cannot be undone")
	require.Equal(t, "User anna was removed.\n", run(0, "", "remove", "anna", "--yes").stdout)
	require.Equal(t,
		[]string{"user_created", "user_replaced", "user_replaced", "user_replaced", "user_replaced", "user_deleted"},
		one[[]string](db, "SELECT array_agg(action ORDER BY audit_id) FROM postrider.audit WHERE actor = 'cli'"))
}
