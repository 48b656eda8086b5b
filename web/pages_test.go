package web_test

import (
	"fmt"
	stdhtml "html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"postrider/internal/event"
	"postrider/internal/node"
	"postrider/internal/operator"
	"postrider/internal/testnode"
)

// Each page shows what the database and the engine have recorded, and afterwards what has changed since. The engine
// has stopped, so that nothing is attempted again.
func TestPages(t *testing.T) {
	t.Parallel()
	b := mount(t, node.Options{Node: "test", MaxWorkers: 20})
	engine := b.Engine(t)
	require.NoError(t, engine.Start(t.Context()))
	b.seed(t, "e-1", "e-2", "e-3")
	testnode.RequireStops(t, engine)
	b.ObserveProblems(t, 0)
	for path, want := range b.seededPages(t) {
		page := text(b.page(t, path))
		for _, part := range want {
			require.Contains(t, page, part, path)
		}
		require.NotContains(t, page, "planted-secret", path)
		require.NotRegexp(t, `\b0x[0-9a-f]{8}`, page, "the address of a pointer")
	}
	for _, step := range []func(*testing.T){
		b.testSearch, b.testHeldDeliveries, b.testProblemsCountHeld, b.testEditAndRedeliver, b.testErased,
	} {
		step(t)
	}
}

// seededPages are texts of the pages after seed.
func (b *dashboard) seededPages(t *testing.T) map[string][]string {
	t.Helper()
	delivery := func(subscription string) string { return "/ui/deliveries/" + b.deliveryOf(t, subscription) }
	event := func(topic string) string {
		return "/ui/events/" +
			b.value(t, "SELECT min(system_id::text) FROM postrider.events WHERE topic = '"+topic+"'")
	}
	return map[string][]string{
		"/ui/": {
			"Backlog 6 oldest ", ", 3 on hold", "Failing now 2", "Open dead letters 3 3 new in the last hour",
			"held of orders paused", "503 Service Unavailable <script>window.__x=1</script>", " Busy 3 Retry …",
			"404 Not Found empty response NotFound 0 Redeliver …", "UndeliverableDueToClientError 3", "Consistency repairs 0",
		},
		"/ui/problems?within=1h": {
			"failing archive of orders 404 Not Found NotFound", "3 100 %", "none pending 3 · redeliver",
			"failing billing of orders 503 Service Unavailable Busy", "3 pending", "<script>window.__x=1</script>",
		},
		"/ui/dead-letters": {
			"3 in total", "archive of orders , Reason UndeliverableDueToClientError , Last outcome NotFound 404 in all",
			"left(last_response, 300)) as last_error from postrider.dead_letters",
		},
		delivery("billing"): {
			"pending e-1 to billing of orders", "Attempt 2 starts in", "Time to live:",
			"Attempt 1 Busy 503 Service Unavailable", "first byte", "Decision: another attempt, due 20",
			"503: at least 30 s; step 1 is 10 s after the failure", "X-Hostile", "12345678901234567890.10",
		},
		delivery("held"):    {"pending paused", "is paused until an operator resumes it", "No attempts yet."},
		delivery("bulk"):    {"delivered", "Attempt 1 Delivered 202 Accepted batch"},
		delivery("archive"): {"dead_lettered", "after 1 attempt", "Dead letter", "Decision: dead letter"},

		"/ui/events":             {"e-1 e-1 e-1 orders 1 dead_lettered, 2 delivered, 2 pending", "none"},
		"/ui/events?unmatched=1": {"e-1 e-1 e-1 empty none"},
		event("orders"): {
			"matches accounting", "does not match choosy",
			`subjectBeginsWith fails the subject is "e-1", but must begin with "nothing begins so"`, "12345678901234567890.10",
		},
		event("empty"): {"0 event subscriptions", "No deliveries.", "includedEventTypes fails"},
		"/ui/batches":  {"delivered bulk of orders"},
		"/ui/batches/" + b.value(t, "SELECT min(batch_id) FROM postrider.batches"): {
			"succeed or fail together", "Attempt 1 Delivered 202 Accepted",
		},
		"/ui/topics":                 {"Input schema EventGridSchema in all rows.", "orders 3 15", "empty 1 0"},
		"/ui/topics/orders":          {"Published, 24 h 3", "Dead letters, 24 h 3"},
		"/ui/subscriptions?hold=any": {"held of orders paused"},
		"/ui/subscriptions/orders/billing": {
			"Successful attempts, 24 h 0.0 % of 3", "A delivery that starts now and gets status 500 each time", "10 s",
			"subscription_created", "Busy 3",
		},
		"/ui/policies?policy=ga-2018&policy=ga-2021": {"Property ga-2021 ga-2018", "Response timeout 30 s 1 min"},
		"/ui/policies?policy=namespace-2023": {
			"Property ga-2021 namespace-2023", "400 never retried never retried", // the default is the other column
			"Jitter fraction up to 10 % of a step none", "Expiry when the next attempt is due",
			"Hold after Busy as for each failure 10 s",
		},
		"/ui/tail":    {"This page needs JavaScript."},
		"/ui/jobs":    {"Kind deliver , State scheduled in all rows."},
		"/ui/storage": {"kept forever; 1 future partition.", "Dead letters", "river_job"},
		"/ui/audit":   {"Actor postrider in all rows.", "subscription_paused held orders"},
	}
}

