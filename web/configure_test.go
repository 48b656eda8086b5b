package web_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/event"
	"postrider/jobs/publish"
)

const ownMapping = `{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"orderId"},` +
	`"eventType":{"sourceField":"action","defaultValue":"Shop.OrderPlaced"},"subject":{"defaultValue":"orders"},` +
	`"dataVersion":{"sourceField":"v"}}}`

// The form creates topics as the REST API does: the fields of a stored topic, sent as a new one, store the same. An
// unchanged form changes nothing.
func TestTopicForm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/ui/new-topic"
	requireValidMarkup(t, path, b.page(t, path))
	for name, row := range map[string]struct{ settings, card string }{ // and texts of the topic's page
		"space": {`{"kind":"namespace","eventRetentionInDays":3}`, "Retention 3 days"},
		"cloud": {
			`{"inputSchema":"CloudEventSchemaV1_0","duplicateDetectionWindowInMinutes":90}`, "detected for 1 h 30 min",
		},
		"own": {
			`{"inputSchema":"CustomEventSchema","inputSchemaMapping":` + ownMapping + `}`,
			"Id: orderId Event type: action , or “Shop.OrderPlaced” Subject: “orders” Data version: v",
		},
	} {
		api, edit := "/v1/topics/"+name, "/ui/topics/"+name+"/edit"
		b.put(t, api, row.settings)
		stored := b.settings(t, api)
		requireValidMarkup(t, edit, b.page(t, edit))
		b.requireRedirect(t, path, typed(b.copyOf(t, path, edit), "name", "form-"+name),
			`^/ui/topics/form-`+name+`\?done=topic-created$`)
		require.Equal(t, stored, b.settings(t, "/v1/topics/form-"+name))
		b.requireTexts(t, "/ui/topics/form-"+name, row.card)
		b.requireRedirect(t, edit, formOf(t, b.page(t, edit)), `done=topic-saved$`)
		require.Equal(t, stored, b.settings(t, api), "untouched")
	}
	form := formOf(t, b.page(t, path))
	b.requireRejected(t, path, typed(form, "name", "form-own"), http.StatusPreconditionFailed,
		"Another topic has this name.")
	page := b.requireRejected(t, path, typed(form, "name", "another", "eventRetentionInDays", "3"), http.StatusBadRequest,
		"it belongs to namespace topics")
	require.Equal(t, "3", formOf(t, page).Get("eventRetentionInDays"))
	require.NotContains(t, page, "<h2>Errors</h2>")
}

func TestTopicKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	const path = "/ui/topics/orders/keys"
	keys := func() map[string]any {
		_, keys := b.rest(t, http.MethodPost, "/v1/topics/orders/listKeys", "")
		return keys
	}
	shownTo := func() string {
		return b.value(t, "SELECT count(*) FROM postrider.audit WHERE action = 'topic_keys_shown' AND actor = 'admin'")
	}
	before := keys()
	require.NotContains(t, b.page(t, path), before["key1"], "keys are shown only on request")
	require.Equal(t, "0", shownTo())
	shown := text(b.requireOK(t, path, nil))
	require.Contains(t, shown, before["key1"])
	require.Contains(t, shown, before["key2"])
	require.Equal(t, "1", shownTo())

	b.requireRejected(t, path, url.Values{"regenerate": {"key1"}}, http.StatusBadRequest,
		"confirm that no publisher uses key1")
	require.Equal(t, before, keys())
	replaced := b.requireOK(t, path, url.Values{"regenerate": {"key1"}, "agreed": {"1"}})
	require.Contains(t, text(replaced), keys()["key1"])
	require.NotEqual(t, before["key1"], keys()["key1"])
	require.Equal(t, before["key2"], keys()["key2"])
}

func TestDeletionIsConfirmed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	topic, api := b.hook(t)
	const path = "/ui/subscriptions/orders/billing/delete"
	b.pause(t, "orders", "billing")
	b.requireRedirect(t, "/ui/subscriptions/orders/billing/test", nil, `^/ui/deliveries/\d+\?done=tested$`)
	requireValidMarkup(t, path, b.page(t, path))
	b.requireTexts(t, path, "Its pending deliveries are canceled, now 1,")
	b.requireTexts(t, "/ui/topics/orders/delete", "The topic has event subscriptions. Delete them first.")

	seen := url.Values{"etag": {b.tag(t, api)}}
	b.put(t, api, `{"endpointUrl":"https://example.com/hook","endpointValidation":"skip","labels":["x"]}`)
	b.requireRejected(t, path, seen, http.StatusPreconditionFailed,
		"Nothing was deleted: another user has changed it since you opened this page.")
	b.requireRedirect(t, path, url.Values{"etag": {b.tag(t, api)}}, `^/ui/topics/orders\?done=deleted$`)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, path).Code)
	b.requireRedirect(t, "/ui/topics/orders/delete", url.Values{"etag": {b.tag(t, topic)}},
		`^/ui/topics\?done=topic-deleted$`)
}

