package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"postrider/cmd/postrider/terminal"
	"postrider/jobs"
	"postrider/migrations"
	"postrider/postgres"
	"postrider/query"
)

const (
	// clockTolerance is more than two synchronized clocks differ by, with a slow connection.
	clockTolerance = 2 * time.Second
	// longOpen is the age from which a transaction that holds vacuum back is reported.
	longOpen = 10 * time.Minute
	// manyTransactions is how far vacuum may be behind: a busy hour.
	manyTransactions = 10_000_000
	// muchWAL is how much WAL a slot without a reader may keep.
	muchWAL = 10 << 30
	// silentNode is a lease and a half: six heartbeats of a second.
	silentNode = 6 * time.Second
	// lateJobs is how long attempts may be due before the nodes are too slow.
	lateJobs = time.Minute
	// spareConnections are for people and backups.
	spareConnections = 5
)

// checkServer checks the server, before anything of postrider is read. now is the time of the query by this machine's
// clock.
func checkServer(found *findings, seen *query.Checkup, now time.Time) {
	s := &seen.Server
	version := "PostgreSQL " + s.Version
	found.check("version", version, problem{
		s.VersionNumber < migrations.MinServerVersion, fail, version, "postrider needs PostgreSQL 15 or newer",
	})
	found.check("writes", "", problem{
		s.InReplica || s.ReadOnly, fail, "this server or database accepts no writes: " +
			terminal.Either(s.InReplica, "it is a standby", "default_transaction_read_only is on"),
		"set POSTRIDER_DATABASE_URL to the primary (target_session_attrs=read-write finds it)",
	})
	checkDurability(found, seen)
	difference := s.Clock.Sub(now).Abs()
	found.check("clock", fmt.Sprintf("the database's and this machine's agree within %s", clockTolerance), problem{
		difference > clockTolerance, warn,
		fmt.Sprintf("the database's clock and this machine's differ by %s", difference.Round(time.Millisecond)),
		"keep both with NTP. Deliveries use the database's clock only; shared access signatures and log times do not",
	})
	found.check("autovacuum", "", problem{
		seen.Settings["autovacuum"] == "off" || seen.Settings["track_counts"] == "off", fail,
		"autovacuum, or the counting that it needs, is off",
		"ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET track_counts = on; SELECT pg_reload_conf();",
	})
	for _, o := range seen.Overrides {
		limit, err := strconv.Atoi(o.Value)
		found.check("timeouts", "", problem{
			strings.HasSuffix(o.Name, "_timeout") && (err != nil || limit > 0), warn,
			fmt.Sprintf("%s = %s%s", o.Name, o.Value, ofWhom(o)),
			"publishing and recording finish within seconds, but migrations and purges may not: give postrider's role none",
		})
	}
}

// checkDisk checks the result of a probe. Other reasons why it failed, such as missing rights, have their own findings.
func checkDisk(found *findings, probe error) {
	ok := terminal.Either(probe == nil, "PostgreSQL has space to store data", "")
	found.check("disk", ok, problem{
		postgres.IsDiskFull(probe), fail, "PostgreSQL's disk is full: no event can be stored, no attempt recorded",
		"free space on the disk of PostgreSQL's data directory, or enlarge it; the nodes continue by themselves",
	})
}

func ofWhom(o query.SettingOverride) string {
	return terminal.Either(o.Role == "", "", " for role "+o.Role) +
		terminal.Either(o.Database == "", "", " in database "+o.Database)
}

