package sqlquery_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/postgres"
	"postrider/internal/sqlquery"
	"postrider/internal/testdb"
)

// login returns the name of one of the login roles.
func (qs *queries) login(t *testing.T, n int) string {
	t.Helper()
	return qs.text(t, fmt.Sprintf("SELECT role FROM postrider_internal.query_logins WHERE id = %d", n))
}

// as is a URL for another role, whose password is x.
func as(t *testing.T, database, role string) string {
	t.Helper()
	u, err := url.Parse(database)
	require.NoError(t, err)
	u.User = url.UserPassword(role, "x")
	return u.String()
}

func (qs *queries) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := qs.pool.Exec(t.Context(), statement)
	require.NoError(t, err, statement)
}

func (qs *queries) text(t *testing.T, query string) (text string) {
	t.Helper()
	require.NoError(t, qs.pool.QueryRow(t.Context(), query).Scan(&text), query)
	return text
}

func (qs *queries) problems(t *testing.T) (list []string) {
	t.Helper()
	qs.requireNoSessions(t, "IN (SELECT role FROM postrider_internal.query_logins)")
	found, err := qs.runner.Check(t.Context())
	require.NoError(t, err)
	for _, p := range found {
		list = append(list, p.Role[strings.LastIndexByte(p.Role, '_')+1:]+" "+p.Message)
	}
	return list
}

// requireNoSessions waits for the sessions of an earlier check, which end a moment later. Until then their roles have
// no other one, and are not checked.
func (qs *queries) requireNoSessions(t *testing.T, roles string) {
	t.Helper()
	sessions := "SELECT count(*)::text FROM pg_stat_activity WHERE usename " + roles
	require.Eventually(t, func() bool { return qs.text(t, sessions) == "0" }, time.Minute, 10*time.Millisecond)
}

func TestLoginsAreRepaired(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	db := postgres.NewDB(qs.pool)
	ensure := func() error { return sqlquery.EnsureLogins(t.Context(), db, db, qs.sealer) }
	const passwords = "SELECT string_agg(encode(password_sealed, 'hex'), ' ' ORDER BY id) " +
		"FROM postrider_internal.query_logins"
	before := qs.text(t, passwords)
	require.NoError(t, ensure())
	require.Equal(t, before, qs.text(t, passwords), "what is right stays")
	require.Empty(t, qs.problems(t))

	qs.exec(t, "DROP ROLE "+qs.login(t, 1))
	qs.exec(t, "ALTER ROLE "+qs.login(t, 2)+" PASSWORD 'other'")
	qs.exec(t, "GRANT postrider_operator TO "+qs.login(t, 3))
	qs.exec(t, "ALTER ROLE "+qs.login(t, 4)+" CREATEROLE CONNECTION LIMIT 5")
	require.Equal(t, []string{
		"1 does not exist",
		"2 cannot connect: password authentication failed for user \"" + qs.login(t, 2) + "\"",
		"3 is a member of postrider_operator",
		"4 has the attribute CREATEROLE", "4 has no CONNECTION LIMIT 1: its queries can end each other",
	}, qs.problems(t))
	require.NoError(t, ensure())
	require.Empty(t, qs.problems(t))

	qs.exec(t, "GRANT USAGE ON SCHEMA postrider_internal TO "+qs.login(t, 1))
	require.Equal(t, []string{
		"1 has rights on schema postrider_internal", "1 owns objects or has been granted rights of its own",
	}, qs.problems(t))
	require.ErrorContains(t, ensure(), "cannot be dropped", "an administrator must revoke what was granted")
	qs.exec(t, "DROP OWNED BY "+qs.login(t, 1))
	require.NoError(t, ensure())
	require.Empty(t, qs.problems(t))
}

// A new role does not help a login that may not connect: the roles stay, and the remedy is another one.
func TestLoginsThatMayNotConnectAreLeftAlone(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	database := qs.text(t, "SELECT current_database()")
	const oids = "SELECT string_agg(oid::text, ' ' ORDER BY oid) FROM pg_roles WHERE rolname IN " +
		"(SELECT role FROM postrider_internal.query_logins)"
	before := qs.text(t, oids)
	requireRemedy := func(message, remedy string) {
		t.Helper()
		db := postgres.NewDB(qs.pool)
		problem, ok := errors.AsType[*sqlquery.LoginError](sqlquery.EnsureLogins(t.Context(), db, db, qs.sealer))
		require.True(t, ok)
		require.Contains(t, problem.Message, message)
		require.Contains(t, problem.Remedy, remedy)
		require.Equal(t, before, qs.text(t, oids))
	}

	qs.exec(t, "REVOKE CONNECT, TEMPORARY ON DATABASE "+database+" FROM PUBLIC")
	grant := "GRANT CONNECT ON DATABASE \"" + database + "\" TO postrider_reader;"
	requireRemedy("cannot connect: permission denied for database", grant)
	qs.exec(t, grant)
	grant = "GRANT TEMPORARY ON DATABASE " + database + " TO postrider_reader;"
	requireRemedy("has no right TEMPORARY", grant)
	qs.exec(t, grant)
	require.Empty(t, qs.problems(t))

	file := filepath.Join(testdb.Server(t).Dir(), "data", "pg_hba.conf")
	rules, err := os.ReadFile(file)
	require.NoError(t, err)
	load := func(rules string, done func() bool) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
		qs.exec(t, "SELECT pg_reload_conf()")
		require.Eventually(t, done, time.Minute, 20*time.Millisecond)
	}
	load("host "+database+" +postrider_reader all reject\n"+string(rules),
		func() bool { return len(qs.problems(t)) == sqlquery.Logins })
	requireRemedy("cannot connect: pg_hba.conf rejects",
		"`host \""+database+"\" +postrider_reader ADDRESS scram-sha-256`")
	load(string(rules), func() bool { return len(qs.problems(t)) == 0 })

	qs.exec(t, "ALTER ROLE "+qs.login(t, 1)+" NOLOGIN")
	db := postgres.NewDB(qs.pool)
	require.NoError(t, sqlquery.EnsureLogins(t.Context(), db, db, qs.sealer), "a new role may log in")
	require.NotEqual(t, before, qs.text(t, oids))
	require.Empty(t, qs.problems(t))
}