// The search of the menu opens the page of an id or a name, or lists what it found.
func (b *dashboard) testSearch(t *testing.T) {
	event := b.value(t, "SELECT system_id FROM postrider.events WHERE event_id = 'e-2'")
	deadLetter := b.value(t, "SELECT min(dead_letter_id::text) FROM postrider.dead_letters")
	operation := b.value(t, `SELECT postrider.purge_all('{"topic": "none"}')`)
	b.Exec(t, "UPDATE postrider_internal.batches SET id = 100001 WHERE id = (SELECT max(batch_id) FROM postrider.batches)")
	for q, want := range map[string]string{
		"2": "/ui/deliveries/2", "100001": "/ui/batches/100001", event: "/ui/events/" + event, "e-2": "/ui/events/" + event,
		" " + strings.ToUpper(deadLetter): "/ui/dead-letters/" + deadLetter, operation: "/ui/operations/" + operation,
		"orders": "/ui/topics/orders", "billing": "/ui/subscriptions/orders/billing",
		"BILL": "/ui/subscriptions/orders/billing",
	} {
		response := b.request(http.MethodGet, "/ui/search?q="+url.QueryEscape(q))
		require.Equal(t, http.StatusSeeOther, response.Code, q)
		require.Equal(t, want, response.Header().Get("Location"), q)
	}
	several := b.page(t, "/ui/search?q=choosy")
	require.Contains(t, several, `href="/ui/subscriptions/orders/choosy"`)
	require.Contains(t, several, `href="/ui/subscriptions/empty/choosy"`)
	require.Equal(t, 2, strings.Count(b.page(t, "/ui/search?q=e-1"), `href="/ui/events/`))
	for _, q := range []string{"", uuid.NewString(), "999999999999999999999999", "<script>"} {
		require.Contains(t, b.page(t, "/ui/search?q="+url.QueryEscape(q)), `<div class="empty">`, q)
	}
	require.Equal(t, http.StatusBadRequest, b.request(http.MethodGet, "/ui/search?q=%00").Code)
}

// A pending delivery shows its next attempt, or what it waits for.
func (b *dashboard) testHeldDeliveries(t *testing.T) {
	delivery := "/ui/deliveries/" + b.deliveryOf(t, "billing")
	b.pause(t, "orders", "billing")
	page := text(b.page(t, delivery))
	require.Contains(t, page, "The event subscription is paused until an operator resumes it.")
	require.Contains(t, page, "On hold since")
	require.NotContains(t, page, "Attempt 2 starts in")
	require.NotContains(t, page, "Retry now", "a retry is rejected during a pause")
	b.resume(t, "orders", "billing")

	b.Exec(t, "DELETE FROM postrider_internal.probations")
	b.Rest(t, "billing")
	for _, path := range []string{"/ui/subscriptions/orders/billing", delivery} {
		page := b.page(t, path)
		_, actions, found := strings.Cut(page, `class="verdict`)
		require.True(t, found, path)
		_, first, _ := strings.Cut(actions, "<button")
		require.True(t, strings.HasPrefix(first, ` type="submit" class="primary">Probe now`), "%s: %.60s", path, first)
		require.Equal(t, 1, strings.Count(actions, `class="primary"`), path)
		require.Contains(t, text(page), "Next probe: in 59 min", path)
	}
	b.Exec(t, "DELETE FROM postrider_internal.probations")
}

