package web_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/operator"
	"postrider/internal/query"
)

// A paused delivery does not show the time of its scheduled retry.
func TestPendingDeliveryShowsSubscriptionHold(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1")
	delivery := "/ui/deliveries/" +
		b.value(t, "SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'billing'")
	require.Contains(t, text(b.page(t, delivery)), "Attempt 2 starts in")
	b.pause(t, "orders", "billing")
	page := text(b.page(t, delivery))
	require.Contains(t, page, "The event subscription is paused until an operator resumes it.")
	require.Contains(t, page, "On hold since")
	require.NotContains(t, page, "Attempt 2 starts in")
	require.NotContains(t, page, "Retry now", "a retry is rejected during a pause")
}

func TestProbeIsPrimaryButtonInProbation(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1")
	b.probation(t, "orders", "billing", 2*time.Hour+time.Minute, 0)
	for _, path := range []string{
		"/ui/subscriptions/orders/billing",
		"/ui/deliveries/" + b.value(t, "SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'billing'"),
	} {
		page := b.page(t, path)
		_, actions, found := strings.Cut(page, `class="verdict`)
		require.True(t, found, path)
		_, first, _ := strings.Cut(actions, "<button")
		require.True(t, strings.HasPrefix(first, ` type="submit" class="primary">Probe now`), "%s: %.60s", path, first)
		require.Equal(t, 1, strings.Count(actions, `class="primary"`), path)
		require.Contains(t, text(page), "Next probe: in 2 hours", path)
	}
}

// Deliveries held before their first attempt count as held.
func TestProblemsCountHeldDeliveries(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1", "e-2")
	b.pause(t, "orders", "billing")
	b.publish(t, "orders", "e-3", "e-4", "e-5")
	page := text(b.page(t, "/ui/problems?within=1h"))
	require.Contains(t, page, "paused 3 on hold , 2 pending")
	require.Regexp(t, `archive of orders NotFound .* none pending`, page)
	_, err := b.store.Holds.Resume(t.Context(), "orders", "billing")
	require.NoError(t, err)
	require.Contains(t, b.page(t, "/ui/problems?within=1h"), `hold=admission">3 on hold`)
	_, err = b.pool.Exec(t.Context(), `UPDATE postrider_internal.event_subscriptions
		SET settings = jsonb_set(settings::jsonb, '{deliveryRate}', '{"limit": 1}') WHERE name = 'billing'`)
	require.NoError(t, err)
	require.Contains(t, b.page(t, "/ui/problems?within=1h"), `hold=rate_limited">3 on hold`)
}

// The provisioning state "Succeeded" is shown as "active", because it does not describe the endpoint.
func TestProvisioningStateIsActive(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing")
	for _, path := range []string{"/ui/subscriptions", "/ui/subscriptions/orders/billing", "/ui/topics/orders"} {
		page := b.page(t, path)
		require.NotContains(t, page, "Succeeded", path)
		require.Contains(t, page, `<span class="badge calm">active</span>`, path)
	}
}

func TestPoliciesCompareWithDefault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	page := text(b.page(t, "/ui/policies?policy=namespace-2023"))
	require.Contains(t, page, "Property ga-2021 namespace-2023")
	require.NotContains(t, page, "never retried after")
	require.Regexp(t, `400 never retried never retried`, page)
}

// The commands of a new installation run as shown.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	mux := http.NewServeMux()
	mux.Handle("/v1/", b.api)
	mux.Handle("/", b.echo)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	at, err := url.Parse(srv.URL)
	require.NoError(t, err)
	host := func(r *http.Request) { r.Host = at.Host }
	overview := func() string { return text(b.request(http.MethodGet, "/ui/", host).Body.String()) }

	require.Contains(t, overview(), "First steps Create a topic")
	for _, command := range commandsOf(t, b.request(http.MethodGet, "/ui/", host).Body.String()) {
		command = strings.Replace(command, `https://billing.example.com/events"}`,
			`https://127.0.0.1:9/events","endpointValidation":"skip"}`, 1)
		run := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "curl ", "curl -fsS ", 1))
		run.Env = append(run.Environ(), "POSTRIDER_API_KEY=of the tests")
		out, err := run.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
	require.NoError(t, b.store.Cache.Reload(t.Context()))
	require.Contains(t, overview(), "Create a topic done")
	require.Contains(t, overview(), "Create an event subscription done")
	require.Contains(t, b.page(t, "/ui/"), `href="/ui/topics/orders/publish"`)
	require.Equal(t, "billing", b.value(t, "SELECT subscription FROM postrider.event_subscriptions"))
	b.publish(t, "orders", "e-1")
	require.NotContains(t, overview(), "First steps")
}

// commandsOf are the curl commands of a page.
func commandsOf(t *testing.T, page string) (commands []string) {
	t.Helper()
	for _, part := range strings.Split(page, `aria-label="curl command">`)[1:] {
		command, _, _ := strings.Cut(part, "</pre>")
		commands = append(commands, html.UnescapeString(command))
	}
	require.Len(t, commands, 2)
	return commands
}

// An operation shows the states of its redeliveries.
func TestOperationShowsRedeliveryOutcomes(t *testing.T) {
	t.Parallel()
	b := seededRunning(t, "e-1", "e-2")
	_, err := b.store.Operator.OnDeadLetters(t.Context(), &query.DeadLetterFilter{Topic: ptr("orders")},
		&operator.Action{Kind: operator.Redeliver})
	require.NoError(t, err)
	b.eventually(t, 2, "SELECT dead_lettered FROM postrider.operations")
	page := b.page(t, "/ui/operations/"+b.value(t, "SELECT operation_id FROM postrider.operations"))
	require.Contains(t, text(page), "Pending 0 of its redeliveries Delivered 0 of its redeliveries Dead-lettered again 2")
	link := regexp.MustCompile(`href="(/ui/deliveries\?operation=[^"]*state=dead_lettered)"`).FindStringSubmatch(page)
	require.NotNil(t, link)
	list := b.page(t, html.UnescapeString(link[1]))
	require.Equal(t, 2, strings.Count(list, `<span class="badge bad">dead_lettered</span>`), "the linked list")
}

// A pending batch shows the same outlook as a delivery.
func TestPendingBatchShowsOutlook(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	url := endpoint(t)
	b.subscribe(t, "orders", "bulk", func(s *catalog.SubscriptionSpec) {
		s.EndpointURL, s.MaxEventsPerBatch = url+"/status/503", ptr(10)
	})
	b.publish(t, "orders", "e-1", "e-2")
	b.eventually(t, 1, "SELECT count(*) FROM postrider.batches WHERE attempts = 1")
	path := "/ui/batches/" + b.value(t, "SELECT min(batch_id) FROM postrider.batches")
	require.Contains(t, text(b.page(t, path)), "Attempt 2 starts in")
	b.pause(t, "orders", "bulk")
	require.Contains(t, text(b.page(t, path)), "is paused until an operator resumes it")
	require.NotContains(t, text(b.page(t, path)), "Attempt 2 starts in")
}
