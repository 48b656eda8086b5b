package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/access"
	"postrider/postgres"
)

// Who guesses a name elsewhere does not keep its owner out of where they have signed in before, on no node; what is
// guessed there has a lock of its own.
func TestFamiliarPlaces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleViewer)
	home := access.SignInFrom{Address: "2001:db8::1"}
	signIn := func(a *access.Access, password string, from access.SignInFrom) error {
		_, _, err := a.SignIn(t.Context(), "anna", password, from)
		return err
	}
	require.NoError(t, signIn(b.store.Access, annasPassword, home))
	const lockOut = "UPDATE postrider_internal.users SET failed_sign_ins = 20, failed_at = now(), locked_until = now() " +
		"+ interval '15 minutes'"
	b.exec(t, lockOut)
	var locked *access.LockedError
	require.ErrorAs(t, signIn(b.elsewhere(), annasPassword, access.SignInFrom{Address: "2001:db8:1::1"}), &locked)
	require.NoError(t, signIn(b.elsewhere(), annasPassword, access.SignInFrom{Address: "2001:db8::2"}),
		"a node that has just begun, and a neighbour in the same /64")

	b.exec(t, "UPDATE postrider_internal.sign_in_places SET failed_sign_ins = 9, failed_at = now()")
	for range 9 {
		require.ErrorIs(t, signIn(b.store.Access, wrongPassword, somewhere()), access.ErrWrongCredentials)
	}
	require.ErrorIs(t, signIn(b.store.Access, wrongPassword, home), access.ErrWrongCredentials)
	b.exec(t, "UPDATE postrider_internal.sign_in_places SET locked_until = locked_until + interval '1 minute'")
	require.ErrorAs(t, signIn(b.elsewhere(), annasPassword, home), &locked, "ten were shown there")
	require.Equal(t, 9, b.count(t, "SELECT failed_sign_ins FROM postrider.users"), "elsewhere")

	_, err := b.store.Access.PutUser(t.Context(), "anna", access.UserSpec{Password: new(annasPassword)})
	require.NoError(t, err)
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.sign_in_places"),
		"another password: who knew the old one is a stranger")
	require.NoError(t, signIn(b.store.Access, annasPassword, home))
	b.exec(t, "UPDATE postrider_internal.sign_in_places SET last_sign_in_at = now() - interval '31 days'")
	b.exec(t, lockOut)
	require.ErrorAs(t, signIn(b.store.Access, annasPassword, home), &locked, "a month ago")
	require.NoError(t, b.store.Access.CleanSessions(t.Context()))
	require.Zero(t, b.count(t, "SELECT count(*) FROM postrider_internal.sign_in_places"))
}

// What a wrong password costs the database is in nobody's time: neither for a name that there is, nor for another.
func TestWrongPasswordsTakeTheirTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleViewer)
	for _, name := range []string{"anna", "nobody"} {
		began := time.Now()
		_, _, err := b.store.Access.SignIn(t.Context(), name, wrongPassword, somewhere())
		require.ErrorIs(t, err, access.ErrWrongCredentials)
		require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond, name)
	}
}

// A change that says nothing of the role leaves whatever it is by then.
func TestPutUserLeavesTheRole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.user(t, "anna", access.RoleOperator)
	for _, spec := range []access.UserSpec{{Password: new(annasPassword + "!")}, {Disabled: new(true)}, {}} {
		made, err := b.store.Access.PutUser(t.Context(), "anna", spec)
		require.NoError(t, err)
		require.False(t, made)
	}
	u, err := b.store.Access.User(t.Context(), "anna")
	require.NoError(t, err)
	require.Equal(t, access.RoleOperator, u.Role)
	require.True(t, u.Disabled)
}

// What PostgreSQL takes for no text is refused, and is no outage.
func TestAccessRefusesWhatIsNoText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	users := b.store.Access
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		_, _, err := users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: "ci", Scope: access.ScopePublish, Topic: bad})
		require.ErrorIs(t, err, postgres.ErrInvalid)
		_, _, err = users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: bad, Scope: access.ScopePublish})
		require.ErrorIs(t, err, postgres.ErrInvalid)
		_, err = users.APIKey(t.Context(), bad)
		require.ErrorIs(t, err, postgres.ErrNotFound)
		_, err = users.RevokeAPIKey(t.Context(), bad)
		require.ErrorIs(t, err, postgres.ErrNotFound)
		_, err = users.User(t.Context(), bad)
		require.ErrorIs(t, err, postgres.ErrNotFound)
		require.ErrorIs(t, users.DeleteUser(t.Context(), bad), postgres.ErrNotFound)
		_, err = users.EndSessions(t.Context(), bad)
		require.ErrorIs(t, err, postgres.ErrNotFound)
		_, err = users.PutUser(t.Context(), bad, access.UserSpec{Role: access.RoleViewer, Password: new(annasPassword)})
		require.ErrorIs(t, err, postgres.ErrInvalid)
	}
	b.exec(t, "ALTER TABLE postrider_internal.api_keys ADD CONSTRAINT nothing CHECK (false) NOT VALID")
	_, _, err := users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: "ci", Scope: access.ScopePublish})
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.NotErrorIs(t, err, postgres.ErrUnavailable)
}
