package web_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const ownMapping = `{"inputSchemaMappingType":"Json","properties":{"id":{"sourceField":"orderId"},` +
	`"eventType":{"sourceField":"action","defaultValue":"Shop.OrderPlaced"},"subject":{"defaultValue":"orders"},` +
	`"dataVersion":{"sourceField":"v"}}}`

func TestTopicForm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/ui/new-topic"
	form := formOf(t, b.page(t, path))
	requireValidMarkup(t, path, b.page(t, path))
	for name, row := range map[string]struct {
		settings string
		typed    []string
		card     []string // on the page of the topic
	}{
		"plain": {`{}`, nil, []string{"not detected"}},
		"namespace": {
			`{"kind":"namespace","eventRetentionInDays":3}`,
			[]string{"kind", "namespace", "eventRetentionInDays", "3"},
			[]string{"Retention 3 days"},
		},
		"cloud": {
			`{"inputSchema":"CloudEventSchemaV1_0","duplicateDetectionWindowInMinutes":90}`,
			[]string{"inputSchema", "CloudEventSchemaV1_0", "duplicateDetectionWindowInMinutes", "90"},
			[]string{"detected for 1 h 30 min"},
		},
		"own": {`{"inputSchema":"CustomEventSchema","inputSchemaMapping":` + ownMapping + `}`, []string{
			"inputSchema", "CustomEventSchema", "inputSchemaMapping.properties.id.sourceField", "orderId",
			"inputSchemaMapping.properties.eventType.sourceField", "action",
			"inputSchemaMapping.properties.eventType.defaultValue", "Shop.OrderPlaced",
			"inputSchemaMapping.properties.subject.defaultValue", "orders",
			"inputSchemaMapping.properties.dataVersion.sourceField", "v",
		}, []string{
			"Id: orderId", "Event type: action , or “Shop.OrderPlaced”", "Subject: “orders”", "Data version: v",
		}},
	} {
		b.put(t, "/v1/topics/rest-"+name, row.settings)
		b.requireRedirect(t, path, typed(form, append(row.typed, "name", "form-"+name)...),
			`^/ui/topics/form-`+name+`\?done=topic-created$`)
		created := b.settings(t, "/v1/topics/form-"+name)
		require.Equal(t, b.settings(t, "/v1/topics/rest-"+name), created)
		for _, want := range row.card {
			require.Contains(t, text(b.page(t, "/ui/topics/form-"+name)), want)
		}
		edit := "/ui/topics/form-" + name + "/edit"
		requireValidMarkup(t, edit, b.page(t, edit))
		b.requireRedirect(t, edit, formOf(t, b.page(t, edit)), `done=topic-saved$`)
		require.Equal(t, created, b.settings(t, "/v1/topics/form-"+name), "untouched")
	}
	b.requireRedirect(t, "/ui/topics/form-plain/edit",
		typed(formOf(t, b.page(t, "/ui/topics/form-plain/edit")), "duplicateDetectionWindowInMinutes", "5"),
		`done=topic-saved$`)
	require.Equal(t, "5",
		b.value(t, "SELECT duplicate_detection_window_in_minutes FROM postrider_internal.topics WHERE name = 'form-plain'"))

	b.requireRejected(t, path, typed(form, "name", "form-plain"), http.StatusPreconditionFailed,
		"Another topic has this name.")
	b.requireRejected(t, path, typed(form, "name", ""), http.StatusBadRequest, "A name is required.")
	page := b.requireRejected(t, path, typed(form, "name", "another", "eventRetentionInDays", "3"), http.StatusBadRequest,
		"it belongs to namespace topics")
	require.Equal(t, "3", formOf(t, page).Get("eventRetentionInDays"))
	require.NotContains(t, page, "<h2>Errors</h2>")
	late := formOf(t, b.page(t, "/ui/topics/form-cloud/edit"))
	b.put(t, "/v1/topics/form-cloud", `{"inputSchema":"CloudEventSchemaV1_0","duplicateDetectionWindowInMinutes":7}`)
	again := b.requireRejected(t, "/ui/topics/form-cloud/edit", typed(late, "duplicateDetectionWindowInMinutes", "8"),
		http.StatusPreconditionFailed, "another user has changed it")
	b.requireRedirect(t, "/ui/topics/form-cloud/edit", formOf(t, again), `done=topic-saved$`)
	require.Equal(t, "8",
		b.value(t, "SELECT duplicate_detection_window_in_minutes FROM postrider_internal.topics WHERE name = 'form-cloud'"))
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
	before := keys()
	require.NotContains(t, b.page(t, path), before["key1"], "keys are shown only on request")
	require.Equal(t, "0",
		b.value(t, "SELECT count(*) FROM postrider.audit WHERE action = 'topic_keys_shown' AND actor = 'admin'"))
	shown := b.post(path, nil)
	require.Equal(t, http.StatusOK, shown.Code)
	require.Contains(t, text(shown.Body.String()), before["key1"])
	require.Contains(t, text(shown.Body.String()), before["key2"])
	require.Equal(t, "1",
		b.value(t, "SELECT count(*) FROM postrider.audit WHERE action = 'topic_keys_shown' AND actor = 'admin'"))

	b.requireRejected(t, path, url.Values{"regenerate": {"key1"}}, http.StatusBadRequest,
		"confirm that no publisher uses key1")
	b.requireRejected(t, path, url.Values{"regenerate": {"key3"}, "agreed": {"1"}}, http.StatusBadRequest,
		"keyName must be key1 or key2")
	require.Equal(t, before, keys())
	replaced := b.post(path, url.Values{"regenerate": {"key1"}, "agreed": {"1"}})
	require.Contains(t, text(replaced.Body.String()), keys()["key1"])
	require.NotEqual(t, before["key1"], keys()["key1"])
	require.Equal(t, before["key2"], keys()["key2"])
}

