package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/terminal"
	"postrider/jobs"
	"postrider/migrations"
)

const (
	clockTolerance   = 2 * time.Second  // synchronized clocks differ by less, even with a slow connection
	longOpen         = 10 * time.Minute // older transactions that hold back vacuum are reported
	manyTransactions = 10_000_000       // a busy hour: slots further behind are reported
	muchWAL          = 10 << 30         // WAL that a slot without a reader may keep, in bytes
	silentNode       = 6 * time.Second  // a lease and a half: six heartbeats
	lateJobs         = time.Minute      // attempts that are due for longer are reported
	spareConnections = 5                // for operators and backups
)

// checkServer checks PostgreSQL's version, state and settings. now is the time of the query by this machine's clock.
func checkServer(found *findings, seen *query.Checkup, now time.Time) {
	s := &seen.Server
	version := "PostgreSQL " + s.Version
	found.check("version", version, problem{
		s.VersionNumber < migrations.MinServerVersion, fail, version, "postrider needs PostgreSQL 15 or newer",
	})
	found.check("encoding", "the database's encoding is UTF8", problem{
		s.Encoding != "UTF8", fail, "the database's encoding is " + s.Encoding + "; it must be UTF8",
		"create another database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
	}, problem{
		s.CollationChanged, warn, "the system's collations have changed since the database was created: indexes of texts " +
			"may miss rows",
		fmt.Sprintf("rebuild them: REINDEX DATABASE %q; ALTER DATABASE %[1]q REFRESH COLLATION VERSION", s.Database),
	})
	// Who controls a node does not control more than its database.
	const remedy = "see docs/operate/install.md, \"The database's role\"; migrate up has --admin-database-url"
	found.check("role", fmt.Sprintf("role %s is no superuser and has no CREATEROLE", s.Role), problem{
		s.Superuser, warn, fmt.Sprintf("role %s is a superuser: a node needs only a role that owns its schema", s.Role),
		"serve with another role: " + remedy,
	}, problem{
		s.CreatesRoles && !s.Superuser, warn, fmt.Sprintf("role %s has CREATEROLE, which a node does not need", s.Role),
		fmt.Sprintf("ALTER ROLE %q NOCREATEROLE; %s", s.Role, remedy),
	})
	names := strings.Join(s.StatementReaders, ", ")
	found.check("statements", "no user reads other users' queries in pg_stat_statements", problem{
		names != "", warn, "users read other users' queries in pg_stat_statements: " + names,
		"REVOKE pg_read_all_stats from these roles, or pg_monitor, which includes it",
	})
	checkDurability(found, seen)
	difference := s.Clock.Sub(now).Abs()
	found.check("clock",
		fmt.Sprintf("the clocks of database and this machine differ by less than %s", clockTolerance), problem{
			difference > clockTolerance, warn,
			fmt.Sprintf("the clocks of database and this machine differ by %s", difference.Round(time.Millisecond)),
			"synchronize both with NTP. Deliveries use the database's clock; shared access signatures and logs the machine's",
		})
	found.check("autovacuum", "", problem{
		seen.Settings["autovacuum"] == "off" || seen.Settings["track_counts"] == "off", fail,
		"autovacuum or track_counts is off",
		"ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();",
	})
	checkSettings(found, seen)
}

// checkSettings checks what sessions of ours do not set, or what the URL or a pooler replaces.
func checkSettings(found *findings, seen *query.Checkup) {
	var problems []problem
	for _, name := range []string{"statement_timeout", "transaction_timeout", "idle_session_timeout"} {
		value := seen.Settings[name] // "" before the version that has it
		problems = append(problems, problem{
			value != "" && value != "0", warn, fmt.Sprintf("%s is %s ms in postrider's sessions", name, value),
			"remove it from the URL or, for PgBouncer, set it to 0 for the role: migrations and purges can take longer",
		})
	}
	for _, o := range seen.Planner {
		problems = append(problems, problem{
			true, warn, fmt.Sprintf("the planner's setting %s is %s: statements may take much longer", o.Name, o.Value),
			fmt.Sprintf("run: ALTER ROLE %q IN DATABASE %q SET %s = %s", seen.Server.Role, seen.Server.Database, o.Name,
				o.Default),
		})
	}
	replication := seen.Settings["session_replication_role"]
	problems = append(problems, problem{
		replication == "replica", fail, "session_replication_role is replica: the triggers of postrider's tables do not run",
		fmt.Sprintf("as a superuser: ALTER ROLE %q RESET session_replication_role", seen.Server.Role),
	})
	found.check("settings", "sessions have postrider's settings", problems...)
}

// checkWrites checks the result of a test write.
func checkWrites(found *findings, failed error) {
	found.check("writes", "events can be stored", problem{
		failed != nil, fail, "events cannot be stored: " + postgres.CommitReason(failed),
		"remove the cause; then the nodes continue by themselves",
	})
}

