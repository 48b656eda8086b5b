package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/access"
	"postrider/postgres"
)

// login begins one from 192.0.2.9.
func (b *bundle) login(t *testing.T, role access.Role) (secret string, l *access.Login) {
	t.Helper()
	ctx := access.WithActor(t.Context(), access.Actor{Address: "192.0.2.9"})
	secret, l, err := b.store.Access.BeginLogin(ctx, access.PersonalKeySpec{Machine: "laptop", Role: role})
	require.NoError(t, err)
	return secret, l
}

func (b *bundle) approved(t *testing.T, user string, role access.Role) (key string, made *access.APIKey) {
	t.Helper()
	secret, l := b.login(t, role)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:" + user, Address: "192.0.2.7"})
	made, err := b.store.Access.ApproveLogin(ctx, l.UserCode, user)
	require.NoError(t, err)
	return secret, made
}

func TestLogin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	users := b.store.Access
	b.user(t, "anna", access.RoleOperator)
	b.audited(t)
	secret, l := b.login(t, "")
	require.Regexp(t, `^[B-DF-HJ-NP-TV-Z]{4}-[B-DF-HJ-NP-TV-Z]{4}$`, l.UserCode)
	_, err := users.APIKeyOf(t.Context(), secret)
	require.ErrorIs(t, err, access.ErrWrongCredentials, "it is no key before it is approved")
	spaced := " " + strings.ReplaceAll(l.UserCode, "-", " ")
	for _, typed := range []string{l.UserCode, strings.ToLower(l.UserCode), spaced} {
		found, err := users.Login(t.Context(), typed)
		require.NoError(t, err, typed)
		require.Equal(t, l, found)
	}
	require.Equal(t, "192.0.2.9", l.Address)
	state, key, err := users.LoginOf(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, access.LoginPending, state.State)
	require.Nil(t, key)

	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:anna", Address: "192.0.2.7"})
	made, err := users.ApproveLogin(ctx, l.UserCode, "anna")
	require.NoError(t, err)
	require.Equal(t, 12*time.Hour, made.ExpiresAt.Sub(made.CreatedAt))
	state, key, err = users.LoginOf(t.Context(), secret)
	require.NoError(t, err)
	require.Equal(t, access.LoginApproved, state.State)
	require.Equal(t, made, key)
	found, err := users.APIKeyOf(t.Context(), secret)
	require.NoError(t, err)
	anna := access.Actor{
		Name: "user:anna", Address: "192.0.2.8", Role: access.RoleOperator, Query: true, PersonalKey: made.Name,
	}
	require.Equal(t, anna, found.Actor("192.0.2.8"))
	require.Equal(t, made.Name, found.Actor("").APIKey())
	for _, again := range []func() error{
		func() error { _, err := users.ApproveLogin(ctx, l.UserCode, "anna"); return err },
		func() error { return users.DenyLogin(ctx, l.UserCode) },
		func() error { _, err := users.Login(ctx, l.UserCode); return err },
	} {
		require.ErrorIs(t, again(), postgres.ErrNotFound, "it is decided")
	}

	denied, l := b.login(t, access.RoleAdmin)
	require.NoError(t, users.DenyLogin(ctx, l.UserCode))
	state, _, err = users.LoginOf(t.Context(), denied)
	require.NoError(t, err)
	require.Equal(t, access.LoginDenied, state.State)
	_, err = users.APIKeyOf(t.Context(), denied)
	require.ErrorIs(t, err, access.ErrWrongCredentials)

	rows := b.audited(t)
	require.Len(t, rows, 2)
	require.Contains(t, rows[0], "user:anna 192.0.2.7 login_approved - ")
	for _, detail := range []string{
		`"key": "` + made.Name + `"`, `"scope": "operate"`, `"machine": "laptop"`, `"requestedFrom": "192.0.2.9"`,
	} {
		require.Contains(t, rows[0], detail)
	}
	require.Equal(t, `user:anna 192.0.2.7 login_denied - {"machine": "laptop", "requestedFrom": "192.0.2.9"}`, rows[1])
	stored := b.text(t, `SELECT concat((SELECT jsonb_agg(r) FROM postrider_internal.login_requests r),
		(SELECT jsonb_agg(k) FROM postrider_internal.api_keys k))`)
	require.NotContains(t, stored, secret[:13])
}

func TestLoginsThatAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	users := b.store.Access
	b.user(t, "anna", access.RoleOperator)
	for spec, field := range map[access.PersonalKeySpec]string{
		{}:                                     "machine",
		{Machine: " "}:                         "machine",
		{Machine: strings.Repeat("é", 101)}:    "machine",
		{Machine: "lap\u202etop"}:              "machine",
		{Machine: "lap\x00top"}:                "machine",
		{Machine: "laptop", Role: "superuser"}: "role",
	} {
		_, _, err := users.BeginLogin(t.Context(), spec)
		var rejected *postgres.FunctionError
		require.ErrorAs(t, err, &rejected, "%+v", spec)
		require.Equal(t, field, rejected.Field)
		_, _, err = users.CreatePersonalKey(t.Context(), "anna", spec)
		require.ErrorIs(t, err, postgres.ErrInvalid)
	}
	for _, code := range []string{"", "BCDF-GHJ", "BCDF-GHJK", "AAAA-AAAA", "ß'--", strings.Repeat("B", 1000)} {
		_, err := users.Login(t.Context(), code)
		require.ErrorIs(t, err, postgres.ErrNotFound, code)
	}
	secret, l := b.login(t, "")
	b.exec(t, "UPDATE postrider_internal.login_requests SET expires_at = now()")
	_, _, err := users.LoginOf(t.Context(), secret)
	require.ErrorIs(t, err, postgres.ErrNotFound)
	_, err = users.ApproveLogin(t.Context(), l.UserCode, "anna")
	require.ErrorIs(t, err, postgres.ErrNotFound)
	require.ErrorIs(t, users.DenyLogin(t.Context(), l.UserCode), postgres.ErrNotFound)

	_, l = b.login(t, "")
	for _, user := range []string{"unknown", "anna"} {
		if user == "anna" {
			_, err := users.PutUser(t.Context(), "anna", access.UserSpec{Disabled: new(true)})
			require.NoError(t, err)
		}
		_, err = users.ApproveLogin(t.Context(), l.UserCode, user)
		require.ErrorIs(t, err, postgres.ErrNotFound, user)
	}
	_, err = users.Login(t.Context(), l.UserCode)
	require.NoError(t, err, "it is pending still")

	b.exec(t, "UPDATE postrider_internal.login_requests SET expires_at = now()")
	b.login(t, "")
	require.NoError(t, b.store.Access.CleanSessions(t.Context()))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider_internal.login_requests"))
}

// A personal key never does more than its owner, and ends with them.
func TestPersonalKeysFollowTheirOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	users := b.store.Access
	put := func(name string, spec access.UserSpec) {
		t.Helper()
		_, err := users.PutUser(t.Context(), name, spec)
		require.NoError(t, err)
	}
	role := func(key string) access.Role {
		t.Helper()
		k, err := users.APIKeyOf(t.Context(), key)
		require.NoError(t, err)
		far, err := b.elsewhere().APIKeyOf(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, k.Scope, far.Scope)
		require.Equal(t, k.Scope == access.ScopeAdmin, k.Publishes("orders"))
		return k.Actor("").Role
	}
	ended := func(key, why string) {
		t.Helper()
		for _, node := range []*access.Access{users, b.elsewhere()} {
			_, err := node.APIKeyOf(t.Context(), key)
			require.ErrorIs(t, err, access.ErrWrongCredentials, why)
		}
	}
	b.user(t, "anna", access.RoleOperator)
	above, _ := b.approved(t, "anna", access.RoleAdmin)
	lower, _ := b.approved(t, "anna", access.RoleViewer)
	key, made := b.approved(t, "anna", "")
	require.Equal(t, access.ScopeOperate, made.Scope)
	require.Equal(t, access.RoleOperator, role(above))
	require.Equal(t, access.RoleViewer, role(lower))
	put("anna", access.UserSpec{Role: access.RoleViewer})
	require.Equal(t, access.RoleViewer, role(key))
	shown, err := users.APIKey(t.Context(), made.Name)
	require.NoError(t, err)
	require.Equal(t, access.ScopeRead, shown.Scope)
	put("anna", access.UserSpec{Role: access.RoleAdmin})
	require.Equal(t, access.RoleOperator, role(key), "no more than it was approved for")

	put("anna", access.UserSpec{Disabled: new(true)})
	ended(key, "disabled")
	put("anna", access.UserSpec{Disabled: new(false)})
	ended(key, "enabled again")
	key, _ = b.approved(t, "anna", "")
	require.Equal(t, access.RoleAdmin, role(key))
	put("anna", access.UserSpec{Password: new("another " + annasPassword)})
	ended(key, "another password")
	key, _ = b.approved(t, "anna", "")
	b.audited(t)
	_, err = users.EndSessions(t.Context(), "anna")
	require.NoError(t, err)
	ended(key, "signed out everywhere")
	require.Equal(t, []string{`postrider - sessions_ended - {"keys": 1, "user": "anna", "sessions": 0}`}, b.audited(t))
	key, _ = b.approved(t, "anna", "")
	require.NoError(t, users.ChangePassword(t.Context(), "anna", "another "+annasPassword, annasPassword))
	ended(key, "their own other password")
	key, _ = b.approved(t, "anna", "")
	require.NoError(t, users.DeleteUser(t.Context(), "anna"))
	ended(key, "removed")
	b.user(t, "anna", access.RoleAdmin)
	ended(key, "another user of that name")
}

func TestPersonalKeysOfTheAccountPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	users := b.store.Access
	b.user(t, "anna", access.RoleOperator)
	b.user(t, "bob", access.RoleAdmin)
	b.audited(t)
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:anna", Address: "192.0.2.7"})
	spec := access.PersonalKeySpec{Machine: "jump host", Role: access.RoleViewer}
	key, made, err := users.CreatePersonalKey(ctx, "anna", spec)
	require.NoError(t, err)
	found, err := users.APIKeyOf(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, access.RoleViewer, found.Actor("").Role)
	list, err := users.PersonalKeys(t.Context(), "anna")
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "jump host", *list[0].Machine)
	_, err = users.RevokePersonalKey(ctx, "bob", made.Name)
	require.ErrorIs(t, err, postgres.ErrNotFound, "it is another user's")
	_, err = users.RevokePersonalKey(ctx, "anna", made.Name)
	require.NoError(t, err)
	_, err = users.APIKeyOf(t.Context(), key)
	require.ErrorIs(t, err, access.ErrWrongCredentials)
	list, err = users.PersonalKeys(t.Context(), "anna")
	require.NoError(t, err)
	require.Empty(t, list)
	rows := b.audited(t)
	require.Contains(t, rows[0], "user:anna 192.0.2.7 api_key_created - ")
	require.Equal(t, `user:anna 192.0.2.7 api_key_revoked - {"key": "`+made.Name+`"}`, rows[1])

	_, expired, err := users.CreatePersonalKey(ctx, "anna", access.PersonalKeySpec{Machine: "laptop"})
	require.NoError(t, err)
	const longAgo = "UPDATE postrider_internal.api_keys SET expires_at = now() - interval '8 days' WHERE name = $1"
	b.exec(t, longAgo, expired.Name)
	require.NoError(t, b.store.Access.CleanSessions(t.Context()))
	_, err = users.APIKey(t.Context(), expired.Name)
	require.ErrorIs(t, err, postgres.ErrNotFound)
	_, err = users.APIKey(t.Context(), made.Name)
	require.NoError(t, err, "it stays listed for some days")
}

// Pending logins that fill the table cost their sender its oldest, and no other sender a login. The addresses of one
// IPv6 site are one sender.
func TestPendingLoginsBlockNoOtherSender(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own, _ := b.login(t, "")
	b.exec(t,
		`INSERT INTO postrider_internal.login_requests (key_hash, hint, user_code, machine, address, created_at, expires_at)
		SELECT sha256(n::text::bytea), 'x', n, 'm', format('2001:db8:7:%s::1', to_hex(n)), now() + n * interval '1 ms',
			now() + interval '1 minute' FROM generate_series(1, 500) n`)
	b.exec(t,
		`INSERT INTO postrider_internal.login_requests (key_hash, hint, user_code, machine, address, created_at, expires_at)
		SELECT sha256(n::text::bytea), 'x', n, 'm', CASE WHEN n > 600 THEN '198.51.100.7' END, now() - interval '1 hour',
			now() + interval '1 minute' FROM generate_series(501, $1) n`, access.MaxPendingLogins-1)
	for range 3 {
		b.login(t, "")
	}
	require.Equal(t, access.MaxPendingLogins, b.count(t, "SELECT count(*) FROM postrider_internal.login_requests"))
	_, _, err := b.store.Access.LoginOf(t.Context(), own)
	require.NoError(t, err)
	require.Equal(t, "4",
		b.text(t, "SELECT min(user_code::int)::text FROM postrider_internal.login_requests WHERE machine = 'm'"),
		"the oldest three of the site are gone")
}
