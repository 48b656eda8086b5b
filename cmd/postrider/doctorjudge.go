package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"postrider/cmd/postrider/terminal"
	"postrider/jobs"
	"postrider/postgres"
	"postrider/query"
)

const (
	// clockTolerance is what two clocks that are kept right differ by at most, and what a hurried connection adds.
	clockTolerance = 2 * time.Second
	// longOpen is from when on a transaction that vacuum waits for is worth a look.
	longOpen = 10 * time.Minute
	// manyTransactions is what vacuum may be behind: a busy hour.
	manyTransactions = 10_000_000
	// muchWAL is what a slot that nobody reads may keep before it is told.
	muchWAL = 10 << 30
	// silentNode is a lease and a half: four heartbeats of a second.
	silentNode = 6 * time.Second
	// lateJobs is from when on attempts that are due and not begun show that the nodes do not keep up.
	lateJobs = time.Minute
)

// judgeServer is about the server, before anything of ours is looked at. now is when it was asked, by our clock.
func judgeServer(found *findings, seen *query.Checkup, now time.Time) {
	s := &seen.Server
	if s.VersionNumber < 150000 {
		found.fail("version", "PostgreSQL "+s.Version, "postrider needs PostgreSQL 15 or newer")
	} else {
		found.ok("version", "PostgreSQL %s", s.Version)
	}
	if s.InReplica || s.ReadOnly {
		found.fail("writes",
			"this server or database takes no writes: "+
				terminal.Either(s.InReplica, "it is a standby", "default_transaction_read_only is on"),
			"lead POSTRIDER_DATABASE_URL to the primary (target_session_attrs=read-write finds it)")
	}
	judgeDurability(found, seen)
	if difference := s.Clock.Sub(now).Abs(); difference > clockTolerance {
		found.warn("clock",
			fmt.Sprintf("the database's clock and this machine's differ by %s", difference.Round(time.Millisecond)),
			"keep both with NTP. Deliveries go by the database's clock alone; shared access signatures, and what people read "+
				"in logs, do not")
	} else {
		found.ok("clock", "the database's and this machine's agree within %s", clockTolerance)
	}
	if seen.Settings["autovacuum"] == "off" || seen.Settings["track_counts"] == "off" {
		found.fail("autovacuum", "autovacuum, or the counting that it goes by, is off",
			"ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();")
	}
	for _, o := range seen.Overrides {
		if limit, err := strconv.Atoi(o.Value); strings.HasSuffix(o.Name, "_timeout") && (err != nil || limit > 0) {
			found.warn("timeouts", fmt.Sprintf("%s = %s%s", o.Name, o.Value, ofWhom(o)),
				"publishing and recording finish within seconds, but migrations and purges may not: give postrider's role none")
		}
	}
}

// judgeDisk is about the end of a probe. What else may keep it from being stored, such as rights, has its own findings.
func judgeDisk(found *findings, probe error) {
	switch {
	case postgres.IsDiskFull(probe):
		found.fail("disk", "PostgreSQL's disk is full: no event can be stored, no attempt recorded",
			"free space on the disk of PostgreSQL's data directory, or enlarge it; the nodes go on by themselves")
	case probe == nil:
		found.ok("disk", "PostgreSQL has room for what it is given to store")
	}
}

func ofWhom(o query.SettingOverride) string {
	text := ""
	if o.Role != "" {
		text += " for role " + o.Role
	}
	if o.Database != "" {
		text += " in database " + o.Database
	}
	return text
}

// judgeDurability: what a 200 promises is no more than what PostgreSQL's commit does.
func judgeDurability(found *findings, seen *query.Checkup) {
	whole := true
	for _, name := range []string{"fsync", "full_page_writes"} {
		if seen.Settings[name] == "off" {
			whole = false
			found.fail("durability", name+" is off: after a crash of the machine the database may be broken",
				"ALTER SYSTEM SET "+name+" = on; SELECT pg_reload_conf();")
		}
	}
	for _, o := range seen.Overrides {
		if o.Name == "synchronous_commit" && o.Value == "off" {
			whole = false
			found.fail("durability",
				"synchronous_commit is off"+ofWhom(o)+": PostgreSQL may forget events that were answered with 200",
				"ALTER "+alterable(o)+" RESET synchronous_commit;")
		}
	}
	if whole && seen.Settings["synchronous_commit"] == "off" {
		whole = false
		found.fail("durability", "synchronous_commit is off: PostgreSQL may forget events that were answered with 200",
			"ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf(); and take it out of the URL, if it is there")
	}
	if whole {
		standby := ""
		if seen.Settings["synchronous_standby_names"] != "" {
			standby = ", standbys included"
		}
		found.ok("durability", "what is committed stays (synchronous_commit %s%s)",
			seen.Settings["synchronous_commit"], standby)
	}
}

