package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// SignInFrom is where somebody signs in from; it is kept with the session.
type SignInFrom struct {
	// Address of the connection, without its port.
	Address string
	// UserAgent is what the browser says of itself; its first 300 characters are kept.
	UserAgent string
}

// sessionLife is how long a session lasts at most. It ends earlier when it was not seen for 12 h, see session_ends() in the migrations.
const sessionLife = "7 days"

// recordTime bounds what is written after a password was looked at. Whoever hangs up meanwhile has guessed all the same.
const recordTime = 5 * time.Second

// SignIn begins a session. The token is what its owner shows from then on, 43 characters of base64url; the database has no more than its SHA-256. ErrWrongCredentials: there is
// no such user, the password is another, or the user is disabled; *LockedError; ErrUnavailable.
func (a *Access) SignIn(ctx context.Context, name, password string, from SignInFrom) (token string, s *Session, err error) {
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
		return auditUser(ctx, tx, auditSignedIn, name, nil)
	})
	if err != nil {
		return "", nil, err
	}
	a.addresses.signedIn(from.Address, name)
	return token, s, nil
}

// signingIn is what the audit calls whoever shows a wrong password: nobody knows who it was.
const signingIn = "signIn"

// account is what is needed to look at a password for a name.
type account struct {
	id       int64
	name     string
	hash     string
	role     Role
	disabled bool
	failures failures
	now      time.Time
}

// verify looks at a password. Everything about a name happens within a turn, so that a thousand guesses at once meet the lock-out too: two of them at most are ahead of it.
// ErrWrongCredentials, *LockedError, ErrUnavailable.
func (a *Access) verify(ctx context.Context, name, password string) (*account, error) {
	if len(password) > MaxPassword {
		return nil, ErrWrongCredentials // before it is hashed, whoever's it is
	}
	done, err := takeTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	user, err := a.account(ctx, name)
	if err != nil {
		return nil, err
	}
	from := ActorOf(ctx).Address
	if until := a.addresses.lockedUntil(from, user.name, user.now); until.After(user.now) {
		return nil, &LockedError{until}
	}
	if until := user.failures.until; until.After(user.now) {
		return nil, &LockedError{until}
	}
	right, err := user.has(password)
	if err != nil || right {
		return user, err
	}
	a.addresses.failed(from, user.now)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	if err := a.noteFailure(ctx, user, name); err != nil {
		return nil, err
	}
	return nil, ErrWrongCredentials
}

// account finds a user, or a stranger, whose id is 0.
func (a *Access) account(ctx context.Context, name string) (*account, error) {
	const query = `SELECT coalesce(u.id, 0), coalesce(u.name, ''), coalesce(u.password_hash, ''), coalesce(u.role, ''), u.disabled_at IS NOT NULL, coalesce(u.failed_sign_ins, 0), u.locked_until, now()
		FROM (SELECT) AS one LEFT JOIN postrider_internal.users u ON u.name = $1`
	asked := name
	if !userName.MatchString(name) {
		asked = "" // nobody's, and perhaps nothing that PostgreSQL takes
	}
	u := &account{}
	var until *time.Time
	if err := a.pool.QueryRow(ctx, query, asked).Scan(&u.id, &u.name, &u.hash, &u.role, &u.disabled, &u.failures.count, &until, &u.now); err != nil {
		return nil, readError("a user", err)
	}
	switch {
	case u.id == 0:
		u.failures.until = a.strangers.lockedUntil(strangerName(name))
	case until != nil:
		u.failures.until = *until
	}
	return u, nil
}

// strangerName keeps a long name from being remembered.
func strangerName(name string) string {
	sum := hashSecret(name)
	return string(sum[:])
}

// has reports whether the password is right, which takes as long for a stranger.
func (u *account) has(password string) (bool, error) {
	if u.id == 0 {
		nobodysPassword(password)
		return false, nil
	}
	right, err := isPassword(u.hash, password)
	return right && !u.disabled, err
}

// noteFailure counts a wrong password.
func (a *Access) noteFailure(ctx context.Context, u *account, name string) error {
	return a.change(ctx, "note a wrong password", func(tx pgx.Tx) error {
		if u.id != 0 {
			return u.noteFailure(ctx, tx)
		}
		if n := a.strangers.failed(strangerName(name), u.now); n > 0 {
			return audit(ctx, tx, auditEntry{action: auditSignInFailed, details: map[string]any{"times": n}})
		}
		return nil
	})
}

// noteFailure reads the numbers again, under a lock: other nodes count too.
func (u *account) noteFailure(ctx context.Context, tx pgx.Tx) error {
	const (
		query = `SELECT failed_sign_ins, coalesce(failed_at, 'epoch'), failed_untold, coalesce(failed_told_at, 'epoch'), now()
			FROM postrider_internal.users WHERE id = $1 FOR UPDATE`
		update = `UPDATE postrider_internal.users SET failed_sign_ins = $2, failed_at = $3, locked_until = $4, failed_untold = $5, failed_told_at = $6 WHERE id = $1`
	)
	var f failures
	var n untold
	var now time.Time
	err := tx.QueryRow(ctx, query, u.id).Scan(&f.count, &f.at, &n.count, &n.since, &now)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // deleted a moment ago
	}
	if err != nil {
		return err
	}
	f = f.another(now)
	n, tell := n.another(now)
	var until *time.Time
	if !f.until.IsZero() {
		until = &f.until
	}
	if _, err := tx.Exec(ctx, update, u.id, f.count, f.at, until, n.count, n.since); err != nil {
		return err
	}
	if tell > 0 {
		if err := auditUser(ctx, tx, auditSignInFailed, u.name, map[string]any{"times": tell}); err != nil {
			return err
		}
	}
	if f.begins() {
		return auditUser(ctx, tx, auditUserLockedOut, u.name, nil)
	}
	return nil
}

// admit writes down that the user has signed in. ErrWrongCredentials: the password was changed, or the user disabled or removed, while it was being looked at.
func (u *account) admit(ctx context.Context, tx pgx.Tx) error {
	const update = `UPDATE postrider_internal.users SET failed_sign_ins = 0, locked_until = NULL, last_sign_in_at = now()
		WHERE id = $1 AND password_hash = $2 AND role = $3 AND disabled_at IS NULL`
	tag, err := tx.Exec(ctx, update, u.id, u.hash, u.role)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrWrongCredentials
	}
	return err
}

func insertSession(ctx context.Context, tx pgx.Tx, u *account, token string, from SignInFrom) (*Session, error) {
	const insert = `INSERT INTO postrider_internal.sessions AS s (token_hash, user_id, expires_at, address, user_agent)
		VALUES ($1, $2, now() + interval '` + sessionLife + `', nullif($3::text, ''), nullif(left($4::text, 300), ''))
		RETURNING s.created_at, s.last_seen_at, postrider_internal.session_ends(s), coalesce(s.address, ''), coalesce(s.user_agent, '')`
	hash := hashSecret(token)
	s := &Session{User: u.name, Role: u.role}
	agent := strings.ToValidUTF8(strings.ReplaceAll(from.UserAgent, "\x00", ""), "�")
	err := tx.QueryRow(ctx, insert, hash[:], u.id, from.Address, agent).Scan(&s.CreatedAt, &s.LastSeenAt, &s.ExpiresAt, &s.Address, &s.UserAgent)
	if err != nil {
		return nil, fmt.Errorf("insert the session: %w", err)
	}
	return s, nil
}

// ChangePassword replaces a user's password by another, and ends all their sessions. The errors are those of SignIn, for the old one, and ErrInvalid.
func (a *Access) ChangePassword(ctx context.Context, name, old, fresh string) error {
	if err := judgePassword(fresh); err != nil {
		return err
	}
	user, err := a.verify(ctx, name, old)
	if err != nil {
		return err
	}
	hash, err := hashPassword(ctx, fresh)
	if err != nil {
		return err
	}
	return a.amongUsers(ctx, "change a password", func(tx pgx.Tx) error {
		const update = "UPDATE postrider_internal.users SET password_hash = $2, changed_at = now(), failed_sign_ins = 0, locked_until = NULL WHERE id = $1 AND password_hash = $3 AND disabled_at IS NULL"
		tag, err := tx.Exec(ctx, update, user.id, hash, user.hash)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrWrongCredentials
		}
		if err != nil {
			return err
		}
		if _, err := endSessions(ctx, tx, user.id); err != nil {
			return err
		}
		return auditUser(ctx, tx, auditPasswordChanged, name, nil)
	})
}

// auditUser writes that something was done to a user.
func auditUser(ctx context.Context, tx pgx.Tx, action auditAction, name string, details map[string]any) error {
	all := map[string]any{"user": name}
	for key, value := range details {
		all[key] = value
	}
	return audit(ctx, tx, auditEntry{action: action, details: all})
}
