package web_test

import (
	"bufio"
	"context"
	"fmt"
	stdhtml "html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"postrider/internal/access"
	"postrider/internal/catalog"
)

func TestEmptyPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, want := range map[string]string{
		"/ui/":              "No attempt failed in the last hour.",
		"/ui/problems":      "No attempt has failed in the last 1 d.",
		"/ui/events":        "No events yet.",
		"/ui/deliveries":    "No deliveries yet.",
		"/ui/batches":       "No batches yet.",
		"/ui/dead-letters":  "A delivery becomes a dead letter when it fails for good",
		"/ui/operations":    "No operations.",
		"/ui/topics":        "No topics yet.",
		"/ui/subscriptions": "No event subscriptions yet.",
		"/ui/jobs":          "No jobs.",
		"/ui/audit":         "No audit entries yet.",
		"/ui/policies":      "ga-2021",
		"/ui/storage":       "Not partitioned",
		"/ui/tail":          "This page needs JavaScript.",
	} {
		require.Contains(t, text(b.page(t, path)), want, path)
	}
}

// Each page shows what the database and the engine have recorded.
func TestPages(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1", "e-2", "e-3")
	delivery := func(subscription string) string {
		return "/ui/deliveries/" +
			b.value(t, "SELECT min(delivery_id) FROM postrider.deliveries WHERE subscription = '"+subscription+"'")
	}
	//nolint:paralleltest // one after the other, at once: half a minute later the failing ones have failed again
	for name, row := range map[string]struct {
		path string
		want []string
	}{
		"overview": {
			"/ui/",
			[]string{
				"Backlog 6 3 on hold", "billing of orders Busy 503 3 100 %", "held of orders paused",
				"resumed by an operator 3", "3 dead letters in 24 h", "UndeliverableDueToClientError 3", "Consistency repairs 0",
			},
		},
		"problems": {
			"/ui/problems?within=1h",
			[]string{
				"archive of orders NotFound 404 3 100 %", "none pending 3 · redeliver", "billing of orders Busy", "3 pending",
				"<script>window.__x=1</script>",
			},
		},
		"dead letters": {
			"/ui/dead-letters",
			[]string{
				"3 in total", "archive of orders UndeliverableDueToClientError NotFound 404 1",
				"attempts from postrider.dead_letters",
			},
		},
		"failing delivery": {
			delivery("billing"),
			[]string{
				"pending e-1 to billing of orders", "Attempt 2 starts in", "Time to live:",
				"Attempt 1 Busy 503 Service Unavailable", "first byte", "Decision: another attempt, due 20",
				"503: at least 30 s; step 1 is 10 s after the failure", "X-Hostile", "12345678901234567890.10",
			},
		},
		"delivery on hold": {
			delivery("held"), []string{"pending paused", "is paused until an operator resumes it", "No attempts yet."},
		},
		"delivery of a batch": {delivery("bulk"), []string{"delivered", "Attempt 1 Delivered 202 Accepted batch"}},
		"dead-lettered delivery": {delivery("archive"), []string{
			"dead_lettered", "after 1 attempt", "Dead letter", "Decision: dead letter",
		}},
		"events":           {"/ui/events", []string{"e-1 e-1 e-1 orders 1 dead_lettered, 2 delivered, 2 pending", "none"}},
		"unmatched events": {"/ui/events?unmatched=1", []string{"e-1 e-1 e-1 empty none"}},
		"an event": {
			"/ui/events/" + b.value(t, "SELECT min(system_id::text) FROM postrider.events WHERE topic = 'orders'"),
			[]string{
				"matches accounting", "does not match choosy",
				`subjectBeginsWith fails the subject is "e-1", but must begin with "nothing begins so"`, "12345678901234567890.10",
			},
		},
		"an unmatched event": {
			"/ui/events/" + b.value(t, "SELECT system_id FROM postrider.events WHERE topic = 'empty'"),
			[]string{"0 event subscriptions", "No deliveries.", "includedEventTypes fails"},
		},
		"batches": {"/ui/batches", []string{"delivered bulk of orders"}},
		"a batch": {"/ui/batches/" + b.value(t, "SELECT min(batch_id) FROM postrider.batches"), []string{
			"succeed or fail together", "Attempt 1 Delivered 202 Accepted",
		}},
		"topics":        {"/ui/topics", []string{"orders EventGridSchema 3 15", "empty EventGridSchema 1 0"}},
		"a topic":       {"/ui/topics/orders", []string{"Published, 24 h 3", "Dead letters, 24 h 3"}},
		"subscriptions": {"/ui/subscriptions?hold=any", []string{"held of orders paused"}},
		"a subscription": {
			"/ui/subscriptions/orders/billing",
			[]string{
				"Successful attempts, 24 h 0.0 % of 3", "A delivery that starts now and gets status 500 each time", "10 s",
				"subscription_created", "Busy 3",
			},
		},
		"policies": {
			"/ui/policies?policy=ga-2018&policy=ga-2021", []string{"Property ga-2021 ga-2018", "Response timeout 30 s 1 min"},
		},
		"jobs":    {"/ui/jobs", []string{"deliver scheduled delivery"}},
		"storage": {"/ui/storage", []string{"kept forever; 7 future partitions exist", "Dead letters", "river_job"}},
		"audit":   {"/ui/audit", []string{"postrider subscription_paused held orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			page := text(b.page(t, row.path))
			for _, want := range row.want {
				require.Contains(t, page, want)
			}
			require.NotContains(t, page, "planted-secret")
			require.NotRegexp(t, `\b0x[0-9a-f]{8}`, page, "the address of a pointer")
		})
	}
	//nolint:paralleltest // it changes the shared rows
	t.Run("tab titles", func(t *testing.T) { testTabTitles(t, b) })
	//nolint:paralleltest // it changes the shared rows
	t.Run("search", func(t *testing.T) { testSearch(t, b) })
}

