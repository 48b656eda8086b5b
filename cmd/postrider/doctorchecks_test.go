package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"postrider/internal/query"
)

// well is a database that has nothing wrong with it.
func well(now time.Time) *query.Checkup {
	return &query.Checkup{
		Server: query.ServerFacts{
			VersionNumber: 160003, Version: "16.3", Encoding: "UTF8", Clock: now, Connections: 20, OwnConnections: 18,
			SeesAll: true,
		},
		Settings: map[string]string{
			"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on", "track_counts": "on",
			"max_connections": "100", "superuser_reserved_connections": "3",
		},
		HotTables: []query.HotTable{{Name: "river_job", Rows: 100_000, DeadRows: 150_000, Autovacuum: true}},
		Holders: []query.HorizonHolder{
			{Kind: "transaction", Name: "psql", Age: 2 * time.Minute}, {Kind: "slot", Name: "standby", KeptBytes: 1 << 40},
		},
		Partitions: []query.PartitionDays{{Table: "events", Ahead: 7, Today: true, Oldest: &now}},
		Nodes:      []query.NodeFacts{{Name: "a", Version: "1", Silent: time.Second}},
	}
}

func TestDoctorChecks(t *testing.T) {
	t.Parallel()
	now, late := time.Now(), 2*time.Minute
	examine := func(c *query.Checkup) (found findings) {
		found.checkServer(c, now)
		found.checkRights(c, nil)
		found.checkTables(c)
		found.checkPartitions(c)
		found.checkNodes(c, 16)
		return found
	}
	found := examine(well(now))
	require.Zero(t, found.count("warn")+found.count("fail"), found)
	for _, row := range []struct {
		level, check, message string
		spoil                 func(*query.Checkup)
	}{
		{"fail", "version", "PostgreSQL 14.2", func(c *query.Checkup) {
			c.Server.VersionNumber, c.Server.Version = 140002, "14.2"
		}},
		{"fail", "encoding", "is LATIN1; it must be UTF8", func(c *query.Checkup) { c.Server.Encoding = "LATIN1" }},
		{"warn", "encoding", "collations have changed", func(c *query.Checkup) { c.Server.CollationChanged = true }},
		{"warn", "role", "is a superuser", func(c *query.Checkup) { c.Server.Superuser = true }},
		{"warn", "role", "has CREATEROLE", func(c *query.Checkup) { c.Server.CreatesRoles = true }},
		{"warn", "statements", "pg_stat_statements: anna, bob", func(c *query.Checkup) {
			c.Server.StatementReaders = []string{"anna", "bob"}
		}},
		{"fail", "durability", "fsync is off", func(c *query.Checkup) { c.Settings["fsync"] = "off" }},
		{"fail", "durability", "synchronous_commit is off:", func(c *query.Checkup) {
			c.Settings["synchronous_commit"] = "off"
		}},
		{"fail", "durability", "off for role r in database d", func(c *query.Checkup) {
			c.Overrides = []query.SettingOverride{{Role: "r", Database: "d", Name: "synchronous_commit", Value: "off"}}
		}},
		{"warn", "settings", "statement_timeout is 5000 ms", func(c *query.Checkup) {
			c.Settings["statement_timeout"] = "5000"
		}},
		{"warn", "settings", "enable_nestloop is off", func(c *query.Checkup) {
			c.Planner = []query.PlannerSetting{{Name: "enable_nestloop", Value: "off", Default: "on"}}
		}},
		{"fail", "settings", "session_replication_role is replica", func(c *query.Checkup) {
			c.Settings["session_replication_role"] = "replica"
		}},
		{"warn", "clock", "differ by 1m0s", func(c *query.Checkup) { c.Server.Clock = now.Add(-time.Minute) }},
		{"fail", "autovacuum", "is off", func(c *query.Checkup) { c.Settings["autovacuum"] = "off" }},
		{"warn", "autovacuum", "autovacuum is off for table river_job", func(c *query.Checkup) {
			c.HotTables[0].Autovacuum = false
		}},
		{"warn", "autovacuum", "500000 dead and 100000 live rows", func(c *query.Checkup) {
			c.HotTables[0].DeadRows = 500_000
		}},
		{"fail", "rights", "deliveries", func(c *query.Checkup) { c.Unreachable = []string{"deliveries"} }},
		{"warn", "vacuum horizon", "cannot see the age of other roles' transactions", func(c *query.Checkup) {
			c.Server.SeesAll = false
		}},
		{"warn", "vacuum horizon", "open for 20m0s", func(c *query.Checkup) { c.Holders[0].Age = 20 * time.Minute }},
		{"warn", "vacuum horizon", "prepared transaction", func(c *query.Checkup) {
			c.Holders = []query.HorizonHolder{{Kind: "prepared", Age: time.Hour}}
		}},
		{"warn", "vacuum horizon", "replication slot standby has no reader and keeps 1024 GiB", func(c *query.Checkup) {
			c.Holders[1].Idle = true
		}},
		{"warn", "vacuum horizon", "transactions behind", func(c *query.Checkup) { c.Holders[1].Transactions = 20_000_000 }},
		{"fail", "partitions", "no partition for today", func(c *query.Checkup) { c.Partitions[0].Today = false }},
		{"fail", "partitions", "no partition for today", func(c *query.Checkup) {
			c.Partitions[0] = query.PartitionDays{Table: "events"}
		}},
		{"warn", "partitions", "no node has run yet", func(c *query.Checkup) {
			c.Partitions[0], c.Nodes = query.PartitionDays{Table: "events"}, nil
		}},
		{"fail", "partitions", "no partition for tomorrow", func(c *query.Checkup) { c.Partitions[0].Ahead = 0 }},
		{"warn", "partitions", "for 3 days ahead", func(c *query.Checkup) { c.Partitions[0].Ahead = 3 }},
		{"warn", "partitions", "default partition", func(c *query.Checkup) { c.Partitions[0].Default = true }},
		{"warn", "connections", "up to 18 connections each and 2 other connections, of 17", func(c *query.Checkup) {
			c.Settings["max_connections"] = "20"
		}},
		{"warn", "nodes", "no node that delivers", func(c *query.Checkup) { c.Nodes = nil }},
		{"warn", "nodes", "last heartbeat 1m0s ago", func(c *query.Checkup) { c.Nodes[0].Silent = time.Minute }},
		{"warn", "nodes", "2 versions", func(c *query.Checkup) {
			c.Nodes = append(c.Nodes, query.NodeFacts{Name: "b", Version: "2"})
		}},
		{"warn", "sweeper", "since the nodes started: 3", func(c *query.Checkup) { c.Nodes[0].ConsistencyRepairs = 3 }},
		{"warn", "backlog", "are due, for up to 2m0s", func(c *query.Checkup) { c.OldestDue = &late }},
		{"warn", "backlog", "are due, for up to 2m0s", func(c *query.Checkup) {
			c.OldestDue, c.Overdue, c.Running = &late, true, true
		}},
		{"fail", "backlog", "none is in flight: no node delivers", func(c *query.Checkup) {
			c.OldestDue, c.Overdue = &late, true
		}},
	} {
		spoiled := well(now)
		row.spoil(spoiled)
		found := examine(spoiled)
		require.True(t, slices.ContainsFunc(found, func(f finding) bool {
			return f.Level == row.level && f.Check == row.check && strings.Contains(f.Message, row.message) && f.Remedy != ""
		}), "%s %s %s: %+v", row.level, row.check, row.message, found)
	}
}

