package access_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/node"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

const wrongPassword = "incorrect horse battery"

var someBrowser = access.SignInFrom{Address: "192.0.2.7", UserAgent: "Browser/1"}

func signIn(t *testing.T, tn *testnode.Node, name string) (token string) {
	t.Helper()
	token, _, err := tn.System.Access.SignIn(t.Context(), name, testnode.Password, someBrowser)
	require.NoError(t, err)
	return token
}

// elsewhere is another node's memory, or this one's a second later.
func elsewhere(tn *testnode.Node) *access.Access { return access.AccessOf(tn.Pool) }

// audited takes the rows of the audit, as "actor address action topic details".
func auditedOf(t *testing.T, tn *testnode.Node) []string {
	t.Helper()
	rows, err := tn.Pool.Query(t.Context(), `WITH gone AS (DELETE FROM postrider_internal.audit RETURNING *)
		SELECT concat_ws(' ', actor, coalesce(address, '-'), action, coalesce(topic, '-'), details) FROM gone ORDER BY id`)
	require.NoError(t, err)
	defer rows.Close()
	list := []string{}
	for rows.Next() {
		var row string
		require.NoError(t, rows.Scan(&row))
		list = append(list, row)
	}
	require.NoError(t, rows.Err())
	return list
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	tn.NewUser(t, "anna@example.com", access.RoleOperator)
	before, err := users.User(t.Context(), "anna@example.com")
	require.NoError(t, err)
	require.Nil(t, before.LastSignInAt)
	require.Zero(t, before.Sessions)

	token, s, err := users.SignIn(t.Context(), "anna@example.com", testnode.Password,
		access.SignInFrom{Address: "192.0.2.7", UserAgent: strings.Repeat("é", 400) + "\x00\xff"})
	require.NoError(t, err)
	require.Equal(t, "anna@example.com", s.User)
	require.Equal(t, access.RoleOperator, s.Role)
	require.Equal(t, strings.Repeat("é", 300), s.UserAgent)
	require.Equal(t, 12*time.Hour, s.ExpiresAt.Sub(s.CreatedAt))
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	require.Len(t, raw, 32)
	for name, a := range map[string]*access.Access{"here": users, "elsewhere": elsewhere(tn)} {
		found, err := a.SessionOf(t.Context(), token)
		require.NoError(t, err, name)
		require.Equal(t, s, found, name)
	}
	anna := access.Actor{Name: "user:anna@example.com", Address: "192.0.2.8", Role: access.RoleOperator, Query: true}
	require.Equal(t, anna, s.Actor("192.0.2.8"))
	again := signIn(t, tn, "anna@example.com")
	require.NotEqual(t, token, again)
	after, err := users.User(t.Context(), "anna@example.com")
	require.NoError(t, err)
	require.NotNil(t, after.LastSignInAt)
	require.Equal(t, 2, after.Sessions)

	require.NoError(t, users.SignOut(t.Context(), token))
	require.NoError(t, users.SignOut(t.Context(), token), "it is over already")
	for _, a := range []*access.Access{users, elsewhere(tn)} {
		require.ErrorIs(t, testnode.ErrorOf(a.SessionOf(t.Context(), token)), postgres.ErrNotFound)
		require.NoError(t, testnode.ErrorOf(a.SessionOf(t.Context(), again)))
	}
	require.Equal(t, []string{
		`postrider - user_created - {"role": "operator", "user": "anna@example.com"}`,
		`user:anna@example.com 192.0.2.7 signed_in - {"user": "anna@example.com"}`,
		`user:anna@example.com 192.0.2.7 signed_in - {"user": "anna@example.com"}`,
		`postrider - signed_out - {"user": "anna@example.com"}`,
	}, auditedOf(t, tn))
}

// Neither tables nor the audit contain credentials.
func TestStoredRowsContainNoCredentials(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.NewUser(t, "anna", access.RoleAdmin)
	token := signIn(t, tn, "anna")
	key, _, err := tn.System.Access.CreateAPIKey(t.Context(), access.APIKeySpec{Name: "ci", Scope: access.ScopeAdmin})
	require.NoError(t, err)
	require.NoError(t, testnode.ErrorOf(tn.System.Access.APIKeyOf(t.Context(), key)))
	stored := tn.Text(t, `SELECT concat((SELECT jsonb_agg(u) FROM postrider_internal.users u), (SELECT jsonb_agg(s)
		    FROM postrider_internal.sessions s),
		(SELECT jsonb_agg(k) FROM postrider_internal.api_keys k), (SELECT jsonb_agg(a) FROM postrider_internal.audit a))`)
	require.Contains(t, stored, "$argon2id$v=19$m=")
	require.Contains(t, stored, key[:12])
	for _, secret := range []string{testnode.Password, token, key, key[:13]} {
		require.NotContains(t, stored, secret)
		require.NotContains(t, stored, hex.EncodeToString([]byte(secret)))
	}
	shown := tn.Text(t,
		"SELECT concat((SELECT jsonb_agg(u) FROM postrider.users u), (SELECT jsonb_agg(k) FROM postrider.api_keys k))")
	require.Contains(t, shown, "anna")
	require.NotContains(t, shown, "argon2id")
	require.NotContains(t, shown, tn.Text(t, "SELECT encode(key_hash, 'hex') FROM postrider_internal.api_keys"))
}

