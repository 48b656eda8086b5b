package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// Session is that of a user who has signed in.
type Session struct {
	// User is their name.
	User string
	// Role is what they may do. Another one ends the session.
	Role Role
	// CreatedAt is when they signed in; LastSeenAt, to the minute, when they last showed the session.
	CreatedAt, LastSeenAt time.Time
	// ExpiresAt is when the session ends unless it is seen again: 12 hours after it was last seen, and 7 days after
	// CreatedAt in any case.
	ExpiresAt time.Time
	// Address and UserAgent are those they signed in from; "" where they are unknown.
	Address, UserAgent string

	unseen bool // for longer than seenEvery, when it was looked up
}

// Actor is the session's owner, asking from the address given, for WithActor.
func (s *Session) Actor(address string) Actor {
	return Actor{Name: userActor + s.User, Address: address, Role: s.Role}
}

// seenEvery is how often it is recorded that a session was seen.
const seenEvery = time.Minute

var (
	sessionStatement = sqlFile("session.sql")
	sessionSeen      = sqlFile("session_seen.sql")
	insertSessionRow = sqlFile("session_insert.sql")
)

// SessionOf finds the session of a token, and extends it. What was found is used for a second on this node, so a
// session that was ended elsewhere works no longer than that. Callers share the result and must not change it.
// ErrNotFound: there is no session, or it has ended; ErrUnavailable.
func (a *Access) SessionOf(ctx context.Context, token string) (*Session, error) {
	s, err := a.WatchedSession(ctx, token)
	if err != nil || !s.unseen {
		return s, err
	}
	return a.seen(ctx, token, s)
}

// WatchedSession is SessionOf for requests that a page sends by itself: it does not extend the session. A page that
// refreshes itself would extend it as long as the browser runs.
func (a *Access) WatchedSession(ctx context.Context, token string) (*Session, error) {
	hash := hashSecret(token)
	return a.sessions.get(ctx, hash, func(ctx context.Context) (*Session, error) { return a.session(ctx, hash[:]) })
}

func (a *Access) session(ctx context.Context, hash []byte) (*Session, error) {
	s := &Session{}
	err := a.db.QueryRow(ctx, sessionStatement, hash, seenEvery).
		Scan(&s.User, &s.Role, &s.CreatedAt, &s.LastSeenAt, &s.ExpiresAt, &s.Address, &s.UserAgent, &s.unseen)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("session: %w", postgres.ErrNotFound)
	}
	if err != nil {
		return nil, postgres.ReadError("a session", err)
	}
	return s, nil
}

// seen records that a session was seen. One that has ended since it was found stays ended.
func (a *Access) seen(ctx context.Context, token string, found *Session) (*Session, error) {
	hash := hashSecret(token)
	s := *found
	s.unseen = false
	err := a.db.QueryRow(ctx, sessionSeen, hash[:], seenEvery).Scan(&s.LastSeenAt, &s.ExpiresAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return found, nil // another request was faster, or the session has just ended: the next lookup finds out
	}
	if err != nil {
		return nil, postgres.ReadError("a session", err)
	}
	a.sessions.forget(hash)
	return &s, nil
}

// SignOut ends a session; one that is over already is nothing.
func (a *Access) SignOut(ctx context.Context, token string) error {
	const remove = `DELETE FROM postrider_internal.sessions s USING postrider_internal.users u WHERE s.token_hash = $1
		    AND u.id = s.user_id RETURNING u.name`
	hash := hashSecret(token)
	defer a.sessions.forgetAll()
	return a.change(ctx, "end a session", func(tx pgx.Tx) error {
		var name string
		err := tx.QueryRow(ctx, remove, hash[:]).Scan(&name)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		return auditUser(ctx, tx, auditSignedOut, name, nil)
	})
}

// EndSessions ends all sessions and personal keys of a user, and returns how many sessions there were. ErrNotFound.
func (a *Access) EndSessions(ctx context.Context, name string) (ended int, err error) {
	err = a.amongUsers(ctx, "end sessions", func(tx pgx.Tx) error {
		id, err := userID(ctx, tx, name)
		if err != nil {
			return err
		}
		var details map[string]any
		if ended, details, err = endAccess(ctx, tx, id); err != nil || details == nil {
			return err
		}
		return auditUser(ctx, tx, auditSessionsEnded, name, details)
	})
	return ended, err
}

// endAccess ends all sessions and personal keys of a user. The audit's details say how many; nil if there were none.
func endAccess(ctx context.Context, tx pgx.Tx, user int64) (sessions int, details map[string]any, err error) {
	if sessions, err = endSessions(ctx, tx, user); err != nil {
		return 0, nil, err
	}
	keys, err := endPersonalKeys(ctx, tx, user)
	if err != nil || sessions+keys == 0 {
		return sessions, nil, err
	}
	details = map[string]any{"sessions": sessions}
	if keys > 0 {
		details["keys"] = keys
	}
	return sessions, details, nil
}

func endSessions(ctx context.Context, tx pgx.Tx, user int64) (ended int, err error) {
	tag, err := tx.Exec(ctx, "DELETE FROM postrider_internal.sessions WHERE user_id = $1", user)
	if err != nil {
		return 0, fmt.Errorf("end the sessions: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
