package access

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// apiKeyPrefix is the beginning of every API key, by which secret scanners can recognize one.
const apiKeyPrefix = "prk_"

// hintLength is the length of the part of a key that stays readable: 8 of its 43 random characters.
const hintLength = len(apiKeyPrefix) + 8

// Scope is what an API key allows. publish only publishes, and receive only receives and settles events in pull
// delivery. read, operate and admin are the roles viewer, operator and admin; admin also publishes to every topic and
// receives from all.
type Scope string

// The scopes.
const (
	ScopePublish Scope = "publish" // only to publish
	ScopeReceive Scope = "receive" // only to receive and settle events of event subscriptions with delivery mode Queue
	ScopeRead    Scope = "read"    // what RoleViewer allows
	ScopeOperate Scope = "operate" // what RoleOperator allows
	ScopeAdmin   Scope = "admin"   // what RoleAdmin allows, and to publish and to receive, like the admin token
)

// scopes are all scopes, the least first.
var scopes = []Scope{ScopePublish, ScopeReceive, ScopeRead, ScopeOperate, ScopeAdmin}

// Role is the role that the scope stands for; "" for ScopePublish and ScopeReceive, which have none.
func (s Scope) Role() Role {
	return map[Scope]Role{ScopeRead: RoleViewer, ScopeOperate: RoleOperator, ScopeAdmin: RoleAdmin}[s]
}

// APIKey is an API key.
type APIKey struct {
	// The key itself, only in the response that creates it.
	Key string `db:"-" json:"key,omitempty"`
	// Name. The audit has key:NAME, or user:OWNER for a personal key.
	Name  string `json:"name" column:"Name" list:"/v1/apiKeys"`
	Scope Scope  `json:"scope" enum:"publish,receive,read,operate,admin" column:"Scope"`
	// Whether the key may run SQL queries. A personal key follows its owner.
	Query bool `json:"query" column:"Queries"`
	// Only topic to which it publishes, or from which it receives; null for every topic.
	Topic *string `json:"topic" column:"Topic" none:"every"`
	// Only event subscription from which it receives; null for every one.
	Subscription *string `json:"subscription" column:"Subscription" none:"every"`
	// First 12 characters of the key.
	Hint string `json:"hint" column:"Key begins"`
	// active, expired or revoked.
	State     string    `json:"state" enum:"active,expired,revoked" column:"State"`
	CreatedAt time.Time `json:"createdAt" line:"Created"`
	// When it expires; null means never.
	ExpiresAt *time.Time `json:"expiresAt" column:"Expires" none:"never"`
	// When it was last used, to the minute.
	LastUsedAt *time.Time `json:"lastUsedAt" column:"Last used" none:"never"`
	// When it was revoked; null if it was not.
	RevokedAt *time.Time `json:"revokedAt" line:"Revoked"`
	// Actor that created it.
	CreatedBy string `json:"createdBy" column:"Created by"`
	// User of a personal key, whose role limits it; null for a program's key.
	Owner *string `json:"owner" line:"User"`
	// Computer of a personal key; null for a program's key.
	Machine *string `json:"machine" line:"Computer"`
}

// Actor is the actor that sends the key from the address, for WithActor: of a personal key, its owner.
func (k *APIKey) Actor(address string) Actor {
	a := Actor{Name: keyActor + k.Name, Address: address, Role: k.Scope.Role(), Query: k.Query}
	if k.Owner != nil {
		a.Name, a.PersonalKey = userActor+*k.Owner, k.Name
	}
	return a
}

// Publishes reports whether the key opens a topic to publishers.
func (k *APIKey) Publishes(topic string) bool {
	return k.Scope == ScopeAdmin || k.Scope == ScopePublish && (k.Topic == nil || *k.Topic == topic)
}

// Receives reports whether the key opens an event subscription to consumers.
func (k *APIKey) Receives(topic, subscription string) bool {
	return k.Scope == ScopeAdmin || k.Scope == ScopeReceive && (k.Topic == nil || *k.Topic == topic) &&
		(k.Subscription == nil || *k.Subscription == subscription)
}

// APIKeySpec are the settings of a new API key.
type APIKeySpec struct {
	// 1 to 63 letters, digits, '.', '_' and '-', starting with a letter or digit. Names of revoked keys in the list stay
	// reserved.
	Name  string `json:"name"`
	Scope Scope  `json:"scope" enum:"publish,receive,read,operate,admin"`
	// Only topic of a key with scope publish or receive; by default every topic.
	Topic string `json:"topic,omitempty" nullable:"true"`
	// Only event subscription of a key with scope receive, which needs topic; by default every one.
	Subscription string `json:"subscription,omitempty" nullable:"true"`
	// Days until the key expires; by default never.
	ExpiresInDays *int `json:"expiresInDays,omitempty" nullable:"true" minimum:"1" maximum:"3650"`
	// Whether the key may run SQL queries; by default with scope operate and admin. Not with scope publish or receive.
	Query *bool `json:"query,omitempty" nullable:"true"`
}

