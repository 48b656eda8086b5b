package access

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
)

func init() { HashCheaply() }

// The reference implementation's own test vector: phc-winner-argon2, src/test.c, Argon2id, t=2, m=65536, p=1.
func TestPasswordHashesAreArgon2id(t *testing.T) {
	t.Parallel()
	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	right, err := isPassword(reference, "password")
	require.NoError(t, err)
	require.True(t, right, "a hash of another cost stays readable")
	right, err = isPassword(reference, "passwore")
	require.NoError(t, err)
	require.False(t, right)

	require.Equal(t,
		argon2id.Params{Memory: 19456, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}, recommended)
	one, err := hashPassword(t.Context(), "anna", "twelve horses at least")
	require.NoError(t, err)
	other, err := hashPassword(t.Context(), "anna", "twelve horses at least")
	require.NoError(t, err)
	require.NotEqual(t, one, other, "the salt")
	require.Regexp(t, `^\$argon2id\$v=19\$m=256,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$`, one)
	for _, hash := range []string{one, other} {
		right, err := isPassword(hash, "twelve horses at least")
		require.NoError(t, err)
		require.True(t, right)
	}
	for _, broken := range []string{
		"", "password", strings.Replace(one, "argon2id", "argon2i", 1), strings.Replace(one, "v=19", "v=16", 1),
		strings.Replace(one, "m=256", "m=99999999", 1),
		strings.Replace(one, "t=2", "t=0", 1), strings.Replace(one, "t=2", "t=99", 1), strings.Replace(one, "p=1", "p=0", 1),
		strings.Replace(one, "m=256", "m=0", 1), one + "$", one + "!", one[:40],
	} {
		_, err := isPassword(broken, "twelve horses at least")
		require.ErrorIs(t, err, errStoredHash, broken)
	}
}

func TestTwoPasswordsAtATime(t *testing.T) { //nolint:paralleltest // it takes all slots of the process
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for range 2 {
		done, err := takeSlot(t.Context())
		require.NoError(t, err)
		defer done()
	}
	_, err := hashPassword(ctx, "anna", "twelve horses at least")
	require.ErrorIs(t, err, postgres.ErrUnavailable)
}

func TestLookupsAreShared(t *testing.T) {
	t.Parallel()
	r := newRemembered[int]()
	var lookups atomic.Int64
	find := func(context.Context) (int, error) { return int(lookups.Add(1)), ErrWrongCredentials }
	began := time.Now()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 1000 {
				_, _ = r.get(t.Context(), [32]byte{1}, find)
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, lookups.Load(), int64(time.Since(began)/rememberFor)+1,
		"a result without a credential is remembered too")
	_, err := r.get(t.Context(), [32]byte{1}, find)
	require.ErrorIs(t, err, ErrWrongCredentials)
	before := lookups.Load()
	r.forgetAll()
	_, _ = r.get(t.Context(), [32]byte{1}, find)
	require.Equal(t, before+1, lookups.Load())

	down := true
	outage := func(context.Context) (int, error) {
		if down {
			return 0, errors.Join(postgres.ErrUnavailable)
		}
		return 7, nil
	}
	_, err = r.get(t.Context(), [32]byte{2}, outage)
	require.ErrorIs(t, err, postgres.ErrUnavailable)
	down = false
	v, err := r.get(t.Context(), [32]byte{2}, outage)
	require.NoError(t, err, "an outage is not remembered")
	require.Equal(t, 7, v)
}

// A lookup does not end with the request that began it: others share it.
func TestLookupsContinueAfterTheirFirstRequestEnds(t *testing.T) {
	t.Parallel()
	r := newRemembered[int]()
	ctx, disconnect := context.WithCancel(t.Context())
	started, proceed := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = r.get(ctx, [32]byte{}, func(ctx context.Context) (int, error) {
			close(started)
			<-proceed
			return 7, ctx.Err()
		})
	}()
	<-started
	disconnect()
	_, err := r.get(ctx, [32]byte{}, nil)
	require.ErrorIs(t, err, context.Canceled)
	close(proceed)
	v, err := r.get(t.Context(), [32]byte{}, nil)
	require.NoError(t, err)
	require.Equal(t, 7, v)
	for i := range 2 * mostRemembered {
		_, _ = r.get(t.Context(), hashSecret(string(rune(i))), func(context.Context) (int, error) { return 0, nil })
	}
	require.LessOrEqual(t, len(r.kept), mostRemembered)
}