// The tab of a detail page has its id.
func testTabTitles(t *testing.T, b *dashboard) {
	for path, title := range map[string]string{
		"/ui/events/" + b.value(t, "SELECT min(system_id::text) FROM postrider.events"):                  "Event ",
		"/ui/dead-letters/" + b.value(t, "SELECT min(dead_letter_id::text) FROM postrider.dead_letters"): "Dead letter ",
		"/ui/deliveries/2": "Delivery ",
		"/ui/operations/" + b.value(t, `SELECT postrider.purge_all('{"topic": "none"}')`): "Purge dead letters ",
		"/ui/topics": "Topics",
	} {
		id := ""
		if strings.HasSuffix(title, " ") {
			id = path[strings.LastIndex(path, "/")+1:]
		}
		require.Contains(t, b.page(t, path), "<title>"+title+id+" · postrider</title>")
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

// Seven dead letters have the same time, so that the id decides at the ends of pages. A new row does not move others.
func TestPaging(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start := time.Now()
	deadLetters := make([]deadLetter, 250)
	for i := range deadLetters {
		deadLetters[i] = deadLetter{at: start.Add(-time.Duration(i/7) * time.Microsecond)}
	}
	want := b.insert(t, deadLetters...)
	seen := map[string]int{}
	pages, last := 0, ""
	for path := "/ui/dead-letters?topic=orders"; path != ""; pages++ {
		require.LessOrEqual(t, pages, 5)
		page := b.page(t, path)
		for _, id := range deadLetterLink.FindAllStringSubmatch(page, -1) {
			seen[id[1]]++
		}
		if pages == 0 {
			b.insert(t, deadLetter{at: time.Now().Add(time.Minute)})
		}
		last = path
		path, _ = pageLinks(page)
	}
	require.Equal(t, 5, pages)
	require.Len(t, seen, 250)
	for _, id := range want {
		require.Equal(t, 1, seen[id.String()])
	}
	back := 0
	for path := last; path != ""; back++ {
		require.LessOrEqual(t, back, 6)
		_, path = pageLinks(b.page(t, path))
	}
	require.Equal(t, 6, back, "one more row at the top")
	require.Contains(t, b.page(t, "/ui/dead-letters?order=oldest"), "order by dead_lettered_at, dead_letter_id limit 50")

	deadLetters = make([]deadLetter, 60)
	for i := range deadLetters {
		deadLetters[i] = deadLetter{
			at: time.Now(), topic: []string{"others", "parcels"}[i%2], status: ptr(503), outcome: ptr("Busy"),
		}
	}
	b.insert(t, deadLetters...)
	require.Len(t,
		deadLetterLink.FindAllString(
			b.page(t, "/ui/dead-letters?topic=parcels&status=503&outcome=Busy&reason=MaxDeliveryAttemptsExceeded"), -1), 30)
	require.Contains(t, text(b.page(t, "/ui/dead-letters?status=0&topic=parcels")), "No dead letter matches the filter.")
	next, _ := pageLinks(b.page(t, "/ui/dead-letters?outcome=Busy"))
	require.Contains(t, next, "outcome=Busy")
	require.Len(t, deadLetterLink.FindAllString(b.page(t, next), -1), 10)
}

func TestInvalidPagingKeysAreRejected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, place := range map[string]string{
		"a word":                             "yesterday",
		"too short":                          "AAAA",
		"too long":                           strings.Repeat("A", 64),
		"year out of range":                  "g" + strings.Repeat("A", 31),
		"a time that PostgreSQL cannot hold": "f" + strings.Repeat("_", 31),
		"markup":                             "%3Cscript%3E",
	} {
		for _, list := range []string{"dead-letters", "deliveries", "events", "batches", "jobs", "audit", "operations"} {
			response := b.request(http.MethodGet, "/ui/"+list+"?before="+place)
			require.Equal(t, http.StatusBadRequest, response.Code, "%s: %s", list, name)
			require.NotContains(t, response.Body.String(), "<script>")
		}
	}
}

func TestNotValidatedSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing")
	sub, err := b.store.Subscriptions.Get(t.Context(), "orders", "billing")
	require.NoError(t, err)
	topic, err := b.store.Topics.Get(t.Context(), "orders")
	require.NoError(t, err)
	spec := sub.SubscriptionSpec
	spec.EndpointValidation = catalog.ValidationRequired
	id, err := b.store.Handshakes.BeginValidation(t.Context(), topic, "added", &spec, "https://example.com")
	require.NoError(t, err)
	_, _, err = b.store.Subscriptions.PutValidated(t.Context(), "orders", "added", spec, id)
	require.NoError(t, err)
	require.Regexp(t, `added of orders not_validated no response yet .*billing of orders active`,
		text(b.page(t, "/ui/subscriptions")))
	// "Succeeded" is shown as "active", because it does not describe the endpoint.
	for _, path := range []string{"/ui/subscriptions", "/ui/subscriptions/orders/billing", "/ui/topics/orders"} {
		require.NotContains(t, b.page(t, path), "Succeeded", path)
		require.Contains(t, b.page(t, path), `<span class="badge calm">active</span>`, path)
	}
	require.Contains(t, text(b.page(t, "/ui/")), "not_validated")
	require.Contains(t, text(b.page(t, "/ui/subscriptions/orders/added")), "when the validation handshake succeeds")
}