// checkDurability checks that what PostgreSQL has committed survives a crash.
func checkDurability(found *findings, seen *query.Checkup) {
	const forgets = ": PostgreSQL may forget events that were answered with 200"
	var problems []problem
	for _, name := range []string{"fsync", "full_page_writes"} {
		problems = append(problems, problem{
			seen.Settings[name] == "off", fail, name + " is off: after a crash of the machine the database may be broken",
			"ALTER SYSTEM SET " + name + " = on; SELECT pg_reload_conf();",
		})
	}
	overridden := false
	for _, o := range seen.Overrides {
		if o.Name == "synchronous_commit" && o.Value == "off" {
			overridden = true
			problems = append(problems, problem{
				true, fail, "synchronous_commit is off" + ofWhom(o) + forgets,
				"ALTER " + alterable(o) + " RESET synchronous_commit;",
			})
		}
	}
	commit := seen.Settings["synchronous_commit"]
	problems = append(problems, problem{
		commit == "off" && !overridden, fail, "synchronous_commit is off" + forgets,
		"ALTER SYSTEM SET synchronous_commit = on; SELECT pg_reload_conf(); and remove it from the URL, if it is there",
	})
	standbys := terminal.Either(seen.Settings["synchronous_standby_names"] == "", "", ", standbys included")
	found.check("durability", fmt.Sprintf("what is committed stays (synchronous_commit %s%s)", commit, standbys),
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
			"connect as the role that migrated the database, or have it GRANT these rights")
		return false
	}
	if len(seen.RolesGone) > 0 {
		found.warn("roles", "there is no role "+strings.Join(seen.RolesGone, ", "), "the service works without; postrider "+
			"migrate up creates them if its role may, and else prints the statements")
	} else {
		found.ok("rights", "role %s has those that the service needs, and the roles for people exist", seen.Server.Role)
	}
	return true
}

// checkTables checks for dead rows, which each fetch reads.
func checkTables(found *findings, seen *query.Checkup) {
	var problems []problem
	for _, t := range seen.HotTables {
		problems = append(problems, problem{
			!t.Autovacuum, warn, "it is switched off for " + t.Name,
			"ALTER TABLE postrider_internal." + t.Name + " RESET (autovacuum_enabled);",
		}, problem{
			t.Autovacuum && t.DeadRows > 100_000 && t.DeadRows > 2*t.Rows, warn,
			fmt.Sprintf("%s has %d dead rows beside %d live ones; last vacuum %s", t.Name, t.DeadRows, t.Rows,
				momentOr("never", t.LastVacuum)),
			"see what holds vacuum back (below); if nothing does, give autovacuum more workers, or: VACUUM " +
				"postrider_internal." + t.Name + ";",
		})
	}
	found.check("autovacuum", "the tables in which rows come and go have few dead ones", problems...)
}

func checkHolders(found *findings, seen *query.Checkup) {
	role := seen.Server.Role
	problems := []problem{{
		!seen.Server.SeesAll, warn,
		fmt.Sprintf("role %s does not see since when other roles' transactions are open: neither this doctor nor "+
			"postrider_oldest_transaction_age_seconds reports them", role),
		fmt.Sprintf("as a superuser: GRANT pg_read_all_stats TO %q;", role),
	}}
	for _, h := range seen.Holders {
		age, long := h.Age.Round(time.Second), h.Age > longOpen
		slot, behind := h.Kind == "slot", h.Transactions > manyTransactions
		problems = append(problems, problem{
			h.Kind == "transaction" && long, warn, fmt.Sprintf("a transaction has been open for %s: %s", age, h.Name),
			"dead rows stay until it ends: finish it, or SELECT pg_terminate_backend(its process); " +
				"idle_in_transaction_session_timeout ends forgotten ones",
		}, problem{
			h.Kind == "prepared" && long, warn, fmt.Sprintf("a prepared transaction waits for %s: %s", age, h.Name),
			"COMMIT PREPARED or ROLLBACK PREPARED it: it holds locks and dead rows, also over a restart",
		}, problem{
			slot && behind, warn, fmt.Sprintf("replication slot %s is %d transactions behind", h.Name, h.Transactions),
			"have its standby or subscriber catch up, or drop it: SELECT pg_drop_replication_slot(…)",
		}, problem{
			slot && !behind && h.Idle && h.KeptBytes > muchWAL, warn,
			fmt.Sprintf("replication slot %s has no reader and keeps %d GiB of WAL", h.Name, h.KeptBytes>>30),
			"start its reader, or drop it before the disk is full; max_slot_wal_keep_size bounds such slots",
		})
	}
	found.check("vacuum horizon", "no transaction, prepared transaction or replication slot holds vacuum back",
		problems...)
}

