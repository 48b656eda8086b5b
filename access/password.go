package access

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"postrider/postgres"
)

// Lengths of a password, in bytes. The least is required whatever the strength, see checkStrength; the most only bounds
// what is hashed.
const (
	MinPassword = 12
	MaxPassword = 1024
)

// cost is what hashing a password costs. Passwords that were hashed at another cost stay readable: it is written beside
// each.
type cost struct {
	memory  uint32 // KiB
	rounds  uint32
	threads uint8
}

// recommended is the least that OWASP recommends.
//
// Source: OWASP, Password Storage Cheat Sheet, Argon2id: 19 MiB, 2 iterations, 1 degree of parallelism.
var recommended = cost{memory: 19 << 10, rounds: 2, threads: 1}

// ourCost is another one in this package's tests alone, which hash hundreds.
var ourCost = recommended

const (
	saltBytes = 16
	hashBytes = 32
)

// hashing lets two passwords be hashed at a time in the process: each takes 19 MiB and some 30 ms of a core, and
// whoever guesses must not have all of them.
var hashing = make(chan struct{}, 2)

// hashingPatience is how long somebody waits for their turn. With 300 others ahead it is no crowd but an attack.
const hashingPatience = 5 * time.Second

// takeTurn waits until a password may be hashed; done gives the turn back. ErrUnavailable.
func takeTurn(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, hashingPatience)
	defer cancel()
	select {
	case hashing <- struct{}{}:
		return func() { <-hashing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: too many passwords are being looked at: %w", postgres.ErrUnavailable, ctx.Err())
	}
}

// judgePassword rejects what is no password for this user.
func judgePassword(name, password string) error {
	switch {
	case len(password) < MinPassword || len(password) > MaxPassword:
		return postgres.Refusal(postgres.ErrInvalid, "password", "password must have %d to %d bytes, not %d", MinPassword,
			MaxPassword, len(password))
	case !utf8.ValidString(password):
		return postgres.Refusal(postgres.ErrInvalid, "password", "password must be UTF-8")
	default:
		return checkStrength(name, password)
	}
}

// hashPassword makes what is stored of a password: a PHC string, with the cost and a salt of its own.
func hashPassword(ctx context.Context, name, password string) (string, error) {
	if err := judgePassword(name, password); err != nil {
		return "", err
	}
	done, err := takeTurn(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails since Go 1.24
	return phc(ourCost, salt, ourCost.hash(password, salt, hashBytes)), nil
}

func (c cost) hash(password string, salt []byte, size int) []byte {
	return argon2.IDKey([]byte(password), salt, c.rounds, c.memory, c.threads, uint32(size))
}

// phc writes the format that password hashes have everywhere.
//
// Source: P-H-C, string-format: phc-sf-spec.md.
func phc(c cost, salt, hash []byte) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.memory, c.rounds, c.threads, b64(salt),
		b64(hash))
}

var errPHC = errors.New("the password's hash in the database cannot be read")

// readPHC reads what phc writes. A cost that would stop the node is refused: whoever may write into the table must not
// be able to.
func readPHC(text string) (c cost, salt, hash []byte, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return c, nil, nil, errPHC
	}
	if n, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &c.memory, &c.rounds, &c.threads); n != 3 || err != nil {
		return c, nil, nil, errPHC
	}
	const mostMemory, mostRounds = 256 << 10, 16
	if c.memory == 0 || c.memory > mostMemory || c.rounds == 0 || c.rounds > mostRounds || c.threads == 0 {
		return c, nil, nil, errPHC
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(parts[4])
	hash, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(salt) == 0 || len(hash) < saltBytes {
		return c, nil, nil, errPHC
	}
	return c, salt, hash, nil
}

// isPassword compares. The caller has taken a turn.
func isPassword(stored, password string) (bool, error) {
	c, salt, hash, err := readPHC(stored)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(c.hash(password, salt, len(hash)), hash) == 1, nil
}

// nobodysPassword takes as long as isPassword: whether a name exists cannot be told by the time that an answer takes.
func nobodysPassword(password string) {
	ourCost.hash(password, make([]byte, saltBytes), hashBytes)
}
