package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"postrider/internal/testdb"
	"postrider/policy"
)

const (
	testEncryptionKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	testAdminToken    = "admin-token-of-the-tests-7f3b91c2d05e"
)

// caller makes the tests' requests. Hundreds of publishers' connections would go through TIME_WAIT otherwise.
var caller = &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// database is one database, queried by SQL like a user.
type database struct {
	t     *testing.T
	url   string // the program's way
	pool  *pgxpool.Pool
	extra []string // environment beside the URL
}

// openDatabaseAt connects to the database at url; its sessions end with the test.
func openDatabaseAt(t *testing.T, url string) *database {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return &database{t: t, url: url, pool: pool}
}

func emptyDatabase(t *testing.T) *database {
	t.Helper()
	return openDatabaseAt(t, testdb.Empty(t))
}

// migratedDatabase is a copy of one that was migrated by the program.
func migratedDatabase(t *testing.T) *database {
	t.Helper()
	return openDatabaseAt(t, testdb.Clone(t))
}

func (d *database) migrate() {
	d.t.Helper()
	done := postrider(d.t, d.env(), "migrate", "up")
	require.Zero(d.t, done.code, done.stderr)
}

func (d *database) env() []string {
	return append([]string{"POSTRIDER_DATABASE_URL=" + d.url}, d.extra...)
}

// one reads a row of one column.
func one[T any](d *database, query string, args ...any) (value T) {
	d.t.Helper()
	require.NoError(d.t, d.pool.QueryRow(d.t.Context(), query, args...).Scan(&value), query)
	return value
}

func (d *database) exec(query string, args ...any) {
	d.t.Helper()
	_, err := d.pool.Exec(d.t.Context(), query, args...)
	require.NoError(d.t, err, query)
}

// service is a running postrider, called over HTTP.
type service struct {
	*process
	api, token string
	client     *http.Client // nil for caller
}

// node is one `postrider serve`.
type nodeProcess struct {
	service
	name  string    // in the table of nodes
	clock time.Time // when it became ready, by its own clock
}

// cliEnv is the environment of verbs that call the node.
func (n *nodeProcess) cliEnv() []string {
	return []string{"POSTRIDER_URL=" + n.api, "POSTRIDER_API_KEY=" + testAdminToken}
}

// startNode starts a node on the database and waits until it is ready.
func startNode(t *testing.T, db *database, flags ...string) *nodeProcess {
	t.Helper()
	return startNodeWith(t, serveEnv(db), flags...)
}

// startNodeWith has an environment of its own.
func startNodeWith(t *testing.T, env []string, flags ...string) *nodeProcess {
	t.Helper()
	return startNodeOf(t, program, env, flags...)
}

// startNodeOf starts another build of the program.
func startNodeOf(t *testing.T, binary string, env []string, flags ...string) *nodeProcess {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ready.json")
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--ready-file", file}, flags...)
	p := startProcess(t, env, binary, args...)
	info := p.ready(file)
	n := &nodeProcess{service: service{process: p, api: info.API + info.Health, token: testAdminToken}}
	n.name, n.clock = readyLine(p)
	return n
}

// serveEnv has empty variables, too, as compose passes them on: they are none.
func serveEnv(db *database) []string {
	return append(db.env(), "POSTRIDER_ENCRYPTION_KEY="+testEncryptionKey, "POSTRIDER_ADMIN_TOKEN="+testAdminToken,
		"POSTRIDER_ALLOW_CIDR=127.0.0.0/8", "POSTRIDER_MAX_CONNS=4", "POSTRIDER_PUBLIC_URL=", "POSTRIDER_TRUSTED_PROXIES=",
		"POSTRIDER_PREVIOUS_ENCRYPTION_KEYS=", "POSTRIDER_DEAD_LETTER_LOCATION=")
}

// readyLine reads the name and the time from the log line "ready". The line can arrive after the ready file.
func readyLine(p *process) (name string, at time.Time) {
	p.t.Helper()
	eventually(p.t, "a log line says that the node is ready", func() bool {
		for line := range strings.Lines(p.stderr.String()) {
			var entry struct {
				Msg, Node string
				Time      time.Time
			}
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "ready" {
				name, at = entry.Node, entry.Time
			}
		}
		return name != ""
	})
	return name, at
}

