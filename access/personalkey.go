package access

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// A personal key is an API key that has an owner: it acts in the name of a user, may never do more than that user, and
// ends with them.

const (
	// personalKeyLife is how long a personal key lasts: a shift.
	personalKeyLife = 12 * time.Hour
	// personalKeyKept is how long one that has ended stays listed. What was done with it is in the audit.
	personalKeyKept = 7 * 24 * time.Hour
	// maxMachine bounds the name of a computer.
	maxMachine = 100
)

// PersonalKeySpec is what is set of a new personal key.
type PersonalKeySpec struct {
	// Machine is the computer that the key is for, as its user calls it: 1 to 100 printable characters.
	Machine string `json:"machine"`
	// Role is the most that the key may do; "" for as much as its owner.
	Role Role `json:"role,omitempty" enum:"viewer,operator,admin"`
}

func (s *PersonalKeySpec) validate() error {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	switch {
	case strings.TrimSpace(s.Machine) == "" || len([]rune(s.Machine)) > maxMachine ||
		strings.ContainsFunc(s.Machine, unprintable):
		return postgres.NewFunctionError(postgres.ErrInvalid, "machine", "machine must be 1 to %d printable characters",
			maxMachine)
	case s.Role != "" && !s.Role.Allows(RoleViewer):
		return postgres.NewFunctionError(postgres.ErrInvalid, "role", "role must be viewer, operator or admin, not %q",
			string(s.Role))
	default:
		return nil
	}
}

// scope is that of an API key with the role; nil for "".
func (r Role) scope() *Scope {
	for _, scope := range Scopes {
		if r != "" && scope.Role() == r {
			return &scope
		}
	}
	return nil
}

// newKeySecret is an API key with what is kept of it.
func newKeySecret() (key string, hash []byte, hint string) {
	key = APIKeyPrefix + newSecret()
	sum := hashSecret(key)
	return key, sum[:], key[:hintLength]
}

// personalKey is a row of api_keys to be.
type personalKey struct {
	owner, machine string
	scope          *Scope // nil for as much as the owner may
	hash           []byte
	hint           string
}

var insertPersonalKey = sqlFile("personal_key_insert.sql")

// insert makes the key, unless its owner was disabled or removed meanwhile.
func (p *personalKey) insert(ctx context.Context, tx pgx.Tx) (*APIKey, error) {
	name := "personal-" + strings.ToLower(randomLetters(10))
	tag, err := tx.Exec(ctx, insertPersonalKey, name, p.hash, p.hint, p.scope, p.machine, ActorOf(ctx).Name, p.owner,
		personalKeyLife)
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() == 0 {
		return nil, noUser(p.owner)
	}
	return readKey(ctx, tx, name)
}

// CreatePersonalKey makes a personal key of a user, which is returned here and never again. *FunctionError: ErrInvalid,
// or ErrNotFound if the user was disabled or removed. ErrUnavailable.
func (a *Access) CreatePersonalKey(
	ctx context.Context, owner string, spec PersonalKeySpec,
) (key string, made *APIKey, err error) {
	if err := spec.validate(); err != nil {
		return "", nil, err
	}
	p := personalKey{owner: owner, machine: spec.Machine, scope: spec.Role.scope()}
	key, p.hash, p.hint = newKeySecret()
	err = a.change(ctx, "make a personal key", func(tx pgx.Tx) error {
		if made, err = p.insert(ctx, tx); err != nil {
			return err
		}
		return made.auditCreation(ctx, tx, auditKeyMade, nil)
	})
	if err != nil {
		return "", nil, err
	}
	return key, made, nil
}

// PersonalKeys lists the personal keys of a user that work, the newest first.
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
