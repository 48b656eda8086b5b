package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
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

// processes are the run's own and PostgreSQL's.
func (d *devRun) processes() []int {
	d.t.Helper()
	raw, err := os.ReadFile(filepath.Join(d.data, "postmaster.pid"))
	require.NoError(d.t, err)
	first, _, _ := strings.Cut(string(raw), "\n")
	postmaster, err := strconv.Atoi(first)
	require.NoError(d.t, err)
	require.True(d.t, alive(postmaster))
	return []int{d.cmd.Process.Pid, postmaster}
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
	requireFirstEvent(t, d, first)
	requireSample(t, d, first)
	d.requireLocalHosts(t)
	d.requireValidation("skip Succeeded")
	requireCleanEnd(t, d)
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

func requireFirstEvent(t *testing.T, d *devRun, first string) {
	t.Helper()
	require.Equal(t, "delivered", d.delivery(first, "accepted", 1))
	require.Equal(t, "dead_lettered", d.delivery(first, "rejected", 1))
	require.Equal(t, "UndeliverableDueToHttpBadRequest",
		one[string](d.db, "SELECT reason FROM postrider.dead_letters WHERE event_id = $1", first))
	d.delivery(first, "flaky", 1)
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

func TestDevKeepsTheDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755)) // root's PostgreSQL runs as another user
	file := filepath.Join(t.TempDir(), "topics.yaml")
	declare := func(key string) {
		require.NoError(t, os.WriteFile(file, []byte("topics: [{name: plain}, {name: keyed, key1: "+key+"}]"), 0o600))
	}
	declare("Zmlyc3QtMTYtYnl0ZXMtIQ==")
	d := startDev(t, "--keep", dir, "-f", file)
	d.publishDemo("kept")
	require.Equal(t, "delivered", d.delivery("kept", "accepted", 1))
	require.Equal(t, "pending", d.delivery("kept", "flaky", 1))
	pids := d.processes()
	d.kill() // leaves no process
	requireGone(t, pids)

	api, sink, postgres := takenPort(t), takenPort(t), takenPort(t)
	const topicKey, ownKey = "YW5vdGhlci1rZXktb2YtdG9waWNz", "c2Vjb25kLTE2LWJ5dGVzLQ=="
	declare(ownKey)
	d = startDev(t, "--keep", dir, "--listen", "127.0.0.1:"+api, "--sink-listen", "127.0.0.1:"+sink, "--pg-port", postgres,
		"-f", file, "--topic-key", topicKey)
	for topic, key := range map[string]string{demoTopic: topicKey, "plain": topicKey, "keyed": ownKey} {
		status, text, err := call(t.Context(), http.MethodPost, d.api+"/topics/"+topic+"/api/events", "[]",
			"aeg-sas-key", key, "Content-Type", "application/json")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, "the key of this run opens %s: %s", topic, text)
	}
	for _, port := range []string{api, sink, postgres} {
		eventuallyPrinted(t, d, `(?m)^Port `+port+` is taken; using \d+ instead\.$`)
	}
	require.Equal(t, 1, one[int](d.db, "SELECT count(*) FROM postrider.events WHERE event_id = 'kept'"))
	require.Equal(t, "delivered", d.delivery("kept", "accepted", 1))
	d.hasten("kept", "flaky")
	require.Equal(t, "pending", d.delivery("kept", "flaky", 2), "the delivery is still pending")
	d.publishDemo("published later")
	require.Equal(t, "delivered", d.delivery("published later", "accepted", 1), "to the demo endpoint's new port")
	require.Zero(t, d.stop())
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

// requireValidation creates an event subscription on this machine without endpointValidation; the demo endpoint would
// respond to the handshake.
func (d *devRun) requireValidation(want string) {
	d.t.Helper()
	d.manage(http.StatusCreated, http.MethodPut, "/v1/topics/demo/subscriptions/silent",
		fmt.Sprintf(`{"endpointUrl":%q}`, d.info.Sink+"/ok"))
	require.Equal(d.t, want, one[string](d.db, "SELECT endpoint_validation || ' ' || provisioning_state "+
		"FROM postrider.event_subscriptions WHERE subscription = 'silent'"))
}

