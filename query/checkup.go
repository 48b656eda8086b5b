package query

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/postgres"
)

// Checkup is the state of a database that may have a problem. Reading it changes nothing.
type Checkup struct {
	Server      ServerFacts
	Settings    map[string]string // in this session, by name
	Overrides   []SettingOverride
	HotTables   []HotTable
	Holders     []HorizonHolder
	Partitions  []PartitionDays
	Nodes       []NodeFacts
	Unreachable []string // postrider's tables on which this role lacks a right
	RolesGone   []string // of the roles that migrations create
	OldestDue   *time.Duration
	Waiting     int64 // due jobs, up to 10,000
	Running     bool  // whether an attempt is running
	Overdue     bool  // see Overdue
}

// ServerFacts describe the server and this session.
type ServerFacts struct {
	VersionNumber       int // 150004
	Version             string
	Database, Role      string
	InReplica, ReadOnly bool
	Clock               time.Time // the database's
	Connections         int       // of clients, to any database of the server
	OwnConnections      int       // of them of postrider to this database
	SeesAll             bool      // this role sees what sessions of other roles do (pg_read_all_stats)
}

// SettingOverride is a setting of a role or a database.
type SettingOverride struct{ Role, Database, Name, Value string } // Role, Database: "" = all

// HotTable is a table whose rows are inserted and deleted all the time.
type HotTable struct {
	Name           string
	Rows, DeadRows int64
	Bytes          int64
	LastVacuum     *time.Time
	Autovacuum     bool // not switched off for this table
}

// HorizonHolder keeps vacuum from removing dead rows, because it may still read them.
type HorizonHolder struct {
	Kind string // transaction, prepared or slot
	Name string // application and process, global id, or slot
	Age  time.Duration
	// Transactions is the number of transactions since the oldest one that it may see.
	Transactions int64
	KeptBytes    int64 // WAL that a slot keeps
	Idle         bool  // a transaction without a running statement, or a slot without a reader
}

// PartitionDays describes a table that is partitioned by day.
type PartitionDays struct {
	Table   string
	Ahead   int // days after today, without a gap
	Today   bool
	Default bool // it has a default partition, for rows of days without a partition
	Oldest  *time.Time
}

// NodeFacts describe a node.
type NodeFacts struct {
	Name, Host, Version string
	Silent              time.Duration // since its last heartbeat
	SweeperFinds        int64
}

var (
	checkServer     = sqlFile("checkup_server.sql")
	checkSettings   = sqlFile("checkup_settings.sql")
	checkOverrides  = sqlFile("checkup_overrides.sql")
	checkHolders    = sqlFile("checkup_holders.sql")
	checkRights     = sqlFile("checkup_rights.sql")
	checkHotTables  = sqlFile("checkup_tables.sql")
	checkPartitions = sqlFile("checkup_partitions.sql")
	checkNodes      = sqlFile("checkup_nodes.sql")
	checkDue        = sqlFile("checkup_due.sql")
)

const checkRoles = `
SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)`

// ReadServer reads the state of the server. It needs no schema of postrider. ErrTooSlow, ErrUnavailable.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (c *Checkup, err error) {
	c = &Checkup{Settings: map[string]string{}}
	err = readCheckup(ctx, pool, func(tx pgx.Tx) error {
		server, err := postgres.Row[ServerFacts](ctx, tx, checkServer)
		if err != nil {
			return err
		}
		c.Server = *server
		rows, _ := tx.Query(ctx, checkSettings)
		var name, value string
		_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error { c.Settings[name] = value; return nil })
		if err != nil {
			return err
		}
		if c.Overrides, err = postgres.Rows[SettingOverride](ctx, tx, checkOverrides); err != nil {
			return err
		}
		c.Holders, err = postgres.Rows[HorizonHolder](ctx, tx, checkHolders)
		return err
	})
	return c, err
}

// ReadOwn reads the state of postrider's schemas in a migrated database. It sets RolesGone to those of roles that do
// not exist. ErrTooSlow, ErrUnavailable.
func (c *Checkup) ReadOwn(ctx context.Context, pool *pgxpool.Pool, roles []string) error {
	return readCheckup(ctx, pool, func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, checkRoles, roles)
		if c.RolesGone, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return err
		}
		rows, _ = tx.Query(ctx, checkRights)
		if c.Unreachable, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(c.Unreachable) > 0 {
			return err // the other statements would fail without these rights
		}
		if c.HotTables, err = postgres.Rows[HotTable](ctx, tx, checkHotTables); err != nil {
			return err
		}
		if c.Partitions, err = postgres.Rows[PartitionDays](ctx, tx, checkPartitions); err != nil {
			return err
		}
		if c.Nodes, err = postgres.Rows[NodeFacts](ctx, tx, checkNodes); err != nil {
			return err
		}
		return tx.QueryRow(ctx, checkDue).Scan(&c.Waiting, &c.OldestDue, &c.Running)
	})
}

// readCheckup reads in one transaction.
func readCheckup(ctx context.Context, pool *pgxpool.Pool, read func(pgx.Tx) error) error {
	return postgres.NewDB(pool).Read(ctx, "the database's state", read)
}
