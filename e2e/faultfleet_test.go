//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/local"
	"postrider/jobs"
	"postrider/jobs/queue"
)

const (
	// unfinishedAtKill is how many deliveries must be unfinished when a node is about to be killed.
	unfinishedAtKill = 100
	// faultRoute is the route threshold of the nodes: requests of a hundred events are routed.
	faultRoute = 60
)

// faultProgram is the program with failpoints, built when the first test needs it.
var faultProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(program), "postrider-failpoints")
	out, err := buildProgram(path, "-tags", "failpoints")
	if err != nil {
		return "", fmt.Errorf("build the program with failpoints: %w\n%s", err, out)
	}
	return path, nil
})

// faultFleet is a database, the nodes on it, publishers and endpoints.
type faultFleet struct {
	t       *testing.T
	db      *database
	program string // of the nodes that start
	sink    *faultSink
	load    *faultLoad
	watch   *faultWatch

	period atomic.Int32 // the kill that is being made
	mu     sync.Mutex
	slots  []*faultNode // nil: dead
	kills  []*faultKill

	toggling sync.WaitGroup
	later    int // requests of publishLater
	began    time.Time
	out      io.Writer // of the report
	// strict: the machine is free, so no attempt may be late. Where a dozen packages' tests share it, a node may be taken
	// for dead.
	strict bool
}

// faultNode is a node that may know where to die.
type faultNode struct {
	nodeProcess
	point, fired string // fired is the file that the node writes
	armed        bool   // dies there
}

func (n *faultNode) tell() {
	n.armed = true
	n.signal(syscall.SIGUSR1)
}

// faultKill is what one kill met.
type faultKill struct {
	point  string
	period int32
	at     time.Time
	// inHand are the deliveries that the node was at, or had fetched.
	inHand int
	// next is from the kill to the next event that was delivered; takenUp to the moment when nothing that the dead node
	// had in hand was left to it.
	next, takenUp time.Duration
}

// newFaultFleet starts nodes that can be killed at failpoints, creates a topic with all destinations and publishes.
func newFaultFleet(t *testing.T, db *database, nodes int, shape faultShape) *faultFleet {
	t.Helper()
	binary, err := faultProgram()
	require.NoError(t, err)
	return newFleetOf(t, db, binary, nodes, shape)
}

// newFleetOf is newFaultFleet with nodes of another program.
func newFleetOf(t *testing.T, db *database, binary string, nodes int, shape faultShape) *faultFleet {
	t.Helper()
	f := &faultFleet{
		t: t, db: db, program: binary, slots: make([]*faultNode, nodes), began: time.Now(), out: t.Output(),
	}
	for slot := range f.slots {
		f.start(slot, queue.PointReclaim)
	}
	f.sink = newFaultSink(t)
	key := f.subscribe()
	f.watch = startFaultWatch(t, db)
	full := func() bool { return f.watch.unfinished.Load() > shape.backlog }
	f.load = startFaultLoad(t, &faultLoad{db: db, key: key, apis: f.apis, full: full, period: &f.period}, shape)
	f.toggle()
	return f
}

// publishLater publishes what waits for a retry, so that there is something to lose for some seconds.
func (f *faultFleet) publishLater() {
	f.t.Helper()
	eventually(f.t, "events that wait for a retry are accepted", func() bool {
		f.later++
		batch := make([]faultSent, 2*unfinishedAtKill)
		for i := range batch {
			batch[i] = newFaultSent(fmt.Sprintf("k%d-later%d-%d", f.period.Load(), f.later, i), "later", faultEvent)
		}
		apis := f.apis()
		return len(apis) > 0 && f.load.send(f.t.Context(), apis[0], batch)
	})
}

// subscribe makes the destinations. Their policies have no probation: the campaign is about failures of postrider.
func (f *faultFleet) subscribe() (key string) {
	f.t.Helper()
	retriesAfter(f.db, "soon", 300*time.Millisecond)
	retriesAfter(f.db, "later", 6*time.Second) // jobs that are due within 5 s need no promotion
	first := &f.slots[0].service
	key = first.topic("orders")
	for _, destination := range faultDestinations {
		first.manage(http.StatusCreated, http.MethodPut, "/v1/topics/orders/subscriptions/"+destination.name, fmt.Sprintf(
			`{"endpointUrl":%q,"endpointValidation":"skip","filter":{"includedEventTypes":["%s"]},"maxEventsPerBatch":%d,`+
				`"retryPolicy":{"policy":%q,"maxDeliveryAttempts":10}}`,
			f.sink.url+"/"+destination.name, strings.Join(destination.types, `","`), max(destination.batch, 1),
			destination.policy))
	}
	return key
}