func (b *dashboard) tag(t *testing.T, api string) string {
	t.Helper()
	_, shown := b.rest(t, http.MethodGet, api, "")
	return shown["etag"].(string)
}

// The form copies every column of a built-in policy, and changes those copies.
func TestPolicyForm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023", "ga-2026"} {
		path := "/ui/policies/new?from=" + name
		page := b.page(t, path)
		requireValidMarkup(t, path, page)
		b.requireRedirect(t, path, typed(formOf(t, page), "name", "my-"+name),
			`^/ui/policies\?done=policy-saved&policy=my-`+name)
		copied, original := b.settings(t, "/v1/policies/my-"+name), b.settings(t, "/v1/policies/"+name)
		require.Equal(t, "Copied from "+name+".", copied["source"])
		for _, name := range []string{"source", "builtIn", "isDefault", "etag"} {
			delete(copied, name)
			delete(original, name)
		}
		require.Equal(t, original, copied, "every column is copied")
	}
	const path, api = "/ui/policies/my-ga-2021/edit", "/v1/policies/my-ga-2021"
	b.requireRedirect(t, path,
		typed(formOf(t, b.page(t, path)), "stepsInSeconds", "1, 2 3", "honorRetryAfter", "true", "probation.byOutcome", ""),
		`done=policy-saved`)
	changed := b.settings(t, api)
	require.Equal(t, "[1 2 3] true", fmt.Sprint(changed["stepsInSeconds"], " ", changed["honorRetryAfter"]))
	form := formOf(t, b.page(t, path))
	for _, row := range [][3]string{
		{"stepsInSeconds", "1, x", "must be a number"},
		{"statusTable", "[{]", "must be JSON"},
		{"maxDeliveryAttempts.most", "9999", "must be between 1 and 1000"},
	} {
		page := b.requireRejected(t, path, typed(form, row[0], row[1]), http.StatusBadRequest, row[2])
		require.Equal(t, row[1], formOf(t, page).Get(row[0]))
		require.NotContains(t, page, "<h2>Errors</h2>", row[0])
	}
	b.requireRejected(t, "/ui/policies/new?from=ga-2021", typed(form, "name", "my-ga-2018"), http.StatusPreconditionFailed,
		"Another retry policy has this name.")
	b.requireTexts(t, "/ui/policies?policy=ga-2021&policy=my-ga-2021", "Actions Copy Copy Edit Delete …")
	b.requireTexts(t, "/ui/policies",
		"Property ga-2021 my-ga-2018 my-ga-2019 my-ga-2021 my-ga-2026 my-namespace-2023 Actions")
	const chosen = "?policy=ga-2018&policy=ga-2019&policy=my-ga-2018&policy=my-ga-2019&policy=my-ga-2021"
	b.requireTexts(t, "/ui/policies"+chosen, "Property ga-2021 my-ga-2018 my-ga-2019 my-ga-2021 ga-2018 ga-2019 Actions")

	b.requireRejected(t, "/ui/policies/ga-2021/edit", form, http.StatusConflict, "is built in and never changes")
	b.requireTexts(t, "/ui/policies/ga-2021/delete", "Built-in policies cannot be deleted.")
	b.put(t, "/v1/topics/orders", "{}")
	b.put(t, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"https://example.com/hook","endpointValidation":"skip","retryPolicy":{"policy":"my-ga-2021"}}`)
	b.requireRejected(t, "/ui/policies/my-ga-2021/delete", url.Values{"etag": {b.tag(t, api)}},
		http.StatusConflict, "Nothing was deleted: ")
	b.requireRedirect(t, "/ui/policies/my-ga-2018/delete", url.Values{"etag": {b.tag(t, "/v1/policies/my-ga-2018")}},
		`^/ui/policies\?done=policy-deleted$`)
}

// The page publishes an example of the topic's schema, and what the REST API rejects stays in the form.
func TestPublishPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/grid", `{"duplicateDetectionWindowInMinutes":5}`)
	b.put(t, "/v1/topics/cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	b.put(t, "/v1/topics/space", `{"kind":"namespace"}`)
	b.put(t, "/v1/topics/own", `{"inputSchema":"CustomEventSchema","inputSchemaMapping":`+ownMapping+`}`)
	for _, topic := range []string{"grid", "cloud", "space", "own"} {
		path := "/ui/topics/" + topic + "/publish"
		form := formOf(t, b.page(t, path))
		page := b.requireOK(t, path, form)
		id := b.value(t, "SELECT system_id FROM postrider.events WHERE topic = '"+topic+"'")
		require.Contains(t, page, `href="/ui/events/`+id+`"`, topic)
		require.Equal(t, form.Get("event"), formOf(t, page).Get("event"))
	}
	require.Equal(t, "admin: events_published events_published events_published events_published",
		b.audited(t, "events_published"))
	const path = "/ui/topics/grid/publish"
	b.Exec(t, "UPDATE postrider_internal.events SET published_at = published_at - interval '1 minute'")
	repeated := b.requireOK(t, path,
		url.Values{"event": {b.value(t, "SELECT body FROM postrider.events WHERE topic = 'grid'")}})
	require.Contains(t, text(repeated), "Accepted as a duplicate")
	page := b.requireRejected(t, path, url.Values{"event": {`{"id":"1"}`}}, http.StatusBadRequest,
		"Nothing was published. Fix the errors below.")
	require.Contains(t, text(page), "events[0]")
	require.Equal(t, `{"id":"1"}`, formOf(t, page).Get("event"))
	page = b.requireRejected(t, path, url.Values{"event": {"{"}}, http.StatusBadRequest, "Nothing was published.")
	require.Contains(t, text(page), "The event is not one JSON document yet.")
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/topics/nowhere/publish").Code)
}

// Both commands publish exactly the entered event.
func TestPublishCommands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/it-s", `{}`)
	for i, nasty := range []string{
		`it's "quoted" $HOME $(id) \u0027 \\ %`, "`id`", "$event$", "$event1$ $event$", "ends in $event",
		"ends in $event1 after $event$", "ü 😀 <b>&amp;", "exe.\u202egnp",
	} {
		box := fmt.Sprintf(`{"id":"%d","subject":%s,"eventType":"T","eventTime":"2026-01-01T00:00:00Z"}`, i,
			quoteJSON(t, nasty))
		if i%2 == 1 {
			box = "[" + box + "]"
		}
		twins := preformatted(t, b.requireOK(t, "/ui/topics/it-s/publish", url.Values{"event": {box}, "preview": {"1"}}))
		require.Len(t, twins, 2)
		// curl is replaced by echo, which prints its arguments
		out, err := exec.Command("sh", "-c",
			`KEY=x; curl() { for word; do printf '%s\0' "$word"; done; }; `+twins[0]).Output()
		require.NoError(t, err, twins[0])
		words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		require.Equal(t, []string{"-i", "http://localhost:8080/topics/it-s/api/events"}, words[:2])
		require.Contains(t, words, "aeg-sas-key: x")
		require.Equal(t, strings.ReplaceAll("["+strings.Trim(box, "[]")+"]", "\u202e", `\u202e`), words[len(words)-1],
			"invisible characters are escaped")
		b.Exec(t, twins[1])
		require.Equal(t, nasty, b.value(t, fmt.Sprintf("SELECT subject FROM postrider.events WHERE event_id = '%d'", i)))
	}
}