func TestDoctorReportsAFailedTestWrite(t *testing.T) {
	t.Parallel()
	for level, failed := range map[string]error{"ok": nil, "fail": &pgconn.PgError{Code: "53100"}} {
		var found findings
		found.checkWrites(failed)
		require.Len(t, found, 1)
		require.Equal(t, []string{level, "writes"}, []string{found[0].Level, found[0].Check})
	}
}

func allowing(addresses string) egressFlags {
	return egressFlags{AllowCIDR: []netip.Prefix{netip.MustParsePrefix(addresses)}}
}

func TestDoctorChecksEndpoints(t *testing.T) {
	t.Parallel()
	handler := func(http.ResponseWriter, *http.Request) { t.Error("the doctor sent a request") }
	plain, secure := httptest.NewServer(http.HandlerFunc(handler)), httptest.NewTLSServer(http.HandlerFunc(handler))
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // the doctor aborts the handshake
	anywhere, loopback := egressFlags{}, allowing("127.0.0.0/8")
	proxied := egressFlags{DeliveryProxy: "http://proxy:3128", AllowCIDR: allowing("10.0.0.0/8").AllowCIDR}
	for _, row := range []struct {
		endpoint               string
		flags                  egressFlags
		level, message, remedy string
	}{
		{"ftp://a", anywhere, "fail", "http or https", "public https URL"},
		{"https://169.254.169.254/", allowing("169.254.0.0/16"), "fail", "cloud metadata", "public https URL"},
		{"https://10.1.2.3/?code=secret", anywhere, "fail", "10.1.2.3: private", "--allow-cidr"},
		{"http://93.184.216.34/?code=secret", anywhere, "fail", "must be https", "--allow-http"},
		{"http://localhost:1/?code=secret", allowing("10.0.0.0/8"), "fail", "127.0.0.1", "--allow-cidr"},
		{"https://nowhere.invalid/?code=secret", anywhere, "fail", "nowhere.invalid", "fix the name"},
		{"http://127.0.0.1:1/?code=secret", loopback, "warn", "does not respond", "firewalls"},
		{secure.URL + "/?code=secret", loopback, "warn", "certificate", "certificateAuthorities"},
		{plain.URL + "/?code=secret", loopback, "ok", "may be called and responds in", ""},
		{"https://inside.example:25/?code=secret", proxied, "fail", "another protocol", "public https URL"},
		{"https://inside.example/?code=secret", proxied, "ok", "the proxy checks", ""},
	} {
		t.Run(row.endpoint, func(t *testing.T) {
			t.Parallel()
			var found findings
			found.checkEgress(t.Context(), row.endpoint, row.flags)
			require.Len(t, found, 1)
			require.Equal(t, row.level, found[0].Level, found)
			require.Contains(t, found[0].Message, row.message)
			require.Contains(t, found[0].Remedy, row.remedy)
			require.Equal(t, row.level == "ok", found[0].Remedy == "")
			text, err := json.Marshal(found)
			require.NoError(t, err)
			require.NotContains(t, string(text), "secret")
		})
	}
}

// A name can have several addresses. Each one that may not be called is reported.
func TestDoctorChecksEachAddress(t *testing.T) {
	t.Parallel()
	u := &url.URL{Scheme: "http", Host: "billing.example.com"}
	addresses := []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("93.184.216.34")}
	open, rejected := allowing("10.1.0.0/16").partition(u, addresses)
	require.Equal(t, addresses[:1], open)
	require.Len(t, rejected, 1)
	require.Contains(t, rejected[0], "--allow-http")
	open, rejected = egressFlags{AllowHTTP: true}.partition(u, addresses)
	require.Equal(t, addresses[1:], open)
	require.Contains(t, rejected[0], "10.1.2.3")

	mail := &url.URL{Scheme: "https", Host: "billing.example.com:25"}
	open, rejected = allowing("10.1.0.0/16").partition(mail, addresses)
	require.Equal(t, addresses[:1], open, "an opened network is the operator's own")
	require.Equal(t, []string{"port 25 must not be called: it belongs to another protocol"}, rejected)
}
