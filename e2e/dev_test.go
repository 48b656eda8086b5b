package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
	"postrider/internal/local"
)

const (
	// devAccessKey is the published access key of dev's topic. It is also dev's encryption key in base64.
	devAccessKey = "cG9zdHJpZGVyLWRldi1rZXktbm90LWEtc2VjcmV0ISE="
	demoTopic    = "demo"
)

// demoEvent is an event for the demo topic, in Event Grid's schema.
func demoEvent(id, at string) string {
	return fmt.Sprintf(`{"id":%q,"eventType":"demo.hello","subject":"demo/greetings","eventTime":%q,"dataVersion":"1",`+
		`"data":{"text":"hello"}}`, id, at)
}

// devRun is one `postrider dev`.
type devRun struct {
	service
	file string // the ready file
	info local.ReadyInfo
	db   *database
	data string // PostgreSQL's data folder
}

// startDev runs dev on free ports; later flags win over the ports.
func startDev(t *testing.T, flags ...string) *devRun {
	t.Helper()
	d := &devRun{file: filepath.Join(t.TempDir(), "ready.json")}
	args := append(
		[]string{"dev", "--listen", "127.0.0.1:0", "--sink-listen", "127.0.0.1:0", "--pg-port", "0", "--ready-file", d.file},
		flags...)
	p := startProcess(t, ownEnvironment(), program, args...)
	d.info = p.ready(d.file)
	d.service = service{process: p, api: d.info.API, token: d.info.AdminToken}
	d.db = openDatabaseAt(t, d.info.DatabaseURL)
	d.data = one[string](d.db, "SHOW data_directory")
	return d
}

// processes are the run's own and all below it, PostgreSQL's included.
func (d *devRun) processes() []int {
	d.t.Helper()
	raw, err := os.ReadFile(filepath.Join(d.data, "postmaster.pid"))
	require.NoError(d.t, err)
	first, _, _ := strings.Cut(string(raw), "\n")
	postmaster, err := strconv.Atoi(first)
	require.NoError(d.t, err)
	require.True(d.t, alive(postmaster))
	return append(descendants(d.cmd.Process.Pid), d.cmd.Process.Pid, postmaster)
}

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
	}
}

// delivery waits until the delivery of the event has made that many attempts, or more on a busy machine. It returns the
// state.
func (d *devRun) delivery(event, subscription string, attempts int) (state string) {
	d.t.Helper()
	const query = "SELECT state FROM postrider.deliveries WHERE event_id = $1 AND subscription = $2 AND attempts >= $3"
	eventually(d.t, fmt.Sprintf("%s was attempted %d times for %s", event, attempts, subscription), func() bool {
		err := d.db.pool.QueryRow(d.t.Context(), query, event, subscription, attempts).Scan(&state)
		if err != nil {
			require.ErrorIs(d.t, err, pgx.ErrNoRows)
		}
		return err == nil
	})
	return state
}

// hasten makes the next attempt due now.
func (d *devRun) hasten(event, subscription string) {
	d.t.Helper()
	d.db.exec(`UPDATE postrider_internal.river_job SET state = 'available', scheduled_at = now()
		WHERE state IN ('scheduled', 'available') AND (args ->> 'd')::bigint =
		      (SELECT delivery_id FROM postrider.deliveries WHERE event_id = $1 AND subscription = $2)`, event, subscription)
}

func TestDev(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	eventually(t, "the first event is published", d.db.atLeast(1, "SELECT count(*) FROM postrider.events"))
	first := one[string](d.db, "SELECT event_id FROM postrider.events")

	requireReadyInfo(t, d.info)
	requireContract(t, d.db)
	requireFirstEvent(t, d, first)
	requireSample(t, d, first)
	requireAttemptsCounted(t, d)
	requireValidation(t, d, "skip Succeeded", 0)
	requireCleanEnd(t, d)
}