// The commands of a new installation run as shown.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	srv := httptest.NewServer(b.api)
	t.Cleanup(srv.Close)
	steps := b.request(http.MethodGet, "/ui/", func(r *http.Request) { r.Host = strings.TrimPrefix(srv.URL, "http://") })
	require.NotContains(t, steps.Body.String(), "/publish", "there is no topic to publish to")
	commands := strings.Split(steps.Body.String(), `aria-label="curl command">`)[1:]
	require.Len(t, commands, 2)
	for _, command := range commands {
		command, _, _ = strings.Cut(html.UnescapeString(command), "</pre>")
		command = strings.Replace(command, `https://billing.example.com/events"}`,
			`https://127.0.0.1:9/events","endpointValidation":"skip"}`, 1)
		run := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "curl ", "curl -fsS ", 1))
		run.Env = append(run.Environ(), "POSTRIDER_API_KEY=of the tests")
		out, err := run.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
	}
	require.NoError(t, b.System.Cache.Reload(t.Context()))
	b.requireTexts(t, "/ui/", "Create a topic done", "Create an event subscription done")
	require.Contains(t, b.page(t, "/ui/"), `href="/ui/topics/orders/publish"`)
	require.Equal(t, "billing", b.value(t, "SELECT subscription FROM postrider.event_subscriptions"))
	b.publish(t, "orders", "e-1")
	require.NotContains(t, text(b.page(t, "/ui/")), "First steps")
}

