package main

import (
	"cmp"
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

	asMigrator = "connect as the role that migrated the database"
	// Who controls a node does not control more than its database.
	ownRole = "see docs/operate/install.md, \"The database's role\"; migrate up has --admin-database-url"
)

// checkServer checks PostgreSQL's version, state and settings. now is the time of the query by this machine's clock.
func (f *findings) checkServer(seen *query.Checkup, now time.Time) {
	s, set, role := &seen.Server, seen.Settings, "role "+seen.Server.Role
	f.check("version", "PostgreSQL "+s.Version,
		failIf(s.VersionNumber < migrations.MinServerVersion, "PostgreSQL "+s.Version,
			"postrider needs PostgreSQL 15 or newer"))
	f.check("encoding", "the database's encoding is UTF8",
		failIf(s.Encoding != "UTF8", "the database's encoding is "+s.Encoding+"; it must be UTF8",
			"create another database: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"),
		warnIf(s.CollationChanged,
			"the system's collations have changed since the database was created: indexes of texts may miss rows",
			fmt.Sprintf("rebuild them: REINDEX DATABASE %q; ALTER DATABASE %[1]q REFRESH COLLATION VERSION", s.Database)))
	f.check("role", role+" is no superuser and has no CREATEROLE",
		warnIf(s.Superuser, role+" is a superuser: a node needs only a role that owns its schema",
			"serve with another role: "+ownRole),
		warnIf(s.CreatesRoles && !s.Superuser, role+" has CREATEROLE, which a node does not need",
			fmt.Sprintf("ALTER ROLE %q NOCREATEROLE; %s", s.Role, ownRole)))
	f.check("statements", "no user reads other users' queries in pg_stat_statements",
		warnIf(len(s.StatementReaders) > 0,
			"users read other users' queries in pg_stat_statements: "+strings.Join(s.StatementReaders, ", "),
			"REVOKE pg_read_all_stats from these roles, or pg_monitor, which includes it"))
	f.checkDurability(seen)
	const clocks = "the clocks of database and this machine differ by "
	difference := s.Clock.Sub(now).Abs()
	f.check("clock", clocks+"less than "+clockTolerance.String(),
		warnIf(difference > clockTolerance, clocks+difference.Round(time.Millisecond).String(), "synchronize both with NTP. "+
			"Deliveries use the database's clock; shared access signatures and logs the machine's"))
	f.check("autovacuum", "", // see checkTables
		failIf(set["autovacuum"] == "off" || set["track_counts"] == "off", "autovacuum or track_counts is off",
			"ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();"))
	f.checkSettings(seen)
}

// checkDurability checks that commits survive a crash.
func (f *findings) checkDurability(seen *query.Checkup) {
	const name, loses = "synchronous_commit", ": PostgreSQL can lose accepted events in a crash"
	var wrong []finding
	for _, name := range []string{"fsync", "full_page_writes"} {
		wrong = append(wrong, failIf(seen.Settings[name] == "off",
			name+" is off: a crash of the machine can corrupt the database",
			"ALTER SYSTEM SET "+name+" = on; SELECT pg_reload_conf();"))
	}
	overridden := false
	for _, o := range seen.Overrides {
		where, object := "", "ROLE ALL"
		if o.Role != "" {
			where, object = " for role "+o.Role, fmt.Sprintf("ROLE %q", o.Role)
		}
		if o.Database != "" {
			where += " in database " + o.Database
			object = terminal.Either(o.Role == "", "", object+" IN ") + fmt.Sprintf("DATABASE %q", o.Database)
		}
		off := o.Name == name && o.Value == "off"
		overridden = overridden || off
		wrong = append(wrong, failIf(off, name+" is off"+where+loses, "ALTER "+object+" RESET "+name+";"))
	}
	commit, standbys := seen.Settings[name], seen.Settings["synchronous_standby_names"] != ""
	wrong = append(wrong, failIf(commit == "off" && !overridden, name+" is off"+loses,
		"ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf(); also remove it from the URL"))
	f.check("durability", "commits survive a crash (synchronous_commit "+commit+
		terminal.Either(standbys, ", standbys included", "")+")", wrong...)
}