func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.NewUser(t, "anna", access.RoleViewer)
	for _, tried := range [][2]string{
		{"anna", wrongPassword},
		{"anna", ""},
		{"anna", testnode.Password + " "},
		{"Anna", testnode.Password},
		{"bob", testnode.Password},
		{"", ""},
		{"anna\x00", testnode.Password},
		{strings.Repeat("a", 100_000), testnode.Password},
		{"anna", strings.Repeat("a", 100_000)},
		{"anna\xff", testnode.Password},
	} {
		_, _, err := tn.System.Access.SignIn(t.Context(), tried[0], tried[1], someBrowser)
		require.ErrorIs(t, err, access.ErrWrongCredentials, "%.20q", tried)
	}
	require.Equal(t, 3, tn.Rows(t, "audit", `action = 'sign_in_failed' AND details = '{"user": "anna"}'`))
	require.Equal(t, 6, tn.Rows(t, "audit", "action = 'sign_in_failed' AND details = '{}'"))
	signIn(t, tn, "anna")

	_, err := tn.System.Access.PutUser(t.Context(), "anna", access.UserSpec{Role: access.RoleViewer, Disabled: new(true)})
	require.NoError(t, err)
	_, _, err = tn.System.Access.SignIn(t.Context(), "anna", testnode.Password, someBrowser)
	require.ErrorIs(t, err, access.ErrWrongCredentials)
	require.Equal(t, 4, tn.Rows(t, "audit", `action = 'sign_in_failed' AND details = '{"user": "anna"}'`))
}

func TestSessionTimes(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.NewUser(t, "anna", access.RoleViewer)
	token := signIn(t, tn, "anna")
	move := func(change string) {
		t.Helper()
		tn.Exec(t, "UPDATE postrider_internal.sessions SET "+change)
	}
	seen := "SELECT extract(epoch FROM now() - last_seen_at)::int / 10 FROM postrider_internal.sessions"
	look := func() (*access.Session, error) { return elsewhere(tn).SessionOf(t.Context(), token) }

	move("last_seen_at = now() - interval '50 seconds'")
	_, err := look()
	require.NoError(t, err)
	require.Equal(t, 5, tn.Count(t, seen), "written at most once a minute")
	move("last_seen_at = now() - interval '11 hours 59 minutes'")
	s, err := look()
	require.NoError(t, err)
	require.Zero(t, tn.Count(t, seen))
	require.InDelta(t, 12*60, time.Until(s.ExpiresAt).Minutes(), 1, "it has moved on")
	move("last_seen_at = now() - interval '11 hours'")
	far := elsewhere(tn)
	for range 2 {
		s, err = far.WatchedSession(t.Context(), token)
		require.NoError(t, err)
		require.InDelta(t, 60, time.Until(s.ExpiresAt).Minutes(), 1, "reading does not extend a session")
	}
	require.Equal(t, 360*11, tn.Count(t, seen))
	s, err = far.SessionOf(t.Context(), token)
	require.NoError(t, err)
	require.InDelta(t, 12*60, time.Until(s.ExpiresAt).Minutes(), 1,
		"its owner does, though what was found of it is remembered")
	require.Zero(t, tn.Count(t, seen))
	s, err = far.WatchedSession(t.Context(), token)
	require.NoError(t, err)
	require.InDelta(t, 12*60, time.Until(s.ExpiresAt).Minutes(), 1, "as everybody sees at once")
	move("expires_at = now() + interval '1 hour', last_seen_at = now() - interval '2 minutes'")
	s, err = look()
	require.NoError(t, err)
	require.InDelta(t, 60, time.Until(s.ExpiresAt).Minutes(), 1, "but not for ever")

	require.NoError(t, tn.System.Access.CleanSessions(t.Context()))
	require.Equal(t, 1, tn.Sessions(t, ""))
	for _, over := range []string{
		"last_seen_at = now() - interval '12 hours', expires_at = now() + interval '1 day'",
		"last_seen_at = now(), expires_at = now()",
	} {
		move(over)
		require.ErrorIs(t, testnode.ErrorOf(look()), postgres.ErrNotFound, over)
	}
	require.Zero(t, tn.Count(t, "SELECT sessions FROM postrider.users"))
	require.NoError(t, tn.System.Access.CleanSessions(t.Context()))
	require.Zero(t, tn.Sessions(t, ""))
}

