package web_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"postrider/internal/catalog"
	"postrider/internal/local"
)

// formOf is what a browser sends for the unchanged form of a page, without buttons.
func formOf(t *testing.T, page string) url.Values {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	values := url.Values{}
	for node := range root.Descendants() {
		name := attributeOf(node, "name")
		switch {
		case node.Type != html.ElementNode || name == "" || !within(node, "form", "config"):
		case node.Data == "input" && (attributeOf(node, "type") != "checkbox" || has(node, "checked")):
			values.Add(name, attributeOf(node, "value"))
		case node.Data == "textarea":
			values.Add(name, contentOf(node))
		case node.Data == "select":
			values.Add(name, selectedOf(node))
		}
	}
	return values
}

func attributeOf(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(node *html.Node, name string) bool {
	return slices.ContainsFunc(node.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func within(node *html.Node, element, class string) bool {
	for above := node.Parent; above != nil; above = above.Parent {
		if above.Data == element && slices.Contains(strings.Fields(attributeOf(above, "class")), class) {
			return true
		}
	}
	return false
}

func contentOf(node *html.Node) string {
	if node.FirstChild == nil {
		return ""
	}
	return node.FirstChild.Data
}

func selectedOf(node *html.Node) (value string) {
	first := true
	for option := range node.Descendants() {
		if option.Data == "option" && (first || has(option, "selected")) {
			value, first = attributeOf(option, "value"), false
		}
	}
	return value
}

// settings are the settings of an object in the API, without its name, times and versions.
func (b *dashboard) settings(t *testing.T, path string) map[string]any {
	t.Helper()
	status, response := b.rest(t, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, response)
	for _, name := range []string{"name", "etag", "createdAt", "updatedAt", "endpoint"} {
		delete(response, name)
	}
	if signing, ok := response["signing"].(map[string]any); ok {
		delete(signing, "rotatedAt")
	}
	return response
}

func (b *dashboard) spec(t *testing.T, topic, name string) catalog.SubscriptionSpec {
	t.Helper()
	sub, err := b.System.Subscriptions.Get(t.Context(), topic, name)
	require.NoError(t, err)
	return sub.Stated
}

// typed is a form with some fields changed: name, value, name, value.
func typed(form url.Values, changes ...string) url.Values {
	form = maps.Clone(form)
	for i := 0; i < len(changes); i += 2 {
		form[changes[i]] = []string{changes[i+1]}
	}
	return form
}

// copyOf is the form for a new object with the fields of another.
func (b *dashboard) copyOf(t *testing.T, path, edit string) url.Values {
	t.Helper()
	form := formOf(t, b.page(t, path))
	for name, values := range formOf(t, b.page(t, edit)) {
		if name != "etag" && name != "was" {
			form[name] = values
		}
	}
	return form
}

// keyPair is a certificate with its key, in PEM.
func keyPair(t *testing.T) (certificate, key string) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	raw, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}

// inFull sets every property; the arguments are a certificate and its key in JSON.
const inFull = `{"minimumTlsVersionAllowed":"1.3","certificateAuthorities":%[1]s,
	"clientCertificate":{"certificate":%[1]s,"privateKey":%[2]s},
	"oauth2":{"tokenUrl":"https://login.example.com/token","clientId":"postrider","clientSecret":"secret-5f0c",` +
	`"scope":"deliver"},"endpointUrl":"https://example.com/hook?code=5f0c","endpointKind":"azure-resource",` +
	`"eventDeliverySchema":"CloudEventSchemaV1_0",
	"retryPolicy":{"policy":"ga-2021","maxDeliveryAttempts":7,"eventTimeToLiveInMinutes":1394},
	"filter":{"includedEventTypes":["Shop.OrderPlaced"," spaced","\"quoted\"","<b>"],"subjectBeginsWith":" orders/",` +
	`"subjectEndsWith":"7","isSubjectCaseSensitive":true,"enableAdvancedFilteringOnArrays":true,"advancedFilters":[
		{"operatorType":"NumberIn","key":"data.n","values":[12345678901234567890.10,1E+30]},` +
	`{"operatorType":"NumberInRange","key":"data.n","values":[[-0.10,5],[7,8]]},
		{"operatorType":"NumberGreaterThanOrEquals","key":"data.total","value":10.50},{"operatorType":"BoolEquals",` +
	`"key":"data.paid","value":true},
		{"operatorType":"StringIn","key":"data.country","values":["DE","two\nlines",""," x"]},{"operatorType":"IsNotNull",` +
	`"key":"data.id"}]},
	"deadLetterDestination":{"endpointType":"Blob","properties":{"url":"file:///srv/dead/orders","prefix":"a/b"}},
	"maxEventsPerBatch":50,"preferredBatchSizeInKilobytes":256,"maxConcurrentDeliveries":9,
	"deliveryAttributeMappings":[{"name":"Authorization","type":"Static","properties":{"value":"Bearer 5f0c",` +
	`"isSecret":true}},{"name":"X-Team","type":"Static","properties":{"value":"a \"b\" <c>","isSecret":false}},
		{"name":"X-Channel","type":"Dynamic","properties":{"sourceField":"data.system"}}],
	"behavior":"documented","honorRetryAfter":true,"probationAction":"hold","retryTransportErrors":false,` +
	`"labels":["billing","team a"],"expirationTimeUtc":"2099-12-31T23:59:59%[3]sZ",
	"signing":{"enabled":true},"endpointValidation":"skip"}`

// A rejected form keeps its input except for secrets, which the user enters again.
func TestRejectedFormHidesSecrets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	const path, header = "/ui/subscriptions/new?topic=orders", "deliveryAttributeMappings[%d]."
	form := typed(formOf(t, b.page(t, path)), "name", "x", "endpointUrl", "https://example.com/hook",
		"oauth2.clientSecret", "planted-client-secret", "clientCertificate.privateKey", "planted-key")
	for i, row := range [][3]string{{"X-Key", "secret", "planted-header"}, {"X-Team", "static", "billing"}} {
		at := fmt.Sprintf(header, i)
		form = typed(form, at+"name", row[0], at+"type", row[1], at+"properties", row[2])
	}
	for _, button := range []string{"", "add", "test"} {
		page := b.post(path, typed(form, button, "1")).Body.String()
		require.NotContains(t, page, "planted-", button)
		require.Equal(t, 3, strings.Count(text(page), "Enter the secret again. It is not shown."), button)
		again := formOf(t, page)
		require.Equal(t, []string{"X-Key", "secret", "", "billing"}, []string{
			again.Get(fmt.Sprintf(header, 0) + "name"), again.Get(fmt.Sprintf(header, 0) + "type"),
			again.Get(fmt.Sprintf(header, 0) + "properties"), again.Get(fmt.Sprintf(header, 1) + "properties"),
		}, button)
	}
}

// The form sets every property exactly as the REST API does: the fields of a stored event subscription, sent as a new
// one with its secrets, store the same.
func TestSubscriptionFormSetsEveryProperty(t *testing.T) {
	t.Parallel()
	b := setup(t)
	certificate, key := keyPair(t)
	b.put(t, "/v1/topics/orders", "{}")
	b.put(t, "/v1/topics/orders/subscriptions/by-rest",
		fmt.Sprintf(inFull, quoteJSON(t, certificate), quoteJSON(t, key), ""))
	const path = "/ui/subscriptions/new?topic=orders"
	form := b.copyOf(t, path, "/ui/subscriptions/orders/by-rest/edit")
	require.Equal(t, "12345678901234567890.10\n1E+30", form.Get("filter.advancedFilters[0].value"))
	require.Equal(t, "Shop.OrderPlaced\n\" spaced\"\n\"\\\"quoted\\\"\"\n<b>", form.Get("filter.includedEventTypes"))
	form = typed(form, "name", "by-form", "endpointUrl", "https://example.com/hook?code=5f0c",
		"oauth2.clientSecret", "secret-5f0c", "clientCertificate.privateKey", key,
		"deliveryAttributeMappings[0].properties", "Bearer 5f0c", "filter.includedEventTypes",
		"Shop.OrderPlaced\r\n\r\n\" spaced\"\r\n\"\\\"quoted\\\"\"\r\n<b>\r\n", // as browsers do
		"filter.advancedFilters[6].operatorType", "NumberIn", "filter.advancedFilters[6].key", "",
		"filter.advancedFilters[6].value", " ") // an empty row is no row
	b.requireRedirect(t, path, form, `^/ui/subscriptions/orders/by-form\?done=saved$`)
	require.Equal(t, b.settings(t, "/v1/topics/orders/subscriptions/by-rest"),
		b.settings(t, "/v1/topics/orders/subscriptions/by-form"))
	require.Equal(t, b.spec(t, "orders", "by-rest"), b.spec(t, "orders", "by-form"))
	require.Equal(t, "admin",
		b.value(t, "SELECT actor FROM postrider.audit WHERE action = 'subscription_created' AND subscription = 'by-form'"))
}

// Saving an unchanged form changes nothing, including fractions of seconds, secrets and the query of the endpoint.
func TestSubscriptionFormKeepsStoredSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	certificate, key := keyPair(t)
	b.put(t, "/v1/topics/orders", "{}")
	b.put(t, "/v1/topics/space", `{"kind":"namespace","eventRetentionInDays":3}`)
	for path, settings := range map[string]string{
		"orders/full":  fmt.Sprintf(inFull, quoteJSON(t, certificate), quoteJSON(t, key), ".125"),
		"orders/plain": plainHook,
		"orders/azure": `{"endpointUrl":"https://example.com/hook","endpointValidation":"skip",` +
			`"deadLetterDestination":{"endpointType":"StorageBlob",` +
			`"properties":{"resourceId":"/subscriptions/1/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/` +
			`mystorage","blobContainerName":"dead"}}}`,
		"space/limited": `{"endpointUrl":"https://example.com/hook","endpointValidation":"skip",` +
			`"retryPolicy":{"eventTimeToLive":"P1DT2H3M","maxDeliveryCount":4}}`,
	} {
		topic, name, _ := strings.Cut(path, "/")
		api, page := "/v1/topics/"+topic+"/subscriptions/"+name, "/ui/subscriptions/"+path+"/edit"
		b.put(t, api, settings)
		before, spec := b.settings(t, api), b.spec(t, topic, name)
		shown := b.page(t, page)
		require.NotContains(t, shown, "5f0c", "neither the query nor a secret")
		requireValidMarkup(t, page, shown)
		b.requireRedirect(t, page, formOf(t, shown), `done=saved$`)
		require.Equal(t, before, b.settings(t, api), path)
		require.Equal(t, spec, b.spec(t, topic, name), path)
	}
}

