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

	"postrider/postgres"
)

// Errors of Access.
var (
	// ErrWrongCredentials: the name, the password or the API key is wrong or disabled. Callers must not learn which.
	ErrWrongCredentials = errors.New("wrong credentials")
	// ErrNotFirst: there are users already.
	ErrNotFirst = errors.New("there are users already")
	// ErrLastAdmin: no administrator would be left who can sign in.
	ErrLastAdmin = fmt.Errorf("it is the last administrator who can sign in: %w", postgres.ErrConflict)
)

//go:embed sql/*.sql
var sqlFiles embed.FS

func sqlFile(name string) string { return postgres.SQLFile(sqlFiles, name) }

// Access manages API keys, users and their sessions, and writes the audit. The admin token is not part of it: it is
// configuration, and works without all of these. Its methods are safe for concurrent use.
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

// NewAccess returns the accounts of a database.
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

// newSecret is 32 random bytes as 43 characters that go into a header, a cookie and a shell as they are.
func newSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails since Go 1.24
	return base64.RawURLEncoding.EncodeToString(raw)
}

// change runs a change in one transaction; doing says what went wrong where it does not succeed. What it refuses stays
// as it is.
func (a *Access) change(ctx context.Context, doing string, change func(pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, a.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '5s'"); err != nil {
			return err
		}
		return change(tx)
	})
	var refused *postgres.FunctionError
	switch {
	case err == nil, errors.As(err, &refused), errors.Is(err, ErrNotFirst), errors.Is(err, ErrWrongCredentials),
		errors.Is(err, postgres.ErrPrecondition):
		return err
	case postgres.IsPoison(err):
		a.log.Warn("the database rejected a change", "change", doing, "error", err, "sqlstate", postgres.SQLState(err))
		return postgres.ValueError(err)
	default:
		return postgres.Outage(doing, err)
	}
}

// amongUsers is change with the users locked, so that two changes at once cannot each leave the other's administrator
// as the last one.
func (a *Access) amongUsers(ctx context.Context, doing string, change func(pgx.Tx) error) error {
	err := a.change(ctx, doing, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "LOCK TABLE postrider_internal.users IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		return change(tx)
	})
	a.sessions.forgetAll()
	a.keys.forgetAll()
	return err
}

// one returns the single row of a query, or the error none.
func one[T any](ctx context.Context, a *Access, none error, query string, args ...any) (*T, error) {
	list, err := postgres.Collect[T](ctx, a.db, query, args...)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, none
	}
	return &list[0], nil
}

// CleanSessions removes sessions, logins and personal keys that have ended.
func (a *Access) CleanSessions(ctx context.Context) error {
	const clean = "DELETE FROM postrider_internal.sessions s WHERE postrider_internal.session_ends(s) <= now()"
	if _, err := a.db.Exec(ctx, clean); err != nil {
		return fmt.Errorf("remove sessions that have ended: %w", err)
	}
	return a.cleanLogins(ctx)
}

func hashSecret(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }
