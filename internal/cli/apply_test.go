package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestApply(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	name := filepath.Join(t.TempDir(), "postrider.yaml")
	declared, err := os.ReadFile("config/testdata/apply.yaml")
	require.NoError(t, err)
	text := strings.ReplaceAll(string(declared), "ENDPOINT", h.url+"/healthz")
	apply := func(code int, flags ...string) string {
		t.Helper()
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		done := h.run(code, append([]string{"apply", "-f", name}, flags...)...)
		require.NotContains(t, done.stdout+done.stderr, "secret\"", "secrets are masked")
		require.NotContains(t, done.stdout+done.stderr, "s3cret")
		return done.stdout + done.stderr
	}
	dry := apply(3, "--dry-run")
	require.Contains(t, dry, "+ policy applied\n")
	require.Contains(t, dry, "/healthz?***")
	require.Contains(t, dry, "(4 to create, 0 to change, 0 to delete, 0 unchanged)")
	h.run(1, "topic", "show", "applied")
	require.Contains(t, apply(2), "use --yes", "there is no terminal")
	require.Contains(t, apply(0, "--yes"),
		"created policy applied\ncreated topic applied\ncreated subscription applied/one\ncreated subscription applied/two\n")
	require.Contains(t, apply(0, "--dry-run"), "(0 to create, 0 to change, 0 to delete, 4 unchanged)",
		"what was applied is as it is said")
	require.Contains(t, apply(0, "--yes"), "(0 to create, 0 to change, 0 to delete, 4 unchanged)")
	require.Contains(t, mustJSON(t, h.object("subscription", "show", "applied", "one")), `"policy":"applied"`)

	h.run(0, "subscription", "update", "applied", "two", "--labels", "by-hand", "--max-events-per-batch", "5")
	text = strings.NewReplacer("code=secret", "code=other", "s3cret", "s4cret", "maxDeliveryAttempts: 5",
		"maxDeliveryAttempts: 6", "[1, 2]", "[1, 3]").Replace(text)
	changed := apply(0, "--yes")
	for _, line := range []string{
		"~ policy applied\n    ~ stepsInSeconds: [1,2] → [1,3]\n", "?***\" → ", "*** (changed)",
		"    ~ retryPolicy.maxDeliveryAttempts: 5 → 6\n",
		"~ subscription applied/two\n    - labels: [\"by-hand\"]\n    ~ maxEventsPerBatch: 5 → 1\n",
		"(0 to create, 3 to change, 0 to delete, 1 unchanged)",
	} {
		require.Contains(t, changed, line)
	}
	text = strings.Replace(text, "policy: applied, maxDeliveryAttempts: 6", "policy: applied, maxDeliveryAttempts: 10", 1)
	text = strings.Replace(text, "topic: applied, name: two",
		"topic: applied, name: two, labels: [x], maxEventsPerBatch: 9999", 1)
	mistakes := apply(2, "--yes")
	require.Contains(t, mistakes, "nothing was changed; fix these errors of the file")
	require.Contains(t, mistakes, "subscription applied/one: retryPolicy.maxDeliveryAttempts must be between 1 and 9")
	require.Contains(t, mistakes, "subscription applied/two: maxEventsPerBatch must be between 1 and 5000")
	require.Empty(t, h.object("subscription", "show", "applied", "two")["labels"])
}

// apply does not overwrite changes of other clients since the comparison.
func TestApplyOfAnOldComparison(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	behind, err := url.Parse(h.url)
	require.NoError(t, err)
	file := writtenFile(t, "policies: [{name: raced, stepsInSeconds: [1]}]")
	for _, meanwhile := range []struct {
		status       int
		steps, shown string
	}{
		{http.StatusCreated, `"stepsInSeconds":[2]`, "(1 to create, 0 to change, "},
		{http.StatusOK, `"stepsInSeconds":[3]`, "(0 to create, 1 to change, "},
	} {
		proxy := httputil.NewSingleHostReverseProxy(behind)
		between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			if request.URL.Query().Get("dryRun") == "" { // what apply has read is not the newest any more
				h.manage(meanwhile.status, http.MethodPut, "/v1/policies/raced", "{"+meanwhile.steps+"}")
			}
			proxy.ServeHTTP(w, request)
		}))
		t.Cleanup(between.Close)
		late := h.run(1, "apply", "-f", file, "--yes", "--url", between.URL)
		require.Contains(t, late.stdout, meanwhile.shown)
		require.Contains(t, late.stderr,
			"0 of 1 change applied; another client has changed the configuration since it was compared")
		require.Contains(t, h.manage(http.StatusOK, http.MethodGet, "/v1/policies/raced", ""), meanwhile.steps)
	}
}

// pruneVerb only plans deletions, because the service is shared.
func TestApplyPrunes(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.topic("pruned")
	h.subscribe("pruned", "gone", h.url+"/healthz")
	file := writtenFile(t, `{"topics": []}`)
	require.Contains(t, h.run(0, "apply", "-f", file, "--yes").stdout, "0 to delete")
	said := h.run(3, "apply", "-f", file, "--dry-run", "--prune").stdout
	require.Less(t, strings.Index(said, "- subscription pruned/gone\n"), strings.Index(said, "- topic pruned\n"))
	require.NotContains(t, said, "topic postrider.system")
	require.NotContains(t, said, "policy ga-2021")
}

