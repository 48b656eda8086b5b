package web_test

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// The pages of deliveries show what changes after they were read: holds, redeliveries and an erasure.
func TestChangedDeliveries(t *testing.T) {
	t.Parallel()
	b := seeded(t, "private")
	delivery := "/ui/deliveries/" +
		b.value(t, "SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = 'billing'")
	require.Contains(t, text(b.page(t, delivery)), "Attempt 2 starts in")
	b.pause(t, "orders", "billing")
	page := text(b.page(t, delivery))
	require.Contains(t, page, "The event subscription is paused until an operator resumes it.")
	require.Contains(t, page, "On hold since")
	require.NotContains(t, page, "Attempt 2 starts in")
	require.NotContains(t, page, "Retry now", "a retry is rejected during a pause")
	_, err := b.store.Holds.Resume(t.Context(), "orders", "billing")
	require.NoError(t, err)

	b.probation(t, "orders", "billing", 2*time.Hour+time.Minute, 0)
	for _, path := range []string{"/ui/subscriptions/orders/billing", delivery} {
		page := b.page(t, path)
		_, actions, found := strings.Cut(page, `class="verdict`)
		require.True(t, found, path)
		_, first, _ := strings.Cut(actions, "<button")
		require.True(t, strings.HasPrefix(first, ` type="submit" class="primary">Probe now`), "%s: %.60s", path, first)
		require.Equal(t, 1, strings.Count(actions, `class="primary"`), path)
		require.Contains(t, text(page), "Next probe: in 2 hours", path)
	}
	b.requireRedeliveredFrom(t)
	b.requireErased(t)
}

// requireRedeliveredFrom checks that "Redelivered from" links the dead letter or the operation if it exists.
func (b *dashboard) requireRedeliveredFrom(t *testing.T) {
	t.Helper()
	deadLetter := b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters")
	operation := b.value(t, `SELECT postrider.purge_all('{"topic": "none"}')`)
	for from, want := range map[string]bool{deadLetter: true, operation: false, uuid.NewString(): false} {
		for _, table := range []string{"dead_letters", "delivery_history"} {
			mustExec(t, b, "UPDATE postrider_internal."+table+" SET redelivered_from = '"+from+"'")
		}
		for _, path := range []string{"/ui/dead-letters/" + deadLetter, "/ui/deliveries/" +
			b.value(t, "SELECT delivery_id FROM postrider.dead_letters")} {
			page := b.page(t, path)
			require.Equal(t, want, strings.Contains(page, `<dd><a href="/ui/dead-letters/`+from), path)
			require.Equal(t, from == operation, strings.Contains(page, `<dd><a href="/ui/operations/`+operation), path)
			require.Contains(t, page, from, path)
		}
	}
}

// requireErased erases the event and checks that no page shows its data.
func (b *dashboard) requireErased(t *testing.T) {
	t.Helper()
	id := b.value(t, "SELECT system_id FROM postrider.events WHERE topic = 'orders'")
	require.Contains(t, text(b.page(t, "/ui/events/"+id)), "12345678901234567890.10")
	require.NotEmpty(t, b.value(t, "SELECT postrider.erase_event('"+id+"')"))
	require.Regexp(t, `Erased (now|\d+ seconds? ago)`, text(b.page(t, "/ui/events/"+id)))
	require.Contains(t,
		text(b.page(t, "/ui/dead-letters/"+b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters"))), "erased at")
	for _, path := range b.everyPage(t) {
		if !strings.HasSuffix(path, "/repair") { // an erased event cannot be edited
			require.NotContains(t, b.page(t, path), "12345678901234567890.10", path)
		}
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
