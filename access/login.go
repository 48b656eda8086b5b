package access

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

const (
	// loginLife is how long a login waits for its approval.
	loginLife = 10 * time.Minute
	// MaxPendingLogins bounds the logins that wait for their approval, for all nodes together.
	MaxPendingLogins = 1000
)

// LoginState is the state of a login.
type LoginState string

// The states. A login that has expired is not found.
const (
	LoginPending  LoginState = "pending"
	LoginApproved LoginState = "approved"
	LoginDenied   LoginState = "denied"
)

// Login is a computer's request for a personal key, which a user approves or denies.
type Login struct {
	// UserCode is the code that the user compares, such as WDJB-MJHT.
	UserCode string
	State    LoginState
	Machine  string
	// Address is the address of the request.
	Address string
	// Role bounds what the key allows; "" = the role of the user who approves it.
	Role      Role
	ExpiresAt time.Time
}

// BeginLogin begins a login (RFC 8628). The device polls with secret, which is the key once a user approves the login.
// If MaxPendingLogins are pending, the oldest of the address with the most is removed, so that no client can prevent
// logins of others. *FunctionError, which is ErrInvalid; ErrUnavailable.
func (a *Access) BeginLogin(ctx context.Context, spec PersonalKeySpec) (secret string, l *Login, err error) {
	const insert = `INSERT INTO postrider_internal.login_requests
			(key_hash, hint, user_code, machine, address, scope, expires_at)
		VALUES ($1, $2, $3, $4, nullif($5::text, ''), $6, now() + $7::interval) RETURNING expires_at`
	if err := spec.validate(); err != nil {
		return "", nil, err
	}
	if _, err := a.db.Exec(ctx, sql("login_evict"), MaxPendingLogins-1); err != nil {
		return "", nil, postgres.ReadError("a login", err)
	}
	secret, hash, hint := newKeySecret()
	code := randomLetters(8)
	l = &Login{
		UserCode: code[:4] + "-" + code[4:], State: LoginPending,
		Machine: spec.Machine, Role: spec.Role, Address: ActorOf(ctx).Address,
	}
	row := a.db.QueryRow(ctx, insert, hash, hint, l.UserCode, l.Machine, l.Address, spec.Role.scope(), loginLife)
	if err = row.Scan(&l.ExpiresAt); err != nil {
		return "", nil, postgres.ReadError("a login", err)
	}
	return secret, l, nil
}

const loginColumns = `SELECT user_code, state, machine, coalesce(address, ''), coalesce(scope, ''), expires_at
	FROM postrider_internal.login_requests WHERE expires_at > now() AND `

func scanLogin(row pgx.Row) (*Login, error) {
	l := &Login{}
	var scope Scope
	err := row.Scan(&l.UserCode, &l.State, &l.Machine, &l.Address, &scope, &l.ExpiresAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noLogin()
	}
	if err != nil {
		return nil, postgres.ReadError("a login", err)
	}
	l.Role = scope.Role()
	return l, nil
}

func noLogin() error {
	return postgres.NewFunctionError(postgres.ErrNotFound, "",
		"there is no such login, or it has expired: one waits for 10 minutes")
}

// Login finds the pending login with a code. Case, spaces and hyphens do not matter.
// *FunctionError, which is ErrNotFound; ErrUnavailable.
func (a *Access) Login(ctx context.Context, userCode string) (*Login, error) {
	return scanLogin(a.db.QueryRow(ctx, loginColumns+"state = 'pending' AND user_code = $1", plainCode(userCode)))
}

// LoginOf finds the login with a secret, and its key after its approval. The errors are those of Login.
func (a *Access) LoginOf(ctx context.Context, secret string) (*Login, *APIKey, error) {
	hash := hashSecret(secret)
	l, err := scanLogin(a.db.QueryRow(ctx, loginColumns+"key_hash = $1", hash[:]))
	if err != nil || l.State != LoginApproved {
		return l, nil, err
	}
	const key = keyColumns + `WHERE state = 'active'
		AND name = (SELECT name FROM postrider_internal.api_keys WHERE key_hash = $1)`
	made, err := one[APIKey](ctx, a.db, noLogin(), key, hash[:]) // it may have been revoked since
	if err != nil {
		return nil, nil, err
	}
	return l, made, nil
}

// ApproveLogin creates the personal key that a login requests. The errors are those of Login; the user is not found if
// they were disabled or removed in the meantime.
func (a *Access) ApproveLogin(ctx context.Context, userCode, user string) (created *APIKey, err error) {
	err = a.change(ctx, "approve a login", func(tx pgx.Tx) error {
		p, from, err := decideLogin(ctx, tx, userCode, LoginApproved)
		if err != nil {
			return err
		}
		p.owner = user
		if created, err = p.insert(ctx, tx); err != nil {
			return err
		}
		return created.auditCreation(ctx, tx, auditLoginApproved, map[string]any{"requestedFrom": from})
	})
	a.keys.forgetAll()
	return created, err
}

// DenyLogin ends a login without a key. The errors are those of Login.
func (a *Access) DenyLogin(ctx context.Context, userCode string) error {
	return a.change(ctx, "deny a login", func(tx pgx.Tx) error {
		p, from, err := decideLogin(ctx, tx, userCode, LoginDenied)
		if err != nil {
			return err
		}
		details := map[string]any{"machine": p.machine, "requestedFrom": from}
		return Audit(ctx, tx, AuditEntry{Action: auditLoginDenied, Details: details})
	})
}

// decideLogin ends a pending login, and returns the key that it requests and the address of the request.
func decideLogin(
	ctx context.Context, tx pgx.Tx, userCode string, state LoginState,
) (p personalKey, from string, err error) {
	const update = `UPDATE postrider_internal.login_requests SET state = $2
		WHERE user_code = $1 AND state = 'pending' AND expires_at > now()
		RETURNING key_hash, hint, machine, scope, coalesce(address, '')`
	err = tx.QueryRow(ctx, update, plainCode(userCode), string(state)).Scan(&p.hash, &p.hint, &p.machine, &p.scope, &from)
	if errors.Is(err, pgx.ErrNoRows) {
		err = noLogin()
	}
	return p, from, err
}

// codeLetters look different in all fonts and spell no word (RFC 8628, section 6.1).
const codeLetters = "BCDFGHJKLMNPQRSTVWXZ"

func randomLetters(n int) string {
	var code strings.Builder
	for code.Len() < n {
		for _, letter := range rand.Text() {
			if strings.ContainsRune(codeLetters, letter) && code.Len() < n {
				code.WriteRune(letter)
			}
		}
	}
	return code.String()
}

// plainCode is a typed code as it is stored; "" for an invalid one.
func plainCode(typed string) string {
	code := strings.NewReplacer("-", "", " ", "").Replace(strings.ToUpper(typed))
	if len(code) != 8 || strings.Trim(code, codeLetters) != "" {
		return ""
	}
	return code[:4] + "-" + code[4:]
}
