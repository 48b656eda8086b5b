package postgres

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Sizes of encryption keys and of their ids, in bytes.
const (
	sealVersion = 1
	KeyIDBytes  = 8
	KeyBytes    = 32
)

// Sealer encrypts the secret columns (endpoint URLs, custom headers, access keys, signing secrets) with AES-256-GCM.
// A sealed value names its key and is bound to its column: copied into another column, it cannot be opened.
type Sealer struct {
	key  sealingKey
	also []sealingKey // they only open
	mac  [sha256.Size]byte
}

type sealingKey struct {
	aead cipher.AEAD
	id   [KeyIDBytes]byte
}

// NewSealer returns a sealer that seals with a key of 32 bytes, and also opens with the others.
func NewSealer(key []byte, also ...[]byte) (*Sealer, error) {
	first, err := newSealingKey(key)
	if err != nil {
		return nil, err
	}
	s := &Sealer{key: first, mac: sha256.Sum256(append([]byte("postrider mac "), key...))}
	for _, other := range also {
		k, err := newSealingKey(other)
		if err != nil {
			return nil, err
		}
		s.also = append(s.also, k)
	}
	return s, nil
}

func newSealingKey(key []byte) (k sealingKey, err error) {
	if len(key) != KeyBytes {
		return k, fmt.Errorf("the encryption key has %d bytes, it must have %d", len(key), KeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return k, fmt.Errorf("set up encryption: %w", err)
	}
	if k.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return k, fmt.Errorf("set up encryption: %w", err)
	}
	id := sha256.Sum256(append([]byte("postrider key id "), key...))
	copy(k.id[:], id[:])
	return k, nil
}

// ParseKey reads an encryption key: base64 of 32 bytes, standard or URL alphabet, with or without padding.
func ParseKey(text string) ([]byte, error) {
	for _, encoding := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		if key, err := encoding.DecodeString(text); err == nil && len(key) == KeyBytes {
			return key, nil
		}
	}
	return nil, fmt.Errorf("the encryption key must be base64 of %d random bytes; make one with: openssl rand -base64 %d",
		KeyBytes, KeyBytes)
}

// Seal encrypts a value for one column.
func (s *Sealer) Seal(column, plain string) []byte {
	sealed := append([]byte{sealVersion}, s.key.id[:]...)
	//nolint:gosec // without a nonce the AEAD creates a random one
	return s.key.aead.Seal(sealed, nil, []byte(plain), []byte(column))
}

// Open decrypts a value that Seal sealed for the same column. The error names the other key that sealed it, if any.
func (s *Sealer) Open(column string, sealed []byte) (string, error) {
	if len(sealed) < 1+KeyIDBytes || sealed[0] != sealVersion {
		return "", fmt.Errorf("open sealed column %s: unknown format", column)
	}
	key, known := s.find([KeyIDBytes]byte(sealed[1 : 1+KeyIDBytes]))
	if !known {
		return "", fmt.Errorf("open sealed column %s: it was sealed with key %s, this process has key %s", column,
			hex.EncodeToString(sealed[1:1+KeyIDBytes]), strings.Join(s.KeyIDs(), ", "))
	}
	plain, err := key.aead.Open(nil, nil, sealed[1+KeyIDBytes:], []byte(column))
	if err != nil {
		return "", fmt.Errorf("open sealed column %s: %w", column, err)
	}
	return string(plain), nil
}

// find need not take constant time: the id of a key is no secret.
func (s *Sealer) find(id [KeyIDBytes]byte) (sealingKey, bool) {
	for _, k := range append([]sealingKey{s.key}, s.also...) {
		if k.id == id {
			return k, true
		}
	}
	return sealingKey{}, false
}

// KeyID identifies the key that seals.
func (s *Sealer) KeyID() string { return hex.EncodeToString(s.key.id[:]) }

// KeyIDs identify all keys that open.
func (s *Sealer) KeyIDs() []string {
	ids := []string{s.KeyID()}
	for _, k := range s.also {
		ids = append(ids, hex.EncodeToString(k.id[:]))
	}
	return ids
}

// UseMac sets the key of Mac to one that MacKey returned: all nodes of a database use the same.
func (s *Sealer) UseMac(key string) error {
	if n, err := hex.Decode(s.mac[:], []byte(key)); err != nil || n != len(s.mac) {
		return errors.New("the key of the hashes: unknown format")
	}
	return nil
}

// MacKey is the key of Mac.
func (s *Sealer) MacKey() string { return hex.EncodeToString(s.mac[:]) }

// Mac is a keyed hash of a text.
func (s *Sealer) Mac(text string) []byte {
	h := hmac.New(sha256.New, s.mac[:])
	h.Write([]byte(text))
	return h.Sum(nil)
}

// NewAccessKey creates an access key like Azure's: base64 of 32 random bytes.
func NewAccessKey() string {
	key := make([]byte, KeyBytes)
	_, _ = rand.Read(key) // crypto/rand.Read never fails since Go 1.24
	return base64.StdEncoding.EncodeToString(key)
}

// HashKey is the stored hash of an access key.
func HashKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}
