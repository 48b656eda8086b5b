package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

const examplesDir = "../deploy/examples"

// exampleSecret signs the deliveries to the examples.
const exampleSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// goExample builds an example that is a program of the main module.
func goExample(t *testing.T, folder string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "example")
	out, err := buildFromRoot("./deploy/examples/"+folder, file)
	require.NoError(t, err, "%s", out)
	return file
}

// tool is where a program is; the test is skipped without it.
func tool(t *testing.T, name, debian string) string {
	t.Helper()
	found, err := exec.LookPath(name)
	if err != nil {
		missing(t, "no "+name+" here: apt-get install "+debian)
	}
	return found
}

// Each example receiver responds to both handshakes, accepts valid signatures and rejects others.
func TestExampleReceivers(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	node := startNode(t, db)
	node.manage(http.StatusCreated, http.MethodPut, "/v1/topics/shop", `{}`)
	for name, command := range map[string]func(t *testing.T) []string{
		"go": func(t *testing.T) []string { return []string{goExample(t, "receivers/go")} },
		"javascript": func(t *testing.T) []string {
			return []string{tool(t, "node", "nodejs"), examplesDir + "/receivers/javascript/receiver.mjs"}
		},
		"python": func(t *testing.T) []string {
			return []string{tool(t, "python3", "python3"), examplesDir + "/receivers/python/receiver.py"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, port := command(t), freePort(t)
			receiver := startProcess(t, append(os.Environ(), "PORT="+port, "WEBHOOK_SECRET="+exampleSecret), line[0],
				line[1:]...)
			eventually(t, "the receiver listens",
				func() bool { return strings.Contains(receiver.stdout.String(), "listening on") })
			for _, schema := range []string{"EventGridSchema", "CloudEventSchemaV1_0"} {
				path := fmt.Sprintf("/v1/topics/shop/subscriptions/%s-%s", name, schema)
				node.manage(http.StatusCreated, http.MethodPut, path,
					fmt.Sprintf(`{"endpointUrl":"http://127.0.0.1:%s/events","eventDeliverySchema":%q,"signing":{"enabled":true},`+
						`"filter":{"subjectBeginsWith":%q}}`, port, schema, name+schema))
				publishShop(t, node, name+schema, "wrong-"+schema) // signed with a secret that the receiver does not have
				eventually(t, "the receiver rejects a wrong signature", db.atLeast(1,
					"SELECT count(*) FROM postrider.delivery_attempts WHERE subscription = $1 AND status = 503", name+"-"+schema))
				node.manage(http.StatusOK, http.MethodPost, path+"/rotateSigningSecret",
					fmt.Sprintf(`{"secret":%q,"previousValidForHours":0}`, exampleSecret))
				publishShop(t, node, name+schema, "right-"+schema)
				eventually(t, "the event is received", func() bool {
					return strings.Contains(receiver.stdout.String(), "received Shop.OrderPlaced right-"+schema)
				})
			}
			require.NotContains(t, receiver.stdout.String(), "wrong-")
			requireEachOnce(t, receiver, "http://127.0.0.1:"+port+"/events")
		})
	}
}

// requireEachOnce sends a receiver signed deliveries with the same publisher's id. It processes each event once: by
// aeg-output-event-id, and in batches by source and id.
func requireEachOnce(t *testing.T, receiver *process, url string) {
	t.Helper()
	signer, err := standardwebhooks.NewWebhook(exampleSecret)
	require.NoError(t, err)
	deliver := func(systemID string, sources ...string) {
		events := make([]string, len(sources))
		for i, source := range sources {
			events[i] = fmt.Sprintf(`{"specversion":"1.0","id":"same","type":"Shop.Same","source":%q}`, source)
		}
		body, at := "["+strings.Join(events, ",")+"]", time.Now()
		signature, err := signer.Sign("message", at, []byte(body))
		require.NoError(t, err)
		headers := []string{
			"webhook-id", "message", "webhook-timestamp", strconv.FormatInt(at.Unix(), 10), "webhook-signature", signature,
		}
		if systemID != "" {
			headers = append(headers, "aeg-output-event-id", systemID)
		}
		status, text, err := call(t.Context(), http.MethodPost, url, body, headers...)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, text)
	}
	for range 2 {
		deliver("first", "/shops/1")
		deliver("second", "/shops/1")
		deliver("", "/shops/1", "/shops/2")
	}
	deliver("last", "/shops/3")
	eventually(t, "the last event is received", func() bool {
		return strings.Count(receiver.stdout.String(), "received Shop.Same same") >= 5
	})
	require.Equal(t, 5, strings.Count(receiver.stdout.String(), "received Shop.Same same"))
}

