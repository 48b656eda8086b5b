package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/testnode"
)

// A node that is frozen long enough to be taken for dead, and wakes when another has done its work: whatever it still
// brings changes nothing, and it works on as if it had just been started.
func frozenNodeWakes(t *testing.T) {
	db, sink := migratedDatabase(t), newGate(t)
	nodes := twoBusyNodes(t, db, sink)
	frozen, awake := nodes[0], nodes[1]
	frozen.signal(syscall.SIGSTOP)
	eventually(t, "the node is frozen", func() bool { return stands(frozen.cmd.Process.Pid) })
	lasts := time.After(10 * time.Second)
	sink.open() // also responds to the frozen node's requests
	db.drained()
	require.Contains(t, awake.stderr.String(), "a node stopped its heartbeat")
	<-lasts

	const everything = `SELECT md5((SELECT string_agg(d::text, ' ' ORDER BY delivery_id) FROM postrider.deliveries d)
		    || (SELECT string_agg(a::text, ' ' ORDER BY delivery_id) FROM postrider.delivery_attempts a))`
	before := one[string](db, everything)
	frozen.signal(syscall.SIGCONT)
	const beat = "SELECT coalesce((SELECT beat FROM postrider_internal.nodes WHERE id = $1), 0)"
	eventually(t, "the frozen node beats again", func() bool { return one[int](db, beat, frozen.name) >= 3 })
	require.Equal(t, before, one[string](db, everything), "its late results change nothing")
	require.Len(t, sink.arrivalsSoFar(), 40)
	again := 0
	for _, id := range sink.arrivalsSoFar() {
		again += sink.times(id) - 1
	}
	require.LessOrEqual(t, again, 20, "what it had in flight")
	requireEndedOnce(t, db)
	require.Equal(t, 40, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE node = $1", awake.name))
	require.Equal(t, 20, one[int](db, "SELECT count(*) FROM postrider.delivery_attempts WHERE reruns = 1"))
	awake.kill()
	later := newGate(t)
	later.open()
	frozen.publishMany("later", later.url, 5)
	db.drained()
}

// stands reports whether every thread of a process is stopped; true if this cannot be determined.
func stands(pid int) bool {
	threads, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "stat"))
	return !slices.ContainsFunc(threads, func(file string) bool {
		raw, err := os.ReadFile(file)
		_, state, _ := strings.Cut(string(raw), ") ") // the name before it may hold spaces
		return err == nil && !strings.HasPrefix(state, "T")
	})
}

// A node whose clock is an hour fast and one whose clock is an hour slow, side by side: every time that is stored, and
// every retry, goes by the database's clock. Only the long run has it: the program and Go's library are compiled once
// more, with a clock that is off.
func TestFaultClocksThatAreAnHourOff(t *testing.T) {
	onlyWithFaults(t)
	t.Parallel()
	skewed := skewedProgram(t)
	db, sink := migratedDatabase(t), newGate(t)
	began := one[time.Time](db, "SELECT now()")
	start := func(by time.Duration) *nodeProcess {
		n := startNodeOf(t, skewed, append(serveEnv(db), "POSTRIDER_TEST_CLOCK="+by.String()))
		require.InDelta(t, by.Seconds(), n.clock.Sub(began).Seconds(), 60)
		return n
	}
	fast, slow := start(time.Hour), start(-time.Hour)

	load := publishStubbornly(t, &fast.service, "orders", sink)
	other := publishStubbornly(t, &slow.service, "invoices", sink)
	failOnce(t, db, slow, 50)
	lockTable(t, db, "events", 5*time.Second) // attempts that cannot begin are put off
	load.flowsAgain(sink, "the lock")
	other.flowsAgain(sink, "the lock")

	for _, l := range []*stubborn{load, other} {
		l.stop()
		l.working.Wait()
	}
	db.drained()
	require.Equal(t, 50, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE topic = 'failing-once' "+
		"AND state = 'delivered' AND attempts = 2 AND reruns = 0"))
	early, late := 0.0, 0.0
	require.NoError(t,
		db.pool.QueryRow(t.Context(), `SELECT min(extract(epoch FROM b.started_at - a.started_at))::float8,
		       max(extract(epoch FROM b.started_at - a.started_at))::float8
		FROM postrider.delivery_attempts a JOIN postrider.delivery_attempts b USING (delivery_id) WHERE a.number = 1
		    AND b.number = 2`).Scan(&early, &late))
	t.Logf("retries 7 s after an attempt came after %.3f to %.3f s", early, late)
	require.GreaterOrEqual(t, early, 7.0)
	require.Less(t, late, 15.0)
	requireTimesWithin(t, db, began)
	requireNoDeadNode(t, fast, slow)
	require.Zero(t, one[int](db, testnode.EndedTwice))
	require.Zero(t, one[int](db, "SELECT count(*) FROM postrider.deliveries WHERE state <> 'delivered'"))
}

// requireTimesWithin: every time that is stored lies between then and now, by the database's clock.
func requireTimesWithin(t *testing.T, db *database, began time.Time) {
	t.Helper()
	for _, column := range []string{
		"events.published_at", "delivery_history.time_to_live_since", "delivery_history.first_attempt_at",
		"delivery_history.last_attempt_at", "delivery_history.finished_at",
		"delivery_attempts.started_at", "delivery_attempts.due_at", "delivery_attempts.next_attempt_at", "nodes.beat_at",
	} {
		table, name, _ := strings.Cut(column, ".")
		query := "SELECT count(*) FROM postrider_internal." + table + " WHERE " + name +
			" NOT BETWEEN $1 AND clock_timestamp()"
		require.Zero(t, one[int](db, query, began), column)
	}
	const off = `SELECT count(*) FROM postrider_internal.events
		 WHERE to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) NOT BETWEEN
		     $1::timestamptz - interval '1 second' AND clock_timestamp() + interval '1 second'`
	require.Zero(t, one[int](db, off, began), "ids of events")
}

// skewedProgram is the program with a clock that is as far off as POSTRIDER_TEST_CLOCK says. Its monotonic clock is
// right, as it is on a machine whose clock was set wrong.
func skewedProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	const reads = "sec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	require.Equal(t, 1, strings.Count(string(source), reads), "%s has changed", file)
	changed := strings.Replace(string(source), reads,
		"sec, nsec, mono := runtimeNow()\n\tsec += testSkew\n\tif mono == 0 {", 1) + `
var testSkew = func() int64 {
	text, _ := syscall.Getenv("POSTRIDER_TEST_CLOCK")
	skew, _ := ParseDuration(text)
	return int64(skew / Second)
}()
`
	changed = strings.Replace(changed, "import (\n", "import (\n\t\"syscall\"\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "time.go"), []byte(changed), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{file: filepath.Join(dir, "time.go")}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	skewed := filepath.Join(dir, "postrider")
	out, err := buildProgram(skewed, "-overlay", filepath.Join(dir, "overlay.json"))
	require.NoError(t, err, "%s", out)
	return skewed
}
