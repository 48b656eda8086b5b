// Package access has the users, sessions and API keys of the service, and writes the audit.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/postgres"
)

// Errors of Access.
var (
	// ErrWrongCredentials: the name, the password or the API key is wrong or disabled. Callers must not learn which.
	ErrWrongCredentials = errors.New("wrong credentials")
	// ErrNotFirst: there are users already.
	ErrNotFirst = errors.New("there are users already")
	// ErrLastAdmin: without the user, no administrator can sign in.
	ErrLastAdmin = fmt.Errorf("it is the last administrator who can sign in: %w", postgres.ErrConflict)
)

//go:embed sql/*.sql
var sqlFiles embed.FS

var sql = postgres.SQLFiles(sqlFiles)

// Access manages API keys, users and their sessions, and writes the audit. The admin token is configuration, and needs
// none of these. Any goroutine may call its methods.
type Access struct {
	db       *postgres.DB
	log      *slog.Logger
	keys     *remembered[*APIKey]
	sessions *remembered[*Session]
	throttle *throttle
}

// AccessOf returns the Access of a database. It needs no encryption key.
func AccessOf(pool *pgxpool.Pool) *Access {
	return NewAccess(postgres.NewDB(pool), slog.Default())
}

// NewAccess returns the Access of a database with a log.
func NewAccess(db *postgres.DB, log *slog.Logger) *Access {
	return &Access{
		db: db, log: log, keys: newRemembered[*APIKey](), sessions: newRemembered[*Session](),
		throttle: newThrottle(),
	}
}

// Prefixes of the names that the audit has for API keys and users.
const (
	keyActor  = "key:"
	userActor = "user:"
)

// hasStoredCredential reports whether the actor sent an API key or a session, and not the admin token or a command with
// the database's URL.
func (a Actor) hasStoredCredential() bool {
	return strings.HasPrefix(a.Name, keyActor) || strings.HasPrefix(a.Name, userActor)
}

// newSecret is 32 random bytes as 43 characters that need no quoting in a header, a cookie and a shell.
func newSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(raw)
}

// change runs a change in one transaction. doing describes it in an outage; rejections are returned unchanged.
func (a *Access) change(ctx context.Context, doing string, change func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
			return err
		}
		return change(tx)
	})
	var rejection *postgres.FunctionError
	if err == nil || errors.As(err, &rejection) || errors.Is(err, ErrNotFirst) || errors.Is(err, ErrWrongCredentials) ||
		errors.Is(err, postgres.ErrPrecondition) {
		return err
	}
	if postgres.IsPoison(err) {
		a.log.Warn("the database rejected a change", "change", doing, "error", err, "sqlstate", postgres.SQLState(err))
		return postgres.ValueError(err)
	}
	return postgres.Outage(doing, err)
}

// amongUsers is change with the users locked: two concurrent changes must not each remove one of the last two
// administrators.
func (a *Access) amongUsers(ctx context.Context, doing string, change func(pgx.Tx) error) error {
	err := a.change(ctx, doing, func(tx pgx.Tx) error {
		const lock = "LOCK TABLE postrider_internal.users IN SHARE ROW EXCLUSIVE MODE"
		if _, err := tx.Exec(ctx, lock); err != nil {
			return err
		}
		return change(tx)
	})
	a.sessions.forgetAll()
	a.keys.forgetAll()
	return err
}

// one returns the single row of a query, or the error none.
func one[T any](ctx context.Context, db postgres.Querier, none error, query string, args ...any) (*T, error) {
	found, err := postgres.Row[T](ctx, db, query, args...)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, none
	}
	if err != nil {
		return nil, postgres.ReadError("an account", err)
	}
	return found, nil
}

// CleanSessions removes sessions that have ended, and personal keys that ended some days ago.
func (a *Access) CleanSessions(ctx context.Context) error {
	const (
		sessions = "DELETE FROM postrider_internal.sessions s WHERE postrider_internal.session_ends(s) <= now()"
		keys     = `DELETE FROM postrider_internal.api_keys
			WHERE user_id IS NOT NULL AND least(revoked_at, expires_at) <= now() - $1::interval`
	)
	return errors.Join(
		postgres.Exec(ctx, a.db, "remove sessions that have ended", sessions),
		postgres.Exec(ctx, a.db, "remove personal keys that have ended", keys, personalKeyKept))
}

func hashSecret(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }
