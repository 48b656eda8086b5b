package sqlquery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"

	"postrider/internal/postgres"
)

const (
	// passwordColumn is what the passwords are sealed for.
	passwordColumn = "query_logins.password_sealed" //nolint:gosec // the name of a column
	// A session that has ended counts for the connection limit of its role for some milliseconds.
	busyWait, busyPause = 2 * time.Second, 50 * time.Millisecond
	// cancelTime is how long PostgreSQL may take to cancel, before the node closes the connection.
	cancelTime = 2 * time.Second
)

// login is a role that runs one query at a time.
type login struct {
	config *pgconn.Config
	// free has room for one query. PostgreSQL limits the connections of our own roles itself.
	free chan struct{}
}

func newLogin(config *pgconn.Config) *login {
	return &login{config: limit(config), free: make(chan struct{}, 1)}
}

// limit prepares a connection for queries.
func limit(config *pgconn.Config) *pgconn.Config {
	config.RuntimeParams = map[string]string{"application_name": "postrider query"}
	postgres.SetEncoding(config)
	config.ConnectTimeout = 5 * time.Second
	config.MaxProtocolMessageBodyLen = maxBytes
	config.OnNotice = nil
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: cancelTime}
	}
	return config
}

// logins reads the login roles.
func (r *Runner) logins(ctx context.Context) ([]*login, error) {
	type row struct {
		Role           string
		PasswordSealed []byte
	}
	const query = "SELECT role, password_sealed FROM postrider_internal.query_logins ORDER BY id"
	rows, err := postgres.Rows[row](ctx, r.db, query)
	if err != nil {
		return nil, postgres.ReadError("the query logins", err)
	}
	found := make([]*login, len(rows))
	for i, l := range rows {
		config := r.db.Config().ConnConfig.Config.Copy()
		config.User = l.Role
		if config.Password, err = r.sealer.Open(passwordColumn, l.PasswordSealed); err != nil {
			return nil, &rejectedError{l.Role, err.Error(), ""}
		}
		found[i] = newLogin(config)
	}
	return found, nil
}

// connect connects with a free login, which the caller releases after closing the connection.
func (r *Runner) connect(ctx context.Context) (*pgconn.PgConn, *login, error) {
	logins, err := r.fixed, error(nil)
	if len(logins) == 0 {
		logins, err = r.logins(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(logins) == 0 {
		return nil, nil, ErrNotConfigured
	}
	var used *login
	conn, err := untilFree(ctx, func() (*pgconn.PgConn, error) {
		for _, i := range rand.Perm(len(logins)) { //nolint:gosec // spreads the load, and is no secret
			if conn, err := logins[i].connect(ctx); conn != nil || err != nil {
				used = logins[i]
				return conn, err
			}
		}
		return nil, nil //nolint:nilnil // all are in use
	})
	return conn, used, err
}

// untilFree calls connect until it returns a connection or an error. ErrBusy.
func untilFree(ctx context.Context, connect func() (*pgconn.PgConn, error)) (*pgconn.PgConn, error) {
	for deadline := time.Now().Add(busyWait); ; {
		if conn, err := connect(); conn != nil || err != nil {
			return conn, err
		}
		if time.Now().After(deadline) {
			return nil, ErrBusy
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(busyPause):
		}
	}
}

// connect returns nil if the login is in use.
func (l *login) connect(ctx context.Context) (*pgconn.PgConn, error) {
	select {
	case l.free <- struct{}{}:
	default:
		return nil, nil //nolint:nilnil // in use is no error
	}
	conn, err := connectWith(ctx, l.config)
	if conn == nil {
		l.release()
	}
	return conn, err
}

// connectWith returns nil if the role is in use.
func connectWith(ctx context.Context, config *pgconn.Config) (*pgconn.PgConn, error) {
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		return conn, nil
	}
	state := postgres.SQLState(err)
	if state == "53300" {
		return nil, nil //nolint:nilnil // in use is no error
	}
	if strings.HasPrefix(state, "28") || state == "08P01" || state == "42501" || state == "3D000" {
		var pgErr *pgconn.PgError
		errors.As(err, &pgErr)
		return nil, &rejectedError{config.User, pgErr.Message, connectRemedy(config, pgErr)}
	}
	return nil, postgres.Outage("connect for a query", err)
}

func (l *login) release() { <-l.free }

// connectRemedy returns what allows a login to connect; "" = EnsureLogins does. PostgreSQL's errors name the routine
// that reports them, those of a pooler do not.
func connectRemedy(config *pgconn.Config, rejected *pgconn.PgError) string {
	database := pgx.Identifier{config.Database}.Sanitize()
	line := "host " + database + " +" + reader + " ADDRESS scram-sha-256"
	if strings.HasPrefix(config.Host, "/") {
		line = "local " + database + " +" + reader + " scram-sha-256"
	}
	switch {
	case rejected.Routine == "":
		return "set POSTRIDER_QUERY_DATABASE_URL to PostgreSQL itself, or let the pooler know the role (PgBouncer: " +
			"auth_query)"
	case rejected.Code == "42501":
		return "the owner of the database may run: GRANT CONNECT ON DATABASE " + database + " TO " + reader + ";"
	case rejected.Code == "3D000":
		return "correct the name of the database in POSTRIDER_QUERY_DATABASE_URL"
	case rejected.Code == "28P01", rejected.Routine == "InitializeSessionUserId": // the password; NOLOGIN
		return ""
	default:
		return "pg_hba.conf must allow the role to connect with its password: add, before the line that applies now, `" +
			line + "` and run SELECT pg_reload_conf(); or set POSTRIDER_QUERY_DATABASE_URL"
	}
}

// rejectedError: PostgreSQL rejects the connection of a login. remedy: as in LoginError.
type rejectedError struct{ role, message, remedy string }

func (e *rejectedError) Error() string {
	return fmt.Sprintf("queries cannot run: PostgreSQL rejects the login role %s: %s; run `postrider doctor`", e.role,
		e.message)
}

func (e *rejectedError) Unwrap() error { return ErrNotConfigured }