func TestProbationShowsNextProbe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) { s.EndpointURL = "https://example.com/b" })
	b.subscribe(t, "orders", "probed", func(s *catalog.SubscriptionSpec) { s.EndpointURL = "https://example.com/p" })
	b.probation(t, "orders", "billing", 2*time.Hour+time.Minute, 0)
	b.probation(t, "orders", "probed", -time.Second, 7)
	overview := text(b.page(t, "/ui/"))
	require.Regexp(t, `billing of orders probation after Busy .*next probe in 2 hours`, overview)
	require.Regexp(t, `probed of orders probation after Busy .*probe in progress`, overview)
	require.Contains(t, b.page(t, "/ui/subscriptions/orders/billing"), "Probe now")
}

// post sends a form as a page of this dashboard does; change may alter it.
func (b *dashboard) post(path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return b.request(http.MethodPost, path, append([]func(*http.Request){func(r *http.Request) {
		body := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Body, r.ContentLength = body.Body, body.ContentLength
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}}, change...)...)
}

func TestSubscriptionActions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing")
	const at = "/ui/subscriptions/orders/billing"
	holds := func() string {
		sub, err := b.store.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		return fmt.Sprint(sub.Hold.Reason, sub.Hold.TimeToLiveStopped)
	}
	response := b.post(at+"/pause", url.Values{"stopTimeToLive": {"1"}})
	require.Equal(t, http.StatusSeeOther, response.Code)
	require.Equal(t, at+"?done=paused", response.Header().Get("Location"))
	require.Equal(t, "pausedtrue", holds())
	require.Contains(t, text(b.page(t, at+"?done=paused")), "Paused. Deliveries are held")
	require.Equal(t, http.StatusConflict, b.post(at+"/probe", nil).Code, "the pause has priority")
	require.Equal(t, http.StatusSeeOther, b.post(at+"/resume", nil).Code)
	require.Equal(t, "false", holds())
	b.probation(t, "orders", "billing", time.Hour, 0)
	require.Equal(t, http.StatusSeeOther, b.post(at+"/probe", nil).Code)
	require.Equal(t, "probationfalse", holds())
	require.Equal(t, http.StatusSeeOther, b.post(at+"/release", nil).Code)
	require.Equal(t, "false", holds())
	require.Equal(t, http.StatusNotFound, b.post("/ui/subscriptions/orders/missing/pause", nil).Code)
	require.Equal(t, "admin", b.value(t, "SELECT string_agg(DISTINCT actor, ' ') FROM postrider.audit "+
		"WHERE action IN ('subscription_paused', 'subscription_resumed', 'subscription_probed', 'subscription_released')"))
}