// checkSettings checks what sessions of ours do not set, or what the URL or a pooler replaces.
func (f *findings) checkSettings(seen *query.Checkup) {
	var wrong []finding
	for _, name := range []string{"statement_timeout", "transaction_timeout", "idle_session_timeout"} {
		value := cmp.Or(seen.Settings[name], "0") // "" before the version that has it
		wrong = append(wrong, warnIf(value != "0", fmt.Sprintf("%s is %s ms in postrider's sessions", name, value),
			"remove it from the URL or, for PgBouncer, set it to 0 for the role: migrations and purges can take longer"))
	}
	role, database := seen.Server.Role, seen.Server.Database
	for _, o := range seen.Planner {
		wrong = append(wrong, warnIf(true,
			"the planner's setting "+o.Name+" is "+o.Value+": statements may take much longer",
			fmt.Sprintf("run: ALTER ROLE %q IN DATABASE %q SET %s = %s", role, database, o.Name, o.Default)))
	}
	f.check("settings", "sessions have postrider's settings", append(wrong,
		failIf(seen.Settings["session_replication_role"] == "replica",
			"session_replication_role is replica: the triggers of postrider's tables do not run",
			fmt.Sprintf("as a superuser: ALTER ROLE %q RESET session_replication_role", role)))...)
}

// checkWrites checks the result of a test write.
func (f *findings) checkWrites(failed error) {
	f.check("writes", "events can be stored",
		failIf(failed != nil, "events cannot be stored: "+postgres.CommitReason(failed),
			"remove the cause; then the nodes continue by themselves"))
}

// checkRights checks the rights of the service's role and, if they suffice, of the roles for SQL users.
func (f *findings) checkRights(seen *query.Checkup, missing []migrations.MissingRight) (sufficient bool) {
	role, wrong := "role "+seen.Server.Role, []finding{}
	for _, m := range missing { // the service works without them
		by := terminal.Either(m.By == "", "an administrator may run", "run postrider migrate up, or as role "+m.By)
		wrong = append(wrong, warnIf(true, m.Problem, by+": "+m.Statement))
	}
	return f.check("rights", role+" has the rights of the service",
		failIf(len(seen.Unreachable) > 0, role+" may not read and write "+strings.Join(seen.Unreachable, ", "),
			asMigrator+", or GRANT these rights")) &&
		f.check("roles", "the roles for SQL users have their rights", wrong...)
}

// checkTables checks for dead rows, which slow down each fetch, and for what keeps them.
func (f *findings) checkTables(seen *query.Checkup) {
	var wrong []finding
	for _, t := range seen.HotTables {
		vacuumed := "never"
		if t.LastVacuum != nil {
			vacuumed = terminal.Time(*t.LastVacuum)
		}
		wrong = append(wrong,
			warnIf(!t.Autovacuum, "autovacuum is off for table "+t.Name,
				"ALTER TABLE postrider_internal."+t.Name+" RESET (autovacuum_enabled);"),
			warnIf(t.Autovacuum && t.DeadRows > 100_000 && t.DeadRows > 2*t.Rows, fmt.Sprintf(
				"table %s has %d dead and %d live rows; last vacuum %s", t.Name, t.DeadRows, t.Rows, vacuumed),
				"fix the findings of vacuum horizon; if there are none, give autovacuum more workers, or: VACUUM "+
					"postrider_internal."+t.Name+";"))
	}
	f.check("autovacuum", "the tables of jobs and deliveries have few dead rows", wrong...)
	wrong = []finding{warnIf(!seen.Server.SeesAll, "role "+seen.Server.Role+" cannot see the age of other roles' "+
		"transactions: neither this check nor postrider_oldest_transaction_age_seconds includes them",
		fmt.Sprintf("as an administrator: GRANT pg_read_all_stats TO %q;", seen.Server.Role))}
	for _, h := range seen.Holders {
		long, open := h.Age > longOpen, fmt.Sprintf("transaction has been open for %s: %s", h.Age.Round(time.Second), h.Name)
		slot, behind := h.Kind == "slot", h.Transactions > manyTransactions
		wrong = append(wrong,
			warnIf(h.Kind == "transaction" && long, "a "+open,
				"vacuum keeps dead rows until it ends: finish it, or SELECT pg_terminate_backend(its process); "+
					"idle_in_transaction_session_timeout ends idle ones"),
			warnIf(h.Kind == "prepared" && long, "a prepared "+open,
				"COMMIT PREPARED or ROLLBACK PREPARED it: it keeps locks and dead rows, even after a restart"),
			warnIf(slot && behind, fmt.Sprintf("replication slot %s is %d transactions behind", h.Name, h.Transactions),
				"let its standby or subscriber catch up, or drop it: SELECT pg_drop_replication_slot(…)"),
			warnIf(slot && !behind && h.Idle && h.KeptBytes > muchWAL,
				fmt.Sprintf("replication slot %s has no reader and keeps %d GiB of WAL", h.Name, h.KeptBytes>>30),
				"start its reader, or drop the slot before the disk is full; max_slot_wal_keep_size limits such slots"))
	}
	f.check("vacuum horizon", "no transaction, prepared transaction or replication slot holds vacuum back", wrong...)
}

