package e2e

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The programs of testdata/conformance use clients of others: Microsoft's and the CloudEvents project's
// for Node.js.
const conformanceDir = "testdata/conformance"

// missing skips a test for want of a program; where POSTRIDER_CI or CI is set the test fails instead.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("POSTRIDER_CI") != "" || os.Getenv("CI") != "" {
		require.FailNow(t, what)
	}
	t.Skip(what)
}

// nodePrograms is a folder of this test's own with the programs, below the one with all that they import.
func nodePrograms(t *testing.T) (node, dir string) {
	t.Helper()
	node, modules := nodePackages(t, conformanceDir)
	//nolint:usetesting // Node.js searches imports in the parent folders
	dir, err := os.MkdirTemp(modules, "run-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	programs, err := filepath.Glob(filepath.Join(conformanceDir, "*.mjs"))
	require.NoError(t, err)
	for _, program := range programs {
		require.NoError(t, copyFile(program, dir))
	}
	return node, dir
}

// nodePackages is a folder with what the package-lock.json of source lists, for this test and others.
func nodePackages(t *testing.T, source string) (node, dir string) {
	t.Helper()
	node, err := exec.LookPath("node")
	npm, npmErr := exec.LookPath("npm")
	if err != nil || npmErr != nil {
		missing(t, "no Node.js (18 or newer) with npm here: apt-get install nodejs npm")
	}
	dir, err = installedOnce(npm, source)
	require.NoError(t, err)
	return node, dir
}

func copyFile(file, dir string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o644)
}

var installing sync.Mutex

// installedOnce has npm install what package-lock.json lists in a folder of the user's cache that is named after it.
// The folder is filled under another name first: two test runs at once may both do so.
func installedOnce(npm, source string) (string, error) {
	installing.Lock()
	defer installing.Unlock()
	lock, err := os.ReadFile(filepath.Join(source, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "postrider-conformance", fmt.Sprintf("%x", sha256.Sum256(lock))[:16])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	filling := fmt.Sprint(dir, ".", os.Getpid())
	defer os.RemoveAll(filling)
	if err := os.MkdirAll(filling, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		if err := copyFile(filepath.Join(source, name), filling); err != nil {
			return "", err
		}
	}
	ci := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	ci.Dir, ci.Env = filling, ownEnvironment()
	if out, err := ci.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(filling, dir); err != nil {
		_, err = os.Stat(dir) // the other run was first
		return dir, err
	}
	return dir, nil
}

// relay stands between one client and a postrider, and keeps what passes.
type relay struct {
	url string

	mu     sync.Mutex
	passed []passage
}

// passage is one request and the status of its response.
type passage struct {
	body   []byte
	status int
}

// newRelay speaks TLS on both sides if there are files: the node's own certificate.
func newRelay(t *testing.T, api string, client *http.Client, files *tlsFiles) *relay {
	t.Helper()
	target, err := url.Parse(api)
	require.NoError(t, err)
	r := &relay{}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(target) },
		ModifyResponse: r.noteStatus,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
		Transport: client.Transport,
	}
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		r.mu.Lock()
		r.passed = append(r.passed, passage{body: body})
		r.mu.Unlock()
		proxy.ServeHTTP(w, request)
	}))
	if files == nil {
		listener.Start()
	} else {
		pair, err := tls.LoadX509KeyPair(files.cert, files.key)
		require.NoError(t, err)
		listener.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		listener.StartTLS()
	}
	t.Cleanup(listener.Close)
	r.url = listener.URL
	return r
}

// noteStatus notes the status of the last request: the client of a relay waits for each response before its next
// request.
func (r *relay) noteStatus(response *http.Response) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed[len(r.passed)-1].status = response.StatusCode
	return nil
}

// statuses are the statuses of the responses, in order.
func (r *relay) statuses() (statuses []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.passed {
		statuses = append(statuses, p.status)
	}
	return statuses
}

// events are the bytes of the events in the one request that passed.
func (r *relay) events(t *testing.T) (events []string) {
	t.Helper()
	require.Equal(t, []int{http.StatusOK}, r.statuses())
	return members(t, r.passed[0].body)
}

// members are the bytes of an array's members, or of a lone object.
func members(t *testing.T, body []byte) (found []string) {
	t.Helper()
	if body[0] != '[' {
		return []string{string(body)}
	}
	var raw []json.RawMessage
	require.NoError(t, json.Unmarshal(body, &raw))
	for _, m := range raw {
		found = append(found, string(m))
	}
	return found
}

// clientCase is one thing that a client does, through a relay of its own.
type clientCase struct {
	*relay
	given  map[string]string
	result json.RawMessage
	error  *clientError // nil if the client was content
}

// clientError is a client's error for a response that it treats as a failure.
type clientError struct {
	Status        int
	Code, Message string
}

