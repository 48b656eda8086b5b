package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/alexedwards/argon2id"
	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// SignInFrom is the client that a user signs in with; it is stored with the session.
type SignInFrom struct {
	// Address of the connection, without its port.
	Address string
	// UserAgent is that of the browser; its first 300 characters are stored.
	UserAgent string
}

// sessionLife is the longest life of a session. It ends after 12 h without a request, see session_ends() in the
// migrations.
const sessionLife = 7 * 24 * time.Hour

// recordTime bounds the transaction after a password was checked, which does not end with the client's connection.
const recordTime = 5 * time.Second

// SignIn begins a session. The browser sends the token from then on, 43 characters of base64url; the database has only
// its SHA-256. ErrWrongCredentials: there is no such user, the password is wrong, or the user is disabled;
// *LockedError; ErrUnavailable.
func (a *Access) SignIn(
	ctx context.Context, name, password string, from SignInFrom,
) (token string, s *Session, err error) {
	ctx = WithActor(ctx, Actor{Name: signingIn, Address: from.Address})
	user, err := a.verify(ctx, name, password)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	ctx = WithActor(ctx, Actor{Name: userActor + name, Address: from.Address})
	token = newSecret()
	err = a.change(ctx, "begin a session", func(tx pgx.Tx) error {
		if err := user.admit(ctx, tx); err != nil {
			return err
		}
		if s, err = insertSession(ctx, tx, user, token, from); err != nil {
			return err
		}
		return auditUser(ctx, tx, auditSignedIn, name, nil, nil)
	})
	if err != nil {
		return "", nil, err
	}
	return token, s, nil
}

// signingIn is the actor of a wrong password in the audit.
const signingIn = "signIn"

// account is the user with a name; its id is 0 if no user has the name.
type account struct {
	id       int64
	name     string
	hash     string
	role     Role
	disabled bool
	query    bool
}

// verify checks a password within a hashing slot, so that a thousand concurrent guesses are throttled too. For an
// unknown name the steps are the same: neither the response nor its time shows which users exist. ErrWrongCredentials;
// *LockedError; ErrUnavailable.
func (a *Access) verify(ctx context.Context, name, password string) (*account, error) {
	if len(password) > MaxPassword {
		return nil, ErrWrongCredentials
	}
	done, err := takeSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	from := sourceOf(name, ActorOf(ctx).Address)
	if err := a.throttle.check(from, time.Now()); err != nil {
		return nil, err
	}
	user, err := a.account(ctx, name)
	if err != nil {
		return nil, err
	}
	if right, err := user.has(password); err != nil || right {
		return user, err
	}
	if a.throttle.wrong(from, time.Now()) {
		if err := a.auditFailure(ctx, user); err != nil {
			return nil, err
		}
	}
	return nil, ErrWrongCredentials
}

func (a *Access) account(ctx context.Context, name string) (*account, error) {
	const query = `SELECT id, name, password_hash, role, disabled_at IS NOT NULL,
		    postrider_internal.may_query(query, role)
		FROM postrider_internal.users WHERE name = $1`
	if !userName.MatchString(name) {
		name = "" // PostgreSQL may not accept it
	}
	u := &account{}
	err := a.db.QueryRow(ctx, query, name).Scan(&u.id, &u.name, &u.hash, &u.role, &u.disabled, &u.query)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, postgres.ReadError("a user", err)
	}
	return u, nil
}

// has reports whether the password is right. Without a user it takes the same time.
func (u *account) has(password string) (bool, error) {
	if u.id == 0 {
		_, err := argon2id.CreateHash(password, &hashParams)
		return false, err
	}
	right, err := isPassword(u.hash, password)
	return right && !u.disabled, err
}

// auditFailure writes a wrong password into the audit. The row has no unknown name, which may be a password in the
// wrong field.
func (a *Access) auditFailure(ctx context.Context, u *account) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	return a.change(ctx, "audit a wrong password", func(tx pgx.Tx) error {
		e := AuditEntry{Action: auditSignInFailed}
		if u.id != 0 {
			e.Details = map[string]any{"user": u.name}
		}
		return Audit(ctx, tx, e)
	})
}

// admit records the sign-in. ErrWrongCredentials: the password was changed, or the user disabled or removed, during the
// check.
func (u *account) admit(ctx context.Context, tx pgx.Tx) error {
	const update = `UPDATE postrider_internal.users SET last_sign_in_at = now()
		WHERE id = $1 AND password_hash = $2 AND role = $3 AND disabled_at IS NULL`
	tag, err := tx.Exec(ctx, update, u.id, u.hash, u.role)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrWrongCredentials
	}
	return err
}

func insertSession(ctx context.Context, tx pgx.Tx, u *account, token string, from SignInFrom) (*Session, error) {
	hash := hashSecret(token)
	s := &Session{User: u.name, Role: u.role, Query: u.query}
	agent := strings.ToValidUTF8(strings.ReplaceAll(from.UserAgent, "\x00", ""), "�")
	err := tx.QueryRow(ctx, sql("session_insert"), hash[:], u.id, from.Address, agent, sessionLife).
		Scan(&s.CreatedAt, &s.LastSeenAt, &s.ExpiresAt, &s.Address, &s.UserAgent)
	if err != nil {
		return nil, fmt.Errorf("insert the session: %w", err)
	}
	return s, nil
}

// ChangePassword replaces a user's password, and ends all their sessions and personal keys. The errors are those of
// SignIn, for the old password, and ErrInvalid.
func (a *Access) ChangePassword(ctx context.Context, name, old, fresh string) error {
	if err := validatePassword(name, fresh); err != nil {
		return err
	}
	user, err := a.verify(ctx, name, old)
	if err != nil {
		return err
	}
	hash, err := hashPassword(ctx, name, fresh)
	if err != nil {
		return err
	}
	return a.amongUsers(ctx, "change a password", func(tx pgx.Tx) error {
		const update = "UPDATE postrider_internal.users SET password_hash = $2, changed_at = now() " +
			"WHERE id = $1 AND password_hash = $3 AND disabled_at IS NULL"
		tag, err := tx.Exec(ctx, update, user.id, hash, user.hash)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrWrongCredentials
		}
		if err != nil {
			return err
		}
		if _, _, err := endAccess(ctx, tx, user.id); err != nil {
			return err
		}
		return auditUser(ctx, tx, auditPasswordChanged, name, nil, map[string]any{"password": Changed})
	})
}

// auditUser writes an action on a user into the audit.
func auditUser(
	ctx context.Context, tx pgx.Tx, action AuditAction, name string, details, changes map[string]any,
) error {
	all := map[string]any{"user": name}
	maps.Copy(all, details)
	return Audit(ctx, tx, AuditEntry{Action: action, Details: all, Changes: changes})
}
