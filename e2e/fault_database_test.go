package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/pgdev"
)

// PostgreSQL restarted again and again, and killed, while events are published and delivered by two nodes.
func TestFaultRestartsOfPostgresUnderLoad(t *testing.T) {
	onlyWithFaults(t)
	t.Parallel()
	server, db := ownCluster(t)
	sink := newGate(t)
	nodes := []*nodeProcess{startNode(t, db), startNode(t, db)}
	load := publishStubbornly(t, &nodes[0].service, "orders", sink)
	for restart := range 15 {
		load.more(sink, 50)
		what := "a restart"
		if restart%3 == 2 {
			what = "a kill"
			require.NoError(t, server.Kill())
		}
		require.NoError(t, server.Restart(t.Context()))
		load.flowsAgain(sink, what)
	}
	load.settled(db, sink, 0)
	requireNoDeadNode(t, nodes...)
}

// An administrator repeatedly ends postrider's sessions or cancels their statements.
func TestFaultSessionsThatAnAdministratorEnds(t *testing.T) {
	onlyWithFaults(t)
	t.Parallel()
	db, sink := migratedDatabase(t), newGate(t)
	n := startNode(t, db)
	load := publishStubbornly(t, &n.service, "orders", sink)
	const many = 300
	for _, how := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		load.more(sink, 20)
		ended := 0
		eventually(t, "many were ended", func() bool {
			for range 10 { // a session is rarely seen in a statement
				ended += one[int](db, "SELECT count("+how+"(pid)) FROM pg_stat_activity WHERE datname = current_database() "+
					"AND application_name = 'postrider' AND state <> 'idle'")
			}
			return ended >= many
		})
		load.owned(db)
		load.flowsAgain(sink, how)
	}
	load.settled(db, sink, 0)
	requireNoDeadNode(t, n)
}

// A user's session that locks one of our tables blocks only the use of that table, and only until it
// does.
func userLocks(t *testing.T, table string) {
	db, sink := migratedDatabase(t), newGate(t)
	n := startNode(t, db)
	load := publishStubbornly(t, &n.service, "orders", sink)
	load.flowsAgain(sink, "start")
	lockTable(t, db, table, 5*time.Second)
	load.flowsAgain(sink, "the lock")
	n.manage(http.StatusOK, http.MethodGet, "/v1/topics", "")
	load.settled(db, sink, 0)
	requireNoDeadNode(t, n)
}

// lockTable is a user's transaction that locks a table and is forgotten for a while.
func lockTable(t *testing.T, db *database, table string, lasts time.Duration) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE postrider_internal."+table+" IN ACCESS EXCLUSIVE MODE"); err != nil {
			return err
		}
		<-time.After(lasts)
		return nil
	})
	require.NoError(t, err)
}

