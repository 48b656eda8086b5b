package access_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

// guess sends n wrong passwords for a name from an address, all of which are checked.
func guess(t *testing.T, tn *testnode.Node, name, address string, n int) {
	t.Helper()
	for i := range n {
		_, _, err := tn.System.Access.SignIn(t.Context(), name, wrongPassword, access.SignInFrom{Address: address})
		require.ErrorIs(t, err, access.ErrWrongCredentials, "the %d.", i+1)
	}
}

// requireThrottled fails unless the password is not checked for so long.
func requireThrottled(t *testing.T, tn *testnode.Node, name, password, address string, most time.Duration) {
	t.Helper()
	_, _, err := tn.System.Access.SignIn(t.Context(), name, password, access.SignInFrom{Address: address})
	var locked *access.LockedError
	require.ErrorAs(t, err, &locked)
	require.Positive(t, locked.Wait)
	require.LessOrEqual(t, locked.Wait, most)
}

// After ten wrong passwords from one address not even the right one is checked there, whether a user has the name or
// not. The owner signs in from another address, and their session goes on.
func TestWrongPasswordsForOneName(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.NewUser(t, "anna", access.RoleViewer)
	tn.NewUser(t, "bob", access.RoleViewer)
	here := someBrowser.Address
	session := signIn(t, tn, "anna")
	auditedOf(t, tn)
	for _, name := range []string{"anna", "unknown"} {
		guess(t, tn, name, here, 10)
		requireThrottled(t, tn, name, testnode.Password, here, time.Minute)
	}
	rows := auditedOf(t, tn)
	require.Len(t, rows, 20, "none for passwords that are not checked")
	require.Equal(t, `signIn 192.0.2.7 sign_in_failed - {"user": "anna"}`, rows[0])
	require.Equal(t, "signIn 192.0.2.7 sign_in_failed - {}", rows[19], "no name that no user has")

	var locked *access.LockedError
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:anna", Address: here})
	require.ErrorAs(t, tn.System.Access.ChangePassword(ctx, "anna", testnode.Password, "twelve horses at least"), &locked)
	require.NoError(t, testnode.ErrorOf(tn.System.Access.SessionOf(t.Context(), session)))
	signIn(t, tn, "bob")
	_, _, err := tn.System.Access.SignIn(t.Context(), "anna", testnode.Password, access.SignInFrom{Address: "192.0.2.8"})
	require.NoError(t, err)
	requireThrottled(t, tn, "anna", testnode.Password, here, time.Minute)
}

// Guesses that arrive at once are throttled too.
func TestWrongPasswordsAtOnce(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.NewUser(t, "anna", access.RoleViewer)
	var wrong, throttled atomic.Int32
	testnode.AtOnce(40, func(int) {
		_, _, err := tn.System.Access.SignIn(t.Context(), "anna", wrongPassword, someBrowser)
		if locked := (*access.LockedError)(nil); errors.As(err, &locked) {
			throttled.Add(1)
		} else if errors.Is(err, access.ErrWrongCredentials) {
			wrong.Add(1)
		}
	})
	require.EqualValues(t, 40, wrong.Load()+throttled.Load())
	require.LessOrEqual(t, wrong.Load(), int32(11), "ten, and one that was checked at the same time as the tenth")
}

// The audit gets a bounded number of rows, whatever names are tried from whatever addresses.
func TestWrongPasswordsDoNotFillTheAudit(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.NewUser(t, "anna", access.RoleViewer)
	began := time.Now()
	for i := range 120 {
		name := "anna"
		if i%6 == 0 { // a password for no user takes 30 ms
			name = fmt.Sprint("unknown", i)
		}
		guess(t, tn, name, fmt.Sprintf("198.51.100.%d", i), 1)
	}
	rows := tn.Count(t, "SELECT count(*) FROM postrider.audit WHERE action = 'sign_in_failed'")
	require.GreaterOrEqual(t, rows, 100)
	require.LessOrEqual(t, rows, 101+int(time.Since(began)/time.Second))
}

// A change that says nothing of the role leaves whatever it is by then.
func TestPutUserLeavesTheRole(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	tn.NewUser(t, "anna", access.RoleOperator)
	for _, spec := range []access.UserSpec{{Password: new(testnode.Password + "!")}, {Disabled: new(true)}, {}} {
		made, err := tn.System.Access.PutUser(t.Context(), "anna", spec)
		require.NoError(t, err)
		require.False(t, made)
	}
	u, err := tn.System.Access.User(t.Context(), "anna")
	require.NoError(t, err)
	require.Equal(t, access.RoleOperator, u.Role)
	require.True(t, u.Disabled)
}

// Input that PostgreSQL cannot hold as text is rejected, and is no outage.
func TestAccessRejectsInvalidText(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		_, _, err := users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: "ci", Scope: access.ScopePublish, Topic: bad})
		require.ErrorIs(t, err, postgres.ErrInvalid)
		_, _, err = users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: bad, Scope: access.ScopePublish})
		require.ErrorIs(t, err, postgres.ErrInvalid)
		require.ErrorIs(t, testnode.ErrorOf(users.APIKey(t.Context(), bad)), postgres.ErrNotFound)
		require.ErrorIs(t, testnode.ErrorOf(users.RevokeAPIKey(t.Context(), bad)), postgres.ErrNotFound)
		require.ErrorIs(t, testnode.ErrorOf(users.User(t.Context(), bad)), postgres.ErrNotFound)
		require.ErrorIs(t, users.DeleteUser(t.Context(), bad), postgres.ErrNotFound)
		require.ErrorIs(t, testnode.ErrorOf(users.EndSessions(t.Context(), bad)), postgres.ErrNotFound)
		_, err = users.PutUser(t.Context(), bad, access.UserSpec{Role: access.RoleViewer, Password: new(testnode.Password)})
		require.ErrorIs(t, err, postgres.ErrInvalid)
	}
	tn.Exec(t, "ALTER TABLE postrider_internal.api_keys ADD CONSTRAINT nothing CHECK (false) NOT VALID")
	_, _, err := users.CreateAPIKey(t.Context(), access.APIKeySpec{Name: "ci", Scope: access.ScopePublish})
	require.ErrorIs(t, err, postgres.ErrConflict)
	require.NotErrorIs(t, err, postgres.ErrUnavailable)
}