func TestChangesThatEndSessions(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	tn.NewUser(t, "anna", access.RoleViewer)
	tn.NewUser(t, "bob", access.RoleAdmin)
	bobs := signIn(t, tn, "bob")
	put := func(spec access.UserSpec) func(context.Context) error {
		return func(ctx context.Context) error { _, err := users.PutUser(ctx, "anna", spec); return err }
	}
	for _, step := range []struct {
		name  string
		do    func(context.Context) error
		stays bool
		audit string
	}{
		{"nothing", put(access.UserSpec{Role: access.RoleViewer, Disabled: new(false)}), true, ""},
		{"another role", put(access.UserSpec{Role: access.RoleAdmin}), false, `user_replaced - {"role": "admin",` +
			` "user": "anna"}`},
		{
			"a password", put(access.UserSpec{Role: access.RoleAdmin, Password: new(testnode.Password)}), false,
			`user_replaced - ` +
				`{"user": "anna", "password": true}`,
		},
		{"the wrong old password", func(ctx context.Context) error {
			require.ErrorIs(t, users.ChangePassword(ctx, "anna", wrongPassword, testnode.Password), access.ErrWrongCredentials)
			return nil
		}, true, `sign_in_failed - {"user": "anna"}`},
		{"one's own password", func(ctx context.Context) error {
			return users.ChangePassword(ctx, "anna", testnode.Password, testnode.Password)
		}, false, `password_changed - {"user": "anna"}`},
		{"all sessions", func(ctx context.Context) error {
			n, err := users.EndSessions(ctx, "anna")
			require.Equal(t, 2, n)
			return err
		}, false, `sessions_ended - {"user": "anna", "sessions": 2}`},
		{"disabled", func(ctx context.Context) error {
			require.NoError(t, put(access.UserSpec{Role: access.RoleAdmin, Disabled: new(true)})(ctx))
			require.Equal(t, 1, tn.Rows(t, "users", "disabled AND disabled_at IS NOT NULL"))
			return put(access.UserSpec{Role: access.RoleAdmin, Disabled: new(false)})(ctx)
		}, false, `user_replaced - {"user": "anna", "disabled": false}`},
		{"removed", func(ctx context.Context) error { return users.DeleteUser(ctx, "anna") }, false, `user_deleted - ` +
			`{"user": "anna", "sessions": 2}`},
	} {
		one, other := signIn(t, tn, "anna"), signIn(t, tn, "anna")
		far := elsewhere(tn)
		for _, a := range []*access.Access{users, far} { // which remember it
			require.NoError(t, testnode.ErrorOf(a.SessionOf(t.Context(), one)), step.name)
		}
		auditedOf(t, tn)
		require.NoError(t, step.do(access.WithActor(t.Context(), access.Actor{Name: "user:bob", Address: "192.0.2.9"})),
			step.name)
		rows := auditedOf(t, tn)
		if step.audit == "" {
			require.Empty(t, rows, step.name)
		} else {
			require.Equal(t, "user:bob 192.0.2.9 "+step.audit, rows[len(rows)-1])
		}
		for _, token := range []string{one, other} {
			_, err := users.SessionOf(t.Context(), token)
			require.Equal(t, step.stays, err == nil, step.name)
		}
		if !step.stays {
			testnode.Within(t, fmt.Sprintf("%s: within a second elsewhere", step.name), func() bool {
				_,
					err := far.SessionOf(t.Context(), one)
				return err != nil
			})
		}
		require.NoError(t, testnode.ErrorOf(users.SessionOf(t.Context(), bobs)), step.name)
		if step.name != "removed" {
			require.NoError(t, testnode.ErrorOf(users.EndSessions(t.Context(), "anna")))
		}
	}
	require.ErrorIs(t, testnode.ErrorOf(users.EndSessions(t.Context(), "anna")), postgres.ErrNotFound)
	require.ErrorIs(t, users.DeleteUser(t.Context(), "anna"), postgres.ErrNotFound)
	_, err := users.User(t.Context(), "anna")
	require.ErrorIs(t, err, postgres.ErrNotFound)

	tn.Exec(t, "UPDATE postrider_internal.users SET disabled_at = now()")
	require.ErrorIs(t, testnode.ErrorOf(elsewhere(tn).SessionOf(t.Context(), bobs)), postgres.ErrNotFound)
}

// The log has PostgreSQL's error where a change is rejected in plain words.
func TestRejectedChangesAreLogged(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.Exec(t, "ALTER TABLE postrider_internal.users ADD CONSTRAINT planted CHECK (name <> 'anna')")
	var log bytes.Buffer
	s := tn.Beside(t, node.Options{Node: "node-2", Logger: slog.New(slog.NewJSONHandler(&log, nil))}).System
	_, err := s.Access.PutUser(t.Context(), "anna", access.UserSpec{
		Role:     access.RoleAdmin,
		Password: new(testnode.Password),
	})
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.NotContains(t, err.Error(), "planted")
	require.Contains(t, log.String(), "planted")
	require.Contains(t, log.String(), `"sqlstate":"23514"`)
}