// PostgreSQL's disk is full for some seconds. PostgreSQL may stop and must be restarted; postrider continues by itself.
func TestFaultDiskOfPostgresIsFull(t *testing.T) {
	onlyWithFaults(t)
	t.Parallel()
	disk := smallDisk(t)
	server, err := pgdev.Start(t.Context(),
		pgdev.Options{Dir: filepath.Join(disk, "pg"), Durable: true, Settings: map[string]string{
			"shared_buffers": "32MB", "max_wal_size": "48MB", "min_wal_size": "32MB",
		}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	require.NoError(t, server.CreateDatabase(t.Context(), "postrider"))
	db, sink := openDatabaseAt(t, server.URL("postrider")), newGate(t)
	db.migrate()
	n := startNode(t, db)
	load := publishStubbornly(t, &n.service, "orders", sink)
	load.flowsAgain(sink, "start")

	filler := filepath.Join(disk, "filler")
	fillDisk(t, filler)
	rejected := load.rejected.Load()
	lasts := time.After(time.Minute)
	eventually(t, "publishes are rejected", func() bool {
		fillDisk(t, filler) // PostgreSQL frees some of it itself
		return load.rejected.Load() > rejected
	})
	for range 3 { // without space for its log PostgreSQL cannot go on: it ends all sessions, and perhaps itself
		_, _ = db.pool.Exec(t.Context(), "SELECT pg_switch_wal()")
		_, _ = db.pool.Exec(t.Context(), "CREATE TABLE public.filling AS SELECT generate_series(1, 1000)")
	}
	<-lasts
	require.NoError(t, os.Remove(filler))
	eventually(t, "PostgreSQL responds again, or has stopped", func() bool {
		return !alive(server.PID()) ||
			db.pool.Ping(t.Context()) == nil
	})
	stopped := !alive(server.PID())
	if stopped {
		require.NoError(t, server.Restart(t.Context()))
	}
	t.Logf("PostgreSQL had stopped: %t", stopped)

	load.flowsAgain(sink, "there was space again")
	load.settled(db, sink, 0)
	requireNoDeadNode(t, n)
}

// smallDisk is a file system of 200 MB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o711)) // PostgreSQL's user must get through
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=200m,mode=0755", "tmpfs", dir).
		CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() { require.NoError(t, exec.Command("umount", dir).Run()) })
	return dir
}

// fillDisk writes to the file until nothing more fits.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	out, err := exec.Command("dd", "if=/dev/zero", "of="+path, "bs=4k", "oflag=append", "conv=notrunc").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "No space left on device")
}

// The tables are on a disk of their own, which fills up and is freed. PostgreSQL itself goes on.
func TestDiskOfTheTablesIsFull(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t)
	server, err := pgdev.Start(t.Context(), pgdev.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	owner, err := os.Stat(filepath.Join(server.Dir(), "data"))
	require.NoError(t, err)
	tables := filepath.Join(disk, "tables")
	require.NoError(t, os.Mkdir(tables, 0o700))
	//nolint:forcetypeassert // on Linux it is
	require.NoError(t, os.Chown(tables, int(owner.Sys().(*syscall.Stat_t).Uid), -1))
	admin := openDatabaseAt(t, server.URL("postgres"))
	admin.exec("CREATE TABLESPACE small LOCATION '" + tables + "'")
	admin.exec("CREATE DATABASE postrider TABLESPACE small")
	db := openDatabaseAt(t, server.URL("postrider"))
	db.migrate()
	n := startNode(t, db)
	key := n.topic("orders")
	random := make([]byte, 400_000) // PostgreSQL compresses what it can
	_, err = rand.Read(random)
	require.NoError(t, err)
	large := `{"specversion":"1.0","id":"a","source":"/shop","type":"t","data":"` + hex.EncodeToString(random) + `"}`
	n.publish("orders", key, large)

	filler := filepath.Join(disk, "filler")
	fillDisk(t, filler)
	eventually(t, "publishes are rejected", func() bool {
		status, text, err := postEvents(t.Context(), n.api, "orders", key, large)
		require.NoError(t, err)
		require.NotRegexp(t, `53100|SQLSTATE|ERROR|base/5|No space|extend|pgx|store:`, text)
		return status == http.StatusServiceUnavailable &&
			strings.Contains(text, "the database's disk is full; nothing was stored")
	})
	status, text, err := call(t.Context(), http.MethodGet, n.api+"/readyz", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "No space left on device; free space on PostgreSQL's disk, or enlarge it")
	require.Contains(t, n.scrape(), `postrider_commits_failing{part="publish"} 1`)
	doctor := postrider(t, serveEnv(db), "doctor")
	require.Equal(t, 1, doctor.code)
	require.Contains(t, doctor.stdout, "events cannot be stored: could not extend file")

	require.NoError(t, os.Remove(filler))
	eventually(t, "the node is ready again", n.isReady) // no publish shows that: a load balancer sends none
	require.Contains(t, n.scrape(), `postrider_commits_failing{part="publish"} 0`)
	n.publish("orders", key, large)
}
