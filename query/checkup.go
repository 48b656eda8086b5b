package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/postgres"
)

// Checkup is what can be seen of a database that may have something wrong with it. Reading it changes nothing.
type Checkup struct {
	Server      ServerFacts
	Settings    map[string]string // in this session, by name
	Overrides   []SettingOverride
	HotTables   []HotTable
	Holders     []HorizonHolder
	Partitions  []PartitionDays
	Nodes       []NodeFacts
	Unreachable []string // tables of ours on which this role lacks a right
	RolesGone   []string // of the roles that migrations make
	OldestDue   *time.Duration
	Waiting     int64 // jobs that are due, at most 10,000 are counted
	Running     bool  // some attempt is in flight
	Overdue     bool  // see Overdue
}

// ServerFacts are of the server and of who asks.
type ServerFacts struct {
	VersionNumber       int // 150004
	Version             string
	Database, Role      string
	InReplica, ReadOnly bool
	Clock               time.Time // the database's
	Connections         int       // of clients, to any database of the server
	OwnConnections      int       // of them postrider's to this database
	SeesAll             bool      // also what sessions of other roles do (pg_read_all_stats)
}

// SettingOverride is a setting that a role or a database has for itself.
type SettingOverride struct{ Role, Database, Name, Value string } // "" = every

// HotTable is a table in which rows come and go.
type HotTable struct {
	Name           string
	Rows, DeadRows int64
	Bytes          int64
	LastVacuum     *time.Time
	Autovacuum     bool // not switched off for this table
}

// HorizonHolder is what keeps vacuum from removing dead rows: what it may still see.
type HorizonHolder struct {
	Kind string // transaction, prepared or slot
	Name string // of whom: application and process, global id, slot
	Age  time.Duration
	// Transactions is how many have begun since the oldest one that it may see.
	Transactions int64
	KeptBytes    int64 // WAL that a slot keeps
	Idle         bool  // a transaction in which nothing runs; a slot nobody reads
}

// PartitionDays tells of a table with a part for each day.
type PartitionDays struct {
	Table   string
	Ahead   int // days after today, without a gap
	Today   bool
	Default bool // it has a default partition, into which rows fall that have no day
	Oldest  *time.Time
}

// NodeFacts are of a node.
type NodeFacts struct {
	Name, Host, Version string
	Silent              time.Duration // since its last heartbeat
	SweeperFinds        int64
}