func publishShop(t *testing.T, node *nodeProcess, subject, id string) {
	t.Helper()
	body := fmt.Sprintf(`[{"id":%q,"eventType":"Shop.OrderPlaced","subject":%q,"eventTime":"2026-01-01T00:00:00Z",`+
		`"dataVersion":"1","data":{"total":9.5}}]`, id, subject)
	status, text, err := call(t.Context(), http.MethodPost, node.api+"/topics/shop/api/events", body, "Authorization",
		"Bearer "+node.token, "Content-Type", "application/json")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
}

// The example in Go publishes in its own transaction.
func TestExamplePublisher(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	node := startNode(t, db)
	node.manage(http.StatusCreated, http.MethodPut, "/v1/topics/shop", `{}`)
	done := startProcess(t, append(os.Environ(), "DATABASE_URL="+db.url), goExample(t, "publish-sql/go"), "shop")
	require.Zero(t, done.wait(), done.stderr.String())
	require.Contains(t, done.stdout.String(), "published ")
	require.Equal(t, 1,
		one[int](db, "SELECT count(*) FROM postrider.events WHERE topic = 'shop' AND subject = 'orders/1'"))
	require.Equal(t, 1, one[int](db, "SELECT count(*) FROM shop_orders"))
}

// Each example consumer processes and acknowledges events: those over HTTP in a loop, the one in SQL in a transaction.
func TestExampleConsumers(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	node := startNode(t, db)
	key := node.topic("shop")
	acknowledged := func(name string) func() bool {
		return db.atLeast(2,
			"SELECT count(*) FROM postrider.deliveries WHERE subscription = $1 AND state = 'delivered'", name)
	}
	for name, command := range map[string]func(t *testing.T) []string{
		"in-go": func(t *testing.T) []string { return []string{goExample(t, "pull/go")} },
		"in-javascript": func(t *testing.T) []string {
			return []string{tool(t, "node", "nodejs"), examplesDir + "/pull/javascript/pull.mjs"}
		},
		"in-python": func(t *testing.T) []string {
			return []string{tool(t, "python3", "python3"), examplesDir + "/pull/python/pull.py"}
		},
		"in-sql": func(t *testing.T) []string {
			return []string{
				tool(t, "psql", "postgresql-client"), db.url, "-v", "ON_ERROR_STOP=1", "-v", "topic=shop", "-v",
				"subscription=in-sql", "-f", examplesDir + "/pull/sql/consume.sql",
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line := command(t)
			node.manage(http.StatusCreated, http.MethodPut, "/v1/topics/shop/subscriptions/"+name,
				fmt.Sprintf(`{"deliveryConfiguration":{"deliveryMode":"Queue"},"filter":{"subjectBeginsWith":%q}}`, name))
			publish := func(id string) {
				node.publish("shop", key, fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/shop","type":"Shop.OrderPlaced",`+
					`"subject":%q,"data":{"total":9.5}}`, name+id, name))
			}
			publish("-1")
			if name == "in-sql" {
				publish("-2")
				consumer := startProcess(t, os.Environ(), line[0], line[1:]...)
				require.Zero(t, consumer.wait(), consumer.stderr.String())
				require.Equal(t, 2, one[int](db, "SELECT count(*) FROM consumed_orders WHERE total = 9.5"))
				require.True(t, acknowledged(name)())
				return
			}
			consumer := startProcess(t, append(os.Environ(), "POSTRIDER_URL="+node.api, "TOPIC_KEY="+key), line[0],
				append(line[1:], "shop", name)...)
			eventually(t, "the first event", func() bool { return strings.Contains(consumer.stdout.String(), name+"-1") })
			publish("-2")
			eventually(t, "both are acknowledged", acknowledged(name))
			eventually(t, "the second event", func() bool {
				return strings.Contains(consumer.stdout.String(), "received Shop.OrderPlaced "+name+"-2 {")
			})
			require.Empty(t, consumer.stderr.String())
		})
	}
}

// The examples in C# are built where there is a .NET SDK.
func TestExamplesInCSharp(t *testing.T) {
	t.Parallel()
	dotnet, err := exec.LookPath("dotnet")
	if err != nil {
		t.Skip("no .NET SDK here")
	}
	for _, folder := range []string{"receivers/csharp", "publish-sql/csharp"} {
		out, err := exec.Command(dotnet, "build", "--nologo", "--output", t.TempDir(),
			"--property:BaseIntermediateOutputPath="+t.TempDir()+"/", examplesDir+"/"+folder).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
