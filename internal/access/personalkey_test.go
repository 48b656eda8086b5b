package access_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

func TestPersonalKeysThatAreRejected(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	tn.NewUser(t, "anna", access.RoleOperator)
	for spec, field := range map[access.PersonalKeySpec]string{
		{}:                                     "machine",
		{Machine: " "}:                         "machine",
		{Machine: strings.Repeat("é", 101)}:    "machine",
		{Machine: "lap\u202etop"}:              "machine",
		{Machine: "lap\x00top"}:                "machine",
		{Machine: "laptop", Role: "superuser"}: "role",
		{Machine: "laptop"}:                    "days",
		{Machine: "laptop", Days: -1}:          "days",
		{Machine: "laptop", Days: 91}:          "days",
	} {
		_, _, err := users.CreatePersonalKey(t.Context(), "anna", spec)
		requireRejected(t, err, postgres.ErrInvalid, field)
	}
	_, err := users.PutUser(t.Context(), "anna", access.UserSpec{Disabled: new(true)})
	require.NoError(t, err)
	for _, user := range []string{"unknown", "anna"} {
		_, _, err = users.CreatePersonalKey(t.Context(), user, access.PersonalKeySpec{Machine: "laptop", Days: 30})
		require.ErrorIs(t, err, postgres.ErrNotFound, user)
	}
}

// A personal key never does more than its owner, and ends with them.
func TestPersonalKeysFollowTheirOwner(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	put := func(name string, spec access.UserSpec) {
		t.Helper()
		require.NoError(t, testnode.ErrorOf(users.PutUser(t.Context(), name, spec)))
	}
	role := func(key string) access.Role {
		t.Helper()
		k, err := users.APIKeyOf(t.Context(), key)
		require.NoError(t, err)
		far, err := elsewhere(tn).APIKeyOf(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, k.Scope, far.Scope)
		require.Equal(t, k.Scope == access.ScopeAdmin, k.Publishes("orders"))
		return k.Actor("").Role
	}
	ended := func(key, why string) {
		t.Helper()
		for _, node := range []*access.Access{users, elsewhere(tn)} {
			_, err := node.APIKeyOf(t.Context(), key)
			require.ErrorIs(t, err, access.ErrWrongCredentials, why)
		}
	}
	tn.NewUser(t, "anna", access.RoleOperator)
	above, _ := tn.NewPersonalKey(t, "anna", access.RoleAdmin)
	lower, _ := tn.NewPersonalKey(t, "anna", access.RoleViewer)
	key, made := tn.NewPersonalKey(t, "anna", "")
	require.Equal(t, access.ScopeOperate, made.Scope)
	require.Equal(t, access.RoleOperator, role(above))
	require.Equal(t, access.RoleViewer, role(lower))
	put("anna", access.UserSpec{Role: access.RoleViewer})
	require.Equal(t, access.RoleViewer, role(key))
	shown, err := users.APIKey(t.Context(), made.Name)
	require.NoError(t, err)
	require.Equal(t, access.ScopeRead, shown.Scope)
	put("anna", access.UserSpec{Role: access.RoleAdmin})
	require.Equal(t, access.RoleOperator, role(key), "no more than it was created for")

	tn.Exec(t, "UPDATE postrider_internal.users SET disabled_at = now()")
	require.ErrorIs(t, testnode.ErrorOf(elsewhere(tn).APIKeyOf(t.Context(), key)), access.ErrWrongCredentials)
	tn.Exec(t, "UPDATE postrider_internal.users SET disabled_at = NULL")
	put("anna", access.UserSpec{Disabled: new(true)})
	ended(key, "disabled")
	put("anna", access.UserSpec{Disabled: new(false)})
	ended(key, "enabled again")
	key, _ = tn.NewPersonalKey(t, "anna", "")
	require.Equal(t, access.RoleAdmin, role(key))
	put("anna", access.UserSpec{Password: new("another " + testnode.Password)})
	ended(key, "another password")
	key, _ = tn.NewPersonalKey(t, "anna", "")
	auditedOf(t, tn)
	require.NoError(t, testnode.ErrorOf(users.EndSessions(t.Context(), "anna")))
	ended(key, "signed out everywhere")
	require.Equal(t, []string{`postrider - sessions_ended - {"keys": 1, "user": "anna", "sessions": 0}`}, auditedOf(t, tn))
	key, _ = tn.NewPersonalKey(t, "anna", "")
	require.NoError(t, users.ChangePassword(t.Context(), "anna", "another "+testnode.Password, testnode.Password))
	ended(key, "their own other password")
	key, _ = tn.NewPersonalKey(t, "anna", "")
	require.NoError(t, users.DeleteUser(t.Context(), "anna"))
	ended(key, "removed")
	tn.NewUser(t, "anna", access.RoleAdmin)
	ended(key, "another user of that name")
}

func TestPersonalKeysOfTheAccountPage(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	tn.NewUser(t, "anna", access.RoleOperator)
	tn.NewUser(t, "bob", access.RoleAdmin)
	auditedOf(t, tn)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:anna", Address: "192.0.2.7"})
	spec := access.PersonalKeySpec{Machine: "jump host", Role: access.RoleViewer, Days: 90}
	key, made, err := users.CreatePersonalKey(ctx, "anna", spec)
	require.NoError(t, err)
	found, err := users.APIKeyOf(t.Context(), key)
	require.NoError(t, err)
	actor := found.Actor("192.0.2.8")
	require.Equal(t, []any{"user:anna", access.RoleViewer}, []any{actor.Name, actor.Role})
	require.Equal(t, made.Name, found.Actor("").APIKey())
	require.Equal(t, 90*24*time.Hour, made.ExpiresAt.Sub(made.CreatedAt))
	list, err := users.PersonalKeys(t.Context(), "anna")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "jump host", *list[0].Machine)
	_, err = users.RevokePersonalKey(ctx, "bob", made.Name)
	require.ErrorIs(t, err, postgres.ErrNotFound, "it is another user's")
	require.NoError(t, testnode.ErrorOf(users.RevokePersonalKey(ctx, "anna", made.Name)))
	require.ErrorIs(t, testnode.ErrorOf(users.APIKeyOf(t.Context(), key)), access.ErrWrongCredentials)
	list, err = users.PersonalKeys(t.Context(), "anna")
	require.NoError(t, err)
	require.Empty(t, list)
	rows := auditedOf(t, tn)
	require.Contains(t, rows[0], "user:anna 192.0.2.7 api_key_created - ")
	require.Contains(t, rows[0], `"machine": "jump host"`)
	require.NotContains(t, tn.Text(t, "SELECT jsonb_agg(k)::text FROM postrider_internal.api_keys k"), key[:13])
	require.Equal(t, `user:anna 192.0.2.7 api_key_revoked - {"key": "`+made.Name+`"}`, rows[1])

	_, expired, err := users.CreatePersonalKey(ctx, "anna", access.PersonalKeySpec{Machine: "laptop", Days: 30})
	require.NoError(t, err)
	const longAgo = "UPDATE postrider_internal.api_keys SET expires_at = now() - interval '8 days' WHERE name = $1"
	tn.Exec(t, longAgo, expired.Name)
	require.NoError(t, tn.System.Access.CleanSessions(t.Context()))
	require.ErrorIs(t, testnode.ErrorOf(users.APIKey(t.Context(), expired.Name)), postgres.ErrNotFound)
	require.NoError(t, testnode.ErrorOf(users.APIKey(t.Context(), made.Name)), "it stays listed for some days")
}