func (f *findings) checkPartitions(seen *query.Checkup) {
	const remedy = "nodes create partitions at their start and each day: start one, and read its log"
	if unused(seen) {
		f.check("partitions", "", warnIf(true, "no node has run yet: events cannot be stored",
			"start postrider serve: it creates the partitions"))
		return
	}
	least, oldest, wrong := jobs.PartitionsAhead, "", []finding{}
	for _, p := range seen.Partitions {
		least = min(least, p.Ahead)
		if p.Oldest != nil {
			day := p.Oldest.UTC().Format(time.DateOnly)
			oldest = min(cmp.Or(oldest, day), day)
		}
		wrong = append(wrong,
			failIf(!p.Today, p.Table+" has no partition for today: nothing can be stored", remedy),
			failIf(p.Today && p.Ahead == 0,
				p.Table+" has no partition for tomorrow: after midnight UTC nothing can be stored", remedy),
			warnIf(p.Today && p.Ahead > 0 && p.Ahead < jobs.PartitionsAhead-2, fmt.Sprintf("%s has partitions for %s ahead; "+
				"%d are normal", p.Table, terminal.Plural(p.Ahead, "day"), jobs.PartitionsAhead), remedy),
			warnIf(p.Default, p.Table+" has a default partition, which postrider did not create",
				"move its rows and detach it: they prevent new partitions"))
	}
	f.check("partitions", fmt.Sprintf("%d days ahead, the oldest of %s (serve --keep-delivered-days, "+
		"--keep-attempts-days)", least, oldest), wrong...)
}

// checkNodes checks the nodes, their backlog, and the connections that they may open: a pool each, one for the
// heartbeat, and one for /metrics while the pool is busy.
func (f *findings) checkNodes(seen *query.Checkup, maxConns int) {
	setting := func(name string) int { n, _ := strconv.Atoi(seen.Settings[name]); return n }
	limit := setting("max_connections") - setting("superuser_reserved_connections") - setting("reserved_connections")
	others := max(seen.Server.Connections-seen.Server.OwnConnections, 0)
	nodes, each := len(seen.Nodes), maxConns+2
	message := fmt.Sprintf("%s with up to %d connections each and %d other connections, of %d",
		terminal.Plural(max(nodes, 1), "node"), each, others, limit)
	f.check("connections", message, warnIf(max(nodes, 1)*each+others+spareConnections > limit, message,
		"raise max_connections, lower --max-conns, run fewer nodes, or use PgBouncer"))
	silent, repairs, versions := 0, int64(0), map[string]bool{}
	wrong := []finding{warnIf(nodes == 0, "no node that delivers is running",
		"start postrider serve; published events wait until then")}
	for _, n := range seen.Nodes {
		versions[n.Version] = true
		repairs += n.ConsistencyRepairs
		silent += terminal.Either(n.Silent > silentNode, 1, 0)
		wrong = append(wrong, warnIf(n.Silent > silentNode,
			fmt.Sprintf("node %s wrote its last heartbeat %s ago", n.Name, n.Silent.Round(time.Second)),
			terminal.Either(silent < nodes,
				"the other nodes reclaim its attempts; if it still runs, check its connection to the database",
				"start postrider serve, or check its connection to the database")))
	}
	f.check("nodes", fmt.Sprintf("%d running, of one version", nodes), append(wrong,
		warnIf(len(versions) > 1, fmt.Sprintf("%d nodes of %d versions", nodes, len(versions)),
			"normal during an upgrade; afterwards, restart the old nodes"))...)
	f.check("sweeper", terminal.Either(nodes > 0, "consistency repairs: 0", ""),
		warnIf(repairs > 0, fmt.Sprintf("consistency repairs since the nodes started: %d", repairs), "no event is lost; "+
			"unless the tables were changed by hand, this is a bug: please report it with the nodes' logs"))
	if seen.OldestDue == nil || *seen.OldestDue <= lateJobs {
		return
	}
	late := fmt.Sprintf("at least %d attempts are due, for up to %s", seen.Waiting, seen.OldestDue.Round(time.Second))
	stuck := seen.Overdue && !seen.Running
	f.check("backlog", "",
		warnIf(!stuck, late, "add nodes or workers; postrider.backlogs shows the event subscriptions"),
		failIf(stuck, late+", and none is in flight: no node delivers",
			"start postrider serve, or restart the nodes; /readyz and the log of each node have the reason"))
}

// unused reports whether no node has run on the database: the first one creates partitions.
func unused(seen *query.Checkup) bool {
	return len(seen.Nodes) == 0 &&
		!slices.ContainsFunc(seen.Partitions, func(p query.PartitionDays) bool { return p.Oldest != nil })
}