// launch runs a node that dies at the point after a signal, or at once if armed.
func (f *faultFleet) launch(point string, armed bool) (n *faultNode, ready string) {
	f.t.Helper()
	dir := f.t.TempDir()
	ready, n = filepath.Join(dir, "ready.json"),
		&faultNode{point: point, armed: armed, fired: filepath.Join(dir, "failpoint")}
	env := append(serveEnv(f.db), "POSTRIDER_FAILPOINT="+point, "POSTRIDER_FAILPOINT_FILE="+n.fired,
		fmt.Sprintf("POSTRIDER_ROUTE_THRESHOLD=%d", faultRoute))
	if armed {
		env = append(env, "POSTRIDER_FAILPOINT_ARMED=1")
	}
	n.process = startProcess(f.t, env, f.program, "serve", "--listen", "127.0.0.1:0", "--ready-file", ready,
		"--max-conns", "4")
	n.token = testAdminToken
	return n, ready
}

func (f *faultFleet) start(slot int, point string) *faultNode {
	f.t.Helper()
	n, ready := f.launch(point, false)
	n.api = n.ready(ready).API
	n.name, n.clock = readyLine(n.process)
	f.put(slot, n)
	return n
}

func (f *faultFleet) put(slot int, n *faultNode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots[slot] = n
}

func (f *faultFleet) apis() (urls []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.slots {
		if n != nil {
			urls = append(urls, n.api)
		}
	}
	return urls
}

func (f *faultFleet) enoughUnfinished() {
	f.t.Helper()
	enough := f.db.atLeast(unfinishedAtKill+unfinishedAtKill/2, unfinishedQuery)
	if !enough() && len(f.apis()) > 0 {
		f.publishLater()
	}
	eventually(f.t, "enough deliveries are unfinished", enough)
}

// round kills the node of a slot from outside, and its successors at each of the points, one after the other. While it
// is killed at PointReclaim all nodes are.
func (f *faultFleet) round(slot int, points []string) {
	f.t.Helper()
	f.killFromOutside(slot)
	for _, point := range points {
		switch point {
		case jobs.PointPartition:
			f.killAtStart(slot, point, f.dropPartition)
		case jobs.PointDetach, jobs.PointDrop:
			f.killAtStart(slot, point, f.oldPartition)
		case queue.PointReclaim:
			f.killReclaiming(slot)
		default:
			f.kill(slot, point)
		}
	}
	for slot, n := range f.slots {
		if n == nil {
			f.start(slot, queue.PointReclaim)
		}
	}
}

// kill starts a node that dies at the point, and returns when it is dead.
func (f *faultFleet) kill(slot int, point string) {
	f.t.Helper()
	f.period.Add(1)
	n := f.start(slot, point)
	f.enoughUnfinished()
	n.tell()
	f.died(slot, n)
}

// killFromOutside kills a node at a random moment.
func (f *faultFleet) killFromOutside(slot int) {
	f.t.Helper()
	f.period.Add(1)
	f.enoughUnfinished()
	n := f.slots[slot]
	n.process.kill()
	f.died(slot, n)
}

// killReclaiming has all nodes die, one after the other, when they take up what another one has left. What the first
// one locked when it died is there for the next.
func (f *faultFleet) killReclaiming(slot int) {
	f.t.Helper()
	for other, n := range f.slots { // before anything is left: a node that took it up earlier would live on
		if n != nil && other != slot {
			n.tell()
		}
	}
	for left := 0; left == 0; left = f.kills[len(f.kills)-1].inHand { // its last attempts may have ended meanwhile
		leaves := f.start(slot, queue.PointReclaim)
		eventually(f.t, "the node has something in hand", f.db.atLeast(1, inHandQuery, leaves.name))
		f.period.Add(1)
		leaves.process.kill()
		f.died(slot, leaves)
	}
	f.period.Add(1)
	n, ready := f.launch(queue.PointReclaim, true)
	if f.isReady(n, ready) {
		f.put(slot, n)
	}
	f.died(slot, n)
	for other, n := range f.slots {
		if n != nil {
			f.died(other, n)
		}
	}
}

