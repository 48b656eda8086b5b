package sqlquery

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"postrider/internal/postgres"
)

const (
	// maxJoins limits a query, because PostgreSQL cannot cancel the parsing of a thousand joins, which takes seconds.
	maxJoins = 100
	// checkSettings are those of a query, but with a time limit that parsing does not need.
	checkSettings = "; SET LOCAL statement_timeout = '5s'; SET LOCAL lock_timeout = '1s'; " +
		"SET LOCAL check_function_bodies = off; " + searchPath
	allowedHint = "Remove it. Queries may call functions of pg_catalog and postrider that are not volatile, and " +
		"random(), clocks, UUIDs and pg_…_size(). They may read tables, and the views of pg_catalog, information_schema " +
		"and postrider. XML, paths, polygons, multiranges and jsonpath are not allowed."
)

// check rejects a query that uses what no cancellation ends, or what a rollback does not undo. It returns the types of
// the parameters, with which the query has to run: so PostgreSQL resolves all names as it did for the check.
//
// Names can hide in many ways, so PostgreSQL resolves them: it parses and stores the body of an SQL function, but does
// not run it. The login role of the query creates this function on the primary, in a transaction that is rolled back:
// names depend on the role's rights, and parsing runs input functions of types, which must not get the rights of a
// node. For that the role needs the right TEMPORARY. The query itself cannot use it in its read-only transaction.
func (r *Runner) check(ctx context.Context, conn *pgconn.PgConn, l *login, q Request) (types []uint32, err error) {
	if n := len(joins.FindAllStringIndex(q.SQL, -1)); n > maxJoins {
		return nil, &Error{Message: fmt.Sprintf("the query has %d joins; at most %d are allowed", n, maxJoins)}
	}
	primary, err := r.beginCheck(ctx, conn, l)
	if err != nil {
		return nil, err
	}
	if primary != conn {
		defer closeConn(primary)
	}
	if types, err = parse(ctx, primary, l, q); err != nil {
		return nil, err
	}
	const stored = "SELECT prosqlbody::text FROM pg_proc " +
		"WHERE proname = 'postrider_query' AND pronamespace = pg_my_temp_schema()"
	tree, err := value(ctx, primary, stored)
	if err != nil {
		return nil, err
	}
	u, queries := usesOf(tree, q.Args)
	if queries != 1 {
		return nil, &Error{Message: "a query has one statement", Hint: onlySelect}
	}
	found, err := value(ctx, primary, sql("not_allowed"), arrayOf(u.functions), arrayOf(u.types), arrayOf(u.searches),
		arrayOf(u.products), arrayOf(u.sets))
	if err != nil {
		return nil, err
	}
	if found != "" {
		return nil, &Error{Message: "the query " + found + ", which is not allowed", Hint: allowedHint}
	}
	return types, nil
}

// beginCheck begins a transaction in conn or, if that is a standby's, with the same login on the primary.
func (r *Runner) beginCheck(ctx context.Context, conn *pgconn.PgConn, l *login) (*pgconn.PgConn, error) {
	begin := "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; " + postgres.LocalSettings() + checkSettings
	_, err := conn.Exec(ctx, begin).ReadAll()
	if postgres.SQLState(err) != "0A000" { // feature_not_supported: a standby only reads
		return conn, began(err)
	}
	config := r.db.Config().ConnConfig.Config.Copy()
	config.User, config.Password = l.config.User, l.config.Password
	config = limit(config)
	conn, err = untilFree(ctx, func() (*pgconn.PgConn, error) { return connectWith(ctx, config) })
	if err != nil {
		return nil, err
	}
	if _, err = conn.Exec(ctx, begin).ReadAll(); err != nil {
		closeConn(conn)
	}
	return conn, began(err)
}

func began(err error) error {
	if err != nil {
		return postgres.Outage("begin the check of a query", err)
	}
	return nil
}

// parse lets PostgreSQL parse a query and store it as a function, and returns the types of its parameters.
func parse(ctx context.Context, conn *pgconn.PgConn, l *login, q Request) ([]uint32, error) {
	// Only a cursor's declaration rejects everything but one SELECT, and finds the types of parameters.
	prepared, err := conn.Prepare(ctx, "", declare+q.SQL, nil)
	if err != nil {
		return nil, parseError(err, declare)
	}
	types := prepared.ParamOIDs
	if len(types) != len(q.Args) {
		return nil, &Error{Message: fmt.Sprintf("the query has %d parameters; %d values were sent", len(types), len(q.Args))}
	}
	const format = "SELECT coalesce(string_agg(id::regtype::text, ', ' ORDER BY n), '') " +
		"FROM unnest($1::oid[]) WITH ORDINALITY AS t(id, n)"
	ids := make([]string, len(types))
	for i, id := range types {
		ids[i] = strconv.FormatUint(uint64(id), 10)
	}
	names, err := value(ctx, conn, format, arrayOf(ids))
	if err != nil {
		return nil, err
	}
	create := "CREATE FUNCTION pg_temp.postrider_query(" + names + ") RETURNS SETOF record LANGUAGE sql BEGIN ATOMIC "
	// The line feed ends a comment.
	_, err = conn.ExecParams(ctx, create+q.SQL+"\n; END", nil, nil, nil, nil).Close()
	if postgres.SQLState(err) == "42501" { // insufficient_privilege: the rights of the query were enough just now
		return nil, &rejectedError{l.config.User, "it has no right TEMPORARY on the database", ""}
	}
	if err != nil {
		return nil, parseError(err, create)
	}
	return types, nil
}

func parseError(err error, prefix string) error {
	if postgres.SQLState(err) == "57014" { // query_canceled
		return &Error{
			Message: "PostgreSQL needs more than 5 s to parse the query", Hint: "Use fewer columns, joins and subqueries.",
		}
	}
	return userError(err, prefix)
}

// value returns the text of the last row's first column, "" without a row.
func value(ctx context.Context, conn *pgconn.PgConn, query string, args ...string) (text string, err error) {
	err = execute(ctx, conn, "", Request{SQL: query, Args: args}, func(row []*string) error {
		text = *row[0]
		return nil
	})
	return text, err
}

func arrayOf(items []string) string { return "{" + strings.Join(items, ",") + "}" }
