package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// SignInFrom is where somebody signs in from; it is kept with the session.
type SignInFrom struct {
	// Address of the connection, without its port.
	Address string
	// UserAgent is what the browser says of itself; its first 300 characters are kept.
	UserAgent string
}

// sessionLife is how long a session lasts at most. It ends earlier when it was not seen for 12 h, see session_ends() in
// the migrations.
const sessionLife = 7 * 24 * time.Hour

// recordTime bounds what is written after a password was looked at. Whoever hangs up meanwhile has guessed all the
// same.
const recordTime = 5 * time.Second

// SignIn begins a session. The token is what its owner shows from then on, 43 characters of base64url; the database has
// no more than its SHA-256. ErrWrongCredentials: there is no such user, the password is another, or the user is
// disabled; *LockedError; ErrUnavailable.
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
		return auditUser(ctx, tx, auditSignedIn, name, nil)
	})
	if err != nil {
		return "", nil, err
	}
	return token, s, nil
}

// signingIn is what the audit calls a client that sent a wrong password.
const signingIn = "signIn"

// account is what is needed to look at a password for a name.
type account struct {
	id       int64
	name     string
	hash     string
	role     Role
	disabled bool
	until    time.Time // when a password for the name is looked at again
	now      time.Time
	// place is where the password comes from, and familiar whether the user has signed in from there before, with the
	// password of today.
	place    string
	familiar bool
}

// familiarFor is how long a place is remembered after its last sign-in: longer than somebody's holidays.
const familiarFor = 30 * 24 * time.Hour

var accountStatement = sqlFile("account.sql")

// failureTime is how long the answer to a wrong password takes at least beyond the hashing. For a name that somebody
// has more is written than for one that nobody has, by the few milliseconds of a commit: they would tell who exists.
const failureTime = 100 * time.Millisecond

// verify looks at a password; how long that takes says nothing about the name. ErrWrongCredentials, *LockedError,
// ErrUnavailable.
func (a *Access) verify(ctx context.Context, name, password string) (*account, error) {
	if len(password) > MaxPassword {
		return nil, ErrWrongCredentials // before it is hashed, whoever's it is
	}
	user, told, err := a.look(ctx, name, password)
	if told != nil {
		select {
		case <-told:
		case <-ctx.Done(): // nobody waits for the answer
		}
	}
	return user, err
}

// look does so within a turn, with everything about a name, so that a thousand guesses at once meet the lock-out too:
// two of them at most are ahead of it. told is when a wrong password may be answered; nil for now.
func (a *Access) look(ctx context.Context, name, password string) (user *account, told <-chan time.Time, err error) {
	done, err := takeTurn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	from := ActorOf(ctx).Address
	if user, err = a.account(ctx, name, placeOf(from)); err != nil {
		return nil, nil, err
	}
	if until := a.lockedUntil(user, from); until.After(user.now) {
		return nil, nil, &LockedError{until}
	}
	right, err := user.has(password)
	if err != nil || right {
		return user, nil, err
	}
	told = time.After(failureTime)
	a.addresses.failed(from, user.now)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	if err := a.noteFailure(ctx, user, name); err != nil {
		return nil, told, err
	}
	return nil, told, ErrWrongCredentials
}

// lockedUntil is when a password is looked at again. What others guess from the same address keeps nobody waiting who
// signs in from there.
func (a *Access) lockedUntil(u *account, address string) time.Time {
	if byAddress := a.addresses.lockedUntil(address, u.now); !u.familiar && byAddress.After(u.now) {
		return byAddress
	}
	return u.until
}

// account finds a user, or a stranger, whose id is 0.
func (a *Access) account(ctx context.Context, name, place string) (*account, error) {
	asked := name
	if !userName.MatchString(name) {
		asked = "" // nobody's, and perhaps nothing that PostgreSQL takes
	}
	u := &account{place: place}
	var until *time.Time
	if err := a.db.QueryRow(ctx, accountStatement, asked, place, familiarFor).
		Scan(&u.id, &u.name, &u.hash, &u.role, &u.disabled, &u.familiar, &until, &u.now); err != nil {
		return nil, postgres.ReadFailed("a user", err)
	}
	switch {
	case u.id == 0:
		u.until = a.strangers.lockedUntil(strangerName(name))
	case until != nil:
		u.until = *until
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
			return Audit(ctx, tx, AuditEntry{Action: auditSignInFailed, Details: map[string]any{"times": n}})
		}
		return nil
	})
}

