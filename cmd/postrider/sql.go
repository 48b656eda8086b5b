package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"postrider/docs"
	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/terminal"
)

type sqlCmd struct {
	databaseFlags
	Output       string        `short:"o" help:"table, json (one object per row), yaml (one document per row) or csv. In csv, an apostrophe stands before texts that a spreadsheet would run as formulas." enum:"table,json,yaml,csv" default:"table"`
	Timeout      time.Duration `help:"Time limit of the statement; 0 = none." default:"30s" range:"0.."`
	Questions    bool          `help:"List the questions of docs/reference/sql.md."`
	Question     string        `help:"Run one of them, by its name or number." placeholder:"NAME"`
	Topic        string        `help:"Topic that the question is about." placeholder:"NAME"`
	Subscription string        `help:"Event subscription that the question is about." placeholder:"NAME"`
	EventID      string        `help:"Event that the question is about, by the publisher's id." placeholder:"ID"`
	Statement    string        `arg:"" optional:"" help:"One SQL statement."`
}

func (sqlCmd) Help() string {
	return `The statement runs in a read-only transaction, as the role postrider_reader if your role may become it. The
views of schema postrider need no prefix.

Examples:
  postrider sql "select topic, subscription, reason, count(*) from dead_letters group by 1, 2, 3"
  postrider sql --timeout 10m "select count(*) from postrider.delivery_attempts"
  postrider sql --questions
  postrider sql --question pending --topic orders --subscription billing -o csv`
}

func (c *sqlCmd) Run(ctx context.Context, std terminal.Streams) error {
	if c.Questions {
		return c.listQuestions(std.Out)
	}
	statement, err := c.statement()
	if err != nil {
		return err
	}
	if err := c.require(); err != nil {
		return err
	}
	return c.execute(ctx, std, statement)
}

func (c *sqlCmd) listQuestions(out io.Writer) error {
	if c.Statement != "" || c.Question != "" {
		return terminal.Usagef("sql: --questions lists the questions and runs nothing; omit the statement and --question")
	}
	names := []string{"number", "name", "about", "question", "sql"}
	if c.Output == "table" {
		names = names[:4] // the SQL has many lines
	}
	return printRows(out, c.Output, names, func(yield func([]any, error) bool) {
		for _, q := range docs.Questions() {
			if !yield([]any{q.Number, q.Name, strings.Join(q.About(), ", "), q.Title, q.SQL}, nil) {
				return
			}
		}
	})
}

// statement returns the argument, or the SQL of a question.
func (c *sqlCmd) statement() (string, error) {
	about := map[string]string{"topic": c.Topic, "subscription": c.Subscription, "event-id": c.EventID}
	q, known := docs.Find(c.Question)
	switch {
	case (c.Statement == "") == (c.Question == ""):
		return "", terminal.Usagef("sql: name either <statement> or --question; --questions lists the questions")
	case c.Question != "" && !known:
		return "", terminal.Usagef("sql: no question %q; --questions lists them", c.Question)
	}
	for name, value := range about {
		thing := strings.ReplaceAll(name, "-", " ")
		switch needed := slices.Contains(q.About(), name); {
		case !known && value != "":
			return "", terminal.Usagef("sql: --%s requires --question; write it into the statement", name)
		case needed && value == "":
			return "", terminal.Usagef("sql: question %q (%s) is about one %s: add --%s", q.Name, q.Title, thing, name)
		case !needed && value != "":
			return "", terminal.Usagef("sql: question %q (%s) is not about one %s: omit --%s", q.Name, q.Title, thing, name)
		}
	}
	return cmp.Or(c.Statement, q.With(about)), nil
}

// execute runs the statement and prints its rows.
func (c *sqlCmd) execute(ctx context.Context, std terminal.Streams, statement string) error {
	config, err := pgx.ParseConfig(c.DatabaseURL)
	if err != nil {
		return terminal.Usagef("POSTRIDER_DATABASE_URL: %v", err)
	}
	// Without other settings and without prepared statements, this also works through PgBouncer.
	postgres.SetEncoding(&config.Config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return connectError(err, true)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// Numbers in JSON keep all their digits: a float64 has 15 to 17.
	types := conn.TypeMap()
	codec := pgtype.JSONCodec{Marshal: json.Marshal, Unmarshal: terminal.DecodeExactly}
	types.RegisterType(&pgtype.Type{Name: "json", OID: pgtype.JSONOID, Codec: &codec})
	types.RegisterType(&pgtype.Type{Name: "jsonb", OID: pgtype.JSONBOID, Codec: &pgtype.JSONBCodec{
		Marshal: codec.Marshal, Unmarshal: codec.Unmarshal,
	}})
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	// Before PostgreSQL 16, a read-only transaction can write large objects.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// First of all: what follows, and the statement, must not run a function that another login planted in public. It
	// could leave the reader's role.
	if _, err := tx.Exec(ctx, postgres.LocalSettings(), pgx.QueryExecModeExec); err != nil {
		return fmt.Errorf("set the session's settings: %w", err)
	}
	if err := becomeReader(ctx, std.Err, tx); err != nil {
		return err
	}
	// The path is that of the queries of users: the views need no prefix.
	const limit = "SELECT pg_catalog.set_config('search_path', 'postrider, pg_catalog, pg_temp', true), " +
		"pg_catalog.set_config('statement_timeout', $1, true)"
	// The time is rounded up, because 0 means no limit.
	if _, err := tx.Exec(ctx, limit, pgx.QueryExecModeExec,
		fmt.Sprint((c.Timeout + time.Millisecond - 1).Milliseconds())); err != nil {
		return fmt.Errorf("set the statement's path and time limit: %w", err)
	}
	rows, err := tx.Query(ctx, statement, pgx.QueryExecModeExec)
	if err != nil {
		return c.explain(err)
	}
	defer rows.Close()
	fields := rows.FieldDescriptions()
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return c.explain(printRows(std.Out, c.Output, names, valuesOf(rows)))
}

// explain adds advice to an error of PostgreSQL.
func (c *sqlCmd) explain(err error) error {
	if err == nil {
		return nil
	}
	advice := ""
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case "57014": // query_canceled
			advice = fmt.Sprintf("; it was canceled after %s, raise --timeout", c.Timeout)
		case "42P01", "3F000": // undefined_table, invalid_schema_name
			advice = "; the views are in schema postrider, and `postrider migrate status` shows whether this database has them"
		case "42501": // insufficient_privilege
			advice = "; only the views of schema postrider may be read"
		}
		if pgErr.Hint != "" {
			advice += "; " + pgErr.Hint
		}
	}
	return fmt.Errorf("run the statement: %w%s", err, advice)
}

func becomeReader(ctx context.Context, stderr io.Writer, tx pgx.Tx) error {
	var may bool
	// Since PostgreSQL 16, membership alone does not allow a user to become the role.
	const query = `SELECT coalesce((SELECT pg_has_role(oid,
		    CASE WHEN current_setting('server_version_num')::integer >= 160000 THEN 'SET' ELSE 'MEMBER' END)
		FROM pg_roles WHERE rolname = 'postrider_reader'), false)`
	if err := tx.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan(&may); err != nil {
		return fmt.Errorf("check the role postrider_reader: %w", err)
	}
	if !may {
		fmt.Fprintln(stderr,
			"postrider: this user may not become postrider_reader; the statement runs read only with the "+
				"user's own rights (an administrator can run: GRANT postrider_reader TO this user)")
		return nil
	}
	if _, err := tx.Exec(ctx, "SET LOCAL ROLE postrider_reader"); err != nil {
		return fmt.Errorf("set the role postrider_reader: %w", err)
	}
	return nil
}

// valuesOf returns the values of each row.
func valuesOf(rows pgx.Rows) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		for rows.Next() {
			if values, err := rows.Values(); !yield(values, err) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// printRows prints rows as table, json, yaml or csv (RFC 4180). A row may have more values than names. After an error,
// the rows before it are printed, except those of a table. A statement without columns prints nothing.
func printRows(out io.Writer, form string, names []string, rows iter.Seq2[[]any, error]) error {
	table, lines, count := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0), csv.NewWriter(out), 0
	defer lines.Flush()
	switch {
	case len(names) == 0:
	case form == "csv":
		header := make([]string, len(names))
		for i, name := range names {
			header[i] = csvCell(name)
		}
		_ = lines.Write(header) // lines.Error returns the error
	case form == "table":
		fmt.Fprintln(table, strings.Join(names, "\t"))
	}
	for values, err := range rows {
		if err != nil {
			return err
		}
		count++
		cells, object := make([]string, len(names)), make(map[string]any, len(names))
		for i, name := range names {
			cells[i], object[name] = csvCell(values[i]), jsonValue(values[i])
		}
		switch form {
		case "table":
			for i := range cells {
				cells[i] = terminal.Cell(values[i])
			}
			fmt.Fprintln(table, strings.Join(cells, "\t"))
		case "csv": // control characters in values are spaces
			err = lines.Write(cells)
		default:
			var text string
			if text, err = terminal.EncodeLine(form, object); err == nil {
				_, err = io.WriteString(out, text)
			}
		}
		if err != nil {
			return fmt.Errorf("print a row: %w", err)
		}
	}
	if form != "table" || len(names) == 0 {
		lines.Flush()
		return lines.Error()
	}
	_ = table.Flush() // the next line would fail, too
	_, err := fmt.Fprintf(out, "(%s)\n", terminal.Plural(count, "row"))
	return err
}

// csvCell is a value without control characters; a spreadsheet runs no text as a formula.
func csvCell(value any) string {
	text := terminal.PlainText(value)
	switch value.(type) {
	case int16, int32, int64, float32, float64, pgtype.Numeric:
		return text
	default:
		return terminal.PlainLines(sqlquery.CSVCell(text))
	}
}

// jsonValue converts values that encoding/json cannot write: UUIDs, and times after the year 9999.
func jsonValue(value any) any {
	switch v := value.(type) {
	case [16]byte:
		return terminal.PlainText(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	default:
		return value
	}
}