func checkPartitions(found *findings, seen *query.Checkup) {
	const remedy = "a node creates them at its start and each day: start one, and read its log"
	least := jobs.PartitionsAhead
	var oldest *time.Time
	var problems []problem
	for _, p := range seen.Partitions {
		least = min(least, p.Ahead)
		if p.Oldest != nil && (oldest == nil || p.Oldest.Before(*oldest)) {
			oldest = p.Oldest
		}
		problems = append(problems,
			problem{!p.Today, fail, p.Table + " has none for today: nothing can be stored", remedy},
			problem{
				p.Today && p.Ahead == 0, fail,
				p.Table + " has none for tomorrow: from midnight UTC on nothing can be stored", remedy,
			},
			problem{
				p.Today && p.Ahead > 0 && p.Ahead < jobs.PartitionsAhead-2, warn,
				fmt.Sprintf("%s has those of %s ahead, and should have %d", p.Table, terminal.Plural(p.Ahead, "day"),
					jobs.PartitionsAhead), remedy,
			},
			problem{
				p.Default, warn, p.Table + " has a default partition, which postrider did not create",
				"rows in it keep new days from being attached: move them, and detach it",
			})
	}
	problems = append(problems, problem{
		oldest == nil, fail, "there are none: nothing can be stored", "a node creates them at its start: start one",
	})
	day := ""
	if oldest != nil {
		day = oldest.UTC().Format(time.DateOnly)
	}
	found.check("partitions", fmt.Sprintf("%d days ahead; the oldest is of %s (serve --keep-delivered-days, "+
		"--keep-attempts-days)", least, day), problems...)
}

// checkConnections counts what the nodes may open: a pool each, and a connection for the heartbeat.
func checkConnections(found *findings, seen *query.Checkup, each int) {
	setting := func(name string) int { n, _ := strconv.Atoi(seen.Settings[name]); return n }
	room := setting("max_connections") - setting("superuser_reserved_connections") - setting("reserved_connections")
	others := max(seen.Server.Connections-seen.Server.OwnConnections, 0)
	nodes := max(len(seen.Nodes), 1)
	says := fmt.Sprintf("%s of up to %d connections, and %d of others now, of %d", terminal.Plural(nodes, "node"), each+1,
		others, room)
	found.check("connections", says, problem{
		nodes*(each+1)+others+spareConnections > room, warn, says,
		"raise max_connections, lower --max-conns, run fewer nodes, or put PgBouncer between",
	})
}

func checkNodes(found *findings, seen *query.Checkup) {
	nodes := len(seen.Nodes)
	problems := []problem{{
		nodes == 0, warn, "none that delivers is alive", "published events wait: start postrider serve",
	}}
	versions, finds, silent := map[string]bool{}, int64(0), 0
	for _, n := range seen.Nodes {
		versions[n.Version] = true
		finds += n.SweeperFinds
		if n.Silent > silentNode {
			silent++
			problems = append(problems, problem{
				true, warn, fmt.Sprintf("%s has given no sign of life for %s", n.Name, n.Silent.Round(time.Second)),
				terminal.Either(silent < nodes,
					"the others reclaim its attempts; if it still runs, check its connection to the database",
					"start postrider serve, or check its connection to the database"),
			})
		}
	}
	problems = append(problems, problem{
		len(versions) > 1, warn, fmt.Sprintf("%d nodes of %d versions", nodes, len(versions)),
		"right during an upgrade; afterwards, restart the old ones",
	})
	found.check("nodes", fmt.Sprintf("%d alive, of one version", nodes), problems...)
	found.check("sweeper", terminal.Either(nodes > 0, "consistency repairs: 0", ""), problem{
		finds > 0, warn, fmt.Sprintf("it has mended %s since the nodes started: inconsistent deliveries, batches or jobs",
			terminal.Plural(finds, "row")),
		"nothing was lost; either the tables were changed by hand or this is a bug: please report it with the nodes' logs",
	})
	checkBacklog(found, seen)
}

func checkBacklog(found *findings, seen *query.Checkup) {
	if seen.OldestDue == nil || *seen.OldestDue <= lateJobs {
		return
	}
	late := fmt.Sprintf("attempts have been due for up to %s, %d or more", seen.OldestDue.Round(time.Second),
		seen.Waiting)
	if seen.Running || !seen.Overdue {
		found.warn("backlog", late, "add nodes or workers; postrider.backlogs shows the event subscriptions")
	} else {
		found.fail("backlog", late+", and none is in flight: no node delivers",
			"start postrider serve, or restart the nodes; /readyz of each and its log report why")
	}
}