// isReady waits until a node is ready, or dead. One that is ready may be dead a moment later.
func (f *faultFleet) isReady(n *faultNode, file string) (ready bool) {
	f.t.Helper()
	var info local.ReadyInfo
	eventually(f.t, "the node is dead, or ready", func() bool {
		gone := !alive(n.cmd.Process.Pid)
		raw, err := os.ReadFile(file)
		ready = err == nil && json.Unmarshal(raw, &info) == nil
		return ready || gone
	})
	n.api = info.API
	return ready
}

// killAtStart has a node die at what it does when it starts: it makes the partitions of days to come, and removes those
// whose time is over. It may be ready before that.
func (f *faultFleet) killAtStart(slot int, point string, prepare func() (done func() bool)) {
	f.t.Helper()
	f.period.Add(1)
	for range 5 {
		done := prepare()
		f.enoughUnfinished()
		n, ready := f.launch(point, true)
		if f.isReady(n, ready) {
			eventually(f.t, "the node dies, or another one was quicker",
				func() bool { return !alive(n.cmd.Process.Pid) || done() })
		}
		if !alive(n.cmd.Process.Pid) {
			f.died(slot, n)
			return
		}
		n.process.kill()
	}
	require.FailNow(f.t, "no node died among its partitions")
}

// oldPartition makes a day whose time is over long since.
func (f *faultFleet) oldPartition() (done func() bool) {
	f.t.Helper()
	const (
		exists = "SELECT to_regclass('postrider_internal.events_20200102') IS NOT NULL"
		make   = `CREATE TABLE postrider_internal.events_20200102 (LIKE postrider_internal.events INCLUDING DEFAULTS INCLUDING
			    CONSTRAINTS);
			ALTER TABLE postrider_internal.events ATTACH PARTITION postrider_internal.events_20200102 FOR VALUES
			FROM ('2020-01-02') TO ('2020-01-03')`
	)
	if !one[bool](f.db, exists) { // the last one that died left it
		f.db.exec(make)
	}
	return func() bool { return !one[bool](f.db, exists) }
}

// dropPartition takes the last day away, which has no rows yet.
func (f *faultFleet) dropPartition() (done func() bool) {
	f.t.Helper()
	const drop = `DO $$ BEGIN SET LOCAL lock_timeout = '1s';
		EXECUTE 'DROP TABLE IF EXISTS postrider_internal.events_' || to_char((now() AT TIME ZONE 'UTC')::date + 7,
		    'YYYYMMDD'); END $$`
	eventually(f.t, "the partition of a day to come is dropped", func() bool {
		_, err := f.db.pool.Exec(f.t.Context(), drop)
		return err == nil
	})
	return func() bool { return true } // a node is ready once all days have their partitions
}

// inHandQuery counts a node's deliveries, and those that are in its batches.
const inHandQuery = `SELECT (SELECT count(*) FROM postrider_internal.river_job WHERE kind = 'deliver'
	    AND state = 'running' AND attempted_by[array_upper(attempted_by, 1)] = $1)
	+ (SELECT coalesce(sum(b.members), 0) FROM postrider_internal.river_job j JOIN postrider_internal.batches b
	    ON b.job_id = j.id WHERE j.state = 'running' AND j.attempted_by[array_upper(j.attempted_by, 1)] = $1)`

// outside stands for a point in the report.
const outside = "(any moment)"

