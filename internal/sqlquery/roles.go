package sqlquery

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"postrider/internal/postgres"
)

const (
	// reader is the role whose rights the login roles have.
	reader = "postrider_reader"
	// CreateRemedy allows EnsureLogins to create the login roles.
	CreateRemedy = "run `postrider migrate up` with the encryption key and --admin-database-url of a role that has " +
		"CREATEROLE, or set --query-database-url"
)

// roleName is the name of a login role of the database. PostgreSQL's limit is 63 bytes.
func roleName(database string, n int) string {
	const longest = 63 - len("postrider_query__0")
	if len(database) > longest {
		sum := sha256.Sum256([]byte(database))
		// The cut may be in a character.
		database = strings.ToValidUTF8(database[:longest-17], "") + "_" + hex.EncodeToString(sum[:8])
	}
	return fmt.Sprintf("postrider_query_%s_%d", database, n)
}

// EnsureLogins creates the login roles of the database, and replaces those whose rights or password are wrong. admin
// connects as a role that may create roles; db is the service's. It leaves a role alone that cannot connect for another
// reason, and returns that LoginError. *LoginError; ErrUnavailable.
func EnsureLogins(ctx context.Context, db, admin *postgres.DB, sealer *postgres.Sealer) error {
	runner := &Runner{db: db, sealer: sealer}
	var database string
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		const prepare = `SELECT current_database() FROM pg_advisory_xact_lock(hashtext('postrider_query_logins'))`
		if err := tx.QueryRow(ctx, prepare).Scan(&database); err != nil {
			return err
		}
		for n := 1; n <= Logins; n++ {
			role := roleName(database, n)
			if wrong, err := runner.problemOf(ctx, role); wrong == nil || wrong.Remedy != "" || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			password := rand.Text()
			err := pgx.BeginFunc(ctx, admin, func(tx pgx.Tx) error { return createLogin(ctx, tx, role, password) })
			if err != nil {
				return err
			}
			const save = `INSERT INTO postrider_internal.query_logins (id, role, password_sealed) VALUES ($1, $2, $3)
				ON CONFLICT (id) DO UPDATE SET role = EXCLUDED.role, password_sealed = EXCLUDED.password_sealed`
			if _, err := tx.Exec(ctx, save, n, role, sealer.Seal(passwordColumn, password)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	// What a new role does not solve prevents all of them.
	if left, err := runner.problemOf(ctx, roleName(database, 1)); left != nil || err != nil {
		return cmp.Or[error](err, left)
	}
	return nil
}

// problemOf returns a problem of the login, one that a new role solves if there is any, or nil.
func (r *Runner) problemOf(ctx context.Context, role string) (*LoginError, error) {
	none := &LoginError{Role: role, Message: "does not exist"}
	logins, err := r.logins(ctx)
	if _, ok := errors.AsType[*rejectedError](err); ok { // sealed with another key
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(logins, func(l *login) bool { return l.config.User == role })
	if i < 0 {
		return none, nil
	}
	missing, err := r.missing(ctx, logins[i:i+1])
	if err != nil || len(missing) > 0 {
		return none, err
	}
	problems, err := logins[i].check(ctx, true)
	if err != nil || len(problems) == 0 {
		return nil, err
	}
	return &problems[max(slices.IndexFunc(problems, func(p LoginError) bool { return p.Remedy == "" }), 0)], nil
}

// createLogin creates a role anew, because a role may have rights that only a superuser can revoke.
func createLogin(ctx context.Context, tx pgx.Tx, role, password string) error {
	var exists, superuser bool
	var me string
	const query = `SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1), current_setting('is_superuser') = 'on',
		quote_ident(current_user)`
	if err := tx.QueryRow(ctx, query, role).Scan(&exists, &superuser, &me); err != nil {
		return err
	}
	name := pgx.Identifier{role}.Sanitize()
	const again = "; then run migrate up again"
	if exists {
		drop := "DROP ROLE " + name
		if err := runAs(ctx, tx, role, drop, fmt.Sprintf("an administrator may run, in each database: DROP OWNED BY %s; "+
			"then: %s;%s", name, drop, again)); err != nil {
			return err
		}
	}
	create := "CREATE ROLE " + name + " LOGIN CONNECTION LIMIT 1 PASSWORD '" + verifier(password) + "'"
	if err := runAs(ctx, tx, role, create, CreateRemedy); err != nil {
		return err
	}
	// From PostgreSQL 16 on, CREATEROLE is no right on the roles that others created.
	if err := runAs(ctx, tx, role, "GRANT "+reader+" TO "+name, fmt.Sprintf(
		"an administrator may run: GRANT %s TO %s WITH ADMIN OPTION;%s", reader, me, again)); err != nil {
		return err
	}
	if !superuser { // only a superuser can limit the space of sorts
		return nil
	}
	_, err := tx.Exec(ctx, "ALTER ROLE "+name+" SET temp_file_limit = '1GB'")
	return err
}

// runAs runs a statement that creates a login role. It returns a LoginError with the remedy if PostgreSQL rejects it.
func runAs(ctx context.Context, tx pgx.Tx, role, statement, remedy string) error {
	_, err := tx.Exec(ctx, statement)
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return &LoginError{role, "cannot be created: " + pgErr.Message, remedy}
	}
	return err
}

// verifier is what PostgreSQL stores of a password (RFC 5802, RFC 7677). So the log of the server never has the
// password.
func verifier(password string) string {
	const iterations = 4096
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails since Go 1.24
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		panic(err) // only for a key length that is not possible
	}
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	client := sha256.Sum256(mac(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(client[:]),
		encode(mac(salted, "Server Key")))
}