// Messages are settings of postrider.system. The form never shows the routing key, and keeps it.
func TestSubscriptionFormOfMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.System.Topics.EnsureSystem(t.Context()))
	b.put(t, "/v1/topics/orders", "{}")
	require.NotContains(t, formOf(t, b.page(t, "/ui/subscriptions/new?topic=orders")), "messageFormat")
	const path = "/ui/subscriptions/new?topic=" + catalog.SystemTopic
	form := typed(formOf(t, b.page(t, path)), "name", "oncall", "endpointUrl", "https://events.pagerduty.com/v2/enqueue",
		"messageFormat", "PagerDuty")
	page := b.requireRejected(t, path, form, http.StatusBadRequest, "is required with messageFormat PagerDuty")
	require.NotContains(t, page, "<h2>Errors</h2>", "the mistake has its field")
	form = typed(form, "pagerDutyRoutingKey", "planted-key")
	b.requireRedirect(t, path, form, "done=saved$")
	const edit = "/ui/subscriptions/" + catalog.SystemTopic + "/oncall/edit"
	shown := b.page(t, edit)
	requireValidMarkup(t, edit, shown)
	require.NotContains(t, shown, "planted-key")
	b.requireRedirect(t, edit, formOf(t, shown), "done=saved$")
	stored := func() *catalog.SubscriptionSpec {
		sub, err := b.System.Subscriptions.Get(t.Context(), catalog.SystemTopic, "oncall")
		require.NoError(t, err)
		return &sub.Stated
	}
	require.Equal(t, "planted-key", stored().PagerDutyRoutingKey)
	b.requireRedirect(t, edit, typed(formOf(t, b.page(t, edit)), "messageFormat", "Slack"), "done=saved$")
	require.Empty(t, stored().PagerDutyRoutingKey)

	form = typed(formOf(t, b.page(t, edit)), "messageFormat", "None")
	page = b.requireRejected(t, edit, form, http.StatusBadRequest, "is required if messageFormat becomes None")
	require.NotContains(t, page, "<h2>Errors</h2>", "the mistake has its field")
	require.Equal(t, "https://events.pagerduty.com/v2/enqueue", stored().EndpointURL)
}

