package pgdev

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed tables.sql
var tablesQuery string

//go:embed sequences.sql
var sequencesQuery string

// TablesQuery returns the name of each of postrider's tables, as it is and as SQL writes it, and its columns.
func TablesQuery() string { return tablesQuery }

// RowsQueries are the queries of KeepRows: what it keeps depends on them.
func RowsQueries() string { return tablesQuery + sequencesQuery }

// Fate is what a restore does with the rows of a table.
type Fate int

// The fates. Restored rows are those of the moment at which KeepRows was called.
const (
	Restored  Fate = iota
	Emptied        // all rows are deleted
	Untouched      // the table is not read and not changed
)

// KeptRows are the rows of a migrated database at some moment.
type KeptRows struct {
	// Tables are those that Restore changes, as SQL writes them.
	Tables []string
	// Restore are statements for one transaction. They delete and insert rows and leave sequences as they are. Triggers
	// and foreign keys are off meanwhile, so a superuser must run them.
	Restore string
	// Sequences is a statement that restarts the sequences where they were.
	Sequences string
}

// KeepRows copies rows of postrider's tables into a new schema of the database, by their fates. The schema may exist
// from an earlier call, whose copies are replaced.
func KeepRows(ctx context.Context, tx pgx.Tx, schema string, fate func(table string) Fate) (*KeptRows, error) {
	if _, err := tx.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE; CREATE SCHEMA "+schema); err != nil {
		return nil, err
	}
	rows, _ := tx.Query(ctx, tablesQuery)
	type table struct{ name, full, columns string }
	tables, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		return t, row.Scan(&t.name, &t.full, &t.columns)
	})
	if err != nil {
		return nil, err
	}
	kept, statements := &KeptRows{}, strings.Builder{}
	statements.WriteString("SET LOCAL session_replication_role = replica;\n")
	for i, t := range tables {
		does := fate(t.name)
		if does == Untouched {
			continue
		}
		kept.Tables = append(kept.Tables, t.full)
		fmt.Fprintf(&statements, "DELETE FROM %s;\n", t.full)
		if does == Emptied {
			continue
		}
		own := fmt.Sprintf("%s.t%d", schema, i)
		tag, err := tx.Exec(ctx, fmt.Sprintf("CREATE TABLE %s AS SELECT %s FROM %s", own, t.columns, t.full))
		if err != nil {
			return nil, err
		}
		if tag.RowsAffected() > 0 {
			fmt.Fprintf(&statements, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT * FROM %s;\n", t.full, t.columns, own)
		}
	}
	rows, _ = tx.Query(ctx, sequencesQuery)
	sequences, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	kept.Restore, kept.Sequences = statements.String(), "SELECT "+strings.Join(sequences, ", ")
	return kept, nil
}