const (
	// Whose session it is, and to which database, everybody may see; what it is and does, only whoever has
	// pg_read_all_stats. Nearly all that are somebody's are clients.
	checkServer = `
SELECT current_setting('server_version_num')::int AS version_number, current_setting('server_version') AS version,
       current_database()::text AS database, current_user::text AS role,
       pg_is_in_recovery() AS in_replica, current_setting('default_transaction_read_only') = 'on' AS read_only,
       clock_timestamp() AS clock,
       (SELECT count(*) FROM pg_stat_activity WHERE coalesce(backend_type, 'client backend') = 'client backend'
           AND datid IS NOT NULL)::int AS connections,
       (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postrider'
           AND datname = current_database())::int AS own_connections,
       pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all`

	checkSettings = `
SELECT name, setting FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'track_counts', 'max_connections',
     'superuser_reserved_connections', 'reserved_connections',
                'synchronous_standby_names', 'statement_timeout', 'transaction_timeout')`

	// Those that concern this database and this role, of the settings that matter.
	checkOverrides = `
SELECT coalesce(r.rolname, '')::text AS role, coalesce(d.datname, '')::text AS database, split_part(c, '=', 1) AS name,
       substr(c, strpos(c, '=') + 1) AS value
  FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) c
  LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase
 WHERE (s.setdatabase = 0 OR d.datname = current_database()) AND (s.setrole = 0 OR r.rolname = session_user)
   AND split_part(c, '=', 1) IN ('synchronous_commit', 'default_transaction_read_only', 'default_transaction_isolation',
       'statement_timeout', 'transaction_timeout', 'search_path')
 ORDER BY 1, 2, 3`

	checkHotTables = `
SELECT c.relname::text AS name, coalesce(u.n_live_tup, 0) AS rows, coalesce(u.n_dead_tup, 0) AS dead_rows,
       pg_total_relation_size(c.oid) AS bytes,
       greatest(u.last_vacuum, u.last_autovacuum) AS last_vacuum,
       NOT coalesce('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions),
           false) AS autovacuum
  FROM pg_class c LEFT JOIN pg_stat_user_tables u ON u.relid = c.oid
 WHERE c.relnamespace = to_regnamespace('postrider_internal') AND c.relname IN ('river_job', 'deliveries', 'batches',
     'rollup_deltas', 'nodes', 'event_subscription_states', 'probations', 'owed')
 ORDER BY 1`

	// A transaction of less than a minute is everyday work. Names are those that clients gave; the statements are not
	// read, for they may hold secrets.
	checkHolders = `
SELECT 'transaction' AS kind, format('%s, process %s of role %s, %s', coalesce(nullif(application_name, ''),
    backend_type), pid, coalesce(usename, '-'), coalesce(state, '-')) AS name,
       clock_timestamp() - xact_start AS age, coalesce(age(backend_xmin), 0)::bigint AS transactions,
       0::bigint AS kept_bytes, coalesce(state LIKE 'idle in transaction%', false) AS idle
  FROM pg_stat_activity
 WHERE xact_start < clock_timestamp() - interval '1 minute' AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL
     OR state LIKE 'idle in transaction%') AND backend_type <> 'autovacuum worker'
UNION ALL
SELECT 'prepared', format('%s of role %s', gid, owner), clock_timestamp() - prepared, age(transaction)::bigint, 0, true
FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '1 minute'
UNION ALL
SELECT 'slot', slot_name, interval '0', greatest(coalesce(age(xmin), 0), coalesce(age(catalog_xmin), 0))::bigint,
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn),
           0)::bigint END, NOT active
  FROM pg_replication_slots`

	checkPartitions = `
WITH parts AS (
    SELECT parent.relname AS parent, CASE WHEN c.relname ~ '_[0-9]{8}$'
        THEN to_date(right(c.relname, 8), 'YYYYMMDD') END AS day, pg_get_expr(c.relpartbound,
        c.oid) = 'DEFAULT' AS is_default
      FROM pg_class parent LEFT JOIN pg_inherits i ON i.inhparent = parent.oid LEFT JOIN pg_class c
          ON c.oid = i.inhrelid
     WHERE parent.relnamespace = to_regnamespace('postrider_internal') AND parent.relkind = 'p'
), today AS (SELECT (now() AT TIME ZONE 'UTC')::date AS day)
SELECT p.parent::text AS "table",
       (SELECT coalesce(min(n), 31) - 1 FROM generate_series(1, 30) n WHERE NOT EXISTS (SELECT FROM parts q
           WHERE q.parent = p.parent AND q.day = t.day + n))::int AS ahead,
       bool_or(p.day = t.day) IS TRUE AS today, bool_or(p.is_default) IS TRUE AS "default",
       min(p.day)::timestamptz AS oldest
  FROM parts p CROSS JOIN today t GROUP BY p.parent, t.day ORDER BY 1`

	checkNodes = `SELECT id AS name, host, version, clock_timestamp() - beat_at AS silent, sweeper_finds
		FROM postrider_internal.nodes ORDER BY id`

	checkRights = `
SELECT c.relname::text FROM pg_class c
 WHERE c.relnamespace = to_regnamespace('postrider_internal') AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
       AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
 ORDER BY 1`

	checkRoles = `SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)`

	checkDue = `
SELECT count(*), clock_timestamp() - min(scheduled_at),
       EXISTS (SELECT FROM postrider_internal.river_job WHERE state = 'running' AND queue = 'deliveries') FROM (
    SELECT scheduled_at FROM postrider_internal.river_job WHERE state = 'available' AND scheduled_at < now()
    LIMIT 10000) due`
)

// ReadServer looks at the server alone: it needs no schema of ours. ErrTooSlow, ErrUnavailable.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (c *Checkup, err error) {
	c = &Checkup{Settings: map[string]string{}}
	err = checking(ctx, pool, func(tx pgx.Tx) error {
		server, err := postgres.Row[ServerFacts](ctx, tx, checkServer, nil)
		if err != nil {
			return err
		}
		c.Server = *server
		rows, _ := tx.Query(ctx, checkSettings)
		var name, value string
		if _, err = pgx.ForEachRow(rows, []any{&name, &value},
			func() error { c.Settings[name] = value; return nil }); err != nil {
			return err
		}
		if c.Overrides, err = postgres.Rows[SettingOverride](ctx, tx, checkOverrides, nil); err != nil {
			return err
		}
		c.Holders, err = postgres.Rows[HorizonHolder](ctx, tx, checkHolders, nil)
		return err
	})
	return c, err
}

// ReadOwn looks at what is ours in a database that has been migrated; roles are those that there should be. ErrTooSlow,
// ErrUnavailable.
func (c *Checkup) ReadOwn(ctx context.Context, pool *pgxpool.Pool, roles []string) error {
	return checking(ctx, pool, func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, checkRoles, roles)
		if c.RolesGone, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		rows, _ = tx.Query(ctx, checkRights)
		if c.Unreachable, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(c.Unreachable) > 0 {
			return err // the rest would fail for want of these rights
		}
		if c.HotTables, err = postgres.Rows[HotTable](ctx, tx, checkHotTables, nil); err != nil {
			return err
		}
		if c.Partitions, err = postgres.Rows[PartitionDays](ctx, tx, checkPartitions, nil); err != nil {
			return err
		}
		if c.Nodes, err = postgres.Rows[NodeFacts](ctx, tx, checkNodes, nil); err != nil {
			return err
		}
		return tx.QueryRow(ctx, checkDue).Scan(&c.Waiting, &c.OldestDue, &c.Running)
	})
}

// checking reads in one transaction, which gives up after readTime.
func checking(ctx context.Context, pool *pgxpool.Pool, read func(pgx.Tx) error) error {
	return postgres.NewDB(pool).Read(ctx, "the database's state", read)
}