func TestApplyOfAnAzureList(t *testing.T) {
	t.Parallel()
	h := newDelivering(t)
	busy := busyEndpoint(t)
	const id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/azured"
	subscription := func(name, rest string) string {
		return fmt.Sprintf(`{"name":%q,"type":"Microsoft.EventGrid/eventSubscriptions","topic":%q,`+
			`"eventDeliverySchema":"EventGridSchema","labels":[],%s}`, name, id, rest)
	}
	list := "[" + strings.Join([]string{
		subscription("plain", `"deadLetterDestination":null,"destination":{"endpointType":"WebHook","endpointUrl":"`+busy+
			`?code=1","endpointBaseUrl":"`+busy+`","maxEventsPerBatch":2,
			"preferredBatchSizeInKilobytes":64,"azureActiveDirectoryTenantId":"t",
			"minimumTlsVersionAllowed":"1.0","deliveryAttributeMappings":[{"name":"X-A",`+
			`"type":"Dynamic","sourceField":"data.a"},{"name":"X-S","type":"Static","isSecret":true,"value":null}]},
			"filter":{"includedEventTypes":["A"],"subjectBeginsWith":"","advancedFilters":[{"key":"data.n",`+
			`"operatorType":"NumberGreaterThan","value":1.50}],"isSubjectCaseSensitive":null},
			"retryPolicy":{"eventTimeToLiveInMinutes":10,"maxDeliveryAttempts":3}`),
		subscription("hub", `"destination":{"endpointType":"PartnerDestination","resourceId":"/x"}`),
		strings.Replace(subscription("blobs", `"destination":{"endpointType":"WebHook","endpointUrl":"https://a.example/"}`),
			id, "/subscriptions/s/providers/Microsoft.Storage/storageAccounts/acc", 1),
	}, ",") + "]"
	file := writtenFile(t, list)
	dry := h.run(3, "apply", "-f", file, "--dry-run")
	for _, note := range []string{
		"plain: azureActiveDirectoryTenantId is not supported",
		"plain: minimumTlsVersionAllowed 1.0 is not supported: the endpoint must offer TLS 1.2 or later",
		"plain: omitted secret header X-S",
		"hub: omitted, because endpointType PartnerDestination is not supported; use --endpoint hub=URL",
		"blobs: omitted, because /subscriptions/s/providers/Microsoft.Storage",
	} {
		require.Contains(t, dry.stderr, "not supported: event subscription "+note)
	}
	require.Contains(t, dry.stdout, "+ topic azured\n+ subscription azured/plain\n")
	require.Contains(t, dry.stdout, "(2 to create, ")
	require.Contains(t, h.run(0, "apply", "-f", file, "--yes").stdout,
		"created topic azured\ncreated subscription azured/plain\n")
	require.Contains(t, h.run(0, "apply", "-f", file, "--dry-run").stdout, "0 to change")
	h.run(0, "subscription", "update", "azured", "plain", "--unset", "filter.includedEventTypes")
	h.run(0, "subscription", "create", "azured", "other", "--endpoint", busy)
	again := h.run(3, "apply", "-f", file, "--dry-run", "--prune").stdout
	require.Contains(t, again, "    ~ filter.includedEventTypes: [\"All\"] → [\"A\"]\n")
	require.Contains(t, again, "- subscription azured/other\n")
	require.NotContains(t, again, "- topic", "such a list names no topics")
}

// A template's endpoints can be replaced by local ones.
func TestApplyOfATemplate(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	file := writtenFile(t, `{"parameters":{"topic":{"type":"string","defaultValue":"templated"}},"resources":[
		{"type":"Microsoft.EventGrid/topics","name":"[parameters('topic')]",
		"properties":{"inputSchema":"CloudEventSchemaV1_0"}},
		{"type":"Microsoft.EventGrid/topics/eventSubscriptions","name":"[format('{0}/one', parameters('topic'))]",
		"properties":{"eventDeliverySchema":"CloudEventSchemaV1_0","destination":{"endpointType":"AzureFunction",
		"properties":{"resourceId":"[reference('function').id]"}}}}]}`)
	said := h.run(3, "apply", "-f", file, "--dry-run", "--endpoint", "one="+h.url+"/healthz?a=1;b=2")
	require.Contains(t, said.stdout, "+ topic templated\n    + inputSchema: \"CloudEventSchemaV1_0\"\n"+
		"+ subscription templated/one\n    + endpointUrl: \""+h.url+"/healthz?***\"\n")
	require.Contains(t, said.stderr,
		"not supported: resources[1].properties.destination.properties.resourceId: [reference(")
	require.Contains(t, h.run(2, "apply", "-f", file, "--dry-run", "--endpoint", "two=x").stderr,
		"no event subscription two")
	var changes []struct{ Kind, Topic, Name, Change string }
	listed := h.run(3, "apply", "-f", file, "--dry-run", "-o", "json").stdout
	require.NoError(t, json.Unmarshal([]byte(listed), &changes))
	require.Len(t, changes, 1, "without its endpoint, the event subscription is omitted")
	require.Equal(t, "create", changes[0].Change)
}