// died asserts that the node killed itself at its point, if it had to.
func (f *faultFleet) died(slot int, n *faultNode) {
	f.t.Helper()
	n.wait()
	k := &faultKill{point: n.point, period: f.period.Load(), at: time.Now()}
	f.put(slot, nil)
	if n.name == "" { // it died before it said so
		n.name = one[string](f.db, "SELECT coalesce(max(id), '') FROM postrider_internal.nodes WHERE id LIKE $1",
			fmt.Sprintf("%%-%d-%%", n.cmd.Process.Pid))
	}
	k.inHand = one[int](f.db, inHandQuery, n.name)
	status, ok := n.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(f.t, ok && status.Signaled() && status.Signal() == syscall.SIGKILL, "%s: killed by SIGKILL: %s", n.point,
		n.cmd.ProcessState)
	if n.armed {
		fired, err := os.ReadFile(n.fired)
		require.NoError(f.t, err, "the failpoint fired")
		require.Equal(f.t, n.point, string(fired))
	} else {
		k.point = outside
	}
	require.Zero(f.t, brokenOwners(f.db), "%s: every unfinished delivery has exactly one owner", n.point)
	f.requireSound(n)
	f.kills = append(f.kills, k)
	f.watch.follow(f.t.Context(), k, n.name, f.sink)
}

// toggle pauses and resumes one destination for as long as events are published, each at another node. What is
// published after the response to a pause must not be sent before a resume.
func (f *faultFleet) toggle() {
	ctx, cancel := context.WithCancel(f.t.Context())
	f.t.Cleanup(cancel)
	f.toggling.Go(func() {
		for round := 0; ctx.Err() == nil && !f.load.ended(); round++ {
			name := ""
			if f.request(ctx, "pause") {
				name = f.publishHeld(ctx, round)
			}
			<-time.After(togglePause)
			if f.sink.has(name) {
				f.load.fail(fmt.Errorf("%s was published after the response to a pause, and sent before it ended", name))
			}
			for ctx.Err() == nil && !f.request(ctx, "resume") {
				<-time.After(pollTime)
			}
			<-time.After(togglePause)
		}
	})
}

const togglePause = 150 * time.Millisecond

func (f *faultFleet) request(ctx context.Context, what string) bool {
	apis := f.apis()
	if len(apis) == 0 {
		return false
	}
	api := apis[rand.IntN(len(apis))]
	status, _, err := call(ctx, http.MethodPost, api+"/v1/topics/orders/subscriptions/"+pausedLane+"/"+what, "",
		"Authorization", "Bearer "+testAdminToken)
	return err == nil && status == http.StatusOK
}

// publishHeld publishes one event to the paused destination and returns its name in the sink's ledger.
func (f *faultFleet) publishHeld(ctx context.Context, round int) string {
	apis := f.apis()
	if len(apis) == 0 {
		return ""
	}
	sent := newFaultSent(fmt.Sprintf("k%d-toggle-%d", f.period.Load(), round), pausedLane, faultEvent)
	f.load.send(ctx, apis[rand.IntN(len(apis))], []faultSent{sent})
	return pausedLane + "/" + sent.id
}

// end stops publishing, and waits until no delivery is pending.
func (f *faultFleet) end(patience time.Duration) {
	f.t.Helper()
	f.t.Logf("%d kills within %s", len(f.kills), time.Since(f.began).Round(time.Millisecond))
	f.load.stop()
	f.toggling.Wait()
	eventually(f.t, "the jobs of killed nodes are reclaimed", func() bool { return f.watch.waiting.Load() == 0 })
	f.watch.stop()
	const left = "SELECT (SELECT count(*) FROM postrider_internal.deliveries) + (SELECT count(*) " +
		"FROM postrider_internal.routes)"
	deadline := time.Now().Add(patience)
	for one[int](f.db, left) > 0 {
		require.True(f.t, time.Now().Before(deadline), "not drained within %s: %d", patience, one[int](f.db, left))
		<-time.After(10 * pollTime)
	}
	f.t.Logf("drained after %s", time.Since(f.began).Round(time.Millisecond))
	for _, n := range f.slots {
		if n != nil {
			code := n.stop()
			require.Zero(f.t, code)
			f.requireSound(n)
		}
	}
}

// requireSound checks the output of a node, and discards it: a campaign has hundreds of nodes.
func (f *faultFleet) requireSound(n *faultNode) {
	f.t.Helper()
	bad := []string{"inconsistent", "goroutine "}
	if f.strict {
		bad = append(bad, `"level":"ERROR"`)
	}
	for _, text := range bad {
		require.NotContains(f.t, n.stderr.String(), text)
	}
	n.stderr.mu.Lock()
	defer n.stderr.mu.Unlock()
	n.stderr.text.Reset()
}
