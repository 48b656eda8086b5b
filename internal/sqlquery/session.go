package sqlquery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"postrider/internal/access"
	"postrider/internal/postgres"
)

const (
	cursor = "postrider_query"
	// declare stands before the SQL of the user. PostgreSQL itself rejects what is no single query.
	declare    = "DECLARE " + cursor + " NO SCROLL CURSOR FOR "
	readOnly   = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; "
	searchPath = "SET LOCAL search_path = postrider, pg_catalog, pg_temp"
	// recordTime is how long the audit of a canceled query may take.
	recordTime = 5 * time.Second
)

// execution executes a checked query and returns its number of rows.
type execution func(ctx context.Context, conn *pgconn.PgConn, q Request) (rows int, err error)

// within checks a query, calls do in a read-only transaction of a new connection, which it rolls back and closes, and
// writes the audit. The node cancels the query at the deadline: no setting of the session can prevent that.
func (r *Runner) within(ctx context.Context, q Request, do execution) error {
	if err := q.validate(); err != nil {
		return err
	}
	release, err := r.running.Take(ctx, access.ActorOf(ctx).Name)
	if err != nil {
		return err
	}
	defer release()
	limited, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	conn, l, err := r.connect(limited)
	if err != nil {
		return r.ended(ctx, limited, err)
	}
	began := time.Now()
	rows, err := r.query(limited, conn, l, q, do)
	closeConn(conn)
	l.release()
	err = r.ended(ctx, limited, err)
	return errors.Join(err, r.audit(ctx, q, rows, time.Since(began), err))
}

// query checks a query and executes it, in transactions of which the second one is still open.
func (r *Runner) query(
	ctx context.Context, conn *pgconn.PgConn, l *login, q Request, do execution,
) (rows int, err error) {
	if q.types, err = r.check(ctx, conn, l, q); err != nil {
		return 0, err
	}
	if err = begin(ctx, conn, r.timeout); err != nil {
		return 0, err
	}
	return do(ctx, conn, q)
}

// ended returns ErrDeadline, or the error of the caller's ctx, if that is why a query failed.
func (r *Runner) ended(ctx, limited context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return fmt.Errorf("%w of %s", ErrDeadline, r.timeout)
	default:
		return err
	}
}

// begin ends the transaction of the check, and begins that of the query. It also limits the time in PostgreSQL, for the
// case that this node dies.
func begin(ctx context.Context, conn *pgconn.PgConn, timeout time.Duration) error {
	if err := rollBack(ctx, conn); err != nil {
		return postgres.Outage("end the check of a query", err)
	}
	settings := fmt.Sprintf("%s; SET LOCAL statement_timeout = %d; %s", readOnly+postgres.LocalSettings(),
		(timeout + 5*time.Second).Milliseconds(), searchPath)
	_, err := conn.Exec(ctx, settings).ReadAll()
	if err != nil {
		return postgres.Outage("begin a query", err)
	}
	return nil
}

// rollBack ends the transaction, if there is one: otherwise PostgreSQL's log would get a warning.
func rollBack(ctx context.Context, conn *pgconn.PgConn) error {
	if conn.TxStatus() == 'I' {
		return nil
	}
	_, err := conn.Exec(ctx, "ROLLBACK").ReadAll()
	return err
}

// closeConn cancels a query that is still running, because a server that computes does not notice a closed connection.
func closeConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if conn.IsBusy() {
		_ = conn.CancelRequest(ctx)
	} else {
		_ = rollBack(ctx, conn)
	}
	_ = conn.Close(ctx)
}

// execute runs one statement: prefix and the user's SQL, or a statement of ours. row gets copies of the values; its
// error is returned while the statement still runs.
func execute(ctx context.Context, conn *pgconn.PgConn, prefix string, q Request, row func([]*string) error) error {
	args := make([][]byte, len(q.Args))
	for i, arg := range q.Args {
		args[i] = []byte(arg)
	}
	reader := conn.ExecParams(ctx, prefix+q.SQL, args, q.types, nil, nil)
	for reader.NextRow() {
		if row == nil {
			continue
		}
		if err := row(copied(reader.Values())); err != nil {
			return err
		}
	}
	if _, err := reader.Close(); err != nil {
		return userError(err, prefix)
	}
	return nil
}

// copied copies values, which are valid until the next row.
func copied(values [][]byte) []*string {
	row := make([]*string, len(values))
	for i, value := range values {
		if value != nil {
			row[i] = new(strings.ToValidUTF8(string(value), "�"))
		}
	}
	return row
}

// columnsOf reads the columns of the cursor.
func columnsOf(ctx context.Context, conn *pgconn.PgConn) ([]Column, error) {
	const query = `SELECT pg_catalog.format_type(oid, modifier) FROM unnest($1::pg_catalog.oid[],
		$2::pg_catalog.int4[]) WITH ORDINALITY AS f(oid, modifier, n) ORDER BY n`
	described, err := conn.Prepare(ctx, "", "FETCH FROM "+cursor, nil)
	if err != nil {
		return nil, userError(err, "")
	}
	fields := described.Fields
	columns := make([]Column, 0, len(fields))
	oids, modifiers := make([]string, len(fields)), make([]string, len(fields))
	for i, f := range fields {
		oids[i], modifiers[i] = strconv.FormatUint(uint64(f.DataTypeOID), 10), strconv.Itoa(int(f.TypeModifier))
	}
	q := Request{SQL: query, Args: []string{arrayOf(oids), arrayOf(modifiers)}}
	err = execute(ctx, conn, "", q, func(row []*string) error {
		columns = append(columns, Column{Name: fields[len(columns)].Name, Type: *row[0]})
		return nil
	})
	return columns, err
}

// audit writes that a query ran, also after a cancellation. The row has no SQL, which may contain values.
func (r *Runner) audit(ctx context.Context, q Request, rows int, took time.Duration, failed error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
	defer cancel()
	sum := sha256.Sum256([]byte(q.SQL))
	details := map[string]any{
		"length": len(q.SQL), "sha256": hex.EncodeToString(sum[:]), "rows": rows, "tookMilliseconds": took.Milliseconds(),
	}
	if q.Name != "" {
		details["query"] = q.Name
	}
	if failed != nil {
		details["failed"] = true
	}
	e := access.AuditEntry{Action: access.AuditQueryRun, Details: details}
	return access.Audited(ctx, r.db, e, func(pgx.Tx) error { return nil })
}