// alterable is what ALTER takes for the one who has the setting.
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

func judgeRights(found *findings, seen *query.Checkup) bool {
	if len(seen.Unreachable) > 0 {
		found.fail("rights",
			fmt.Sprintf("role %s may not read and write %s", seen.Server.Role, strings.Join(seen.Unreachable, ", ")),
			"connect as the role that migrated the database, or have it GRANT these rights")
		return false
	}
	if len(seen.RolesGone) > 0 {
		found.warn("roles", "there is no role "+strings.Join(seen.RolesGone, ", "), "the service works without; postrider "+
			"migrate up makes them where its role may, and prints the statements where it may not")
	} else {
		found.ok("rights", "role %s has what the service needs, and the roles for people are there", seen.Server.Role)
	}
	return true
}

// judgeTables: dead rows are what a fetch steps over.
func judgeTables(found *findings, seen *query.Checkup) {
	bad := 0
	for _, t := range seen.HotTables {
		switch {
		case !t.Autovacuum:
			bad++
			found.warn("autovacuum", "it is switched off for "+t.Name,
				"ALTER TABLE postrider_internal."+t.Name+" RESET (autovacuum_enabled);")
		case t.DeadRows > 100_000 && t.DeadRows > 2*t.Rows:
			bad++
			found.warn("autovacuum", fmt.Sprintf("%s has %d dead rows beside %d live ones; last vacuum %s", t.Name, t.DeadRows,
				t.Rows, lastTime(t.LastVacuum)),
				"see what holds vacuum back (below); if nothing does, give autovacuum more workers, or: VACUUM postrider_internal."+
					t.Name+";")
		}
	}
	if bad == 0 {
		found.ok("autovacuum", "the tables in which rows come and go have few dead ones")
	}
}

func lastTime(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return at.UTC().Format(time.RFC3339)
}

func judgeHolders(found *findings, seen *query.Checkup) {
	bad := len(*found)
	if s := &seen.Server; !s.SeesAll {
		found.warn("vacuum horizon",
			fmt.Sprintf("role %s does not see since when other roles' transactions are open: neither this doctor nor "+
				"postrider_oldest_transaction_age_seconds tells of them", s.Role),
			fmt.Sprintf("as a superuser: GRANT pg_read_all_stats TO %q;", s.Role))
	}
	for _, h := range seen.Holders {
		judgeHolder(found, h)
	}
	if len(*found) == bad {
		found.ok("vacuum horizon", "no transaction, prepared transaction or replication slot holds vacuum back")
	}
}

func judgeHolder(found *findings, h query.HorizonHolder) {
	const check = "vacuum horizon"
	age := h.Age.Round(time.Second)
	switch {
	case h.Kind == "transaction" && h.Age > longOpen:
		found.warn(check, fmt.Sprintf("a transaction has been open for %s: %s", age, h.Name),
			"dead rows stay until it ends: finish it, or SELECT pg_terminate_backend(its process); "+
				"idle_in_transaction_session_timeout ends forgotten ones")
	case h.Kind == "prepared" && h.Age > longOpen:
		found.warn(check, fmt.Sprintf("a prepared transaction waits for %s: %s", age, h.Name),
			"COMMIT PREPARED or ROLLBACK PREPARED it: it holds locks and dead rows, also over a restart")
	case h.Kind == "slot" && h.Transactions > manyTransactions:
		found.warn(check, fmt.Sprintf("replication slot %s is %d transactions behind", h.Name, h.Transactions),
			"have its standby or subscriber catch up, or drop it: SELECT pg_drop_replication_slot(…)")
	case h.Kind == "slot" && h.Idle && h.KeptBytes > muchWAL:
		found.warn(check, fmt.Sprintf("nobody reads replication slot %s, which keeps %d GiB of WAL", h.Name, h.KeptBytes>>30),
			"start its reader, or drop it before the disk is full; max_slot_wal_keep_size bounds such slots")
	}
}

