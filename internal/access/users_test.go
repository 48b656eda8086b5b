package access_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

func TestUsers(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	for _, wrong := range []struct {
		name  string
		spec  access.UserSpec
		field string
	}{
		{"a", access.UserSpec{Role: access.RoleViewer, Password: new(testnode.Password)}, "name"},
		{"-anna", access.UserSpec{Role: access.RoleViewer, Password: new(testnode.Password)}, "name"},
		{"anna smith", access.UserSpec{Role: access.RoleViewer, Password: new(testnode.Password)}, "name"},
		{"anna\n", access.UserSpec{Role: access.RoleViewer, Password: new(testnode.Password)}, "name"},
		{strings.Repeat("a", 64), access.UserSpec{Role: access.RoleViewer, Password: new(testnode.Password)}, "name"},
		{"anna", access.UserSpec{Role: "root", Password: new(testnode.Password)}, "role"},
		{"anna", access.UserSpec{Password: new(testnode.Password)}, "role"},
		{"anna", access.UserSpec{Role: access.RoleViewer}, "password"},
		{"anna", access.UserSpec{Role: access.RoleViewer, Password: new("elevenbytes")}, "password"},
		{"anna", access.UserSpec{Role: access.RoleViewer, Password: new(strings.Repeat("a", 1025))}, "password"},
		{"anna", access.UserSpec{Role: access.RoleViewer, Password: new("twelve bytes\xff")}, "password"},
	} {
		_, err := users.PutUser(t.Context(), wrong.name, wrong.spec)
		var rejected *postgres.FunctionError
		require.ErrorAs(t, err, &rejected, "%q %+v", wrong.name, wrong.spec)
		require.ErrorIs(t, err, postgres.ErrInvalid)
		require.Equal(t, wrong.field, rejected.Field)
	}
	has, err := users.HasUsers(t.Context())
	require.NoError(t, err)
	require.False(t, has)
	for _, name := range []string{"carl", "anna", "bob"} {
		tn.NewUser(t, name, access.RoleViewer)
	}
	list, err := users.Users(t.Context(), "anna", 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "bob", list[0].Name)
	require.Equal(t, "postrider", list[0].CreatedBy)
	has, err = users.HasUsers(t.Context())
	require.NoError(t, err)
	require.True(t, has)
}

func TestFirstAdmin(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	require.ErrorIs(t, tn.System.Access.CreateFirstAdmin(t.Context(), "anna", "short"), postgres.ErrInvalid)
	errs := make(chan error, 6)
	for i := range cap(errs) {
		go func() {
			errs <- elsewhere(tn).CreateFirstAdmin(t.Context(), fmt.Sprintf("admin%d", i), testnode.Password)
		}()
	}
	first := 0
	for range cap(errs) {
		if err := <-errs; err == nil {
			first++
		} else {
			require.ErrorIs(t, err, access.ErrNotFirst)
		}
	}
	require.Equal(t, 1, first)
	require.Equal(t, 1, tn.Count(t, "SELECT count(*) FROM postrider.users WHERE role = 'admin' AND NOT disabled"))
}

func TestLastAdmin(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	tn.NewUser(t, "anna", access.RoleAdmin)
	tn.NewUser(t, "bob", access.RoleAdmin)
	tn.NewUser(t, "carl", access.RoleViewer)
	anna := access.WithActor(t.Context(), access.Actor{Name: "user:anna", Role: access.RoleAdmin})
	_, err := users.PutUser(anna, "bob", access.UserSpec{Role: access.RoleAdmin, Disabled: new(true)})
	require.NoError(t, err)
	token := signIn(t, tn, "anna")
	for _, ctx := range []context.Context{anna, access.WithActor(t.Context(),
		access.Actor{Name: "key:ci", Role: access.RoleAdmin})} {
		_, err = users.PutUser(ctx, "anna", access.UserSpec{Role: access.RoleOperator})
		require.ErrorIs(t, err, access.ErrLastAdmin)
		require.ErrorIs(t, err, postgres.ErrConflict)
		_, err = users.PutUser(ctx, "anna", access.UserSpec{Role: access.RoleAdmin, Disabled: new(true)})
		require.ErrorIs(t, err, access.ErrLastAdmin)
		require.ErrorIs(t, users.DeleteUser(ctx, "anna"), access.ErrLastAdmin)
	}
	_, err = users.SessionOf(t.Context(), token)
	require.NoError(t, err, "nothing has happened")
	require.NoError(t, users.DeleteUser(anna, "bob"), "a disabled one is not missed")
	require.NoError(t, users.DeleteUser(anna, "carl"))
	require.NoError(t,
		users.DeleteUser(access.WithActor(t.Context(), access.Actor{Name: "admin", Role: access.RoleAdmin}), "anna"),
		"the admin token lets others in by itself")
}
