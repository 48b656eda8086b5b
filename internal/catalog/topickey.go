package catalog

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"

	"postrider/internal/access"
	"postrider/internal/postgres"
)

// AccessKeys are a topic's two keys: publishers use one while the other is replaced.
type AccessKeys struct{ Key1, Key2 string }

// KeyName is one of a topic's two keys.
type KeyName string

// The names of keys, as Event Grid's regenerateKey has them.
const (
	Key1 KeyName = "key1"
	Key2 KeyName = "key2"
)

// Columns that access keys are sealed for.
const (
	key1Column = "topics.key1_sealed"
	key2Column = "topics.key2_sealed"
)

// signing verifies signatures by a topic's keys. The keys are opened for the first signature: most publishers send a
// key instead, which only needs the hashes.
type signing struct {
	topic        string
	key1, key2   []byte // sealed
	sealer       *postgres.Sealer
	log          *slog.Logger
	once         sync.Once
	first, other []byte // opened and decoded; empty for a key that cannot sign
}

func (s *signing) open(column string, sealed []byte) []byte {
	key, err := s.sealer.Open(column, sealed)
	if err != nil {
		s.log.Error("an access key cannot be opened: signatures made with it are rejected", "topic", s.topic, "error", err)
		return nil
	}
	return SigningKey(key)
}

// SigningKey is the key of signatures: the bytes whose base64 the access key is. Nil if it is not base64, or empty.
//
// Source: Microsoft, Authenticate Azure Event Grid clients using access keys or shared access signatures, 2024-05-08.
func SigningKey(key string) []byte {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) == 0 {
		return nil
	}
	return raw
}

// SignedWith is 1 if signature is the HMAC-SHA256 of text with the key, 0 if it is not or the key is empty. Its
// duration does not depend on the signature.
func SignedWith(key []byte, text string, signature []byte) int {
	if len(key) == 0 {
		return 0
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return subtle.ConstantTimeCompare(h.Sum(nil), signature)
}

// Signed reports whether signature is the HMAC-SHA256 of text with one of the topic's keys. It always tries both.
func (t *Topic) Signed(text string, signature []byte) bool {
	s := t.signing
	s.once.Do(func() { s.first, s.other = s.open(key1Column, s.key1), s.open(key2Column, s.key2) })
	return SignedWith(s.first, text, signature)|SignedWith(s.other, text, signature) == 1
}

// NoTopic stands for a topic that does not exist. Rejecting a key takes as long as for an existing topic, so that a
// client without a valid credential cannot find out which topics exist.
var NoTopic = sync.OnceValue(func() *Topic {
	one, other := postgres.NewAccessKey(), postgres.NewAccessKey()
	known := &signing{first: SigningKey(one), other: SigningKey(other)}
	known.once.Do(func() {})
	return &Topic{Key1Hash: postgres.HashKey(one), Key2Hash: postgres.HashKey(other), signing: known}
})

// Keys returns both access keys of a topic, which the audit records first. ErrNotFound, ErrSystemTopic.
func (t *Topics) Keys(ctx context.Context, topic string) (keys *AccessKeys, err error) {
	if err := rejectOwn(topic); err != nil {
		return nil, err
	}
	err = access.Audited(ctx, t.db, access.AuditEntry{Action: access.AuditKeysShown, Topic: topic}, func(tx pgx.Tx) error {
		_, keys, err = t.topicKeys(ctx, tx, topic)
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

func (t *Topics) topicKeys(ctx context.Context, db postgres.Querier, topic string) (id int64, _ *AccessKeys, _ error) {
	const query = `SELECT id, key1_sealed, key2_sealed FROM postrider_internal.topics
		WHERE name = $1 AND deleted_at IS NULL`
	var sealed1, sealed2 []byte
	err := db.QueryRow(ctx, query, topic).Scan(&id, &sealed1, &sealed2)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil, fmt.Errorf("topic %q: %w", topic, postgres.ErrNotFound)
	}
	if err != nil {
		return 0, nil, postgres.ReadError("a topic's keys", err)
	}
	keys := &AccessKeys{}
	if keys.Key1, err = t.sealer.Open(key1Column, sealed1); err != nil {
		return 0, nil, err
	}
	keys.Key2, err = t.sealer.Open(key2Column, sealed2)
	return id, keys, err
}

// RegenerateKey replaces one of a topic's access keys and returns both. Every node rejects the old key from the
// next publish on. ErrNotFound, ErrSystemTopic.
func (t *Topics) RegenerateKey(ctx context.Context, topic string, name KeyName) (*AccessKeys, error) {
	if err := rejectOwn(topic); err != nil {
		return nil, err
	}
	var keys *AccessKeys
	err := t.cache.change(ctx, func(tx pgx.Tx) error {
		id, found, err := t.topicKeys(ctx, tx, topic)
		if err != nil {
			return err
		}
		switch keys = found; name {
		case Key1:
			keys.Key1 = postgres.NewAccessKey()
		case Key2:
			keys.Key2 = postgres.NewAccessKey()
		default:
			return fmt.Errorf("a topic has no key named %q", name)
		}
		if err := t.writeKeys(ctx, tx, id, *keys); err != nil {
			return err
		}
		return auditKeys(ctx, tx, topic, name)
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// SetKeys replaces both access keys. Every node rejects the old ones from the next publish on. ErrNotFound,
// ErrSystemTopic.
func (t *Topics) SetKeys(ctx context.Context, name string, keys AccessKeys) error {
	if err := rejectOwn(name); err != nil {
		return err
	}
	return t.cache.change(ctx, func(tx pgx.Tx) error {
		topic, err := t.topic(ctx, tx, name)
		if err != nil {
			return err
		}
		if err := t.writeKeys(ctx, tx, topic.ID, keys); err != nil {
			return err
		}
		return auditKeys(ctx, tx, name, Key1, Key2)
	})
}

func auditKeys(ctx context.Context, tx pgx.Tx, topic string, replaced ...KeyName) error {
	found := map[string]any{}
	for _, name := range replaced {
		found[string(name)] = access.Changed
	}
	return access.Audit(ctx, tx, access.AuditEntry{
		Action: access.AuditKeysReplaced, Topic: topic, Details: map[string]any{"keys": replaced}, Changes: found,
	})
}

func (t *Topics) writeKeys(ctx context.Context, tx pgx.Tx, topic int64, keys AccessKeys) error {
	const update = `UPDATE postrider_internal.topics
		SET key1_sealed = $2, key2_sealed = $3, key1_hash = $4, key2_hash = $5 WHERE id = $1`
	return postgres.Exec(ctx, tx, "replace a topic's keys", update, topic, t.sealer.Seal(key1Column, keys.Key1),
		t.sealer.Seal(key2Column, keys.Key2), postgres.HashKey(keys.Key1), postgres.HashKey(keys.Key2))
}