// maxKeyDays is the longest time after which a key can expire.
const maxKeyDays = 3650

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// IsName reports whether an API key or a saved query may have this name: NameRule.
func IsName(s string) bool { return keyName.MatchString(s) }

// NameRule is IsName in words.
const NameRule = "1 to 63 letters, digits, dots, underscores and hyphens, the first a letter or digit"

func (s *APIKeySpec) validate() error {
	switch {
	case !IsName(s.Name):
		return postgres.Invalid("name", "name must be %s", NameRule)
	case !slices.Contains(scopes, s.Scope):
		return postgres.Invalid("scope", "scope must be publish, receive, read, operate or admin")
	case s.Topic != "" && s.Scope.Role() != "":
		return postgres.Invalid("topic", "topic must be absent: it is for the scopes publish and receive")
	case s.Subscription != "" && (s.Scope != ScopeReceive || s.Topic == ""):
		return postgres.Invalid("subscription", "subscription must be absent: it is for scope receive, with topic")
	case s.Query != nil && *s.Query && s.Scope.Role() == "":
		return postgres.Invalid("query", "query must be absent: a key of scope %s reads nothing else", s.Scope)
	case s.ExpiresInDays != nil && (*s.ExpiresInDays < 1 || *s.ExpiresInDays > maxKeyDays):
		return postgres.Invalid("expiresInDays", "expiresInDays must be between 1 and %d, not %d", maxKeyDays,
			*s.ExpiresInDays)
	default:
		return nil
	}
}

const keyColumns = "SELECT name, scope, topic, subscription, hint, state, created_at, created_by, expires_at, " +
	"last_used_at, revoked_at, owner, machine, query FROM postrider.api_keys "

// CreateAPIKey creates a key, which is returned here and never again. *FunctionError: ErrInvalid; ErrConflict if the
// name is taken, also by a revoked key, because the audit has its name; ErrNotFound if there is no such topic or
// event subscription. ErrUnavailable.
func (a *Access) CreateAPIKey(ctx context.Context, spec APIKeySpec) (key string, made *APIKey, err error) {
	if err := spec.validate(); err != nil {
		return "", nil, err
	}
	key = apiKeyPrefix + newSecret()
	err = a.change(ctx, "create an API key", func(tx pgx.Tx) error {
		if err := insertKey(ctx, tx, &spec, key); err != nil {
			return err
		}
		if made, err = readKey(ctx, tx, spec.Name); err != nil {
			return err
		}
		return made.auditCreation(ctx, tx)
	})
	if err != nil {
		return "", nil, err
	}
	a.keys.forgetAll() // a lookup before its creation may have found nothing
	return key, made, nil
}

// auditCreation writes the new key's settings into the audit. The row has no secret.
func (k *APIKey) auditCreation(ctx context.Context, tx pgx.Tx) error {
	e := AuditEntry{Action: auditKeyCreated, Details: map[string]any{"key": k.Name, "scope": k.Scope}}
	settings := Settings{"scope": k.Scope, "owner": k.Owner, "machine": k.Machine, "state": k.State, "query": k.Query}
	if k.Topic != nil {
		e.Topic = *k.Topic
	}
	if k.Subscription != nil {
		e.Subscription = *k.Subscription
	}
	if k.Machine != nil {
		e.Details["machine"] = *k.Machine
	}
	if k.ExpiresAt != nil {
		settings["expiresAt"] = k.ExpiresAt.UTC().Format(time.RFC3339)
		e.Details["expiresAt"] = settings["expiresAt"]
	}
	e.Changes = Changes(nil, settings)
	return Audit(ctx, tx, e)
}

func insertKey(ctx context.Context, tx pgx.Tx, spec *APIKeySpec, key string) error {
	const insert = `INSERT INTO postrider_internal.api_keys (name, key_hash, hint, scope, topic, subscription, created_by,
		    expires_at, query)
		VALUES ($1, $2, $3, $4, nullif($5::text, ''), nullif($6::text, ''), $7, now() + make_interval(days => $8), $9)
		ON CONFLICT (name) DO NOTHING`
	const like = `SELECT name FROM postrider_internal.api_keys
		WHERE lower(name COLLATE "C") = lower($1 COLLATE "C") AND name <> $1`
	if err := spec.findObjects(ctx, tx); err != nil {
		return err
	}
	if err := postgres.NameFree(ctx, tx, "API key", like, spec.Name); err != nil {
		return err
	}
	hash := hashSecret(key)
	tag, err := tx.Exec(ctx, insert, spec.Name, hash[:], key[:hintLength], string(spec.Scope), spec.Topic,
		spec.Subscription, ActorOf(ctx).Name, spec.ExpiresInDays, spec.Query)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return postgres.NewFunctionError(postgres.ErrNameTaken, "name",
			"there is an API key %q already; the name of one that was revoked stays taken", spec.Name)
	}
	return nil
}

