package sqlquery

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"

	"postrider/postgres"
)

// reader is the role whose rights the login roles have.
const reader = "postrider_reader"

// roleName is the name of a login role of the database. PostgreSQL's limit is 63 bytes.
func roleName(database string, n int) string {
	const longest = 63 - len("postrider_query__0")
	if len(database) > longest {
		sum := sha256.Sum256([]byte(database))
		database = database[:longest-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return fmt.Sprintf("postrider_query_%s_%d", database, n)
}

// EnsureLogins creates the login roles of the database, and repairs those whose rights or password are wrong.
func EnsureLogins(ctx context.Context, db *postgres.DB, sealer *postgres.Sealer) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var database string
		if err := tx.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
			return err
		}
		for n := range Logins {
			if err := createLogin(ctx, tx, sealer, roleName(database, n+1)); err != nil {
				return err
			}
		}
		return nil
	})
}

// createLogin sets a new password.
func createLogin(ctx context.Context, tx pgx.Tx, sealer *postgres.Sealer, role string) error {
	const (
		exists = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"
		save   = `INSERT INTO postrider_internal.query_logins (role, password) VALUES ($1, $2)
			ON CONFLICT (role) DO UPDATE SET password = EXCLUDED.password, changed_at = now()`
	)
	var there bool
	if err := tx.QueryRow(ctx, exists, role).Scan(&there); err != nil {
		return err
	}
	verb, password, name := "CREATE", rand.Text(), pgx.Identifier{role}.Sanitize()
	if there {
		verb = "ALTER"
	}
	for _, statement := range []string{
		verb + " ROLE " + name + " LOGIN INHERIT NOCREATEDB NOCREATEROLE CONNECTION LIMIT 1 PASSWORD '" +
			verifier(password) + "'",
		"GRANT " + reader + " TO " + name,
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, save, role, sealer.Seal(passwordColumn, password))
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
