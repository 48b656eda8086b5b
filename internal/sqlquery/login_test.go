package sqlquery

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestRemediesOfRejectedConnections(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ code, routine, host, remedy string }{
		{"28P01", "auth_failed", "db", ""},
		{"28000", "InitializeSessionUserId", "db", ""}, // NOLOGIN
		{"28P01", "", "db", "PgBouncer: auth_query"},
		{"08P01", "", "db", "POSTRIDER_QUERY_DATABASE_URL"},
		{"28000", "auth_failed", "db", "`host \"events\" +postrider_reader ADDRESS scram-sha-256`"},
		{"28000", "auth_failed", "/run/postgresql", "`local \"events\" +postrider_reader scram-sha-256`"},
		{"28000", "ClientAuthentication", "db", "pg_hba.conf"},
		{"42501", "CheckMyDatabase", "db", "GRANT CONNECT ON DATABASE \"events\" TO postrider_reader;"},
		{"3D000", "InitPostgres", "db", "correct the name of the database"},
	} {
		remedy := connectRemedy(&pgconn.Config{Host: row.host, Database: "events"},
			&pgconn.PgError{Code: row.code, Routine: row.routine})
		require.Contains(t, remedy, row.remedy, row)
		require.Equal(t, row.remedy == "", remedy == "", row)
	}
}
