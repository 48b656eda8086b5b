package access

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"

	"postrider/internal/postgres"
)

// Lengths of a password, in bytes. The strength is checked too, see checkStrength; MaxPassword only bounds the hashing.
const (
	MinPassword = 12
	MaxPassword = 1024
)

// recommended is the minimum that OWASP recommends. A stored hash has its own parameters, so hashes with others stay
// valid. Source: OWASP, Password Storage Cheat Sheet, Argon2id: 19 MiB, 2 iterations, 1 degree of parallelism.
var recommended = argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// hashParams takes less memory after HashCheaply.
var hashParams = recommended

// hashing lets the process hash two passwords at a time: each takes 19 MiB and 30 ms of a core, and guesses must not
// use all cores.
var hashing = make(chan struct{}, 2)

// hashingTimeout is how long a request waits for a slot, which is enough with 300 requests ahead.
var hashingTimeout = 5 * time.Second

// HashCheaply makes new hashes of passwords cheap and unsafe, and lets requests wait for a minute. It is for tests,
// before the first request.
func HashCheaply() { hashParams.Memory, hashingTimeout = 256, time.Minute }

// takeSlot waits until a password may be hashed; done releases the slot. ErrUnavailable.
func takeSlot(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, hashingTimeout)
	defer cancel()
	select {
	case hashing <- struct{}{}:
		return func() { <-hashing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: too many passwords are being checked: %w", postgres.ErrUnavailable, ctx.Err())
	}
}

// validatePassword rejects a password that the user cannot have.
func validatePassword(name, password string) error {
	if len(password) < MinPassword || len(password) > MaxPassword {
		return postgres.Invalid("password", "password must have %d to %d bytes, not %d", MinPassword, MaxPassword,
			len(password))
	}
	if !utf8.ValidString(password) {
		return postgres.Invalid("password", "password must be UTF-8")
	}
	return checkStrength(name, password)
}

// hashPassword returns what is stored of a password: a PHC string, with its parameters and a random salt.
func hashPassword(ctx context.Context, name, password string) (string, error) {
	if err := validatePassword(name, password); err != nil {
		return "", err
	}
	done, err := takeSlot(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return argon2id.CreateHash(password, &hashParams)
}

var errStoredHash = errors.New("the password's hash in the database is not valid")

// isPassword compares a password with a hash; the caller has a slot. It rejects a hash that needs too much memory or
// time before computing it: a role that may write the table must not be able to stop the node.
func isPassword(stored, password string) (bool, error) {
	const maxMemory, maxIterations, minKey = 256 << 10, 16, 16
	p, _, _, err := argon2id.DecodeHash(stored)
	if err != nil {
		return false, fmt.Errorf("%w: %w", errStoredHash, err)
	}
	if p.Memory == 0 || p.Memory > maxMemory || p.Iterations == 0 || p.Iterations > maxIterations ||
		p.Parallelism == 0 || p.SaltLength == 0 || p.KeyLength < minKey {
		return false, errStoredHash
	}
	return argon2id.ComparePasswordAndHash(password, stored)
}