// checkDurability checks that commits survive a crash.
func checkDurability(found *findings, seen *query.Checkup) {
	const loses = ": PostgreSQL can lose accepted events in a crash"
	var problems []problem
	for _, name := range []string{"fsync", "full_page_writes"} {
		problems = append(problems, problem{
			seen.Settings[name] == "off", fail, name + " is off: a crash of the machine can corrupt the database",
			"ALTER SYSTEM SET " + name + " = on; SELECT pg_reload_conf();",
		})
	}
	overridden := false
	for _, o := range seen.Overrides {
		if o.Name == "synchronous_commit" && o.Value == "off" {
			overridden = true
			problems = append(problems, problem{
				true, fail, "synchronous_commit is off" + terminal.Either(o.Role == "", "", " for role "+o.Role) +
					terminal.Either(o.Database == "", "", " in database "+o.Database) + loses,
				"ALTER " + alterable(o) + " RESET synchronous_commit;",
			})
		}
	}
	commit := seen.Settings["synchronous_commit"]
	problems = append(problems, problem{
		commit == "off" && !overridden, fail, "synchronous_commit is off" + loses,
		"ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf(); also remove it from the URL",
	})
	standbys := terminal.Either(seen.Settings["synchronous_standby_names"] == "", "", ", standbys included")
	found.check("durability", fmt.Sprintf("commits survive a crash (synchronous_commit %s%s)", commit, standbys),
		problems...)
}

// alterable is the object of an ALTER statement for the setting.
func alterable(o query.SettingOverride) string {
	switch {
	case o.Role != "" && o.Database != "":
		return fmt.Sprintf("ROLE %q IN DATABASE %q", o.Role, o.Database)
	case o.Role != "":
		return fmt.Sprintf("ROLE %q", o.Role)
	case o.Database != "":
		return fmt.Sprintf("DATABASE %q", o.Database)
	}
	return "ROLE ALL"
}

func checkRights(found *findings, seen *query.Checkup) (sufficient bool) {
	if len(seen.Unreachable) > 0 {
		found.fail("rights",
			fmt.Sprintf("role %s may not read and write %s", seen.Server.Role, strings.Join(seen.Unreachable, ", ")),
			"connect as the role that migrated the database, or GRANT these rights")
		return false
	}
	found.ok("rights", "role %s has the rights of the service", seen.Server.Role)
	return true
}

// checkRoles checks the roles for SQL users. The service works without them.
func checkRoles(found *findings, missing []migrations.MissingRight) {
	problems := make([]problem, len(missing))
	for i, m := range missing {
		remedy := "an administrator may run: " + m.Statement
		if m.By != "" {
			remedy = "run postrider migrate up, or as role " + m.By + ": " + m.Statement
		}
		problems[i] = problem{true, warn, m.Problem, remedy}
	}
	found.check("roles", "the roles for SQL users have their rights", problems...)
}

// checkTables checks for dead rows, which slow down each fetch.
func checkTables(found *findings, seen *query.Checkup) {
	var problems []problem
	for _, t := range seen.HotTables {
		problems = append(problems, problem{
			!t.Autovacuum, warn, "autovacuum is off for table " + t.Name,
			"ALTER TABLE postrider_internal." + t.Name + " RESET (autovacuum_enabled);",
		}, problem{
			t.Autovacuum && t.DeadRows > 100_000 && t.DeadRows > 2*t.Rows, warn,
			fmt.Sprintf("table %s has %d dead and %d live rows; last vacuum %s", t.Name, t.DeadRows, t.Rows,
				timeOr("never", t.LastVacuum)),
			"fix the findings of vacuum horizon; if there are none, give autovacuum more workers, or: VACUUM " +
				"postrider_internal." + t.Name + ";",
		})
	}
	found.check("autovacuum", "the tables of jobs and deliveries have few dead rows", problems...)
}

func checkHolders(found *findings, seen *query.Checkup) {
	role := seen.Server.Role
	problems := []problem{{
		!seen.Server.SeesAll, warn,
		fmt.Sprintf("role %s cannot see the age of other roles' transactions: neither this check nor "+
			"postrider_oldest_transaction_age_seconds includes them", role),
		fmt.Sprintf("as a superuser: GRANT pg_read_all_stats TO %q;", role),
	}}
	for _, h := range seen.Holders {
		age, long := h.Age.Round(time.Second), h.Age > longOpen
		slot, behind := h.Kind == "slot", h.Transactions > manyTransactions
		problems = append(problems, problem{
			h.Kind == "transaction" && long, warn, fmt.Sprintf("a transaction has been open for %s: %s", age, h.Name),
			"vacuum keeps dead rows until it ends: finish it, or SELECT pg_terminate_backend(its process); " +
				"idle_in_transaction_session_timeout ends idle ones",
		}, problem{
			h.Kind == "prepared" && long, warn, fmt.Sprintf("a prepared transaction has been open for %s: %s", age, h.Name),
			"COMMIT PREPARED or ROLLBACK PREPARED it: it keeps locks and dead rows, even after a restart",
		}, problem{
			slot && behind, warn, fmt.Sprintf("replication slot %s is %d transactions behind", h.Name, h.Transactions),
			"let its standby or subscriber catch up, or drop it: SELECT pg_drop_replication_slot(…)",
		}, problem{
			slot && !behind && h.Idle && h.KeptBytes > muchWAL, warn,
			fmt.Sprintf("replication slot %s has no reader and keeps %d GiB of WAL", h.Name, h.KeptBytes>>30),
			"start its reader, or drop the slot before the disk is full; max_slot_wal_keep_size limits such slots",
		})
	}
	found.check("vacuum horizon", "no transaction, prepared transaction or replication slot holds vacuum back",
		problems...)
}