// Deliveries held before their first attempt count as held.
func (b *dashboard) testProblemsCountHeld(t *testing.T) {
	b.pause(t, "orders", "billing")
	b.publish(t, "orders", "e-4", "e-5", "e-6")
	b.requireTexts(t, "/ui/problems?within=1h", "paused 3 on hold , 3 with this outcome")
	b.resume(t, "orders", "billing")
	require.Contains(t, b.page(t, "/ui/problems?within=1h"), `hold=admission">3 on hold`)
	b.Exec(t, `UPDATE postrider_internal.event_subscriptions
		SET settings = jsonb_set(settings::jsonb, '{deliveryRate}', '{"limit": 1}') WHERE name = 'billing'`)
	require.Contains(t, b.page(t, "/ui/problems?within=1h"), `hold=rate_limited">3 on hold`)
}

// hiddenVersion is the version of a dead letter in its form.
var hiddenVersion = regexp.MustCompile(`name="version" value="([^"]+)"`)

// The form works without JavaScript: edit, review the changes, confirm.
func (b *dashboard) testEditAndRedeliver(t *testing.T) {
	id := b.value(t, "SELECT min(dead_letter_id::text) FROM postrider.dead_letters WHERE subscription = 'archive'")
	original := b.value(t, "SELECT body_text FROM postrider.dead_letters WHERE dead_letter_id = '"+id+"'")
	at := "/ui/dead-letters/" + id + "/repair"
	page := b.page(t, at)
	requireValidMarkup(t, at, page)
	version := stdhtml.UnescapeString(hiddenVersion.FindStringSubmatch(page)[1])
	send := func(do, event string) url.Values {
		return url.Values{"do": {do}, "version": {version}, "event": {event}, "toSubscription": {"accounting"}}
	}
	b.requireRejected(t, at, send("review", original), 400, "The event is unchanged.")
	require.Contains(t, page, "\n{\n  &#34;id&#34;: &#34;e-", "it opens formatted")
	require.Contains(t, page, "12345678901234567890.10", "numbers stay")
	_, opened, _ := strings.Cut(page, "required>\n")
	opened, _, _ = strings.Cut(opened, "</textarea>")
	opened = strings.ReplaceAll(stdhtml.UnescapeString(opened), "\n", "\r\n") // as browsers do
	b.requireRejected(t, at, send("review", opened), 400, "The event is unchanged.")
	for _, do := range []string{"review", "format"} {
		b.requireRejected(t, at, send(do, "{\r\n \"id\": x}"), 400, "line 2, column 8")
	}
	b.requireRejected(t, at, send("review", strings.Replace(original, `"eventTime":"`, `"eventTime":"x`, 1)), 400,
		"Event.eventTime: not an RFC 3339 time")
	formatted := b.post(at, send("format", `{"a":1e400,"b":"\u00e9"}`)).Body.String()
	require.Contains(t, formatted, "{\n  &#34;a&#34;: 1e400,\n  &#34;b&#34;: &#34;\\u00e9&#34;\n}")

	edited := strings.Replace(original, "{", "{\n  \"data\" : {\"total\":1e400},", 1)
	edited = regexp.MustCompile(`,"data":\{[^}]*\}`).ReplaceAllString(edited, "")
	sent := strings.ReplaceAll(edited, "\n", "\r\n") // as browsers do
	review := b.post(at, send("review", sent)).Body.String()
	requireValidMarkup(t, at, review)
	require.Contains(t, text(review), `/data/total 1e400`)
	require.Contains(t, review, `class="added"`)
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.events WHERE edit IS NOT NULL"),
		"nothing is done yet")
	require.Contains(t, b.post(at, send("edit", sent)).Body.String(), "1e400", "the edited text is kept")

	require.Contains(t, b.requireRedirect(t, at, send("redeliver", sent), `^/ui/deliveries/\d+\?done=repaired$`),
		"Redelivered with an edited event.")
	require.Equal(t, edited, b.value(t, "SELECT body_text FROM postrider.events WHERE edited_from IS NOT NULL"))
	b.requireRejected(t, at, send("redeliver", sent), http.StatusPreconditionFailed,
		"the dead letter has changed since you opened it")
	const repaired = " FROM postrider.deliveries WHERE edited_from IS NOT NULL"
	for _, path := range []string{
		"/ui/deliveries/" + b.value(t, "SELECT delivery_id"+repaired),
		"/ui/events/" + b.value(t, "SELECT system_id"+repaired),
	} {
		requireValidMarkup(t, path, b.page(t, path))
		b.requireTexts(t, path, "Repair of the original event , edited by admin",
			"JSON merge patch from the original event")
	}
	b.testApplyToSimilar(t, "/ui/deliveries/"+b.value(t, "SELECT delivery_id"+repaired))
}

