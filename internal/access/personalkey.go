package access

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// A personal key is an API key with an owner. Its actor is this user, whose role bounds its own. It ends with the user.

const (
	// maxPersonalKeyDays is the longest life of a personal key.
	maxPersonalKeyDays = 90
	// personalKeyKept is how long a key that has ended stays listed. The audit keeps its actions.
	personalKeyKept = 7 * 24 * time.Hour
	// maxMachine bounds the name of a computer.
	maxMachine = 100
)

// PersonalKeySpec has the settings of a new personal key.
type PersonalKeySpec struct {
	// Machine is the computer that the key is for, as its user calls it: 1 to 100 printable characters.
	Machine string
	// Role bounds what the key allows; "" = the role of its owner.
	Role Role
	// Days is after how many days the key expires: 1 to 90.
	Days int
}

func (s *PersonalKeySpec) validate() error {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	switch {
	case strings.TrimSpace(s.Machine) == "" || len([]rune(s.Machine)) > maxMachine ||
		strings.ContainsFunc(s.Machine, unprintable):
		return postgres.Invalid("machine", "machine must be 1 to %d printable characters", maxMachine)
	case s.Role != "" && !s.Role.Allows(RoleViewer):
		return postgres.Invalid("role", "role must be viewer, operator or admin, not %q", string(s.Role))
	case s.Days < 1 || s.Days > maxPersonalKeyDays:
		return postgres.Invalid("days", "days must be a whole number from 1 to %d", maxPersonalKeyDays)
	default:
		return nil
	}
}

// scope is the scope of an API key with the role; nil for "".
func (r Role) scope() *Scope {
	for _, scope := range scopes {
		if r != "" && scope.Role() == r {
			return &scope
		}
	}
	return nil
}

// CreatePersonalKey creates a personal key of a user, which is returned here and never again. *FunctionError:
// ErrInvalid, or ErrNotFound if the user was disabled or removed. ErrUnavailable.
func (a *Access) CreatePersonalKey(
	ctx context.Context, owner string, spec PersonalKeySpec,
) (key string, made *APIKey, err error) {
	if err := spec.validate(); err != nil {
		return "", nil, err
	}
	name := "personal-" + strings.ToLower(rand.Text()[:10])
	key = apiKeyPrefix + newSecret()
	hash := hashSecret(key)
	err = a.change(ctx, "create a personal key", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sql("personal_key_insert"), name, hash[:], key[:hintLength], spec.Role.scope(),
			spec.Machine, ActorOf(ctx).Name, owner, spec.Days)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return noUser(owner)
		}
		if made, err = readKey(ctx, tx, name); err != nil {
			return err
		}
		return made.auditCreation(ctx, tx)
	})
	if err != nil {
		return "", nil, err
	}
	return key, made, nil
}

// PersonalKeys lists the active personal keys of a user, the newest first.
func (a *Access) PersonalKeys(ctx context.Context, owner string) ([]APIKey, error) {
	const ofOwner = keyColumns + "WHERE owner = $1 AND state = 'active' ORDER BY created_at DESC, name"
	return postgres.Collect[APIKey](ctx, a.db, ofOwner, owner)
}

// RevokePersonalKey is RevokeAPIKey for the owner of the key. Another user's key is not found.
func (a *Access) RevokePersonalKey(ctx context.Context, owner, name string) (*APIKey, error) {
	k, err := a.APIKey(ctx, name)
	if err != nil {
		return nil, err
	}
	if k.Owner == nil || *k.Owner != owner {
		return nil, noKey(name)
	}
	return a.RevokeAPIKey(ctx, name)
}

// endPersonalKeys revokes all personal keys of a user, and returns how many.
func endPersonalKeys(ctx context.Context, tx pgx.Tx, user int64) (ended int, err error) {
	const revoke = `UPDATE postrider_internal.api_keys SET revoked_at = now()
		WHERE user_id = $1 AND revoked_at IS NULL AND expires_at > now()`
	tag, err := tx.Exec(ctx, revoke, user)
	if err != nil {
		return 0, fmt.Errorf("end the personal keys: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