func TestDeletionIsConfirmed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.store.Maintenance.EnsurePartitions(t.Context()))
	b.put(t, "/v1/topics/orders", "{}")
	const api, path = "/v1/topics/orders/subscriptions/billing", "/ui/subscriptions/orders/billing/delete"
	b.put(t, api, `{"endpointUrl":"https://example.com/hook","endpointValidation":"skip"}`)
	b.pause(t, "orders", "billing")
	b.requireRedirect(t, "/ui/subscriptions/orders/billing/test", nil, `^/ui/deliveries/\d+\?done=tested$`)
	page := b.page(t, path)
	requireValidMarkup(t, path, page)
	require.Contains(t, text(page), "Its pending deliveries are canceled, now 1,")
	require.Contains(t, text(b.page(t, "/ui/topics/orders/delete")),
		"The topic has event subscriptions. Delete them first.")
	b.requireRejected(t, "/ui/topics/orders/delete", url.Values{"etag": {`"0"`}}, http.StatusPreconditionFailed,
		"Nothing was deleted")

	seen := url.Values{"etag": {b.tag(t, api)}}
	b.put(t, api, `{"endpointUrl":"https://example.com/hook","endpointValidation":"skip","labels":["x"]}`)
	b.requireRejected(t, path, seen, http.StatusPreconditionFailed,
		"Nothing was deleted: another user has changed it since you opened this page.")
	b.requireRedirect(t, path, url.Values{"etag": {b.tag(t, api)}}, `^/ui/topics/orders\?done=deleted$`)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, path).Code)
	b.requireRedirect(t, "/ui/topics/orders/delete", url.Values{"etag": {b.tag(t, "/v1/topics/orders")}},
		`^/ui/topics\?done=topic-deleted$`)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/topics/orders/delete").Code)
}

func (b *dashboard) tag(t *testing.T, api string) string {
	t.Helper()
	_, shown := b.rest(t, http.MethodGet, api, "")
	return shown["etag"].(string)
}

func TestPolicyForm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"preview-2017", "ga-2018", "ga-2019", "ga-2021", "namespace-2023"} {
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
	const path = "/ui/policies/my-ga-2021/edit"
	form := formOf(t, b.page(t, path))
	b.requireRedirect(t, path,
		typed(form, "stepsInSeconds", "1, 2 3", "honorRetryAfter", "true", "probation.byOutcome", ""),
		`done=policy-saved`)
	changed := b.settings(t, "/v1/policies/my-ga-2021")
	require.Equal(t, "[1 2 3] true",
		strings.TrimSpace(strings.Join([]string{sprint(changed["stepsInSeconds"]), sprint(changed["honorRetryAfter"])}, " ")))
	for _, row := range [][3]string{
		{"stepsInSeconds", "1, x", "must be a number"},
		{"statusTable", "[{]", "must be JSON"},
		{"probation.byOutcome", `{"Busy":0}`, "must be"},
		{"maxDeliveryAttempts.most", "9999", "must be between 1 and 1000"},
	} {
		page := b.requireRejected(t, path, typed(form, row[0], row[1]), http.StatusBadRequest, row[2])
		require.Equal(t, row[1], formOf(t, page).Get(row[0]))
		require.NotContains(t, page, "<h2>Errors</h2>", row[0])
	}
	late := b.requireRejected(t, path, typed(form, "stepsInSeconds", "7"), http.StatusPreconditionFailed,
		"another user has changed it")
	require.Equal(t, "[1 2 3]", sprint(b.settings(t, "/v1/policies/my-ga-2021")["stepsInSeconds"]))
	require.Equal(t, "7", formOf(t, late).Get("stepsInSeconds"), "the input is kept")
	b.requireRedirect(t, path, formOf(t, late), `done=policy-saved`)
	require.Equal(t, "[7]", sprint(b.settings(t, "/v1/policies/my-ga-2021")["stepsInSeconds"]))
	b.requireRejected(t, "/ui/policies/new?from=ga-2021", typed(form, "name", "my-ga-2018"), http.StatusPreconditionFailed,
		"Another retry policy has this name.")
	require.Contains(t, text(b.page(t, "/ui/policies?policy=ga-2021&policy=my-ga-2021")),
		"Actions Copy Copy Edit Delete …")

	b.requireRejected(t, "/ui/policies/ga-2021/edit", form, http.StatusConflict, "is built in and never changes")
	require.Contains(t, text(b.page(t, "/ui/policies/ga-2021/delete")), "Built-in policies cannot be deleted.")
	b.put(t, "/v1/topics/orders", "{}")
	b.put(t, "/v1/topics/orders/subscriptions/billing",
		`{"endpointUrl":"https://example.com/hook","endpointValidation":"skip","retryPolicy":{"policy":"my-ga-2021"}}`)
	b.requireRejected(t, "/ui/policies/my-ga-2021/delete", url.Values{"etag": {b.tag(t, "/v1/policies/my-ga-2021")}},
		http.StatusConflict, "Nothing was deleted: ")
	b.requireRejected(t, "/ui/policies/my-ga-2018/delete", url.Values{"etag": {`"0"`}}, http.StatusPreconditionFailed,
		"Nothing was deleted: another user has changed it since you opened this page.")
	b.requireRedirect(t, "/ui/policies/my-ga-2018/delete", url.Values{"etag": {b.tag(t, "/v1/policies/my-ga-2018")}},
		`^/ui/policies\?done=policy-deleted$`)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/policies/my-ga-2018/delete").Code)
}