// A browser may send the session cookie with a form of another site.
func TestCrossSiteFormsAreRejected(t *testing.T) {
	t.Parallel()
	open, shut := setup(t), setup(t, withSignIn)
	open.subscribe(t, "orders", "billing")
	shut.subscribe(t, "orders", "billing")
	login := shut.as(t, "ann", access.RoleOperator)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set(name, value)
		}
	}
	const path = "/ui/subscriptions/orders/billing/resume"
	for name, row := range map[string]struct {
		on     *dashboard
		change []func(*http.Request)
		want   int
	}{
		"own page":       {open, nil, http.StatusSeeOther},
		"another site":   {open, []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		"same site":      {open, []func(*http.Request){header("Sec-Fetch-Site", "same-site")}, http.StatusForbidden},
		"another origin": {open, []func(*http.Request){header("Origin", "http://example.com")}, http.StatusForbidden},
		"own origin": {
			open, []func(*http.Request){header("Origin", "http://localhost:8080")}, http.StatusSeeOther,
		},
		"no session": {shut, nil, http.StatusUnauthorized},
		"session":    {shut, []func(*http.Request){login}, http.StatusSeeOther},
		"session, other site": {
			shut, []func(*http.Request){login, header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, row.on.post(path, nil, row.change...).Code)
		})
	}
}

// The tail sends new events and attempts once, until the browser disconnects.
func TestTail(t *testing.T) {
	t.Parallel()
	b := setupRunning(t)
	url := endpoint(t) + "/status/200"
	b.subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) { s.EndpointURL = url })
	b.publish(t, "orders", "before")
	b.eventually(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE state = 'delivered'")
	srv := httptest.NewServer(b.echo)
	t.Cleanup(srv.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/ui/tail/stream?topic=orders", nil)
	require.NoError(t, err)
	response, err := srv.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	b.publish(t, "orders", "<b>after</b>")
	var messages []string
	for lines := bufio.NewScanner(response.Body); len(messages) < 2 && lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "data: ") && strings.Contains(line, "after") {
			messages = append(messages, line)
		}
	}
	require.Len(t, messages, 2)
	require.Contains(t, messages[0], `"kind":"published"`)
	require.Contains(t, messages[1], `"label":"Delivered"`)
	require.Contains(t, messages[1], `attempt 1, 200 OK`)
}