// clientCases are by name.
type clientCases struct {
	t     *testing.T
	cases map[string]*clientCase
}

// add has the client go to path of a postrider with a key; more are pairs that its program knows.
func (c *clientCases) add(name string, s *service, path, key string, more ...string) *clientCase {
	c.t.Helper()
	r := newRelay(c.t, s.api, caller, nil)
	added := &clientCase{relay: r, given: map[string]string{"url": r.url + path, "key": key}}
	for i := 0; i < len(more); i += 2 {
		added.given[more[i]] = more[i+1]
	}
	c.cases[name] = added
	return added
}

// run has one process do all of it.
func (c *clientCases) run(program string) {
	c.t.Helper()
	given := map[string]map[string]string{}
	for name, one := range c.cases {
		given[name] = one.given
	}
	text, err := json.Marshal(given)
	require.NoError(c.t, err)
	node, dir := nodePrograms(c.t)
	p := startProcess(c.t, append(ownEnvironment(), "CASES="+string(text)), node, filepath.Join(dir, program))
	require.Zero(c.t, p.waitFor(2*patience), p.stderr.String())
	done := map[string]bool{}
	for line := range strings.Lines(p.stdout.String()) {
		var outcome struct {
			Name   string
			Result json.RawMessage
			Error  *clientError
		}
		require.NoError(c.t, json.Unmarshal([]byte(line), &outcome), line)
		c.cases[outcome.Name].result, c.cases[outcome.Name].error = outcome.Result, outcome.Error
		done[outcome.Name] = true
	}
	require.Len(c.t, done, len(c.cases))
}

// sent requires that the client was content, and returns the bytes of its events.
func (c *clientCases) sent(names ...string) (events []string) {
	c.t.Helper()
	for _, name := range names {
		require.Nil(c.t, c.cases[name].error, name)
		events = append(events, c.cases[name].events(c.t)...)
	}
	return events
}

// failed requires an error after one request, with status, code and what the message contains.
func (c *clientCases) failed(name string, status int, code, says string) {
	c.t.Helper()
	one := c.cases[name]
	require.NotNil(c.t, one.error, name)
	require.Equal(c.t, []int{status}, one.statuses(), "%s: one request, and none again", name)
	require.Equal(c.t, status, one.error.Status, name)
	require.Equal(c.t, code, one.error.Code, "%s: %s", name, one.error.Message)
	require.Contains(c.t, one.error.Message, says, name)
}

// stored requires that a topic has exactly these events, to the last byte.
func (d *database) stored(topic string, events []string) {
	d.t.Helper()
	require.ElementsMatch(d.t, events,
		one[[]string](d, "SELECT array_agg(body_text) FROM postrider.events WHERE topic = $1", topic))
}

// receiver is receiver.mjs.
type receiver struct {
	*process
	url string
}

// received is a delivery as a library read it, or a handshake.
type received struct {
	Subscription, Type, Body, Error string
	Handshake                       string // "code", or the origin of the request
	Events                          []map[string]any
}

func startReceiver(t *testing.T) *receiver {
	t.Helper()
	node, dir := nodePrograms(t)
	r := &receiver{process: startProcess(t, ownEnvironment(), node, filepath.Join(dir, "receiver.mjs"))}
	eventually(t, "the receiver says where it is", func() bool {
		line, _, whole := strings.Cut(r.stdout.String(), "\n")
		var at struct{ URL string }
		if whole {
			require.NoError(t, json.Unmarshal([]byte(line), &at), line)
			r.url = at.URL
		}
		return whole
	})
	return r
}

// deliveries are those of one event subscription, all read without a complaint.
func (r *receiver) deliveries(subscription string, count int) (found []received) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d events reach %s", count, subscription), func() bool {
		found = nil
		events := 0
		for _, request := range r.requests(subscription) {
			if request.Handshake == "" {
				found = append(found, request)
				events += len(request.Events)
			}
		}
		return events >= count
	})
	return found
}

// requests are all that came for one event subscription so far, all read without a complaint.
func (r *receiver) requests(subscription string) (found []received) {
	r.t.Helper()
	for i, line := range slices.Collect(strings.Lines(r.stdout.String())) {
		if i == 0 || !strings.HasSuffix(line, "\n") {
			continue // the URL, or half a line
		}
		var request received
		require.NoError(r.t, json.Unmarshal([]byte(line), &request), line)
		if request.Subscription == subscription {
			require.Empty(r.t, request.Error, line)
			found = append(found, request)
		}
	}
	return found
}

// bodies are those of deliveries.
func bodies(deliveries []received) (found []string) {
	for _, d := range deliveries {
		found = append(found, d.Body)
	}
	return found
}

// fields are the members of a JSON object.
func fields(t *testing.T, object string) (found map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(object), &found))
	return found
}