// The page publishes through the REST API and shows equivalent commands.
func TestPublishPage(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	srv := httptest.NewServer(b.api)
	t.Cleanup(srv.Close)
	b.put(t, "/v1/topics/grid", `{"duplicateDetectionWindowInMinutes":5}`)
	b.put(t, "/v1/topics/cloud", `{"inputSchema":"CloudEventSchemaV1_0"}`)
	b.put(t, "/v1/topics/space", `{"kind":"namespace"}`)
	b.put(t, "/v1/topics/own", `{"inputSchema":"CustomEventSchema","inputSchemaMapping":`+ownMapping+`}`)
	for _, topic := range []string{"grid", "cloud", "space", "own"} {
		path := "/ui/topics/" + topic + "/publish"
		form := formOf(t, b.page(t, path))
		requireValidMarkup(t, path, b.page(t, path))
		response := b.post(path, form)
		require.Equal(t, http.StatusOK, response.Code, text(response.Body.String()))
		id := b.value(t, "SELECT system_id FROM postrider.events WHERE topic = '"+topic+"'")
		require.Contains(t, response.Body.String(), `href="/ui/events/`+id+`"`, topic)
		require.Equal(t, form.Get("event"), formOf(t, response.Body.String()).Get("event"))
	}
	require.Equal(t, "4 admin", b.value(t, "SELECT count(*) || ' ' || min(actor) FROM postrider.audit "+
		"WHERE action = 'events_published' AND details = '{\"events\": 1}'"))
	const path = "/ui/topics/grid/publish"
	mustExec(t, b, "UPDATE postrider_internal.events SET published_at = published_at - interval '1 minute'")
	repeated := b.post(path, url.Values{"event": {b.value(t, "SELECT body FROM postrider.events WHERE topic = 'grid'")}})
	require.Equal(t, http.StatusOK, repeated.Code)
	require.Contains(t, text(repeated.Body.String()), "Accepted as a duplicate")
	require.Equal(t, "1", b.value(t, "SELECT count(*) FROM postrider.events WHERE topic = 'grid'"), "a duplicate")
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
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	b := setupRunning(t)
	b.put(t, "/v1/topics/it-s", `{}`)
	key := "x"
	for i, nasty := range []string{
		`it's "quoted" $HOME $(id) \u0027 \\ %`, "`id`", "$event$", "$event1$ $event$", "ends in $event",
		"ends in $event1 after $event$", "ü 😀 <b>&amp;", "exe.\u202egnp",
	} {
		box := `{"id":"` + sprint(i) + `","subject":` + quoteJSON(t, nasty) +
			`,"eventType":"T","eventTime":"2026-01-01T00:00:00Z"}`
		if i%2 == 1 {
			box = "[" + box + "]"
		}
		response := b.post("/ui/topics/it-s/publish", url.Values{"event": {box}, "preview": {"1"}})
		require.Equal(t, http.StatusOK, response.Code)
		twins := preformatted(t, response.Body.String())
		require.Len(t, twins, 2)
		// curl is replaced by echo, which prints its arguments
		out, err := exec.Command(shell, "-c",
			`KEY=`+key+`; curl() { for word; do printf '%s\0' "$word"; done; }; `+twins[0]).Output()
		require.NoError(t, err, twins[0])
		words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		require.Equal(t, "-i", words[0])
		require.Equal(t, "http://localhost:8080/topics/it-s/api/events", words[1])
		require.Contains(t, words, "aeg-sas-key: "+key)
		sent := words[len(words)-1]
		require.Equal(t, strings.ReplaceAll("["+strings.Trim(box, "[]")+"]", "\u202e", `\u202e`), sent,
			"invisible characters are escaped")
		_, err = b.pool.Exec(t.Context(), twins[1])
		require.NoError(t, err, twins[1])
		require.Equal(t, nasty, b.value(t, "SELECT subject FROM postrider.events WHERE event_id = '"+sprint(i)+"'"))
	}
}

func mustExec(t *testing.T, b *dashboard, statement string) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), statement)
	require.NoError(t, err)
}
