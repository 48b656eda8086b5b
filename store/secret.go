package store

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	sealVersion = 1
	keyIDBytes  = 8
	keyBytes    = 32
)

// Sealer encrypts the secret columns (endpoint URLs, custom headers, access keys, signing secrets) with AES-256-GCM. What it seals names the key it was
// sealed with and is bound to its column, so that a value copied into another column does not open.
type Sealer struct {
	aead  cipher.AEAD
	keyID [keyIDBytes]byte
	mac   [sha256.Size]byte
}

// NewSealer takes a key of 32 bytes.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) != keyBytes {
		return nil, fmt.Errorf("the encryption key has %d bytes, it needs %d", len(key), keyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("set up encryption: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("set up encryption: %w", err)
	}
	s := &Sealer{aead: aead, mac: sha256.Sum256(append([]byte("postrider mac "), key...))}
	id := sha256.Sum256(append([]byte("postrider key id "), key...))
	copy(s.keyID[:], id[:])
	return s, nil
}

// ParseKey reads an encryption key as people write it: base64 of 32 bytes, standard or URL alphabet.
func ParseKey(text string) ([]byte, error) {
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if key, err := encoding.DecodeString(text); err == nil && len(key) == keyBytes {
			return key, nil
		}
	}
	return nil, fmt.Errorf("the encryption key must be base64 of %d random bytes; make one with: openssl rand -base64 %d", keyBytes, keyBytes)
}

// Seal encrypts a value for one column.
func (s *Sealer) Seal(column, plain string) []byte {
	sealed := append([]byte{sealVersion}, s.keyID[:]...)
	return s.aead.Seal(sealed, nil, []byte(plain), []byte(column)) //nolint:gosec // no nonce is given: the AEAD draws a random one
}

// Open decrypts what Seal made for the same column. The error says whether another key had sealed it.
func (s *Sealer) Open(column string, sealed []byte) (string, error) {
	if len(sealed) < 1+keyIDBytes || sealed[0] != sealVersion {
		return "", fmt.Errorf("open sealed column %s: unknown format", column)
	}
	if id := sealed[1 : 1+keyIDBytes]; subtle.ConstantTimeCompare(id, s.keyID[:]) != 1 {
		return "", fmt.Errorf("open sealed column %s: it was sealed with key %s, this process has key %s", column, hex.EncodeToString(id), s.KeyID())
	}
	plain, err := s.aead.Open(nil, nil, sealed[1+keyIDBytes:], []byte(column))
	if err != nil {
		return "", fmt.Errorf("open sealed column %s: %w", column, err)
	}
	return string(plain), nil
}

// KeyID names the key without telling it.
func (s *Sealer) KeyID() string { return hex.EncodeToString(s.keyID[:]) }

// Mac is a keyed hash: the same text gives the same bytes, and nobody without the key can guess the text from them.
func (s *Sealer) Mac(text string) []byte {
	h := hmac.New(sha256.New, s.mac[:])
	h.Write([]byte(text))
	return h.Sum(nil)
}

const proofText = "postrider"

// CheckKey fails when something in this database was sealed with another key; else it leaves a proof of this one. A
// node with the wrong key must stop at its start and not at its first delivery.
func (s *Sealer) CheckKey(ctx context.Context, pool *pgxpool.Pool) error {
	const insert = `INSERT INTO postrider_internal.encryption_keys (key_id, proof)
		SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM postrider_internal.encryption_keys) ON CONFLICT DO NOTHING`
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { // locked: of two first nodes with different keys, one must fail
		if _, err := tx.Exec(ctx, "LOCK TABLE postrider_internal.encryption_keys IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insert, s.KeyID(), s.Seal("encryption_keys.proof", proofText))
		return err
	})
	if err != nil {
		return fmt.Errorf("store the encryption key's proof: %w", err)
	}
	var proof []byte
	err = pool.QueryRow(ctx, "SELECT proof FROM postrider_internal.encryption_keys WHERE key_id = $1", s.KeyID()).Scan(&proof)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("this database was set up with another encryption key than %s: set the key it was set up with", s.KeyID())
	}
	if err != nil {
		return fmt.Errorf("read the encryption key's proof: %w", err)
	}
	_, err = s.Open("encryption_keys.proof", proof)
	return err
}

// newAccessKey makes an access key as Azure's are: base64 of 32 random bytes.
func newAccessKey() string {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // crypto/rand.Read never fails since Go 1.24
	return base64.StdEncoding.EncodeToString(key)
}

func hashKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}