// Errors are shown at their fields, and the input stays. Package server has what is rejected.
func TestSubscriptionFormShowsErrorsAtFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, billing := b.hook(t)
	const path, edit = "/ui/subscriptions/new?topic=orders", "/ui/subscriptions/orders/billing/edit"
	form := typed(formOf(t, b.page(t, path)), "name", "added", "endpointUrl", "https://example.com/hook",
		"endpointValidation", "skip")
	for _, row := range [][3]string{
		{"name", "x", "must be 3 to 64 characters"},
		{"name", "", "A name is required."},
		{"retryPolicy.maxDeliveryAttempts", "many", "must be a whole number"},
		{"labels", strings.Repeat("x", 257), "labels[0] must be 1 to 256 characters long"},
		{"filter.advancedFilters[0].key", "data.n", "must"},
		{"deliveryAttributeMappings[0].name", "X-A", "deliveryAttributeMappings[0].properties"},
	} {
		sent := typed(form, row[0], row[1])
		page := b.requireRejected(t, path, sent, http.StatusBadRequest, row[2])
		require.Contains(t, text(page), "Nothing was saved. Fix the errors below.", row[0])
		require.NotContains(t, page, "<h2>Errors</h2>", "every mistake has its field")
		require.Contains(t, page, `aria-invalid="true"`, row[0])
		again := formOf(t, page)
		for name := range sent {
			require.Equal(t, strings.TrimSpace(sent.Get(name)), strings.TrimSpace(again.Get(name)), name)
		}
	}
	b.requireRejected(t, path, typed(form, "name", "billing"), http.StatusPreconditionFailed,
		"Another event subscription has this name.")
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/subscriptions/new?topic=nowhere").Code)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/subscriptions/orders/missing/edit").Code)

	// The defaults of a limit's other settings are no limit. A setting that is none is not dropped silently.
	b.put(t, billing, `{"endpointUrl":"https://example.com","endpointValidation":"skip",
		"deliveryRate":{"limit":5,"periodInSeconds":1,"scope":"subscription","count":"events"}}`)
	cleared := typed(formOf(t, b.page(t, edit)), "deliveryRate.limit", "")
	b.requireRejected(t, edit, cleared, http.StatusBadRequest, "must be 1 to 100000")
	b.requireRedirect(t, edit, typed(cleared, "deliveryRate.count", "requests"), `done=saved$`)
	require.Nil(t, b.spec(t, "orders", "billing").DeliveryRate)
}