func judgePartitions(found *findings, seen *query.Checkup) {
	bad, least := len(*found), jobs.PartitionsAhead
	var oldest *time.Time
	for _, p := range seen.Partitions {
		least = min(least, p.Ahead)
		if p.Oldest != nil && (oldest == nil || p.Oldest.Before(*oldest)) {
			oldest = p.Oldest
		}
		switch remedy := "a node makes them at its start and each day: start one, and look at its log"; {
		case !p.Today:
			found.fail("partitions", p.Table+" has none for today: nothing can be stored", remedy)
		case p.Ahead == 0:
			found.fail("partitions", p.Table+" has none for tomorrow: from midnight UTC on nothing can be stored", remedy)
		case p.Ahead < jobs.PartitionsAhead-2:
			found.warn("partitions",
				fmt.Sprintf("%s has those of %s ahead, and should have %d", p.Table, terminal.Plural(p.Ahead, "day"),
					jobs.PartitionsAhead), remedy)
		}
		if p.Default {
			found.warn("partitions", p.Table+" has a default partition, which is none of ours",
				"rows in it keep new days from being attached: move them, and detach it")
		}
	}
	if len(seen.Partitions) == 0 || oldest == nil {
		found.fail("partitions", "there are none: nothing can be stored", "a node makes them at its start: start one")
		return
	}
	if len(*found) == bad {
		found.ok("partitions", "%d days ahead; the oldest is of %s (serve --keep-delivered-days, --keep-attempts-days)",
			least, oldest.UTC().Format(time.DateOnly))
	}
}

// spareConnections is what people and backups want beside the service.
const spareConnections = 5

// judgeConnections counts what the nodes may open: a pool each, and a connection for the heartbeat.
func judgeConnections(found *findings, seen *query.Checkup, each int) {
	setting := func(name string) int { n, _ := strconv.Atoi(seen.Settings[name]); return n }
	room := setting("max_connections") - setting("superuser_reserved_connections") - setting("reserved_connections")
	others := max(seen.Server.Connections-seen.Server.OwnConnections, 0)
	nodes := max(len(seen.Nodes), 1)
	want := nodes * (each + 1)
	says := fmt.Sprintf("%s of up to %d connections, and %d of others now, of %d", terminal.Plural(nodes, "node"), each+1,
		others, room)
	if want+others+spareConnections > room {
		found.warn("connections", says, "raise max_connections, lower --max-conns, run fewer nodes, or put PgBouncer between")
	} else {
		found.ok("connections", "%s", says)
	}
}

func judgeNodes(found *findings, seen *query.Checkup) {
	if len(seen.Nodes) == 0 {
		found.warn("nodes", "none that delivers is alive", "what is published waits: start postrider serve")
	}
	versions := map[string]bool{}
	finds, silent := int64(0), 0
	for _, n := range seen.Nodes {
		versions[n.Version] = true
		finds += n.SweeperFinds
		if n.Silent > silentNode {
			silent++
			found.warn("nodes", fmt.Sprintf("%s has given no sign of life for %s", n.Name, n.Silent.Round(time.Second)),
				terminal.Either(silent < len(seen.Nodes),
					"the others take its attempts over; if it still runs, look at its way to the database",
					"start postrider serve, or look at its way to the database"))
		}
	}
	switch {
	case len(versions) > 1:
		found.warn("nodes", fmt.Sprintf("%d nodes of %d versions", len(seen.Nodes), len(versions)),
			"right during an upgrade; afterwards, restart the old ones")
	case len(seen.Nodes) > 0 && silent == 0:
		found.ok("nodes", "%d alive, of one version", len(seen.Nodes))
	}
	if finds > 0 {
		found.warn("sweeper",
			fmt.Sprintf("it has mended %s since the nodes began: deliveries, batches or jobs that had come apart",
				terminal.Plural(finds, "row")), "nothing was lost; somebody changed the tables by hand, or it is a mistake of "+
				"ours: please report it with the nodes' logs")
	} else if len(seen.Nodes) > 0 {
		found.ok("sweeper", "it found nothing to mend")
	}
	if seen.OldestDue != nil && *seen.OldestDue > lateJobs {
		late := fmt.Sprintf("attempts have been due for up to %s, %d or more", seen.OldestDue.Round(time.Second),
			seen.Waiting)
		if seen.Running || !seen.Overdue {
			found.warn("backlog", late, "more nodes or workers; postrider.backlogs tells whose they are")
		} else {
			found.fail("backlog", late+", and none is in flight: no node delivers",
				"start postrider serve, or restart the nodes; /readyz of each and its log report why")
		}
	}
}
