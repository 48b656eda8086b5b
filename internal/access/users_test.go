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
	put := func(name string, role access.Role, password *string) error {
		_, err := users.PutUser(t.Context(), name, access.UserSpec{Role: role, Password: password})
		return err
	}
	for _, name := range []string{"a", "-anna", "anna smith", "anna\n", strings.Repeat("a", 64)} {
		requireRejected(t, put(name, access.RoleViewer, new(testnode.Password)), postgres.ErrInvalid, "name")
	}
	for _, role := range []access.Role{"root", ""} {
		requireRejected(t, put("anna", role, new(testnode.Password)), postgres.ErrInvalid, "role")
	}
	for _, password := range []*string{nil, new("elevenbytes"), new(strings.Repeat("a", 1025)), new("twelve bytes\xff")} {
		requireRejected(t, put("anna", access.RoleViewer, password), postgres.ErrInvalid, "password")
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
	require.Equal(t, 1, tn.Rows(t, "users", "role = 'admin' AND NOT disabled"))
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
	require.NoError(t, testnode.ErrorOf(users.SessionOf(t.Context(), token)), "nothing has happened")
	require.NoError(t, users.DeleteUser(anna, "bob"), "a disabled one is not missed")
	require.NoError(t, users.DeleteUser(anna, "carl"))
	require.NoError(t, users.DeleteUser(access.WithActor(t.Context(), access.Actor{Name: "admin", Role: access.RoleAdmin}),
		"anna"), "the admin token lets others in by itself")
}
