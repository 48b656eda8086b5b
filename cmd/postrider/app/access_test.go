package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/access"
	"postrider/cmd/postrider/app"
	"postrider/postgres"
)

const (
	annasPassword = "correct horse battery"
	wrongPassword = "incorrect horse battery"
)

var someBrowser = access.SignInFrom{Address: "192.0.2.7", UserAgent: "Browser/1"}

func (b *bundle) user(t *testing.T, name string, role access.Role) {
	t.Helper()
	made, err := b.store.Access.PutUser(t.Context(), name, access.UserSpec{Role: role, Password: new(annasPassword)})
	require.NoError(t, err)
	require.True(t, made)
}

func (b *bundle) signIn(t *testing.T, name string) (token string) {
	t.Helper()
	token, _, err := b.store.Access.SignIn(t.Context(), name, annasPassword, someBrowser)
	require.NoError(t, err)
	return token
}

// elsewhere is another node's memory, or this one's a second later.
func (b *bundle) elsewhere() *access.Access { return access.AccessOf(b.pool) }

// anywhere is an address of somewhere().
var anywhere = regexp.MustCompile(`\b10\.0\.\d+\.\d+\b`)

// audited takes the rows of the audit, as "actor address action topic details".
func (b *bundle) audited(t *testing.T) []string {
	t.Helper()
	rows, err := b.pool.Query(t.Context(), `WITH gone AS (DELETE FROM postrider_internal.audit RETURNING *)
		SELECT concat_ws(' ', actor, coalesce(address, '-'), action, coalesce(topic, '-'), details) FROM gone ORDER BY id`)
	require.NoError(t, err)
	defer rows.Close()
	list := []string{}
	for rows.Next() {
		var row string
		require.NoError(t, rows.Scan(&row))
		list = append(list, anywhere.ReplaceAllString(row, "ADDRESS"))
	}
	require.NoError(t, rows.Err())
	return list
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	users := b.store.Access
	b.user(t, "anna@example.com", access.RoleOperator)
	before, err := users.User(t.Context(), "anna@example.com")
	require.NoError(t, err)
	require.Nil(t, before.LastSignInAt)
	require.Zero(t, before.Sessions)

	token, s, err := users.SignIn(t.Context(), "anna@example.com", annasPassword,
		access.SignInFrom{Address: "192.0.2.7", UserAgent: strings.Repeat("é", 400) + "\x00\xff"})
	require.NoError(t, err)
	require.Equal(t, "anna@example.com", s.User)
	require.Equal(t, access.RoleOperator, s.Role)
	require.Equal(t, strings.Repeat("é", 300), s.UserAgent)
	require.Equal(t, 12*time.Hour, s.ExpiresAt.Sub(s.CreatedAt))
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	require.Len(t, raw, 32)
	for name, a := range map[string]*access.Access{"here": users, "elsewhere": b.elsewhere()} {
		found, err := a.SessionOf(t.Context(), token)
		require.NoError(t, err, name)
		require.Equal(t, s, found, name)
	}
	require.Equal(t, access.Actor{Name: "user:anna@example.com", Address: "192.0.2.8", Role: access.RoleOperator},
		s.Actor("192.0.2.8"))
	again := b.signIn(t, "anna@example.com")
	require.NotEqual(t, token, again)
	after, err := users.User(t.Context(), "anna@example.com")
	require.NoError(t, err)
	require.NotNil(t, after.LastSignInAt)
	require.Equal(t, 2, after.Sessions)

	require.NoError(t, users.SignOut(t.Context(), token))
	require.NoError(t, users.SignOut(t.Context(), token), "it is over already")
	for _, a := range []*access.Access{users, b.elsewhere()} {
		_, err = a.SessionOf(t.Context(), token)
		require.ErrorIs(t, err, postgres.ErrNotFound)
		_, err = a.SessionOf(t.Context(), again)
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		`postrider - user_made - {"role": "operator", "user": "anna@example.com"}`,
		`user:anna@example.com 192.0.2.7 signed_in - {"user": "anna@example.com"}`,
		`user:anna@example.com 192.0.2.7 signed_in - {"user": "anna@example.com"}`,
		`postrider - signed_out - {"user": "anna@example.com"}`,
	}, b.audited(t))
}