// After saving, the page shows the result of the handshake.
func TestSubscriptionFormShowsHandshakeResult(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			body, _ := io.ReadAll(r.Body)
			local.RespondToHandshake(w, r, body)
		case "/bad":
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(hook.Close)
	b.put(t, "/v1/topics/orders", "{}")
	const path = "/ui/subscriptions/new?topic=orders"
	form := formOf(t, b.page(t, path))
	of := func(name string) url.Values { return typed(form, "name", name, "endpointUrl", hook.URL+"/"+name) }
	require.Contains(t, b.requireRedirect(t, path, of("good"), `/good\?done=validated$`),
		"The endpoint passed the validation handshake")
	require.Contains(t, b.requireRedirect(t, path, of("silent"), `/silent\?done=awaiting$`),
		"Deliveries are held until the validation URL")
	page := b.requireRejected(t, path, of("bad"), http.StatusBadRequest,
		"Nothing was saved: The attempt to validate the provided endpoint "+hook.URL+"/bad failed.")
	require.Equal(t, 1, strings.Count(page, `<p class="mistake">`), "one error for repeated attempts")
	require.Equal(t, hook.URL+"/bad", formOf(t, page).Get("endpointUrl"))
	edit := "/ui/subscriptions/orders/good/edit"
	b.requireRedirect(t, edit, typed(formOf(t, b.page(t, edit)), "labels", "x"), `done=saved$`)
}