// call makes a request; headers are pairs of name and value. It may be used from any goroutine.
func call(ctx context.Context, method, url, body string, headers ...string) (status int, text string, err error) {
	return callBy(ctx, caller, method, url, body, headers...)
}

func callBy(
	ctx context.Context, client *http.Client, method, url, body string, headers ...string,
) (status int, text string, err error) {
	response, text, err := send(ctx, client, method, url, body, headers...)
	if err != nil {
		return 0, text, err
	}
	return response.StatusCode, text, nil
}

// send makes a request and reads the response.
func send(
	ctx context.Context, client *http.Client, method, url, body string, headers ...string,
) (response *http.Response, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if response, err = client.Do(r); err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response, string(raw), err
}

// manage makes a management request and requires its status.
func (s *service) manage(status int, method, path, body string) string {
	s.t.Helper()
	got, text, err := callBy(s.t.Context(), cmp.Or(s.client, caller), method, s.api+path, body, "Authorization",
		"Bearer "+s.token)
	require.NoError(s.t, err)
	require.Equal(s.t, status, got, text)
	return text
}

// topic makes a topic for CloudEvents, which are delivered as they came to the last byte, and returns its access key.
func (s *service) topic(name string) string {
	s.t.Helper()
	return s.makeTopic(name, `{"inputSchema":"CloudEventSchemaV1_0"}`)
}

func (s *service) subscribe(topic, name, endpoint string) {
	s.t.Helper()
	s.subscribeUnder(policy.DefaultName, topic, name, endpoint)
}

// subscribeUnder does so with a retry policy of one's choice.
func (s *service) subscribeUnder(retryPolicy, topic, name, endpoint string) {
	s.t.Helper()
	s.manage(http.StatusCreated, http.MethodPut, "/v1/topics/"+topic+"/subscriptions/"+name,
		fmt.Sprintf(`{"endpointUrl":%q,"endpointValidation":"skip","retryPolicy":{"policy":%q}}`, endpoint, retryPolicy))
}

// postEvents posts one CloudEvent, or an array of them. It may be used from any goroutine.
func postEvents(ctx context.Context, api, topic, key, body string) (status int, text string, err error) {
	media := "application/cloudevents+json"
	if strings.HasPrefix(body, "[") {
		media = "application/cloudevents-batch+json"
	}
	return call(ctx, http.MethodPost, api+"/topics/"+topic+"/api/events?api-version=2018-01-01", body, "aeg-sas-key", key,
		"Content-Type", media)
}

// publish requires that the events are accepted.
func (s *service) publish(topic, key, body string) {
	s.t.Helper()
	status, text, err := postEvents(s.t.Context(), s.api, topic, key, body)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, status, text)
}

// cloudEvent has what a careless program would change: spaces, an exponent, escapes, a character that PostgreSQL cannot
// hold.
func cloudEvent(id string) string {
	return fmt.Sprintf(`{ "specversion":"1.0","id":%q,"source":"/shop", "type":"shop.order.placed","data":{"n":1.50e2,`+
		`"text":"\u00e9\u0000/\/"} }`, id)
}

// atLeast is a condition to wait for: the number that the query counts.
func (d *database) atLeast(n int, query string, args ...any) func() bool {
	return func() bool { return one[int](d, query, args...) >= n }
}

const (
	unfinishedQuery = "SELECT count(*) FROM postrider_internal.deliveries"
	runningQuery    = "SELECT count(*) FROM postrider_internal.river_job WHERE state = 'running' " +
		"AND attempted_by[array_upper(attempted_by, 1)] = $1"
)

// drained waits until every delivery has ended.
func (d *database) drained() {
	d.t.Helper()
	began := time.Now()
	eventually(d.t, "every delivery has ended", func() bool { return one[int](d, unfinishedQuery) == 0 })
	d.t.Logf("drained in %s", time.Since(began).Round(time.Millisecond))
}
