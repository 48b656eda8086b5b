package main

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

type sqlCmd struct {
	databaseFlags
	Output    string        `short:"o" help:"table or json (one object per row)." enum:"table,json" default:"table"`
	Timeout   time.Duration `help:"The statement is ended when it takes longer; 0 = never." default:"1m"`
	Statement string        `arg:"" help:"One SQL statement."`
}

// Help is shown by sql --help.
func (sqlCmd) Help() string {
	return `The statement runs in a read-only transaction, as the role postrider_reader where that is permitted.

Examples:
  postrider sql --timeout 10m "select count(*) from postrider.delivery_attempts"
  postrider sql "select topic, subscription, reason, count(*) from postrider.dead_letters group by 1, 2, 3"`
}

// Run executes sql.
func (c *sqlCmd) Run(ctx context.Context) error {
	if err := c.require(); err != nil {
		return err
	}
	if c.Timeout < 0 {
		return usagef("--timeout %s: must not be negative", c.Timeout)
	}
	// No settings, and nothing prepared below: this works through PgBouncer as it is.
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := becomeReader(ctx, tx); err != nil {
			return err
		}
		// Rounded up: PostgreSQL takes 0 for never.
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", (c.Timeout+time.Millisecond-1).Milliseconds())); err != nil {
			return fmt.Errorf("bound the statement: %w", err)
		}
		rows, err := tx.Query(ctx, c.Statement, pgx.QueryExecModeExec)
		if err != nil {
			return fmt.Errorf("run the statement: %w", err)
		}
		defer rows.Close()
		if c.Output == "json" {
			return printJSONRows(os.Stdout, rows)
		}
		return printTable(os.Stdout, rows)
	})
}

func becomeReader(ctx context.Context, tx pgx.Tx) error {
	var may bool
	const query = `SELECT coalesce((SELECT pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = 'postrider_reader'), false)`
	if err := tx.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan(&may); err != nil {
		return fmt.Errorf("look for the reader role: %w", err)
	}
	if !may {
		return nil
	}
	if _, err := tx.Exec(ctx, "SET LOCAL ROLE postrider_reader"); err != nil {
		return fmt.Errorf("become the reader role: %w", err)
	}
	return nil
}

func printTable(out io.Writer, rows pgx.Rows) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	names := columnNames(rows)
	fmt.Fprintln(w, strings.Join(names, "\t"))
	count := 0
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		cells := make([]string, len(values))
		for i, value := range values {
			cells[i] = cell(value)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
		count++
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("run the statement: %w", err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the rows: %w", err)
	}
	_, err := fmt.Fprintf(out, "(%d rows)\n", count)
	return err
}

func columnNames(rows pgx.Rows) []string {
	fields := rows.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return names
}

const maxCell = 80

// cell is a value on one line of a terminal: what others wrote must not move the cursor or colour the screen.
func cell(value any) string {
	var text string
	switch v := value.(type) {
	case nil:
		return ""
	case time.Time:
		text = v.UTC().Format("2006-01-02 15:04:05.000Z")
	case [16]byte:
		text = fmt.Sprintf("%x-%x-%x-%x-%x", v[0:4], v[4:6], v[6:8], v[8:10], v[10:])
	case string:
		text = v
	case driver.Valuer: // numeric, interval, …: pgx's own types know their text
		plain, err := v.Value()
		if err != nil {
			return fmt.Sprint(v)
		}
		return cell(plain)
	case map[string]any, []any:
		encoded, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		text = string(encoded)
	default:
		text = fmt.Sprint(v)
	}
	text = oneLine(text)
	if utf8.RuneCountInString(text) > maxCell {
		return string([]rune(text)[:maxCell-1]) + "…"
	}
	return text
}

func oneLine(text string) string { return strings.ReplaceAll(plainLines(text), "\n", " ") }

// escapeControls writes the control characters that JSON lets stand (DEL and C1) as escapes: a terminal obeys them too.
// In an encoded document they can be inside strings only; a line's end can not.
func escapeControls(encoded string) string {
	var out strings.Builder
	for _, r := range encoded {
		if r != '\n' && unicode.IsControl(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// plainLines is an error's text for a terminal. PostgreSQL quotes in its messages what publishers wrote.
func plainLines(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// jsonValue makes what encoding/json writes wrongly or not at all into text: ids, and times beyond the year 9999.
func jsonValue(value any) any {
	switch v := value.(type) {
	case [16]byte:
		return cell(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	default:
		return value
	}
}

func printJSONRows(out io.Writer, rows pgx.Rows) error {
	names := columnNames(rows)
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		object := make(map[string]any, len(names))
		for i, name := range names {
			object[name] = jsonValue(values[i])
		}
		encoded, err := json.Marshal(object)
		if err == nil {
			_, err = fmt.Fprintln(out, escapeControls(string(encoded)))
		}
		if err != nil {
			return fmt.Errorf("print a row: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("run the statement: %w", err)
	}
	return nil
}