// Buttons add and remove rows without JavaScript.
func TestFormRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	const path, list = "/ui/subscriptions/new?topic=orders", "filter.advancedFilters"
	pressButton := func(form url.Values, button, value string) url.Values {
		response := b.post(path, typed(form, button, value))
		require.Equal(t, http.StatusOK, response.Code)
		requireValidMarkup(t, path, response.Body.String())
		return formOf(t, response.Body.String())
	}
	form := pressButton(typed(formOf(t, b.page(t, path)), "labels", "kept"), "add", list)
	form = typed(pressButton(form, "add", list), list+"[0].key", "a", list+"[1].key", "b", list+"[1].operatorType",
		"StringIn", list+"[1].value", "x\ny")
	form = pressButton(form, "remove", list+"[0]")
	require.Equal(t, []string{"b", "StringIn", "x\ny", "kept"}, []string{
		form.Get(list + "[0].key"), form.Get(list + "[0].operatorType"), form.Get(list + "[0].value"), form.Get("labels"),
	})
	require.NotContains(t, form, list+"[1].key")
	for _, nonsense := range []string{"x", list + "[9]", list + "[-1]", "[]", "etag[0]"} {
		require.Equal(t, form, pressButton(form, "remove", nonsense))
	}
	require.Equal(t, form, pressButton(form, "add", "nothing"))
}

// A conflict shows the changes by another user and keeps the input. Saving again overwrites them.
func TestFormConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, api := b.hook(t)
	const path = "/ui/subscriptions/orders/billing/edit"
	form := formOf(t, b.page(t, path))
	b.put(t, api, `{"endpointUrl":"https://example.com/other","endpointValidation":"skip","labels":["b"],`+
		`"retryPolicy":{"maxDeliveryAttempts":5}}`)
	page := b.requireRejected(t, path, typed(form, "labels", "mine"), http.StatusPreconditionFailed,
		"another user has changed it")
	for _, change := range []string{
		`labels not set ["b"]`, "retryPolicy.maxDeliveryAttempts not set 5",
		`endpointBaseUrl "https://example.com/hook" "https://example.com/other"`,
	} {
		require.Contains(t, text(page), change)
	}
	b.requireRedirect(t, path, formOf(t, page), `done=saved$`)
	stored := b.spec(t, "orders", "billing")
	require.Equal(t, []string{"mine"}, stored.Labels)
	require.Nil(t, stored.RetryPolicy.MaxDeliveryAttempts)
	require.Equal(t, "https://example.com/other", stored.EndpointURL)
}

// A filter is tested before it is saved. Package server has what is rejected.
func TestFilterTest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "/v1/topics/orders", "{}")
	const path = "/ui/subscriptions/new?topic=orders"
	form := typed(formOf(t, b.page(t, path)), "filter.subjectBeginsWith", "e-1", "filter.advancedFilters[0].key", "data.n",
		"filter.advancedFilters[0].operatorType", "NumberLessThan", "filter.advancedFilters[0].value",
		"12345678901234567890.11", "test", "1")
	test := func(want string, changes ...string) {
		t.Helper()
		page := b.requireOK(t, path, typed(form, changes...))
		require.Contains(t, text(page), want)
		require.Equal(t, "e-1", formOf(t, page).Get("filter.subjectBeginsWith"))
	}
	test("The topic has no events yet. Enter one above.")
	b.publish(t, "orders", "e-1", "e-2", "<script>window.__x=1</script>")
	test("1 of 3 of the topic’s newest events match.")
	test(`e-2 subjectBeginsWith fails the subject is "e-2", but must begin with "e-1" advancedFilters[0] passes`)
	test("<script>window.__x=1</script>") // as text
	test("0 of 1 match. does not match 9 subjectBeginsWith passes advancedFilters[0] fails data.n is "+
		"12345678901234567891, but must be less than 12345678901234567890.11", "event",
		`{"id":"9","subject":"E-1","eventType":"t","eventTime":"2026-01-01T00:00:00Z","data":{"n":12345678901234567891}}`)
	page := b.requireRejected(t, path, typed(form, "event", "{"), http.StatusBadRequest, "The filter was not tested")
	require.Contains(t, text(page), "The event must be one JSON document.")
	require.NotContains(t, page, "<h2>Errors</h2>")
}

// requireOK posts a form whose page has status 200.
func (b *dashboard) requireOK(t *testing.T, path string, form url.Values) (page string) {
	t.Helper()
	response := b.post(path, form)
	require.Equal(t, http.StatusOK, response.Code, text(response.Body.String()))
	requireValidMarkup(t, path, response.Body.String())
	return response.Body.String()
}

// preformatted are the texts of the pre elements of a page.
func preformatted(t *testing.T, page string) (texts []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	for node := range root.Descendants() {
		if node.Data == "pre" {
			texts = append(texts, contentOf(node))
		}
	}
	return texts
}