// PostgreSQL prefers operators for exactly the types of an expression, also to its own ones for other types.
func TestPlantedOperatorsAreNotRun(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	qs.exec(t, `CREATE FUNCTION public.planted(oid, regclass) RETURNS boolean LANGUAGE plpgsql COST 0.001 AS
		$$ BEGIN RAISE EXCEPTION 'planted() was run by %', current_user; END $$`)
	for _, operator := range []string{"=", "<>"} {
		qs.exec(t, "CREATE OPERATOR public."+operator+" (LEFTARG = oid, RIGHTARG = regclass, FUNCTION = public.planted)")
	}
	require.Empty(t, qs.problems(t))
	_, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT topic FROM topics"})
	require.NoError(t, err)
}

// A database that is restored under another name gets its own roles.
func TestLoginsOfARestoredDatabase(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	qs.exec(t, "UPDATE postrider_internal.query_logins SET role = replace(role, '_query_', '_query_old_')")
	require.Contains(t, qs.problems(t), "1 does not exist")
	_, err := qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT 1"})
	require.ErrorIs(t, err, sqlquery.ErrNotConfigured)
	db := postgres.NewDB(qs.pool)
	require.NoError(t, sqlquery.EnsureLogins(t.Context(), db, db, qs.sealer))
	require.Empty(t, qs.problems(t))

	qs.exec(t, "DELETE FROM postrider_internal.query_logins")
	_, err = qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT 1"})
	require.ErrorIs(t, err, sqlquery.ErrNotConfigured)
	_, err = qs.runner.Check(t.Context())
	require.ErrorIs(t, err, sqlquery.ErrNotConfigured)
}

// A role with CREATEROLE that is no superuser can create the logins. From PostgreSQL 16 on it also needs ADMIN OPTION
// on postrider_reader.
func TestLoginsNeedCreateRole(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	number, _, _ := strings.Cut(qs.text(t, "SELECT current_database()"), "_")
	newer := qs.text(t, "SELECT (current_setting('server_version_num')::integer >= 160000)::text") == "true"
	for _, row := range []struct {
		name, attributes, option, problem, remedy string
		rejected                                  bool
	}{
		{"admin", "CREATEROLE", "WITH ADMIN OPTION", "", "", false},
		{"member", "CREATEROLE", "", "permission denied to grant role", "GRANT postrider_reader TO member_" + number +
			" WITH ADMIN OPTION;", newer},
		{"other", "NOCREATEROLE", "WITH ADMIN OPTION", "permission denied to create role", "--admin-database-url", true},
	} {
		role := row.name + "_" + number
		qs.exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'x' %s", role, row.attributes))
		qs.exec(t, "GRANT postrider_reader TO "+role+" "+row.option)
		for n := 1; n <= sqlquery.Logins; n++ {
			qs.exec(t, "DROP ROLE IF EXISTS "+qs.login(t, n))
		}
		pool, err := postgres.OpenPool(t.Context(), as(t, qs.url, role), 2)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		err = sqlquery.EnsureLogins(t.Context(), postgres.NewDB(qs.pool), postgres.NewDB(pool), qs.sealer)
		if row.rejected {
			problem, ok := errors.AsType[*sqlquery.LoginError](err)
			require.True(t, ok, err)
			require.Contains(t, problem.Message, row.problem)
			require.Contains(t, problem.Remedy, row.remedy)
			continue
		}
		require.NoError(t, err)
		require.Empty(t, qs.problems(t))
		_, err = qs.runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT topic FROM topics"})
		require.NoError(t, err)
	}
}

func TestQueryURL(t *testing.T) {
	t.Parallel()
	qs := setup(t, sqlquery.Options{})
	database := qs.text(t, "SELECT current_database()")
	role := "fixed_" + database[:strings.IndexByte(database, '_')]
	qs.exec(t, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'; GRANT postrider_reader TO "+role)
	fixed := sqlquery.Options{URLs: []string{as(t, qs.url, role)}}
	runner, err := sqlquery.NewRunner(postgres.NewDB(qs.pool), nil, fixed)
	require.NoError(t, err)
	got, err := runner.Run(t.Context(), sqlquery.Request{SQL: "SELECT current_user"})
	require.NoError(t, err)
	require.Equal(t, [][]string{{role}}, texts(got.Rows))
	found, err := runner.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []sqlquery.LoginError{
		{Role: role, Message: "has no CONNECTION LIMIT 1: its queries can end each other"},
	}, found)
	qs.exec(t, "ALTER ROLE "+role+" CONNECTION LIMIT 1; GRANT postrider_operator TO "+role)
	qs.requireNoSessions(t, "= '"+role+"'")
	found, err = runner.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []sqlquery.LoginError{{Role: role, Message: "is a member of postrider_operator"}}, found)

	_, err = sqlquery.NewRunner(postgres.NewDB(qs.pool), nil, sqlquery.Options{URLs: []string{"postgres://%zz"}})
	require.ErrorContains(t, err, "URL of the query database")
}