// noteFailure reads the numbers again, under a lock: other nodes count too.
func (u *account) noteFailure(ctx context.Context, tx pgx.Tx) error {
	f, n, now, err := u.lockFailures(ctx, tx)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // deleted, or its password changed, a moment ago
	}
	if err != nil {
		return err
	}
	f = f.another(now)
	n, tell := n.another(now)
	if err := u.writeFailures(ctx, tx, f, n); err != nil {
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

// lockFailures locks the user, and so their places: whoever writes one has the user first.
func (u *account) lockFailures(ctx context.Context, tx pgx.Tx) (f failures, n untold, now time.Time, err error) {
	const (
		query = `SELECT failed_sign_ins, coalesce(failed_at, 'epoch'), failed_untold, coalesce(failed_told_at, 'epoch'), now()
			FROM postrider_internal.users WHERE id = $1 FOR UPDATE`
		there = "SELECT failed_sign_ins, coalesce(failed_at, 'epoch') FROM postrider_internal.sign_in_places " +
			"WHERE user_id = $1 AND place = $2"
	)
	err = tx.QueryRow(ctx, query, u.id).Scan(&f.count, &f.at, &n.count, &n.since, &now)
	if err == nil && u.familiar {
		err = tx.QueryRow(ctx, there, u.id, u.place).Scan(&f.count, &f.at)
	}
	return f, n, now, err
}

func (u *account) writeFailures(ctx context.Context, tx pgx.Tx, f failures, n untold) error {
	const (
		told       = "UPDATE postrider_internal.users SET failed_untold = $2, failed_told_at = $3 WHERE id = $1"
		everywhere = "UPDATE postrider_internal.users SET failed_sign_ins = $2, failed_at = $3, locked_until = $4 " +
			"WHERE id = $1"
		there = "UPDATE postrider_internal.sign_in_places SET failed_sign_ins = $2, failed_at = $3, locked_until = $4 " +
			"WHERE user_id = $1 AND place = $5"
	)
	var until *time.Time
	if !f.until.IsZero() {
		until = &f.until
	}
	if _, err := tx.Exec(ctx, told, u.id, n.count, n.since); err != nil {
		return err
	}
	if u.familiar {
		_, err := tx.Exec(ctx, there, u.id, f.count, f.at, until, u.place)
		return err
	}
	_, err := tx.Exec(ctx, everywhere, u.id, f.count, f.at, until)
	return err
}

// admit writes down that the user has signed in. ErrWrongCredentials: the password was changed, or the user disabled or
// removed, while it was being looked at.
func (u *account) admit(ctx context.Context, tx pgx.Tx) error {
	const update = `UPDATE postrider_internal.users SET failed_sign_ins = 0, locked_until = NULL, last_sign_in_at = now()
		WHERE id = $1 AND password_hash = $2 AND role = $3 AND disabled_at IS NULL`
	const place = `INSERT INTO postrider_internal.sign_in_places (user_id, place) VALUES ($1, $2)
		ON CONFLICT (user_id, place) DO UPDATE SET last_sign_in_at = now(), failed_sign_ins = 0, failed_at = NULL,
		    locked_until = NULL`
	tag, err := tx.Exec(ctx, update, u.id, u.hash, u.role)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrWrongCredentials
	}
	if err == nil {
		_, err = tx.Exec(ctx, place, u.id, u.place)
	}
	return err
}

// forgetPlaces is part of every change of a password: whoever had the old one may have signed in from anywhere.
func forgetPlaces(ctx context.Context, tx pgx.Tx, user int64) error {
	if _, err := tx.Exec(ctx, "DELETE FROM postrider_internal.sign_in_places WHERE user_id = $1", user); err != nil {
		return fmt.Errorf("forget where somebody signed in from: %w", err)
	}
	return nil
}

func insertSession(ctx context.Context, tx pgx.Tx, u *account, token string, from SignInFrom) (*Session, error) {
	hash := hashSecret(token)
	s := &Session{User: u.name, Role: u.role}
	agent := strings.ToValidUTF8(strings.ReplaceAll(from.UserAgent, "\x00", ""), "�")
	err := tx.QueryRow(ctx, insertSessionRow, hash[:], u.id, from.Address, agent, sessionLife).
		Scan(&s.CreatedAt, &s.LastSeenAt, &s.ExpiresAt, &s.Address, &s.UserAgent)
	if err != nil {
		return nil, fmt.Errorf("insert the session: %w", err)
	}
	return s, nil
}

// ChangePassword replaces a user's password by another, and ends all their sessions and personal keys. The errors are
// those of SignIn, for the old one, and ErrInvalid.
func (a *Access) ChangePassword(ctx context.Context, name, old, fresh string) error {
	if err := judgePassword(name, fresh); err != nil {
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
		const update = "UPDATE postrider_internal.users SET password_hash = $2, changed_at = now(), failed_sign_ins = 0, " +
			"locked_until = NULL WHERE id = $1 AND password_hash = $3 AND disabled_at IS NULL"
		tag, err := tx.Exec(ctx, update, user.id, hash, user.hash)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrWrongCredentials
		}
		if err != nil {
			return err
		}
		if err := forgetPlaces(ctx, tx, user.id); err != nil {
			return err
		}
		if _, err := endSessions(ctx, tx, user.id); err != nil {
			return err
		}
		if _, err := endPersonalKeys(ctx, tx, user.id); err != nil {
			return err
		}
		return auditUserChange(ctx, tx, auditPasswordChanged, name, nil, map[string]any{"password": Changed})
	})
}

// auditUser writes that something was done to a user.
func auditUser(ctx context.Context, tx pgx.Tx, action AuditAction, name string, details map[string]any) error {
	return auditUserChange(ctx, tx, action, name, details, nil)
}

func auditUserChange(
	ctx context.Context, tx pgx.Tx, action AuditAction, name string, details, found map[string]any,
) error {
	all := map[string]any{"user": name}
	for key, value := range details {
		all[key] = value
	}
	return Audit(ctx, tx, AuditEntry{Action: action, Details: all, Changes: found})
}