// A repair offers its change for the open dead letters with the same event subscription, reason and event type.
func (b *dashboard) testApplyToSimilar(t *testing.T, delivery string) {
	t.Helper()
	require.NotContains(t, b.page(t, delivery), "Apply this change", "the others have another type")
	b.Exec(t, "UPDATE postrider_internal.dead_letters SET event_type = 'e-1' WHERE subscription = 'archive'")
	page := b.page(t, delivery)
	require.Contains(t, text(page), "Apply this change to the 2 similar ones …")
	link := regexp.MustCompile(`href="(/ui/dead-letters/repair\?[^"]+)"`).FindStringSubmatch(page)
	many := b.page(t, stdhtml.UnescapeString(link[1]))
	requireValidMarkup(t, link[1], many)
	require.Contains(t, text(many), "2 dead letters match")
	require.Contains(t, many, "&#34;total&#34;:")
	require.Contains(t, text(many), "2 changed, 0 unchanged.", "the preview of the repair's own change")
	require.Contains(t, many, `class="primary" name="do" value="start">Repair and redeliver 2`)
	action := regexp.MustCompile(`action="(/ui/dead-letters/repair\?[^"]+)"`).FindStringSubmatch(many)
	preview := b.post(stdhtml.UnescapeString(action[1]),
		url.Values{"do": {"preview"}, "patch": {`{"subject":"other"}`}}).Body
	require.Contains(t, preview.String(), `class="primary" name="do" value="start"`)
	require.NotRegexp(t, `class="primary" name="do"\s+value="preview"`, preview.String())
}

// No page shows data of erased events.
func (b *dashboard) testErased(t *testing.T) {
	first := "/ui/events/" + b.value(t, "SELECT min(system_id::text) FROM postrider.events WHERE topic = 'orders'")
	b.requireTexts(t, first, "12345678901234567890.10")
	b.Exec(t, "SELECT postrider.erase_event(system_id) FROM postrider.events")
	require.Regexp(t, `Erased (now|\d+ seconds? ago)`, text(b.page(t, first)))
	b.requireTexts(t, "/ui/dead-letters/"+b.value(t, "SELECT min(dead_letter_id::text) FROM postrider.dead_letters"),
		"erased at")
	for _, path := range b.everyPage(t) {
		if !strings.HasSuffix(path, "/repair") { // an erased event cannot be edited
			require.NotContains(t, b.page(t, path), "12345678901234567890.10", path)
		}
	}
}

func requireValidMarkup(t *testing.T, path, page string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	count, ids := map[string]int{}, map[string]bool{}
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		count[node.Data]++
		attributes := map[string]string{}
		for _, a := range node.Attr {
			attributes[a.Key] = a.Val
		}
		if id, ok := attributes["id"]; ok {
			require.False(t, ids[id], "%s: two of id %s", path, id)
			ids[id] = true
		}
		if _, hidden := attributes["hidden"]; attributes["id"] == "pause" ||
			slices.Contains(strings.Fields(attributes["class"]), "copy") {
			require.True(t, hidden, "%s: without JavaScript, a button does nothing: %v", path, attributes)
		}
		switch node.Data {
		case "input", "select", "textarea":
			labeled := node.Parent.Data == "label" || strings.Contains(page, `<label for="`+attributes["id"]+`">`)
			require.True(t, attributes["type"] == "hidden" || labeled, "%s: %s without a label", path, attributes["name"])
		case "th":
			require.Contains(t, []string{"col", "row", "colgroup"}, attributes["scope"], path)
		case "svg":
			require.True(t, attributes["aria-hidden"] == "true" || attributes["aria-label"] != "", path)
		case "form":
			require.NotEmpty(t, attributes["action"], path)
		}
	}
	require.NotContains(t, page, "&lt;nil&gt;", path)
	require.Zero(t, count["canvas"], path)
	require.Equal(t, 1, count["h1"], path)
	require.Equal(t, 1, count["main"], path)
	require.Equal(t, 1, strings.Count(page, `aria-current="page"`), path)
}