// Neither tables nor the audit have what somebody could come in with.
func TestNothingStoredLetsAnybodyIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleAdmin)
	token := b.signIn(t, "anna")
	key, _, err := b.store.Access.CreateAPIKey(t.Context(), access.APIKeySpec{Name: "ci", Scope: access.ScopeAdmin})
	require.NoError(t, err)
	_, err = b.store.Access.APIKeyOf(t.Context(), key)
	require.NoError(t, err)
	stored := b.text(t, `SELECT concat((SELECT jsonb_agg(u) FROM postrider_internal.users u), (SELECT jsonb_agg(s)
		    FROM postrider_internal.sessions s),
		(SELECT jsonb_agg(k) FROM postrider_internal.api_keys k), (SELECT jsonb_agg(a) FROM postrider_internal.audit a))`)
	require.Contains(t, stored, "$argon2id$v=19$m=")
	require.Contains(t, stored, key[:12])
	for _, secret := range []string{annasPassword, token, key, key[:13]} {
		require.NotContains(t, stored, secret)
		require.NotContains(t, stored, hex.EncodeToString([]byte(secret)))
	}
	shown := b.text(t,
		"SELECT concat((SELECT jsonb_agg(u) FROM postrider.users u), (SELECT jsonb_agg(k) FROM postrider.api_keys k))")
	require.Contains(t, shown, "anna")
	require.NotContains(t, shown, "argon2id")
	require.NotContains(t, shown, b.text(t, "SELECT encode(key_hash, 'hex') FROM postrider_internal.api_keys"))
}

func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleViewer)
	for _, tried := range [][2]string{
		{"anna", wrongPassword},
		{"anna", ""},
		{"anna", annasPassword + " "},
		{"Anna", annasPassword},
		{"bob", annasPassword},
		{"", ""},
		{"anna\x00", annasPassword},
		{strings.Repeat("a", 100_000), annasPassword},
		{"anna", strings.Repeat("a", 100_000)},
		{"anna\xff", annasPassword},
	} {
		_, _, err := b.store.Access.SignIn(t.Context(), tried[0], tried[1], someBrowser)
		require.ErrorIs(t, err, access.ErrWrongCredentials, "%.20q", tried)
	}
	require.Equal(t, 3, b.count(t, "SELECT failed_sign_ins FROM postrider.users"))
	b.signIn(t, "anna")
	require.Zero(t, b.count(t, "SELECT failed_sign_ins FROM postrider.users"))

	_, err := b.store.Access.PutUser(t.Context(), "anna", access.UserSpec{Role: access.RoleViewer, Disabled: new(true)})
	require.NoError(t, err)
	_, _, err = b.store.Access.SignIn(t.Context(), "anna", annasPassword, someBrowser)
	require.ErrorIs(t, err, access.ErrWrongCredentials)
}

var guessers atomic.Uint32

// somewhere is an address that nobody has guessed from.
func somewhere() access.SignInFrom {
	n := guessers.Add(1)
	return access.SignInFrom{Address: fmt.Sprintf("10.0.%d.%d", n>>8, n&255)}
}

// failures shows n wrong passwords, which must be looked at.
func (b *bundle) failures(t *testing.T, a *access.Access, name string, n int) {
	t.Helper()
	for i := range n {
		_, _, err := a.SignIn(t.Context(), name, wrongPassword, somewhere())
		require.ErrorIs(t, err, access.ErrWrongCredentials, "the %d.", i+1)
	}
}

func TestLockOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleViewer)
	b.user(t, "bob", access.RoleViewer)
	b.audited(t)
	var locked *access.LockedError
	for _, name := range []string{"anna", "nobody"} {
		b.failures(t, b.store.Access, name, 10)
		var err error
		for range 8 { // a slow machine may not be back within the first seconds
			if _, _, err = b.store.Access.SignIn(t.Context(), name, wrongPassword, somewhere()); errors.As(err, &locked) {
				break
			}
		}
		require.ErrorAs(t, err, &locked, name)
		require.ErrorContains(t, err, "too many wrong passwords")
	}
	b.exec(t, "UPDATE postrider_internal.users SET failed_sign_ins = 10, locked_until = now() + interval '1 minute' "+
		"WHERE name = 'anna'")
	for _, a := range []*access.Access{b.store.Access, b.elsewhere()} {
		_, _, err := a.SignIn(t.Context(), "anna", annasPassword, someBrowser)
		require.ErrorAs(t, err, &locked, "the right one is not looked at either, on no node")
		require.ErrorAs(t, a.ChangePassword(t.Context(), "anna", annasPassword, "twelve horses at least"), &locked)
	}
	b.signIn(t, "bob")

	b.exec(t, "UPDATE postrider_internal.users SET failed_untold = 9 WHERE name = 'anna'")
	seconds := []int{}
	for range 13 {
		b.exec(t, "UPDATE postrider_internal.users SET locked_until = now() WHERE name = 'anna'")
		b.failures(t, b.store.Access, "anna", 1)
		seconds = append(seconds, b.count(t,
			"SELECT extract(epoch FROM locked_until - failed_at)::int FROM postrider_internal.users WHERE name = 'anna'"))
	}
	require.Equal(t, []int{2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900, 900}, seconds)
	require.Equal(t, []string{
		`signIn ADDRESS sign_in_failed - {"user": "anna", "times": 1}`,
		`signIn ADDRESS user_locked_out - {"user": "anna"}`,
		`signIn ADDRESS sign_in_failed - {"times": 1}`,
		`user:bob 192.0.2.7 signed_in - {"user": "bob"}`,
	}, b.audited(t), "guessing does not fill the audit")
	b.exec(t, "UPDATE postrider_internal.users SET locked_until = now(), failed_told_at = failed_told_at - interval '1 "+
		"minute' WHERE name = 'anna'")
	b.failures(t, b.store.Access, "anna", 1)
	require.Equal(t, []string{`signIn ADDRESS sign_in_failed - {"user": "anna", "times": 23}`}, b.audited(t))

	b.exec(t, "UPDATE postrider_internal.users SET locked_until = now(), failed_at = failed_at - interval '1 day' "+
		"WHERE name = 'anna'")
	b.failures(t, b.store.Access, "anna", 1)
	require.Equal(t, 1, b.count(t, "SELECT failed_sign_ins FROM postrider.users WHERE name = 'anna'"),
		"a day later they are forgotten")
	b.failures(t, b.store.Access, "anna", 9)
	_, err := b.store.Access.PutUser(t.Context(), "anna",
		access.UserSpec{Role: access.RoleViewer, Password: new(annasPassword)})
	require.NoError(t, err)
	b.signIn(t, "anna")
}

// Who tries one password for many names is put off by their address, and nobody else is.
func TestGuessingFromOneAddress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleViewer)
	b.user(t, "bob", access.RoleViewer)
	_, _, err := b.store.Access.SignIn(t.Context(), "bob", annasPassword, access.SignInFrom{Address: "2001:db8::bb"})
	require.NoError(t, err)
	var locked *access.LockedError
	tried := 0
	for err = access.ErrWrongCredentials; errors.Is(err, access.ErrWrongCredentials); tried++ {
		require.Less(t, tried, 60)
		_, _, err = b.store.Access.SignIn(t.Context(), fmt.Sprintf("name%d", tried), wrongPassword,
			access.SignInFrom{Address: fmt.Sprintf("2001:db8::%d", tried)})
	}
	require.ErrorAs(t, err, &locked)
	require.GreaterOrEqual(t, tried, 31)
	_, _, err = b.store.Access.SignIn(t.Context(), "anna", annasPassword, access.SignInFrom{Address: "2001:db8::ffff"})
	require.ErrorAs(t, err, &locked, "its neighbour, in the same /64")
	_, _, err = b.store.Access.SignIn(t.Context(), "bob", annasPassword, access.SignInFrom{Address: "2001:db8::ffff"})
	require.NoError(t, err, "who signed in from there before is not shut out")
	b.signIn(t, "anna")
}

