package migrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed sql/missing_rights.sql
var missingRights string

// MissingRight is what the roles for SQL users lack: a role, or rights of one.
type MissingRight struct {
	Problem, Statement string
	// By is the role that may run the statement, quoted; "" = an administrator.
	By string
}

// MissingRights returns what the roles for SQL users lack, in the order in which the statements work.
func MissingRights(ctx context.Context, pool *pgxpool.Pool) ([]MissingRight, error) {
	rows, _ := pool.Query(ctx, missingRights) // CollectRows returns the error
	missing, err := pgx.CollectRows(rows, pgx.RowToStructByName[MissingRight])
	if err != nil {
		return nil, fmt.Errorf("read the roles' rights: %w", err)
	}
	return missing, nil
}

// ensureRoles creates the roles with admin, and grants them their rights as the owner of the schema. It writes the
// statements that fail to notices.
func ensureRoles(ctx context.Context, pool, admin *pgxpool.Pool, notices io.Writer) error {
	byAdmin := func(m MissingRight) bool { return m.By == "" }
	byOwner := func(m MissingRight) bool { return m.By != "" }
	if err := setUp(ctx, pool, admin, byAdmin); err != nil {
		return err
	}
	for range 2 { // rights that PUBLIC had are missing after the first time
		if err := setUp(ctx, pool, pool, byOwner); err != nil {
			return err
		}
	}
	missing, err := MissingRights(ctx, pool)
	if err != nil || len(missing) == 0 {
		return err
	}
	text := "The roles for SQL users are not set up completely.\n"
	if list := statements(missing, byAdmin); list != "" {
		text += "An administrator may run:\n" + list
	}
	if list := statements(missing, byOwner); list != "" {
		owner := missing[slices.IndexFunc(missing, byOwner)].By
		text += "Then the owner, " + owner + ", may run `postrider migrate up` again, or:\n" + list
	}
	_, err = io.WriteString(notices, text)
	return err
}

// statements returns the selected statements, one a line.
func statements(missing []MissingRight, selected func(MissingRight) bool) string {
	var list string
	for _, m := range missing {
		if selected(m) {
			list += m.Statement + "\n"
		}
	}
	return list
}

// setUp runs the selected statements with db. Not every role may run them, and roles belong to the whole server, so two
// databases that migrate at the same moment race.
func setUp(ctx context.Context, pool, db *pgxpool.Pool, selected func(MissingRight) bool) error {
	expected := []string{
		"42501", "0LP01", // insufficient_privilege, invalid_grant_operation
		"42704",          // undefined_object: a role could not be created
		"42710", "23505", // duplicate_object, unique_violation: another database was first
	}
	missing, err := MissingRights(ctx, pool)
	if err != nil {
		return err
	}
	for _, m := range missing {
		if !selected(m) {
			continue
		}
		_, err := db.Exec(ctx, m.Statement)
		var pgErr *pgconn.PgError
		if err != nil && (!errors.As(err, &pgErr) || !slices.Contains(expected, pgErr.Code)) {
			return fmt.Errorf("%s: %w", m.Statement, err)
		}
	}
	return nil
}