// An imported dead letter shows its file instead of a delivery.
func TestImportedDeadLetter(t *testing.T) {
	t.Parallel()
	b := mount(t, node.Options{Node: "test"})
	b.subscribe(t, "orders", "billing")
	in := event.Input{Schema: event.EventGrid, Topic: "orders"}
	read, err := in.ReadDeadLetter([]byte(`{"id":"o-7","subject":"orders/7","eventType":"Shop.OrderPlaced","eventTime":` +
		`"2026-03-04T05:06:07Z","deadLetterReason":"SomethingNew","deliveryAttempts":1,"lastDeliveryOutcome":"NotFound",` +
		`"lastDeliveryAttemptTime":"2026-03-04T05:06:08Z"}`))
	require.NoError(t, err)
	bare, err := in.ReadDeadLetter([]byte(`{"id":"o-8","subject":"orders/8","eventType":"Shop.OrderPlaced","eventTime":` +
		`"2026-03-04T05:06:07Z","deadLetterReason":"MaxDeliveryAttemptsExceeded","deliveryAttempts":30}`))
	require.NoError(t, err)
	letter := operator.ImportedLetter{
		From: "BILLING/2026/3/4/5/<a>.json", Subscription: "billing", DeadLetter: read,
	}
	done, err := b.System.Operator.ImportDeadLetters(t.Context(), "orders", []*operator.ImportedLetter{&letter}, false)
	require.NoError(t, err)
	at := "/ui/dead-letters/" + done[0].DeadLetterID.String()
	page := b.page(t, at)
	requireValidMarkup(t, at, page)
	b.requireTexts(t, at, "SomethingNew", "Imported from BILLING/2026/3/4/5/<a>.json , place 0", "attempt 1 (last)",
		"imported ")
	require.NotContains(t, page, "<dt>Delivery</dt>")
	letter.From, letter.DeadLetter = "BILLING/2026/3/4/5/b.json", bare
	_, err = b.System.Operator.ImportDeadLetters(t.Context(), "orders", []*operator.ImportedLetter{&letter}, false)
	require.NoError(t, err)
	b.requireTexts(t, "/ui/dead-letters", "no outcome 30")
	list := b.request(http.MethodGet, "/ui/dead-letters", func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: "postrider-columns", Value: url.Values{
			"dead-letters": {"delivery_id.endpoint_base_url.imported_from"},
		}.Encode()})
	}).Body.String()
	require.Contains(t, text(list), "BILLING/2026/3/4/5/<a>.json")
	require.NotContains(t, list, `href="/ui/deliveries/"`)
	require.NotContains(t, list, "Consumers receive the events")
	require.Contains(t, b.requireRedirect(t, at+"/redeliver", url.Values{}, `^/ui/deliveries/\d+`), "orders/7")
}