// unused reports whether no node has run on the database: the first one creates partitions.
func unused(seen *query.Checkup) bool {
	return len(seen.Nodes) == 0 &&
		!slices.ContainsFunc(seen.Partitions, func(p query.PartitionDays) bool { return p.Oldest != nil })
}

func checkPartitions(found *findings, seen *query.Checkup) {
	if unused(seen) {
		found.warn("partitions", "no node has run yet: events cannot be stored", "start postrider serve: it creates the "+
			"partitions")
		return
	}
	const remedy = "nodes create partitions at their start and each day: start one, and read its log"
	least := jobs.PartitionsAhead
	var oldest *time.Time
	var problems []problem
	for _, p := range seen.Partitions {
		least = min(least, p.Ahead)
		if p.Oldest != nil && (oldest == nil || p.Oldest.Before(*oldest)) {
			oldest = p.Oldest
		}
		problems = append(problems,
			problem{!p.Today, fail, p.Table + " has no partition for today: nothing can be stored", remedy},
			problem{
				p.Today && p.Ahead == 0, fail,
				p.Table + " has no partition for tomorrow: after midnight UTC nothing can be stored", remedy,
			},
			problem{
				p.Today && p.Ahead > 0 && p.Ahead < jobs.PartitionsAhead-2, warn,
				fmt.Sprintf("%s has partitions for %s ahead; %d are normal", p.Table, terminal.Plural(p.Ahead, "day"),
					jobs.PartitionsAhead), remedy,
			},
			problem{
				p.Default, warn, p.Table + " has a default partition, which postrider did not create",
				"move its rows and detach it: they prevent new partitions",
			})
	}
	day := ""
	if oldest != nil {
		day = oldest.UTC().Format(time.DateOnly)
	}
	found.check("partitions", fmt.Sprintf("%d days ahead, the oldest of %s (serve --keep-delivered-days, "+
		"--keep-attempts-days)", least, day), problems...)
}

// checkConnections adds up the connections that the nodes may open: a pool each, and one for the heartbeat.
func checkConnections(found *findings, seen *query.Checkup, each int) {
	setting := func(name string) int { n, _ := strconv.Atoi(seen.Settings[name]); return n }
	limit := setting("max_connections") - setting("superuser_reserved_connections") - setting("reserved_connections")
	others := max(seen.Server.Connections-seen.Server.OwnConnections, 0)
	nodes := max(len(seen.Nodes), 1)
	message := fmt.Sprintf("%s with up to %d connections each and %d other connections, of %d",
		terminal.Plural(nodes, "node"), each+1, others, limit)
	found.check("connections", message, problem{
		nodes*(each+1)+others+spareConnections > limit, warn, message,
		"raise max_connections, lower --max-conns, run fewer nodes, or use PgBouncer",
	})
}

func checkNodes(found *findings, seen *query.Checkup) {
	nodes := len(seen.Nodes)
	problems := []problem{{
		nodes == 0, warn, "no node that delivers is running", "start postrider serve; published events wait until then",
	}}
	versions, repairs, silent := map[string]bool{}, int64(0), 0
	for _, n := range seen.Nodes {
		versions[n.Version] = true
		repairs += n.ConsistencyRepairs
		if n.Silent > silentNode {
			silent++
			problems = append(problems, problem{
				true, warn, fmt.Sprintf("node %s wrote its last heartbeat %s ago", n.Name, n.Silent.Round(time.Second)),
				terminal.Either(silent < nodes,
					"the other nodes reclaim its attempts; if it still runs, check its connection to the database",
					"start postrider serve, or check its connection to the database"),
			})
		}
	}
	problems = append(problems, problem{
		len(versions) > 1, warn, fmt.Sprintf("%d nodes of %d versions", nodes, len(versions)),
		"normal during an upgrade; afterwards, restart the old nodes",
	})
	found.check("nodes", fmt.Sprintf("%d running, of one version", nodes), problems...)
	found.check("sweeper", terminal.Either(nodes > 0, "consistency repairs: 0", ""), problem{
		repairs > 0, warn, fmt.Sprintf("consistency repairs since the nodes started: %d", repairs),
		"no event is lost; unless the tables were changed by hand, this is a bug: please report it with the nodes' logs",
	})
	if seen.OldestDue == nil || *seen.OldestDue <= lateJobs {
		return
	}
	late := fmt.Sprintf("at least %d attempts are due, for up to %s", seen.Waiting, seen.OldestDue.Round(time.Second))
	if seen.Running || !seen.Overdue {
		found.warn("backlog", late, "add nodes or workers; postrider.backlogs shows the event subscriptions")
	} else {
		found.fail("backlog", late+", and none is in flight: no node delivers",
			"start postrider serve, or restart the nodes; /readyz and the log of each node have the reason")
	}
}
