package access_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/access"
	"postrider/internal/postgres"
	"postrider/internal/testnode"
)

// A password that is easy to guess is rejected wherever one is set.
func TestWeakPasswordsAreRejected(t *testing.T) {
	t.Parallel()
	tn := testnode.Unchecked(t)
	users := tn.System.Access
	for _, weak := range []string{"password1234", "anna-anna-anna", "Postrider2026!"} {
		_, put := users.PutUser(t.Context(), "anna", access.UserSpec{Role: access.RoleViewer, Password: &weak})
		for _, err := range []error{put, users.CreateFirstAdmin(t.Context(), "anna", weak)} {
			requireRejected(t, err, postgres.ErrInvalid, "password")
			require.ErrorContains(t, err, "too easy to guess")
		}
	}
	tn.NewUser(t, "anna", access.RoleViewer)
	weak := "letmein12345"
	_, err := users.PutUser(t.Context(), "anna", access.UserSpec{Password: &weak})
	require.ErrorContains(t, err, "too easy to guess")
	require.ErrorContains(t, users.ChangePassword(t.Context(), "anna", testnode.Password, weak), "too easy to guess")
	signIn(t, tn, "anna")
}
