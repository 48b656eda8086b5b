package sqlquery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"postrider/internal/postgres"
)

// LoginError is what is wrong with a login role.
type LoginError struct {
	Role, Message string
	// Remedy is what to do about it; "" = EnsureLogins replaces the role.
	Remedy string
}

// Error returns the message.
func (p *LoginError) Error() string { return fmt.Sprintf("the login role %s %s", p.Role, p.Message) }

// Check connects with each login and returns what is wrong with them. A login that runs a query is not checked.
// ErrNotConfigured; ErrUnavailable.
func (r *Runner) Check(ctx context.Context) (found []LoginError, err error) {
	logins, err := r.fixed, error(nil)
	if len(r.fixed) == 0 {
		logins, err = r.logins(ctx)
	}
	if err != nil {
		return nil, err
	}
	if len(logins) == 0 {
		return nil, ErrNotConfigured
	}
	var missing []string
	if len(r.fixed) == 0 {
		if missing, err = r.missing(ctx, logins); err != nil {
			return nil, err
		}
	}
	for _, l := range logins {
		problems := []LoginError{{Role: l.config.User, Message: "does not exist"}}
		if !slices.Contains(missing, l.config.User) {
			if problems, err = l.check(ctx, len(r.fixed) == 0); err != nil {
				return nil, err
			}
		}
		found = append(found, problems...)
	}
	return found, nil
}

// missing returns the logins that do not exist, for example after a restore, and those of the database from which this
// one was restored.
func (r *Runner) missing(ctx context.Context, logins []*login) ([]string, error) {
	var database string
	if err := r.db.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return nil, postgres.ReadError("the name of the database", err)
	}
	names, expected := make([]string, len(logins)), make([]string, Logins)
	for i, l := range logins {
		names[i] = l.config.User
	}
	for i := range expected {
		expected[i] = roleName(database, i+1)
	}
	const query = `SELECT name FROM unnest($1::text[]) AS name
		WHERE name <> ALL ($2::text[]) OR NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)`
	missing, err := postgres.Values[string](ctx, r.db, query, names, expected)
	if err != nil {
		return nil, postgres.ReadError("the roles", err)
	}
	return missing, nil
}

// check returns the problems of one login. own: it is one of our roles.
func (l *login) check(ctx context.Context, own bool) (problems []LoginError, err error) {
	conn, err := l.connect(ctx)
	if rejected, ok := errors.AsType[*rejectedError](err); ok {
		return []LoginError{{l.config.User, "cannot connect: " + rejected.message, rejected.remedy}}, nil
	}
	if err != nil || conn == nil {
		return nil, err
	}
	defer l.release()
	defer closeConn(conn)
	// Operators in another schema of the role's search path could be preferred to those of pg_catalog. No parameter of the
	// connection sets the path, because PgBouncer rejects it.
	if _, err = conn.Exec(ctx, readOnly+postgres.LocalSettings()).ReadAll(); err != nil {
		return nil, postgres.Outage("begin the check of a login", err)
	}
	q := Request{SQL: sql("login_check"), Args: []string{strconv.FormatBool(own)}}
	err = execute(ctx, conn, "", q, func(row []*string) error {
		problems = append(problems, LoginError{l.config.User, *row[0], *row[1]})
		return nil
	})
	return problems, err
}
