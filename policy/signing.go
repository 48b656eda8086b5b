package policy

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Secrets of Standard Webhooks: a prefix that tells people and programs what they have found, and base64 of 192 to 512
// bits.
//
// Source: Standard Webhooks, specification 1.0.0, signature scheme.
const (
	signingPrefix                          = "whsec_"
	minSigningKeyBytes, maxSigningKeyBytes = 24, 64
)

// MaxSigningSecrets is how many secrets sign a delivery at most: each costs a signature over the whole body and 48
// bytes of header.
const MaxSigningSecrets = 3

// MaxPreviousSecret is how long a secret may go on signing after it was replaced.
const MaxPreviousSecret = 7 * 24 * time.Hour

// SigningSecret is a secret that deliveries are signed with.
type SigningSecret struct {
	// Key is what HMAC takes: 24 to 64 bytes.
	Key       []byte    `json:"key"`
	CreatedAt time.Time `json:"createdAt"`
	// ValidUntil is when it stops signing, because a newer one took its place; nil for the newest.
	ValidUntil *time.Time `json:"validUntil"`
}

// Text is the secret as receivers are given it: whsec_ and base64.
func (s SigningSecret) Text() string { return signingPrefix + base64.StdEncoding.EncodeToString(s.Key) }

// ParseSigningSecret reads the key of a secret, or reports, as a *ValidationError on secret, why it is none. The
// message does not repeat it.
func ParseSigningSecret(text string) ([]byte, error) {
	encoded, prefixed := strings.CutPrefix(text, signingPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	// Go skips line breaks and lax ends; the receivers' libraries do not all do so.
	exact := prefixed && err == nil && base64.StdEncoding.EncodeToString(key) == encoded
	if !exact || len(key) < minSigningKeyBytes || len(key) > maxSigningKeyBytes {
		return nil, invalid("secret", fmt.Sprintf("must be %s and base64, with padding, of %d to %d bytes", signingPrefix,
			minSigningKeyBytes, maxSigningKeyBytes))
	}
	return key, nil
}

// Signing is what an event subscription's deliveries are signed with. It is never changed: Rotate makes another one.
// Its secrets are kept behind a pointer, so that printing what has a Signing shows none.
type Signing struct {
	// Secrets, the newest first. The others may have stopped signing: see Live.
	Secrets []SigningSecret
}

// NewSigning signs with one key, made at the time given.
func NewSigning(key []byte, at time.Time) *Signing {
	return &Signing{Secrets: []SigningSecret{{Key: key, CreatedAt: at}}}
}

// Live lists the secrets that sign at the time given, the newest first.
func (s *Signing) Live(at time.Time) []SigningSecret {
	return slices.DeleteFunc(slices.Clone(s.Secrets), func(secret SigningSecret) bool { return !secret.signs(at) })
}

func (s *SigningSecret) signs(at time.Time) bool {
	return s.ValidUntil == nil || at.Before(*s.ValidUntil)
}

// Rotate puts a new key before the others, which go on signing for the time given, or less where that had been said
// before; not at all where it is 0. It reports, as a *ValidationError on secret or previousValidForHours, a key that
// signs already and too many secrets.
func (s *Signing) Rotate(key []byte, at time.Time, previous time.Duration) (*Signing, error) {
	live, until, rotated := s.Live(at), at.Add(previous), NewSigning(key, at)
	for _, secret := range live {
		if hmac.Equal(secret.Key, key) {
			return nil, invalid("secret", "must be another one: it signs already")
		}
		if secret.ValidUntil == nil || until.Before(*secret.ValidUntil) {
			secret.ValidUntil = &until
		}
		if secret.signs(at) {
			rotated.Secrets = append(rotated.Secrets, secret)
		}
	}
	if len(rotated.Secrets) > MaxSigningSecrets {
		ends := live[len(live)-1].ValidUntil.UTC().Format(time.RFC3339) // the oldest: none outlives a newer one
		return nil, invalid("previousValidForHours",
			fmt.Sprintf("must be 0, with which only the new secret signs, until %s: %d sign already", ends, MaxSigningSecrets))
	}
	return rotated, nil
}

// Sign is the header webhook-signature of a body: a signature by each secret that signs at the time given, the newest
// first.
//
// Source: Standard Webhooks, specification 1.0.0, signature scheme.
func (s *Signing) Sign(id string, at time.Time, body []byte) string {
	var header []byte
	for i := range s.Secrets {
		if !s.Secrets[i].signs(at) {
			continue
		}
		if len(header) > 0 {
			header = append(header, ' ')
		}
		h := hmac.New(sha256.New, s.Secrets[i].Key)
		h.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		h.Write(body)
		header = base64.StdEncoding.AppendEncode(append(header, "v1,"...), h.Sum(nil))
	}
	return string(header)
}
