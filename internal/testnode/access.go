package testnode

import (
	"sync"
	"testing"

	"github.com/alexedwards/argon2id"
	"github.com/stretchr/testify/require"

	"postrider/internal/access"
)

func init() { access.HashCheaply() }

// Password is the password of NewUser.
const Password = "correct horse battery"

// cheapHash is a hash of the password with the least memory: to check it takes no 30 ms of CPU time.
var cheapHash = sync.OnceValues(func() (string, error) {
	return argon2id.CreateHash(Password,
		&argon2id.Params{Memory: 8, Iterations: 1, Parallelism: 1, SaltLength: 16, KeyLength: 32})
})

// NewUser creates a user whose password is cheap to check.
func (tn *Node) NewUser(t testing.TB, name string, role access.Role) {
	t.Helper()
	made, err := tn.System.Access.PutUser(t.Context(), name, access.UserSpec{Role: role, Password: new(Password)})
	require.NoError(t, err)
	require.True(t, made)
	hash, err := cheapHash()
	require.NoError(t, err)
	tn.Exec(t, "UPDATE postrider_internal.users SET password_hash = $1 WHERE name = $2", hash, name)
}

// NewPersonalKey creates one on the account page of a user.
func (tn *Node) NewPersonalKey(t testing.TB, user string, role access.Role) (key string, made *access.APIKey) {
	t.Helper()
	ctx := access.WithActor(t.Context(), access.Actor{Name: "user:" + user, Address: "192.0.2.7"})
	spec := access.PersonalKeySpec{Machine: "laptop", Role: role, Days: 1}
	key, made, err := tn.System.Access.CreatePersonalKey(ctx, user, spec)
	require.NoError(t, err)
	return key, made
}

// OtherKey is a key that seals no secret of a test's database.
var OtherKey = []byte("fedcba9876543210fedcba9876543210")
