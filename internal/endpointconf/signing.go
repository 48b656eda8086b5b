package endpointconf

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

// Secrets of Standard Webhooks: a prefix that identifies them, and base64 of 192 to 512 bits.
//
// Source: Standard Webhooks, specification 1.0.0, signature scheme.
const (
	signingPrefix                          = "whsec_"
	minSigningKeyBytes, maxSigningKeyBytes = 24, 64
)

// maxSigningSecrets is the most secrets that sign a delivery: each costs a signature over the whole body and 48 bytes
// of header.
const maxSigningSecrets = 3

// MaxPreviousSecret is the longest time for which a replaced secret may continue to sign.
const MaxPreviousSecret = 7 * 24 * time.Hour

// SigningSecret is a secret that deliveries are signed with.
type SigningSecret struct {
	// Key is what HMAC takes: 24 to 64 bytes.
	Key       []byte    `json:"key"`
	CreatedAt time.Time `json:"createdAt"`
	// ValidUntil is when a replaced secret stops signing; nil for the newest.
	ValidUntil *time.Time `json:"validUntil"`
}

// Text is the secret as receivers get it: whsec_ and base64.
func (s SigningSecret) Text() string { return signingPrefix + base64.StdEncoding.EncodeToString(s.Key) }

// ParseSigningSecret reads the key of a secret. Its error is a *ValidationError on secret, which does not repeat it.
func ParseSigningSecret(text string) ([]byte, error) {
	encoded, prefixed := strings.CutPrefix(text, signingPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	// Go skips line breaks and accepts loose ends; some libraries of receivers do not.
	exact := prefixed && err == nil && base64.StdEncoding.EncodeToString(key) == encoded
	if !exact || len(key) < minSigningKeyBytes || len(key) > maxSigningKeyBytes {
		return nil, invalid("secret", fmt.Sprintf("must be %s and base64, with padding, of %d to %d bytes", signingPrefix,
			minSigningKeyBytes, maxSigningKeyBytes))
	}
	return key, nil
}

// Signing has the secrets that sign an event subscription's deliveries. It is immutable: Rotate returns another one.
// Refer to it by a pointer, so that printing the struct around it shows no secrets.
type Signing struct {
	// Secrets, the newest first. Not all of them still sign: see Live.
	Secrets []SigningSecret
}

// NewSigning signs with one key that was created at a time.
func NewSigning(key []byte, at time.Time) *Signing {
	return &Signing{Secrets: []SigningSecret{{Key: key, CreatedAt: at}}}
}

// Live lists the secrets that sign at a time, the newest first.
func (s *Signing) Live(at time.Time) []SigningSecret {
	return slices.DeleteFunc(slices.Clone(s.Secrets), func(secret SigningSecret) bool { return !secret.signs(at) })
}

func (s *SigningSecret) signs(at time.Time) bool {
	return s.ValidUntil == nil || at.Before(*s.ValidUntil)
}

// Rotate adds a new key before the others, which continue to sign for the duration previous, or until their ValidUntil
// if that is earlier. Its error is a *ValidationError: on secret if the key already signs, on previousValidForHours if
// there are too many secrets.
func (s *Signing) Rotate(key []byte, at time.Time, previous time.Duration) (*Signing, error) {
	live, until, rotated := s.Live(at), at.Add(previous), NewSigning(key, at)
	for _, secret := range live {
		if hmac.Equal(secret.Key, key) {
			return nil, invalid("secret", "must be another one: this one already signs")
		}
		if secret.ValidUntil == nil || until.Before(*secret.ValidUntil) {
			secret.ValidUntil = &until
		}
		if secret.signs(at) {
			rotated.Secrets = append(rotated.Secrets, secret)
		}
	}
	if len(rotated.Secrets) > maxSigningSecrets {
		ends := live[len(live)-1].ValidUntil.UTC().Format(time.RFC3339) // the oldest: none outlives a newer one
		return nil, invalid("previousValidForHours",
			fmt.Sprintf("must be 0, so that only the new secret signs, until %s: %d already sign", ends, maxSigningSecrets))
	}
	return rotated, nil
}

// Sign returns the header webhook-signature of a body: a signature by each secret that signs at the time, the newest
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