// The form creates a pulled event subscription, and changes it to push delivery and back, without JavaScript.
func TestSubscriptionFormOfPullDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	const mode, lock = "deliveryConfiguration.deliveryMode", "deliveryConfiguration.queue.receiveLockDurationInSeconds"
	const api, show, edit = "/v1/topics/orders/subscriptions/audit", "/ui/subscriptions/orders/audit",
		"/ui/subscriptions/orders/audit/edit"
	const create = "/ui/subscriptions/new?topic=orders"
	pulled := typed(formOf(t, b.page(t, create)), "name", "audit", mode, "Queue", lock, "90",
		"retryPolicy.maxDeliveryAttempts", "3")
	page := b.requireRejected(t, create, typed(pulled, lock, "301"), http.StatusBadRequest,
		"must be between 60 and 300, not 301")
	require.NotContains(t, page, "<h2>Errors</h2>", "it has its field")
	page = b.requireRedirect(t, create, pulled, `/audit\?done=saved$`)
	require.Contains(t, page, "Consumers receive the events")
	require.NotContains(t, page, "Retry schedule")
	b.requireTexts(t, "/ui/subscriptions", " pull ")
	before, stored := b.settings(t, api), b.spec(t, "orders", "audit")
	require.Equal(t, json.Number("90"),
		before["deliveryConfiguration"].(map[string]any)["queue"].(map[string]any)["receiveLockDurationInSeconds"])
	requireValidMarkup(t, edit, b.page(t, edit))
	requireValidMarkup(t, show, b.page(t, show))
	b.requireRedirect(t, edit, formOf(t, b.page(t, edit)), `done=saved$`)
	require.Equal(t, before, b.settings(t, api), "saved unchanged")

	toPush := typed(formOf(t, b.page(t, edit)), mode, "Push")
	b.requireRejected(t, edit, toPush, http.StatusBadRequest, "is required")
	b.requireRedirect(t, edit, typed(toPush, "endpointUrl", "https://example.com/in", "endpointValidation", "skip",
		"deliveryRate.limit", "5", "signing.enabled", "true"), `done=saved$`)
	require.Equal(t, "https://example.com/in", b.settings(t, api)["endpointBaseUrl"])
	b.requireRedirect(t, edit, typed(formOf(t, b.page(t, edit)), mode, "Queue", lock, "90"), `done=saved$`)
	require.Equal(t, before, b.settings(t, api), "the stored settings of requests are removed")
	require.Equal(t, stored, b.spec(t, "orders", "audit"))

	b.put(t, "/v1/topics/plain", "{}")
	require.NotContains(t, b.page(t, "/ui/subscriptions/new?topic=plain"), `<option value="Queue"`)
}

// The page of a pulled event subscription shows what consumers have and what they receive next, and locks nothing.
func TestSubscriptionPageOfPullDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/pulled", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	b.put(t, "/v1/topics/pulled/subscriptions/audit", `{"deliveryConfiguration":{"deliveryMode":"Queue"}}`)
	const page = "/ui/subscriptions/pulled/audit"
	b.requireTexts(t, page, "No event is available.", "No consumer has an event.")
	for _, id := range []string{"taken", "next", "later"} {
		_, err := b.System.Publisher.Publish(t.Context(), publish.Publication{
			Topic: "pulled", Parse: func(*catalog.Topic) ([]event.Event, error) {
				return []event.Event{{
					Schema: event.CloudEvents, ID: id, Type: "test", Source: "/s",
					Body: fmt.Appendf(nil, `{"specversion":"1.0","id":%[1]q,"source":"/s","type":"test","data":"<%[1]s>"}`, id),
				}}, nil
			},
		})
		require.NoError(t, err)
	}
	b.Exec(t, "SELECT postrider.receive('pulled', 'audit')")
	b.Exec(t, `UPDATE postrider_internal.deliveries SET next_attempt_at = now() + interval '1 hour'
		WHERE id = (SELECT max(id) FROM postrider_internal.deliveries)`)
	shown := b.page(t, page)
	requireValidMarkup(t, page, shown)
	require.Regexp(t, `Available 1 1 locked, 1 delayed`, text(shown))
	require.Regexp(t, `Locks .* taken .* 1 `, text(shown))
	require.Contains(t, text(shown), `"data" : "<next>"`)
	require.NotContains(t, text(shown), `"<taken>"`)
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider.locks"), "nothing else was locked")

	locked := b.page(t, "/ui/deliveries/"+b.value(t, "SELECT delivery_id FROM postrider.locks"))
	require.Contains(t, locked, "A consumer has received it")
	require.NotContains(t, locked, "Retry now")
	lock := b.value(t, "SELECT args ->> 'l' FROM postrider_internal.river_job WHERE kind = 'lock'")
	require.NotContains(t, b.page(t, "/ui/jobs"), lock, "half of a lock token")
}
