package e2e

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"postrider/internal/local"
)

// ownAddress is an address of this machine in its network, as a container has one; else loopback.
func ownAddress(t *testing.T) net.IP {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.To4() != nil && network.IP.IsGlobalUnicast() {
			return network.IP
		}
	}
	return net.IPv4(127, 0, 0, 1)
}

// testedApp is an application with the endpoints of deploy/examples/ci/events.yaml: one that accepts, one that rejects,
// and a function as Azure Functions' Event Grid trigger responds, which needs functionName and responds 202 to events.
type testedApp struct {
	*httptest.Server
	mu   sync.Mutex
	seen []string // event type and path of each request
}

func startTestedApp(t *testing.T) *testedApp {
	t.Helper()
	a := &testedApp{}
	listener, err := net.Listen("tcp", net.JoinHostPort(ownAddress(t).String(), "0"))
	require.NoError(t, err)
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		kind := r.Header.Get("Aeg-Event-Type")
		a.mu.Lock()
		a.seen = append(a.seen, kind+" "+r.RequestURI)
		a.mu.Unlock()
		switch {
		case r.URL.Path == "/broken":
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/events":
			w.WriteHeader(http.StatusOK)
		case r.URL.Path != "/runtime/webhooks/EventGrid" || r.URL.Query().Get("functionName") != "orders":
			w.WriteHeader(http.StatusNotFound)
		case kind == "SubscriptionValidation":
			local.RespondToHandshake(w, r, body)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
	}))
	_ = a.Listener.Close()
	a.Listener = listener
	a.Start()
	t.Cleanup(a.Close)
	return a
}

func (a *testedApp) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// ciFlags are the flags of the compose file of the example, with the ports and the file of this test.
func ciFlags(t *testing.T, file string) []string {
	t.Helper()
	var compose struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
			Healthcheck struct{ Test []string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "deploy/examples/ci/compose.yaml")), &compose))
	command := compose.Services["eventgrid"].Command
	require.Equal(t, "dev", command[0])
	// A handshake before the application listens would fail.
	require.Equal(t, "service_healthy", compose.Services["eventgrid"].DependsOn["app"].Condition)
	require.NotEmpty(t, compose.Services["app"].Healthcheck.Test)
	listens := func(flag string) bool { return strings.Contains(flag, "listen=") }
	flags := slices.DeleteFunc(slices.Clone(command[1:]), listens)
	require.Len(t, flags, len(command)-3)
	for i := range flags {
		flags[i] = strings.Replace(flags[i], "/events.yaml", file, 1)
	}
	require.Contains(t, flags, "--topic-key="+compose.Services["tests"].Environment["TOPIC_KEY"])
	require.Contains(t, flags, "--admin-token="+compose.Services["tests"].Environment["POSTRIDER_API_KEY"])
	return flags
}

// The container of docs/guides/ci.md, as a process: it delivers to the application at a private address, and its
// function completes the handshake. Each example test passes, twice.
func TestEventGridInCI(t *testing.T) {
	t.Parallel()
	app, file := startTestedApp(t), filepath.Join(t.TempDir(), "events.yaml")
	text := strings.ReplaceAll(fromRoot(t, "deploy/examples/ci/events.yaml"), "http://app:8080", app.URL)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	d := startDev(t, append(ciFlags(t, file), "--allow-cidr="+ownAddress(t).String()+"/32")...)
	require.Contains(t, app.requests(), "SubscriptionValidation /runtime/webhooks/EventGrid?functionName=orders")

	env := append(ownEnvironment(), "POSTRIDER_URL="+d.api, "POSTRIDER_API_KEY="+d.token, "TOPIC_KEY="+d.info.TopicKey)
	published := postrider(t, env, "publish", "orders", "--type", "Shop.OrderPaid", "--subject", "orders/broken/1")
	require.Zero(t, published.code, published.stderr)
	eventually(t, "the event was delivered twice and rejected once", d.db.atLeast(1, `SELECT count(*) FROM
		postrider.dead_letters WHERE (SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered') = 2`))
	letters := postrider(t, env, "deadletter", "list", "-o", "json")
	require.Zero(t, letters.code, letters.stderr)
	var list []struct {
		Subscription string
		LastStatus   int
	}
	require.NoError(t, json.Unmarshal([]byte(letters.stdout), &list))
	require.Len(t, list, 1)
	require.Equal(t, []any{"broken", 400}, []any{list[0].Subscription, list[0].LastStatus})
	require.ElementsMatch(t, []string{
		"Notification /events", "Notification /broken", "Notification /runtime/webhooks/EventGrid?functionName=orders",
		"SubscriptionValidation /runtime/webhooks/EventGrid?functionName=orders",
	}, app.requests())
	reset := postrider(t, env, "dev", "reset")
	require.Zero(t, reset.code, reset.stderr)
	require.Zero(t, one[int](d.db, "SELECT count(*) FROM postrider.events"))

	for _, command := range [][]string{
		{goExample(t, "ci/go")}, {tool(t, "node", "nodejs"), examplesDir + "/ci/javascript/test.mjs"},
	} {
		for range 2 {
			p := startProcess(t, env, command[0], command[1:]...)
			require.Zero(t, p.wait(), p.stderr.String())
			require.Equal(t, "ok\n", p.stdout.String())
		}
	}
	require.Zero(t, d.stop())
}

var containerCommand = regexp.MustCompile(`(?s)(?:withCommand\(\[|Cmd: \[\]string\{)(.*?)[\]}],?`)

// The commands of the containers in the page are those of the compose file, in each language.
func TestContainersOfThePage(t *testing.T) {
	t.Parallel()
	page := fromRoot(t, "docs/guides/ci.md")
	found := containerCommand.FindAllStringSubmatch(page, -1)
	require.Len(t, found, 2)
	flags := ciFlags(t, "/events.yaml")
	for _, command := range found {
		var args []string
		for _, arg := range regexp.MustCompile(`['"]([^'"]+)['"]`).FindAllStringSubmatch(command[1], -1) {
			args = append(args, arg[1])
		}
		require.Equal(t, "dev", args[0])
		require.Subset(t, append(flags, "--listen=0.0.0.0:7480"), args[1:], command[0])
		require.GreaterOrEqual(t, len(args), 5)
	}
}