// findObjects checks that the topic and the event subscription exist.
func (s *APIKeySpec) findObjects(ctx context.Context, tx pgx.Tx) error {
	const query = `
SELECT count(t.id) > 0, count(s.id) > 0
  FROM postrider_internal.topics t
  LEFT JOIN postrider_internal.event_subscriptions s ON s.topic_id = t.id AND s.name = $2 AND s.deleted_at IS NULL
 WHERE t.name = $1 AND t.deleted_at IS NULL`
	var topic, subscription bool
	if s.Topic == "" {
		return nil
	}
	err := tx.QueryRow(ctx, query, s.Topic, s.Subscription).Scan(&topic, &subscription)
	switch {
	case err != nil:
		return err
	case !topic:
		return postgres.NewFunctionError(postgres.ErrNotFound, "topic", "topic %q does not exist", s.Topic)
	case s.Subscription != "" && !subscription:
		return postgres.NewFunctionError(postgres.ErrNotFound, "subscription", "topic %q has no event subscription %q",
			s.Topic, s.Subscription)
	}
	return nil
}

func readKey(ctx context.Context, db postgres.Querier, name string) (*APIKey, error) {
	return one[APIKey](ctx, db, noKey(name), keyColumns+"WHERE name = $1", name)
}

// APIKeys lists keys by name, after the given name, at most limit, with those that were revoked or have expired.
// ErrUnavailable.
func (a *Access) APIKeys(ctx context.Context, after string, limit int) ([]APIKey, error) {
	return postgres.Collect[APIKey](ctx, a.db, keyColumns+"WHERE name > $1 ORDER BY name LIMIT $2", after, limit)
}

// APIKey finds a key by name; *FunctionError, which is ErrNotFound. ErrUnavailable.
func (a *Access) APIKey(ctx context.Context, name string) (*APIKey, error) {
	if !IsName(name) {
		return nil, noKey(name) // PostgreSQL may not accept it
	}
	return readKey(ctx, a.db, name)
}

func noKey(name string) error {
	return postgres.NewFunctionError(postgres.ErrNotFound, "name", "there is no API key %q", name)
}

// RevokeAPIKey ends a key: on this node immediately, on the others within a second. A key that was revoked before is
// not changed. *FunctionError, which is ErrNotFound.
func (a *Access) RevokeAPIKey(ctx context.Context, name string) (k *APIKey, err error) {
	const revoke = "UPDATE postrider_internal.api_keys SET revoked_at = now() WHERE name = $1 AND revoked_at IS NULL " +
		"RETURNING coalesce(topic, ''), coalesce(subscription, '')"
	if !IsName(name) {
		return nil, noKey(name)
	}
	err = a.change(ctx, "revoke an API key", func(tx pgx.Tx) error {
		var topic, subscription string
		err := tx.QueryRow(ctx, revoke, name).Scan(&topic, &subscription)
		if errors.Is(err, pgx.ErrNoRows) { // revoked before, or unknown
			k, err = readKey(ctx, tx, name)
			return err
		}
		if err != nil {
			return err
		}
		err = Audit(ctx, tx, AuditEntry{
			Action: auditKeyRevoked, Topic: topic, Subscription: subscription, Details: map[string]any{"key": name},
			Changes: Changes(Settings{"state": "active"}, Settings{"state": "revoked"}),
		})
		if err != nil {
			return err
		}
		k, err = readKey(ctx, tx, name)
		return err
	})
	a.keys.forgetAll()
	return k, err
}

// IsAPIKey reports whether a credential has the form of an API key. No access key has: base64 has no underscore.
func IsAPIKey(credential string) bool { return strings.HasPrefix(credential, apiKeyPrefix) }

// APIKeyOf finds the key that was sent. This node uses the result for a second, so a key that was revoked elsewhere, or
// has expired, works no longer than that. Callers share the result and must not change it. ErrWrongCredentials: there
// is no such key, or it has ended; ErrUnavailable.
func (a *Access) APIKeyOf(ctx context.Context, key string) (*APIKey, error) {
	hash := hashSecret(key)
	return a.keys.get(ctx, hash, func(ctx context.Context) (*APIKey, error) {
		const used = "UPDATE postrider_internal.api_keys SET last_used_at = now() WHERE key_hash = $1"
		k := &APIKey{State: "active"}
		var unused bool
		err := a.db.QueryRow(ctx, sql("active_key"), hash[:]).Scan(&k.Name, &k.Scope, &k.Topic, &k.Subscription, &k.Owner,
			&k.Query, &unused)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("API key: %w", ErrWrongCredentials)
		}
		if err != nil {
			return nil, postgres.ReadError("an API key", err)
		}
		if !unused {
			return k, nil
		}
		if _, err := a.db.Exec(ctx, used, hash[:]); err != nil {
			return nil, postgres.ReadError("an API key", err)
		}
		return k, nil
	})
}
