package sqlquery

import (
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

	"postrider/internal/postgres"
)

// reader is the role whose rights the login roles have.
const reader = "postrider_reader"

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
// connects as a role that may create roles; db is the service's.
func EnsureLogins(ctx context.Context, db, admin *postgres.DB, sealer *postgres.Sealer) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		const prepare = `SELECT current_database() FROM pg_advisory_xact_lock(hashtext('postrider_query_logins'))`
		var database string
		if err := tx.QueryRow(ctx, prepare).Scan(&database); err != nil {
			return err
		}
		if err := grantTemporary(ctx, tx, database); err != nil {
			return err
		}
		runner := &Runner{db: db, sealer: sealer}
		for n := 1; n <= Logins; n++ {
			role := roleName(database, n)
			if right, err := runner.isRight(ctx, role); right || err != nil {
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
}

// grantTemporary grants what the check of a query needs, if the database's owner has revoked it from PUBLIC.
func grantTemporary(ctx context.Context, tx pgx.Tx, database string) error {
	var granted bool
	const query = "SELECT has_database_privilege('" + reader + "', current_database(), 'TEMPORARY')"
	if err := tx.QueryRow(ctx, query).Scan(&granted); err != nil || granted {
		return err
	}
	_, err := tx.Exec(ctx, "GRANT TEMPORARY ON DATABASE "+pgx.Identifier{database}.Sanitize()+" TO "+reader)
	return err
}

// isRight reports whether the login exists and Check finds nothing.
func (r *Runner) isRight(ctx context.Context, role string) (bool, error) {
	logins, err := r.logins(ctx)
	if _, ok := errors.AsType[*rejectedError](err); ok { // sealed with another key
		return false, nil
	}
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(logins, func(l *login) bool { return l.config.User == role })
	if i < 0 {
		return false, nil
	}
	missing, err := r.missing(ctx, logins[i:i+1])
	if err != nil || len(missing) > 0 {
		return false, err
	}
	problems, err := logins[i].check(ctx, true)
	return len(problems) == 0, err
}

// createLogin creates a role anew, because a role may have rights that only a superuser can revoke.
func createLogin(ctx context.Context, tx pgx.Tx, role, password string) error {
	var exists, superuser bool
	const query = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1), current_setting('is_superuser') = 'on'"
	if err := tx.QueryRow(ctx, query, role).Scan(&exists, &superuser); err != nil {
		return err
	}
	name := pgx.Identifier{role}.Sanitize()
	var statements []string
	if exists {
		statements = []string{"DROP ROLE " + name}
	}
	statements = append(statements,
		"CREATE ROLE "+name+" LOGIN CONNECTION LIMIT 1 PASSWORD '"+verifier(password)+"'",
		"GRANT "+reader+" TO "+name)
	if superuser { // only a superuser can limit the space of sorts
		statements = append(statements, "ALTER ROLE "+name+" SET temp_file_limit = '1GB'")
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
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
