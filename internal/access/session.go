package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"postrider/internal/postgres"
)

// Session is the session of a user who has signed in.
type Session struct {
	// User is the name of the user.
	User string
	// Role is the user's. A change of it ends the session.
	Role Role
	// Query reports whether the user may run SQL queries.
	Query bool
	// CreatedAt is the time of the sign-in; LastSeenAt, to the minute, that of the last request.
	CreatedAt, LastSeenAt time.Time
	// ExpiresAt is the end of the session without a further request: 12 hours after LastSeenAt, at most 7 days after
	// CreatedAt.
	ExpiresAt time.Time
	// Address and UserAgent are the client's at the sign-in; "" if unknown.
	Address, UserAgent string

	unseen bool // for longer than seenEvery before it was looked up
}

// Actor is the session's user at the address, for WithActor.
func (s *Session) Actor(address string) Actor {
	return Actor{Name: userActor + s.User, Address: address, Role: s.Role, Query: s.Query}
}

// seenEvery is how often it is recorded that a session was seen.
const seenEvery = time.Minute

// SessionOf finds the session of a token, and extends it. This node uses the result for a second, so a session that was
// ended elsewhere works no longer than that. Callers share the result and must not change it. ErrNotFound: there is no
// session, or it has ended; ErrUnavailable.
func (a *Access) SessionOf(ctx context.Context, token string) (*Session, error) {
	s, err := a.WatchedSession(ctx, token)
	if err != nil || !s.unseen {
		return s, err
	}
	return a.seen(ctx, token, s)
}

// WatchedSession is SessionOf for automatic requests of a page: it does not extend the session, which otherwise would
// last as long as the browser runs.
func (a *Access) WatchedSession(ctx context.Context, token string) (*Session, error) {
	hash := hashSecret(token)
	return a.sessions.get(ctx, hash, func(ctx context.Context) (*Session, error) {
		s := &Session{}
		err := a.db.QueryRow(ctx, sql("session"), hash[:], seenEvery).
			Scan(&s.User, &s.Role, &s.CreatedAt, &s.LastSeenAt, &s.ExpiresAt, &s.Address, &s.UserAgent, &s.unseen, &s.Query)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, fmt.Errorf("session: %w", postgres.ErrNotFound)
		}
		if err != nil {
			return nil, postgres.ReadError("a session", err)
		}
		return s, nil
	})
}

// seen records that a session was seen. One that has ended since it was found stays ended.
func (a *Access) seen(ctx context.Context, token string, found *Session) (*Session, error) {
	hash := hashSecret(token)
	s := *found
	s.unseen = false
	err := a.db.QueryRow(ctx, sql("session_seen"), hash[:], seenEvery).Scan(&s.LastSeenAt, &s.ExpiresAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return found, nil // recorded by another request, or the session has just ended, which the next lookup shows
	}
	if err != nil {
		return nil, postgres.ReadError("a session", err)
	}
	a.sessions.forget(hash)
	return &s, nil
}

// SignOut ends a session. Without one it does nothing.
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
		return auditUser(ctx, tx, auditSignedOut, name, nil, nil)
	})
}

// EndSessions ends all sessions and personal keys of a user, and returns the number of sessions. ErrNotFound.
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
		return auditUser(ctx, tx, auditSessionsEnded, name, details, nil)
	})
	return ended, err
}

// endAccess ends all sessions and personal keys of a user. details are their numbers for the audit; nil without any.
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