// requireValidation creates an event subscription on this machine without endpointValidation; the demo endpoint would
// respond to the handshake.
func requireValidation(t *testing.T, d *devRun, want string, handshakes int) {
	t.Helper()
	d.manage(http.StatusCreated, http.MethodPut, "/v1/topics/demo/subscriptions/silent",
		fmt.Sprintf(`{"endpointUrl":%q}`, d.info.Sink+"/ok"))
	const found = "SELECT endpoint_validation || ' ' || provisioning_state FROM postrider.event_subscriptions " +
		"WHERE subscription = 'silent'"
	require.Equal(t, want, one[string](d.db, found))
	require.Equal(t, handshakes, one[int](d.db, "SELECT count(*) FROM postrider.handshakes WHERE current"))
}

func TestDevValidatesWithTheFlag(t *testing.T) {
	t.Parallel()
	requireValidation(t, startDev(t, "--validate"), "required Succeeded", 1)
}

func requireReadyInfo(t *testing.T, info local.ReadyInfo) {
	t.Helper()
	require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, info.API)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+$`, info.Sink)
	require.Equal(t, rest.DevAdminToken, info.AdminToken)
	require.Equal(t, devAccessKey, info.TopicKey)
	for _, page := range []string{
		info.API + "/ui/", info.API + "/readyz", info.API + "/openapi.yaml", info.API + "/openapi", info.Sink + "/ok",
	} {
		status, text, err := call(t.Context(), http.MethodGet, page, "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "%s: %s", page, text)
	}
}

// functionCalls has a call of every function in schema postrider.
var functionCalls = map[string]string{
	"try_jsonb":   `postrider.try_jsonb('{"a":1}'::bytea) ->> 'a' = '1'`,
	"jsonb_error": `postrider.jsonb_error('{'::bytea) IS NOT NULL`,
	"try_text":    `postrider.try_text('\xff'::bytea) = '\377'`,

	"publish":       `postrider.publish('demo', '{"eventType": "test", "subject": "sql"}') IS NOT NULL`,
	"publish_batch": `cardinality(postrider.publish_batch('demo', '[]')) = 0`,
	"publish_data":  `postrider.publish_data('demo', 'test', 'sql', '{}') IS NOT NULL`,
	"redeliver": `postrider.redeliver((SELECT dead_letter_id FROM postrider.dead_letters ORDER BY dead_lettered_at
		    LIMIT 1), 'accepted', again => true) > 0`,
	"purge":              `NOT postrider.purge('00000000-0000-0000-0000-000000000000')`,
	"count_events":       `postrider.count_events('demo', '2000-01-01') >= 0`,
	"count_dead_letters": `postrider.count_dead_letters('{"topic": "nowhere"}') = 0`,
	"redeliver_all":      `postrider.redeliver_all('{"topic": "nowhere"}') IS NOT NULL`,
	"purge_all":          `postrider.purge_all('{"topic": "nowhere"}') IS NOT NULL`,
	"redeliver_events":   `postrider.redeliver_events('demo', 'accepted', '2020-01-01', '2020-01-02') IS NOT NULL`,
	"cancel_operation":   `postrider.cancel_operation(postrider.redeliver_all('{"topic": "nowhere"}')) IS NOT NULL`,
	// a trigger's, called by none but it
	"publish_row_change": `to_regprocedure('postrider.publish_row_change()') IS NOT NULL`,

	"pause": `coalesce(postrider.pause('demo', 'accepted')::text, '') || coalesce(postrider.resume('demo',` +
		` 'accepted')::text, '') = ''`,
	"resume":        `coalesce(postrider.resume('demo', 'accepted')::text, '') = ''`,
	"release":       `coalesce(postrider.release('demo', 'accepted')::text, '') = ''`,
	"test_delivery": `postrider.test_delivery('demo', 'accepted') > 0`,
	"erase_subject": `(SELECT erased = 0 AND operation_id IS NULL FROM postrider.erase_subject('demo', 'unknown'))`,
	// TestOperateFromTheCommandLine has a delivery and an event for these.
	"cancel":          `to_regprocedure('postrider.cancel(bigint)') IS NOT NULL`,
	"retry_now":       `to_regprocedure('postrider.retry_now(bigint)') IS NOT NULL`,
	"dead_letter_now": `to_regprocedure('postrider.dead_letter_now(bigint)') IS NOT NULL`,
	"erase_event":     `to_regprocedure('postrider.erase_event(uuid, date)') IS NOT NULL`,
	// The page docs/guides/pull.md has events for these.
	"receive":       `to_regprocedure('postrider.receive(text, text, integer, integer)') IS NOT NULL`,
	"acknowledge":   `postrider.acknowledge('{}') = '{}'`,
	"release_locks": `postrider.release_locks('{}') = '{}'`,
	"reject":        `postrider.reject('{}') = '{}'`,
	"renew":         `postrider.renew('{}') = '{}'`,
}

// requireContract: every view can be read and every function called.
func requireContract(t *testing.T, db *database) {
	t.Helper()
	views := one[[]string](db,
		"SELECT array_agg(table_name::text) FROM information_schema.views WHERE table_schema = 'postrider'")
	require.Contains(t, views, "dead_letters")
	for _, view := range views {
		db.exec("SELECT * FROM " + pgx.Identifier{"postrider", view}.Sanitize())
	}
	functions := one[[]string](db,
		"SELECT array_agg(DISTINCT proname::text) FROM pg_proc WHERE pronamespace = 'postrider'::regnamespace")
	require.NotEmpty(t, functions)
	for _, name := range functions {
		require.Contains(t, functionCalls, name, "a function of the contract needs a call here")
		require.True(t, one[bool](db, "SELECT "+functionCalls[name]), name)
	}
}

func requireFirstEvent(t *testing.T, d *devRun, first string) {
	t.Helper()
	require.Equal(t, "delivered", d.delivery(first, "accepted", 1))
	require.Equal(t, "dead_lettered", d.delivery(first, "rejected", 1))
	require.Equal(t, "UndeliverableDueToHttpBadRequest",
		one[string](d.db, "SELECT reason FROM postrider.dead_letters WHERE event_id = $1", first))
	require.Equal(t, "pending", d.delivery(first, "flaky", 1))
	// ga-2021's first step, and jitter of a tenth of it at most. The attempt's own time comes on top.
	wait := one[float64](d.db,
		"SELECT extract(epoch FROM a.next_attempt_at - a.started_at)::float8 FROM postrider.delivery_attempts a "+
			"JOIN postrider.deliveries d USING (delivery_id) "+
			"WHERE d.event_id = $1 AND d.subscription = 'flaky' AND a.number = 1", first)
	require.GreaterOrEqual(t, wait, 10.0)
	require.Less(t, wait, 60.0, "a busy machine decides late")

	for _, line := range []string{
		`--> demo +%s \(demo\.hello\), matched by 3`,
		`<-- accepted +%s attempt 1: 200 in \S+, delivered`,
		`<-- rejected +%s attempt 1: 400 in \S+, dead-lettered: UndeliverableDueToHttpBadRequest`,
		`<-- flaky +%s attempt 1: 500 in \S+, next attempt in 1[01](\.\d)?s \(.*step 1 is 10 s.*\)`,
	} {
		eventuallyPrinted(t, d, fmt.Sprintf(`(?m)^\d\d:\d\d:\d\d `+line+`$`, regexp.QuoteMeta(first)))
	}
	d.hasten(first, "flaky")
	require.Equal(t, "pending", d.delivery(first, "flaky", 2))
	d.hasten(first, "flaky")
	require.Equal(t, "delivered", d.delivery(first, "flaky", 3))
	require.Equal(t, []int32{500, 500, 204},
		one[[]int32](d.db, `SELECT array_agg(a.status ORDER BY a.number) FROM postrider.delivery_attempts a
		JOIN postrider.deliveries d USING (delivery_id) WHERE d.event_id = $1 AND a.subscription = 'flaky'`, first))
}

func eventuallyPrinted(t *testing.T, d *devRun, pattern string) {
	t.Helper()
	line := regexp.MustCompile(pattern)
	eventually(t, pattern+" is printed", func() bool { return line.MatchString(d.stdout.String()) })
}

// requireSample runs the commands that dev prints, exactly as printed.
func requireSample(t *testing.T, d *devRun, first string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err == nil {
		require.Contains(t, shell(t, printedCommand(t, d, "Publish an event:")), "HTTP/1.1 200 OK")
		require.Equal(t, "delivered", d.delivery("my-1", "accepted", 1))
		eventuallyPrinted(t, d, `--> demo +my-1 \(demo\.hello\), matched by 3\n`)
	}
	require.Contains(t,
		shell(t, printedCommand(t, d, "Publish a sample order; `listen --topic demo` receives it:")),
		"1 event to topic demo in ")
	table := shell(t, printedCommand(t, d, "Query the dead letters:"))
	require.Regexp(t, `(?m)^event_id +subscription +reason +attempts +last_outcome +last_status$`, table)
	require.Regexp(t, `(?m)^`+regexp.QuoteMeta(first)+` +rejected +UndeliverableDueToHttpBadRequest +1 +\S+ +400$`, table)
	schedule := shell(t, printedCommand(t, d, "Preview a retry schedule:"))
	require.Regexp(t, `(?m)^2 +30 +30s +503: at least 30 s; step 1 is 10 s after the failure$`, schedule)
	require.Regexp(t, `(?m)^end +86400 +24h +dead_lettered TimeToLiveExceeded$`, schedule)
}

// printedCommand is what stands below the title, with the lines that a backslash goes on to.
func printedCommand(t *testing.T, d *devRun, title string) string {
	t.Helper()
	eventuallyPrinted(t, d, `-->`) // the first event is published below all of them
	_, after, found := strings.Cut(d.stdout.String(), title+"\n")
	require.True(t, found, title)
	var command strings.Builder
	for line := range strings.Lines(after) {
		command.WriteString(line)
		if !strings.HasSuffix(line, "\\\n") {
			break
		}
	}
	return command.String()
}

func shell(t *testing.T, command string) string {
	t.Helper()
	p := startProcess(t, ownEnvironment(), "sh", "-c", command)
	require.Zero(t, p.wait(), "%s\n%s", command, p.stderr.String())
	return p.stdout.String()
}

// requireAttemptsCounted: an endpoint that fails twice sees the attempts made before in aeg-delivery-count.
func requireAttemptsCounted(t *testing.T, d *devRun) {
	t.Helper()
	var mu sync.Mutex
	var counts []string
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		counts = append(counts, r.Header.Get("aeg-delivery-count"))
		if len(counts) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer endpoint.Close()
	d.subscribe(demoTopic, "mine", endpoint.URL)
	d.publishDemo("counted")
	for attempt := 1; attempt < 3; attempt++ {
		require.Equal(t, "pending", d.delivery("counted", "mine", attempt))
		d.hasten("counted", "mine")
	}
	require.Equal(t, "delivered", d.delivery("counted", "mine", 3))
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"0", "1", "2"}, counts)
}

// publishDemo publishes an event to the demo topic with the printed key.
func (d *devRun) publishDemo(id string) {
	d.t.Helper()
	status, text, err := call(d.t.Context(), http.MethodPost,
		d.api+"/topics/"+demoTopic+"/api/events?api-version=2018-01-01",
		"["+demoEvent(id, "2026-01-01T00:00:00Z")+"]", "aeg-sas-key", d.info.TopicKey, "Content-Type", "application/json")
	require.NoError(d.t, err)
	require.Equal(d.t, http.StatusOK, status, text)
}

// requireCleanEnd: SIGTERM ends everything at once, even if an endpoint never responds to a request.
func requireCleanEnd(t *testing.T, d *devRun) {
	t.Helper()
	d.subscribe(demoTopic, "hangs", d.info.Sink+"/hang")
	d.publishDemo("hanging")
	eventually(t, "the attempt that hangs has begun", d.db.atLeast(1, `SELECT count(*) FROM postrider_internal.river_job j
		JOIN postrider.deliveries d ON d.delivery_id = (j.args ->> 'd')::bigint WHERE j.state = 'running'
		    AND d.subscription = 'hangs'`))
	pids := d.processes()
	require.Zero(t, d.stop())
	requireGone(t, pids)
	require.NoFileExists(t, d.file)
	require.NoDirExists(t, filepath.Dir(d.data))
}

func TestKilledDevLeavesNoProcess(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(d.data)) }) // the next dev would sweep it away
	pids := d.processes()
	d.kill()
	requireGone(t, pids)
}

func TestDevKeepsTheDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // root's PostgreSQL runs as another user
	d := startDev(t, "--keep", dir)
	d.publishDemo("kept")
	require.Equal(t, "delivered", d.delivery("kept", "accepted", 1))
	require.Equal(t, "pending", d.delivery("kept", "flaky", 1))
	code := d.stop()
	require.Zero(t, code)

	api, sink, postgres := takenPort(t), takenPort(t), takenPort(t)
	d = startDev(t, "--keep", dir, "--listen", "127.0.0.1:"+api, "--sink-listen", "127.0.0.1:"+sink, "--pg-port", postgres)
	for _, port := range []string{api, sink, postgres} {
		eventuallyPrinted(t, d, `(?m)^Port `+port+` is taken; using \d+ instead\.$`)
	}
	require.Equal(t, 1, one[int](d.db, "SELECT count(*) FROM postrider.events WHERE event_id = 'kept'"))
	require.Equal(t, "delivered", d.delivery("kept", "accepted", 1))
	d.hasten("kept", "flaky")
	require.Equal(t, "pending", d.delivery("kept", "flaky", 2), "the delivery is still pending")
	d.publishDemo("published later")
	require.Equal(t, "delivered", d.delivery("published later", "accepted", 1), "to the demo endpoint's new port")
	pids := d.processes()
	code = d.stop()
	require.Zero(t, code)
	requireGone(t, pids)
	require.DirExists(t, d.data)
}

// takenPort returns a port with a listener until the test ends.
func takenPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	return port
}

// A page of another site whose name leads to 127.0.0.1 knows the published secrets of dev, and reaches nothing all the
// same.
func TestDevAcceptsLocalHostsOnly(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.info.API, "http://"))
	require.NoError(t, err)
	request := func(host, method, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, d.info.API+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Host = host
		r.Header.Set("Authorization", "Bearer "+rest.DevAdminToken)
		r.Header.Set("Content-Type", "application/json")
		response, err := caller.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(text)
	}
	for _, row := range [][3]string{
		{http.MethodGet, "/v1/topics", ""},
		{http.MethodPost, "/topics/demo/api/events", "[]"},
		{http.MethodGet, "/ui/", ""},
		{http.MethodGet, "/metrics", ""},
		{http.MethodGet, "/openapi.yaml", ""},
	} {
		for _, host := range []string{"127.0.0.1:" + port, "localhost:" + port, "[::1]:" + port} {
			status, text := request(host, row[0], row[1], row[2])
			require.Equal(t, http.StatusOK, status, "%s %s: %s", host, row[1], text)
		}
		for _, host := range []string{
			"rebind.example.com:" + port, "localhost.example.com", "127.0.0.1.example.com:" + port,
		} {
			status, text := request(host, row[0], row[1], row[2])
			require.Equal(t, http.StatusMisdirectedRequest, status, "%s %s", host, row[1])
			require.Contains(t, text, host)
			require.Contains(t, text, "localhost and IP addresses")
		}
	}
}