// An event subscription shows what holds its deliveries, and operators hold and release them.
func TestHoldsOfASubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hook(t)
	b.put(t, "/v1/topics/orders/subscriptions/added", `{"endpointUrl":"https://example.com"}`)
	require.Regexp(t, `added of orders not_validated no response yet .*billing of orders active`,
		text(b.page(t, "/ui/subscriptions")))
	// "Succeeded" is shown as "active", because it does not describe the endpoint.
	for _, path := range []string{"/ui/subscriptions", "/ui/subscriptions/orders/billing", "/ui/topics/orders"} {
		require.NotContains(t, b.page(t, path), "Succeeded", path)
		require.Contains(t, b.page(t, path), `<span class="badge calm">active</span>`, path)
	}
	b.requireTexts(t, "/ui/", "not_validated")
	b.requireTexts(t, "/ui/subscriptions/orders/added", "when the validation handshake succeeds")

	const at = "/ui/subscriptions/orders/billing"
	holds := func() string {
		sub, err := b.System.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		return fmt.Sprint(sub.Hold.Reason, sub.Hold.TimeToLiveStopped)
	}
	require.Contains(t, b.requireRedirect(t, at+"/pause", url.Values{"stopTimeToLive": {"1"}}, at+`\?done=paused`),
		"Paused. Deliveries are held")
	require.Equal(t, "pausedtrue", holds())
	require.Equal(t, http.StatusConflict, b.post(at+"/probe", nil).Code, "the pause has priority")
	b.requireRedirect(t, at+"/resume", nil, at)
	require.Equal(t, "false", holds())
	b.Rest(t, "billing")
	require.Regexp(t, `billing of orders probation .*after Busy next probe in 59 min.*Probe`, text(b.page(t, "/ui/")))
	require.Contains(t, b.page(t, at), "Probe now")
	b.requireRedirect(t, at+"/probe", nil, at)
	require.Equal(t, "probationfalse", holds())
	b.Exec(t, `INSERT INTO postrider_internal.river_job (id, state, args, kind, queue, priority, max_attempts)
		VALUES (7, 'running', '{}', 'deliver', 'deliveries', 1, 1000)`)
	b.Exec(t, "UPDATE postrider_internal.probations SET until = now() - interval '1 second', probe_job_id = 7")
	require.Regexp(t, `billing of orders probation .*after Busy probe in progress`, text(b.page(t, "/ui/")))
	b.requireRedirect(t, at+"/release", nil, at)
	require.Equal(t, "false", holds())
	require.Equal(t, http.StatusNotFound, b.post("/ui/subscriptions/orders/missing/pause", nil).Code)
	require.Equal(t, "admin: subscription_paused subscription_probed subscription_released subscription_resumed",
		b.audited(t, "subscription_p%")+strings.TrimPrefix(b.audited(t, "subscription_re%"), "admin:"))
}

var listLinks = regexp.MustCompile(`href="([^"]+)" rel="(next|prev)"`)

// pageLinks are the addresses of the next and the previous page.
func pageLinks(page string) (next, previous string) {
	for _, link := range listLinks.FindAllStringSubmatch(page, -1) {
		if link[2] == "next" {
			next = stdhtml.UnescapeString(link[1])
		} else {
			previous = stdhtml.UnescapeString(link[1])
		}
	}
	return next, previous
}

var deadLetterLink = regexp.MustCompile(`href="/ui/dead-letters/([0-9a-f-]{36})"`)

// The links of a list lead through all pages and back, and keep the filter. internal/query has the order of rows.
func TestPaging(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, slices.Repeat([]deadLetter{{at: time.Now(), outcome: "Busy"}}, 120)...)
	b.insert(t, deadLetter{at: time.Now(), outcome: "TimedOut"})
	seen := map[string]bool{}
	var pages [][]string
	path, before := "/ui/dead-letters?lastOutcome=Busy&topic=orders", ""
	for path != "" {
		require.Contains(t, path, "lastOutcome=Busy")
		page := b.page(t, path)
		pages = append(pages, deadLetterLink.FindAllString(page, -1))
		for _, link := range pages[len(pages)-1] {
			seen[link] = true
		}
		path, before = pageLinks(page)
	}
	require.Len(t, pages, 3)
	require.Len(t, seen, 120)
	require.Equal(t, pages[1], deadLetterLink.FindAllString(b.page(t, before), -1))
	require.Contains(t, b.page(t, "/ui/dead-letters?order=oldest"), "order by dead_lettered_at, dead_letter_id limit 50")
	b.requireTexts(t, "/ui/dead-letters?lastStatus=0&topic=parcels", "No dead letter matches the filter.")
	for _, list := range []string{"dead-letters", "deliveries", "events", "batches", "jobs", "audit", "operations"} {
		for _, key := range []string{"yesterday", "AAAA", "f" + strings.Repeat("_", 31), "%3Cscript%3E"} {
			response := b.request(http.MethodGet, "/ui/"+list+"?before="+key)
			require.Equal(t, http.StatusBadRequest, response.Code, "%s: %s", list, key)
			require.NotContains(t, response.Body.String(), "<script>")
		}
	}
}