// requireLocalHosts: a page of another site whose name leads to 127.0.0.1 knows the published secrets of dev, and
// reaches nothing all the same.
func (d *devRun) requireLocalHosts(t *testing.T) {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(d.info.API, "http://"))
	require.NoError(t, err)
	for _, path := range []string{"/v1/topics", "/topics/demo/api/events", "/ui/", "/metrics", "/openapi.yaml"} {
		method, body := http.MethodGet, ""
		if strings.HasSuffix(path, "/events") {
			method, body = http.MethodPost, "[]"
		}
		for host, status := range map[string]int{
			"127.0.0.1:" + port: 200, "localhost:" + port: 200, "[::1]:" + port: 200, "rebind.example.com:" + port: 421,
			"localhost.example.com": 421, "127.0.0.1.example.com:" + port: 421,
		} {
			r, err := http.NewRequestWithContext(t.Context(), method, d.info.API+path, strings.NewReader(body))
			require.NoError(t, err)
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+rest.DevAdminToken)
			r.Header.Set("Content-Type", "application/json")
			response, err := caller.Do(r)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, status, response.StatusCode, "%s %s", host, path)
		}
	}
}

// The flags of dev: TLS beside the port without it, handshakes, and a time scale, with which a day of ga-2021 takes ten
// seconds.
func TestDevWithFlags(t *testing.T) {
	t.Parallel()
	d := startDev(t, "--tls", "--tls-listen", "127.0.0.1:0", "--validate", "--time-scale", "8640")
	require.Contains(t, d.stdout.String(), "8640 times as fast: 24 hours of retries take 10s")
	d.subscribe(demoTopic, "day", d.info.Sink+"/status/503")
	d.publishDemo("scaled")
	d.requireValidation("required Succeeded")

	require.Equal(t, filepath.Join(filepath.Dir(d.data), "tls", "ca.pem"), d.info.CAFile)
	for _, base := range []string{d.info.APITLS, strings.Replace(d.info.APITLS, "127.0.0.1", "localhost", 1)} {
		require.Regexp(t, `^https://(127\.0\.0\.1|localhost):\d+$`, base)
		response, text, err := get(t.Context(), trusting(t, d.info.CAFile), base+"/readyz")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, text)
		require.Equal(t, "HTTP/2.0", response.Proto, "beside a port without TLS")
	}
	response, _, err := get(t.Context(), caller, d.info.API+"/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "the other port goes on without it")
	if _, err := exec.LookPath("curl"); err == nil {
		require.Regexp(t, `(?m)^HTTP/\S+ 200`, shell(t, printedCommand(t, d, "Publish an event with TLS:")))
		require.Equal(t, "delivered", d.delivery("my-2", "accepted", 1))
	}

	eventually(t, "the day is over", d.db.atLeast(1, `SELECT count(*) FROM postrider.dead_letters
		WHERE event_id = 'scaled' AND subscription = 'day' AND reason = 'TimeToLiveExceeded'`))
	const scaled = "FROM postrider.deliveries WHERE event_id = 'scaled' AND subscription = 'day'"
	day := one[float64](d.db, "SELECT extract(epoch FROM finished_at - time_to_live_since)::float8 "+scaled)
	require.GreaterOrEqual(t, day, 9.9)
	// Under ga-2021 an event is attempted 11 times in 24 hours. A busy machine is late for each.
	attempts := one[int](d.db, "SELECT attempts "+scaled)
	require.True(t, attempts > 1 && attempts <= 11, attempts)
	require.Zero(t, d.stop())
	require.NoFileExists(t, d.info.CAFile, "removed with the database")
}