// A crowd of guesses at one moment meets the lock-out too, and one that hangs up has guessed all the same.
func TestGuessesAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleViewer)
	var wrong, locked int
	var mu sync.Mutex
	var group sync.WaitGroup
	for range 40 {
		group.Go(func() {
			_, _, err := b.store.Access.SignIn(t.Context(), "anna", wrongPassword, somewhere())
			mu.Lock()
			defer mu.Unlock()
			var lock *access.LockedError
			if errors.As(err, &lock) {
				locked++
			} else if errors.Is(err, access.ErrWrongCredentials) {
				wrong++
			}
		})
	}
	group.Wait()
	require.Equal(t, 40, wrong+locked)
	require.LessOrEqual(t, wrong, 13, "ten, one ahead of the lock, and one a second")
	require.Equal(t, wrong, b.count(t, "SELECT failed_sign_ins FROM postrider.users"))
}

func TestSessionTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleViewer)
	token := b.signIn(t, "anna")
	move := func(change string) {
		t.Helper()
		b.exec(t, "UPDATE postrider_internal.sessions SET "+change)
	}
	seen := "SELECT extract(epoch FROM now() - last_seen_at)::int / 10 FROM postrider_internal.sessions"
	look := func() (*access.Session, error) { return b.elsewhere().SessionOf(t.Context(), token) }

	move("last_seen_at = now() - interval '50 seconds'")
	_, err := look()
	require.NoError(t, err)
	require.Equal(t, 5, b.count(t, seen), "written at most once a minute")
	move("last_seen_at = now() - interval '11 hours 59 minutes'")
	s, err := look()
	require.NoError(t, err)
	require.Zero(t, b.count(t, seen))
	require.InDelta(t, 12*60, time.Until(s.ExpiresAt).Minutes(), 1, "it has moved on")
	move("last_seen_at = now() - interval '11 hours'")
	far := b.elsewhere()
	for range 2 {
		s, err = far.WatchedSession(t.Context(), token)
		require.NoError(t, err)
		require.InDelta(t, 60, time.Until(s.ExpiresAt).Minutes(), 1, "whoever only looks on keeps nothing alive")
	}
	require.Equal(t, 360*11, b.count(t, seen))
	s, err = far.SessionOf(t.Context(), token)
	require.NoError(t, err)
	require.InDelta(t, 12*60, time.Until(s.ExpiresAt).Minutes(), 1,
		"its owner does, though what was found of it is remembered")
	require.Zero(t, b.count(t, seen))
	s, err = far.WatchedSession(t.Context(), token)
	require.NoError(t, err)
	require.InDelta(t, 12*60, time.Until(s.ExpiresAt).Minutes(), 1, "as everybody sees at once")
	move("expires_at = now() + interval '1 hour', last_seen_at = now() - interval '2 minutes'")
	s, err = look()
	require.NoError(t, err)
	require.InDelta(t, 60, time.Until(s.ExpiresAt).Minutes(), 1, "but not for ever")

	require.NoError(t, b.store.Access.CleanSessions(t.Context()))
	require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider_internal.sessions"))
	for _, over := range []string{
		"last_seen_at = now() - interval '12 hours', expires_at = now() + interval '1 day'",
		"last_seen_at = now(), expires_at = now()",
	} {
		move(over)
		_, err = look()
		require.ErrorIs(t, err, postgres.ErrNotFound, over)
	}
	require.Zero(t, b.count(t, "SELECT sessions FROM postrider.users"))
	require.NoError(t, b.store.Access.CleanSessions(t.Context()))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.sessions"))
}

func TestWhatEndsSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	users := b.store.Access
	b.user(t, "anna", access.RoleViewer)
	b.user(t, "bob", access.RoleAdmin)
	bobs := b.signIn(t, "bob")
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
		{"a password", put(access.UserSpec{Role: access.RoleAdmin, Password: new(annasPassword)}), false, `user_replaced - ` +
			`{"user": "anna", "password": true}`},
		{"the wrong old password", func(ctx context.Context) error {
			require.ErrorIs(t, users.ChangePassword(ctx, "anna", wrongPassword, annasPassword), access.ErrWrongCredentials)
			return nil
		}, true, `sign_in_failed - {"user": "anna", "times": 1}`},
		{"one's own password", func(ctx context.Context) error {
			return users.ChangePassword(ctx, "anna", annasPassword, annasPassword)
		}, false, `password_changed - {"user": "anna"}`},
		{"all sessions", func(ctx context.Context) error {
			n, err := users.EndSessions(ctx, "anna")
			require.Equal(t, 2, n)
			return err
		}, false, `sessions_ended - {"user": "anna", "sessions": 2}`},
		{"disabled", func(ctx context.Context) error {
			require.NoError(t, put(access.UserSpec{Role: access.RoleAdmin, Disabled: new(true)})(ctx))
			require.Equal(t, 1, b.count(t, "SELECT count(*) FROM postrider.users WHERE disabled AND disabled_at IS NOT NULL"))
			return put(access.UserSpec{Role: access.RoleAdmin, Disabled: new(false)})(ctx)
		}, false, `user_replaced - {"user": "anna", "disabled": false}`},
		{"removed", func(ctx context.Context) error { return users.DeleteUser(ctx, "anna") }, false, `user_deleted - ` +
			`{"user": "anna", "sessions": 2}`},
	} {
		one, other := b.signIn(t, "anna"), b.signIn(t, "anna")
		far := b.elsewhere()
		_, err := far.SessionOf(t.Context(), one)
		require.NoError(t, err, step.name)
		b.audited(t)
		require.NoError(t, step.do(access.WithActor(t.Context(), access.Actor{Name: "user:bob", Address: "192.0.2.9"})),
			step.name)
		rows := b.audited(t)
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
			require.Eventually(t, func() bool { _, err := far.SessionOf(t.Context(), one); return err != nil }, 10*time.Second,
				50*time.Millisecond, "%s: within a second elsewhere", step.name)
		}
		_, err = users.SessionOf(t.Context(), bobs)
		require.NoError(t, err, step.name)
		if step.name != "removed" {
			_, err = users.EndSessions(t.Context(), "anna")
			require.NoError(t, err)
		}
	}
	_, err := users.EndSessions(t.Context(), "anna")
	require.ErrorIs(t, err, postgres.ErrNotFound)
	require.ErrorIs(t, users.DeleteUser(t.Context(), "anna"), postgres.ErrNotFound)
	_, err = users.User(t.Context(), "anna")
	require.ErrorIs(t, err, postgres.ErrNotFound)
}

// The log has PostgreSQL's error where a change is rejected in plain words.
func TestRejectedChangesAreLogged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, "ALTER TABLE postrider_internal.users ADD CONSTRAINT planted CHECK (name <> 'anna')")
	var log bytes.Buffer
	s, _ := newStoreWith(t, b.url, app.Options{Node: "node-2", Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	_, err := s.Access.PutUser(t.Context(), "anna", access.UserSpec{Role: access.RoleAdmin, Password: new(annasPassword)})
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.NotContains(t, err.Error(), "planted")
	require.Contains(t, log.String(), "planted")
	require.Contains(t, log.String(), `"sqlstate":"23514"`)
}
