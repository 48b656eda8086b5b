package query

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"postrider/internal/postgres"
)

// Checkup is the state of a database that may have a problem. Reading it changes nothing.
type Checkup struct {
	Server      ServerFacts
	Settings    map[string]string // in this session, by name
	Overrides   []SettingOverride
	Planner     []PlannerSetting
	HotTables   []HotTable
	Holders     []HorizonHolder
	Partitions  []PartitionDays
	Nodes       []NodeFacts
	Unreachable []string // postrider's tables on which this role lacks a right
	DueJobs
	Overdue bool // see Overdue
}

// DueJobs are the jobs that a node must fetch now.
type DueJobs struct {
	Waiting   int64 // up to 10,000
	OldestDue *time.Duration
	Running   bool // whether an attempt is running
}

// ServerFacts describe the server and this session.
type ServerFacts struct {
	VersionNumber    int // 150004
	Version          string
	Database, Role   string
	Encoding         string    // the database's
	CollationChanged bool      // the system's collations have another version than the database's indexes
	Clock            time.Time // the database's
	Connections      int       // of clients, to any database of the server
	OwnConnections   int       // of them of postrider to this database
	SeesAll          bool      // this role sees what sessions of other roles do (pg_read_all_stats)
	Superuser        bool      // this role is one
	CreatesRoles     bool      // this role has CREATEROLE
	// StatementReaders are logins of users that read the texts of others' queries in pg_stat_statements.
	StatementReaders []string
}

// SettingOverride is a setting of a role or a database.
type SettingOverride struct{ Role, Database, Name, Value string } // Role, Database: "" = all

// PlannerSetting is a setting of the planner in this session that is not PostgreSQL's default.
type PlannerSetting struct{ Name, Value, Default string }

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
	ConsistencyRepairs  int64
}

// ReadServer reads the state of the server. It needs no schema of postrider. ErrTooSlow, ErrUnavailable.
func ReadServer(ctx context.Context, pool *pgxpool.Pool) (*Checkup, error) {
	c := Checkup{Settings: map[string]string{}}
	err := readCheckup(ctx, pool, func(r *reading) {
		c.Server = row[ServerFacts](r, "checkup_server")
		for _, s := range rows[struct{ Name, Setting string }](r, "checkup_settings") {
			c.Settings[s.Name] = s.Setting
		}
		c.Overrides = rows[SettingOverride](r, "checkup_overrides")
		c.Planner = rows[PlannerSetting](r, "checkup_planner")
		c.Holders = rows[HorizonHolder](r, "checkup_holders")
	})
	return &c, err
}

// ReadOwn reads the state of postrider's schemas in a migrated database. ErrTooSlow, ErrUnavailable.
func (c *Checkup) ReadOwn(ctx context.Context, pool *pgxpool.Pool) error {
	return readCheckup(ctx, pool, func(r *reading) {
		c.Unreachable, r.err = postgres.Values[string](ctx, r.tx, sql("checkup_rights"))
		if len(c.Unreachable) > 0 {
			return // the other statements would fail without these rights
		}
		c.HotTables = rows[HotTable](r, "checkup_tables")
		c.Partitions = rows[PartitionDays](r, "checkup_partitions")
		c.Nodes = rows[NodeFacts](r, "checkup_nodes")
		c.DueJobs = row[DueJobs](r, "checkup_due")
	})
}

func readCheckup(ctx context.Context, pool *pgxpool.Pool, page func(*reading)) error {
	return read(ctx, postgres.NewDB(pool), "the database's state", page)
}

// EndpointHost is a host of endpoints.
type EndpointHost struct {
	// URL is the scheme, host and port of their URLs, or of targets such as kafka://a:9092,b:9092.
	URL           string
	Subscriptions int
	// Example is one of these event subscriptions, as topic/name.
	Example string
	// Hosts is the number of all hosts.
	Hosts int
}

// ReadEndpointHosts reads the hosts with the most event subscriptions. It needs no encryption key. ErrTooSlow,
// ErrUnavailable.
func ReadEndpointHosts(ctx context.Context, pool *pgxpool.Pool, most int) (hosts []EndpointHost, err error) {
	err = readCheckup(ctx, pool, func(r *reading) {
		hosts = rows[EndpointHost](r, "endpoint_hosts", pgx.NamedArgs{"most": most})
	})
	return hosts, err
}

// Overdue reports whether a delivery or batch has been due for half a minute without being fetched.
func Overdue(ctx context.Context, pool *pgxpool.Pool) (overdue bool, err error) {
	if err := pool.QueryRow(ctx, sql("overdue")).Scan(&overdue); err != nil {
		return false, fmt.Errorf("search for overdue deliveries: %w", err)
	}
	return overdue, nil
}
