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
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"postrider/access"
	"postrider/catalog"
)

func TestEmptyPagesSayWhatWouldAppear(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for path, want := range map[string]string{
		"/ui/":              "Every attempt of the last hour was a success.",
		"/ui/problems":      "No attempt has failed in the last 1 d.",
		"/ui/events":        "No events yet.",
		"/ui/deliveries":    "No deliveries yet.",
		"/ui/batches":       "No batches yet.",
		"/ui/dead-letters":  "An event appears here when its delivery is given up",
		"/ui/operations":    "No operations.",
		"/ui/topics":        "No topics yet.",
		"/ui/subscriptions": "No event subscriptions yet.",
		"/ui/jobs":          "No jobs.",
		"/ui/audit":         "Nothing has been changed yet.",
		"/ui/policies":      "ga-2021",
		"/ui/storage":       "Tables without days",
		"/ui/tail":          "This page needs JavaScript.",
	} {
		require.Contains(t, text(b.page(t, path)), want, path)
	}
}

// Each page shows what the store and the engine have made, and says what a person on call asks.
func TestPagesShowWhatHappened(t *testing.T) {
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
				"Backlog 6 3 on hold", "billing of orders Busy 503 Service Unavailable 3", "held of orders paused",
				"an operator resumes it 3", "3 dead letters in 24 h", "UndeliverableDueToClientError 3", "Sweeper finds 0",
			},
		},
		"problems": {
			"/ui/problems?within=1h",
			[]string{
				"archive of orders NotFound 404 Not Found 3 100 % of 3", "3 dead letters", "billing of orders Busy", "3 waiting",
				"<script>window.__x=1</script>",
			},
		},
		"dead letters": {
			"/ui/dead-letters",
			[]string{"3 in all", "archive of orders " +
				"UndeliverableDueToClientError", "404 Not Found NotFound, 1 attempt", "select * from postrider.dead_letters"},
		},
		"a failing one": {
			delivery("billing"),
			[]string{
				"pending e-1 to billing of orders", "Attempt 2 is made in", "left of its time to live",
				"Attempt 1 Busy 503 Service Unavailable", "first byte", "Then: another attempt, due 20",
				"503: at least 30 s; step 1 is 10 s after the failure", "X-Hostile", "12345678901234567890.10",
			},
		},
		"one on hold": {
			delivery("held"), []string{"pending paused", "no attempt is made until an operator resumes it", "None yet."},
		},
		"one of a batch": {delivery("bulk"), []string{"delivered", "Attempt 1 Delivered 202 Accepted batch"}},
		"a dead one": {delivery("archive"), []string{
			"dead_lettered", "after 1 attempt", "Its dead letter", "given up: it became a dead letter",
		}},
		"events":          {"/ui/events", []string{"e-1 e-1 e-1 orders 5", "nobody"}},
		"unwanted events": {"/ui/events?unmatched=1", []string{"e-1 e-1 e-1 empty nobody"}},
		"an event": {
			"/ui/events/" + b.value(t, "SELECT min(system_id::text) FROM postrider.events WHERE topic = 'orders'"),
			[]string{
				"wants it accounting", "does not choosy",
				`subjectBeginsWith fails the subject is "e-1", but must begin with "nothing begins so"`, "12345678901234567890.10",
			},
		},
		"an unwanted event": {
			"/ui/events/" + b.value(t, "SELECT system_id FROM postrider.events WHERE topic = 'empty'"),
			[]string{"0 event subscriptions", "It is owed to nobody.", "includedEventTypes fails"},
		},
		"batches": {"/ui/batches", []string{"delivered bulk of orders"}},
		"a batch": {"/ui/batches/" + b.value(t, "SELECT min(batch_id) FROM postrider.batches"), []string{
			"All or none", "Attempt 1 Delivered 202 Accepted",
		}},
		"topics":        {"/ui/topics", []string{"orders basic EventGridSchema 3 15", "empty basic EventGridSchema 1 0"}},
		"a topic":       {"/ui/topics/orders", []string{"Published, 24 h 3", "Dead letters, 24 h 3"}},
		"subscriptions": {"/ui/subscriptions?hold=any", []string{"held of orders paused"}},
		"a subscription": {
			"/ui/subscriptions/orders/billing",
			[]string{
				"Attempts that succeed, 24 h 0.0 % of 3", "If a delivery began now and met status 500 each time", "10 s",
				"subscription_made", "Busy 3",
			},
		},
		"policies": {
			"/ui/policies?policy=ga-2018&policy=ga-2021", []string{"Property ga-2021 ga-2018", "Response timeout 30 s 1 min"},
		},
		"jobs":    {"/ui/jobs", []string{"deliver deliveries", "delivery"}},
		"storage": {"/ui/storage", []string{"kept for ever; 7 are ready for the days to come"}},
		"audit":   {"/ui/audit", []string{"postrider subscription_paused held orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			page := text(b.page(t, row.path))
			for _, want := range row.want {
				require.Contains(t, page, want)
			}
			require.NotContains(t, page, "planted-secret")
		})
	}
}

// What a reader with a screen reader, or with a keyboard alone, relies on.
func TestPagesAreWellMade(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1")
	for _, path := range append(b.everyPage(t), "/ui/deliveries?state=pending&hold=paused",
		"/ui/dead-letters?topic=none") {
		requireWellMade(t, path, b.page(t, path))
	}
}

func requireWellMade(t *testing.T, path, page string) {
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
		switch node.Data {
		case "input", "select", "textarea":
			require.True(t, attributes["type"] == "hidden" || node.Parent.Data == "label", "%s: %s without a label", path,
				attributes["name"])
		case "th":
			require.Contains(t, []string{"col", "row", "colgroup"}, attributes["scope"], path)
		case "svg":
			require.True(t, attributes["aria-hidden"] == "true" || attributes["aria-label"] != "", path)
		case "form":
			require.NotEmpty(t, attributes["action"], path)
		}
	}
	require.NotContains(t, page, "&lt;nil&gt;", path)
	require.Equal(t, 1, count["h1"], path)
	require.Equal(t, 1, count["main"], path)
	require.Equal(t, 1, strings.Count(page, `aria-current="page"`), path)
}

var listLinks = regexp.MustCompile(`href="([^"]+)" rel="(next|prev)"`)

// turns are the addresses of the next and the previous page.
func turns(page string) (next, previous string) {
	for _, link := range listLinks.FindAllStringSubmatch(page, -1) {
		if link[2] == "next" {
			next = stdhtml.UnescapeString(link[1])
		} else {
			previous = stdhtml.UnescapeString(link[1])
		}
	}
	return next, previous
}

var shownLetter = regexp.MustCompile(`href="/ui/dead-letters/([0-9a-f-]{36})"`)

// Seven dead letters share each moment, so that pages end within a moment and the id has to decide; a row that arrives
// meanwhile moves nothing. And back again.
func TestPagingSeesEachDeadLetterOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	start := time.Now()
	letters := make([]letter, 250)
	for i := range letters {
		letters[i] = letter{at: start.Add(-time.Duration(i/7) * time.Microsecond)}
	}
	want := b.insert(t, letters...)
	seen := map[string]int{}
	pages, last := 0, ""
	for path := "/ui/dead-letters?topic=orders"; path != ""; pages++ {
		require.LessOrEqual(t, pages, 5)
		page := b.page(t, path)
		for _, id := range shownLetter.FindAllStringSubmatch(page, -1) {
			seen[id[1]]++
		}
		if pages == 0 {
			b.insert(t, letter{at: time.Now().Add(time.Minute)})
		}
		last = path
		path, _ = turns(page)
	}
	require.Equal(t, 5, pages)
	require.Len(t, seen, 250)
	for _, id := range want {
		require.Equal(t, 1, seen[id.String()])
	}
	back := 0
	for path := last; path != ""; back++ {
		require.LessOrEqual(t, back, 6)
		_, path = turns(b.page(t, path))
	}
	require.Equal(t, 6, back, "one more row is at the top now")
}

func TestFiltersStayWhileLeafing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	letters := make([]letter, 60)
	for i := range letters {
		letters[i] = letter{at: time.Now(), topic: []string{"orders", "parcels"}[i%2], status: ptr(503), outcome: ptr("Busy")}
	}
	b.insert(t, letters...)
	require.Len(t,
		shownLetter.FindAllString(
			b.page(t, "/ui/dead-letters?topic=parcels&status=503&outcome=Busy&reason=MaxDeliveryAttemptsExceeded"), -1), 30)
	require.Contains(t, text(b.page(t, "/ui/dead-letters?status=0")), "No dead letter matches.")
	next, _ := turns(b.page(t, "/ui/dead-letters?outcome=Busy"))
	require.Contains(t, next, "outcome=Busy")
	require.Len(t, shownLetter.FindAllString(b.page(t, next), -1), 10)
}

func TestForeignPlacesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, place := range map[string]string{
		"a word":                             "yesterday",
		"too short":                          "AAAA",
		"too long":                           strings.Repeat("A", 64),
		"before any clock":                   "g" + strings.Repeat("A", 31),
		"a time that PostgreSQL cannot hold": "f" + strings.Repeat("_", 31),
		"markup":                             "%3Cscript%3E",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, list := range []string{"dead-letters", "deliveries", "events", "batches", "jobs", "audit", "operations"} {
				answer := b.ask(http.MethodGet, "/ui/"+list+"?before="+place)
				require.Equal(t, http.StatusBadRequest, answer.Code, list)
				require.NotContains(t, answer.Body.String(), "<script>")
			}
		})
	}
}

func TestSubscriptionsThatAreNotValidatedSayHowItStands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing")
	sub, err := b.store.Subscriptions.Get(t.Context(), "orders", "billing")
	require.NoError(t, err)
	topic, err := b.store.Topics.Get(t.Context(), "orders")
	require.NoError(t, err)
	spec := sub.SubscriptionSpec
	spec.EndpointValidation = catalog.ValidationRequired
	id, err := b.store.Handshakes.BeginValidation(t.Context(), topic, "asked", &spec, "https://example.com")
	require.NoError(t, err)
	_, _, err = b.store.Subscriptions.PutValidated(t.Context(), "orders", "asked", spec, id)
	require.NoError(t, err)
	require.Regexp(t, `asked of orders not_validated nothing was answered yet .*billing of orders active`,
		text(b.page(t, "/ui/subscriptions")))
	require.Contains(t, text(b.page(t, "/ui/")), "not_validated")
	require.Contains(t, text(b.page(t, "/ui/subscriptions/orders/asked")), "until the validation handshake succeeds")
}

func TestProbationSaysWhatEndsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing", func(s *catalog.SubscriptionSpec) { s.EndpointURL = "https://example.com/b" })
	b.subscribe(t, "orders", "probed", func(s *catalog.SubscriptionSpec) { s.EndpointURL = "https://example.com/p" })
	b.probation(t, "orders", "billing", 2*time.Hour+time.Minute, 0)
	b.probation(t, "orders", "probed", -time.Second, 7)
	overview := text(b.page(t, "/ui/"))
	require.Regexp(t, `billing of orders probation after Busy .*a probe in 2 hours`, overview)
	require.Regexp(t, `probed of orders probation after Busy .*the probe is in progress`, overview)
	require.Contains(t, b.page(t, "/ui/subscriptions/orders/billing"), "Probe now")
}

// post sends a form as a page of this dashboard does; change may alter it.
func (b *bundle) post(path string, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	return b.ask(http.MethodPost, path, append([]func(*http.Request){func(r *http.Request) {
		body := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Body, r.ContentLength = body.Body, body.ContentLength
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}}, change...)...)
}

func TestActionsOfAnEventSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing")
	const at = "/ui/subscriptions/orders/billing"
	holds := func() string {
		sub, err := b.store.Subscriptions.Get(t.Context(), "orders", "billing")
		require.NoError(t, err)
		return fmt.Sprint(sub.Hold.Reason, sub.Hold.TimeToLiveStopped)
	}
	answer := b.post(at+"/pause", url.Values{"stopTimeToLive": {"1"}})
	require.Equal(t, http.StatusSeeOther, answer.Code)
	require.Equal(t, at+"?done=paused", answer.Header().Get("Location"))
	require.Equal(t, "pausedtrue", holds())
	require.Contains(t, text(b.page(t, at+"?done=paused")), "Paused. Deliveries wait, and none is lost")
	require.Equal(t, http.StatusConflict, b.post(at+"/probe", nil).Code, "a pause comes first")
	require.Equal(t, http.StatusSeeOther, b.post(at+"/resume", nil).Code)
	require.Equal(t, "false", holds())
	b.probation(t, "orders", "billing", time.Hour, 0)
	require.Equal(t, http.StatusSeeOther, b.post(at+"/probe", nil).Code)
	require.Equal(t, "probationfalse", holds())
	require.Equal(t, http.StatusSeeOther, b.post(at+"/release", nil).Code)
	require.Equal(t, "false", holds())
	require.Equal(t, http.StatusNotFound, b.post("/ui/subscriptions/orders/nobody/pause", nil).Code)
	require.Equal(t, "admin", b.value(t, "SELECT string_agg(DISTINCT actor, ' ') FROM postrider.audit "+
		"WHERE action IN ('subscription_paused', 'subscription_resumed', 'subscription_probed', 'subscription_released')"))
}

// The browser may send the cookie along with whatever another site's page posts.
func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	open, shut := setup(t), setup(t, closed)
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
		on     *bundle
		change []func(*http.Request)
		want   int
	}{
		"our page":       {open, nil, http.StatusSeeOther},
		"another site":   {open, []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden},
		"a site beside":  {open, []func(*http.Request){header("Sec-Fetch-Site", "same-site")}, http.StatusForbidden},
		"another origin": {open, []func(*http.Request){header("Origin", "http://example.com")}, http.StatusForbidden},
		"our origin": {
			open, []func(*http.Request){header("Origin", "http://localhost:8080")}, http.StatusSeeOther,
		},
		"no login":  {shut, nil, http.StatusUnauthorized},
		"logged in": {shut, []func(*http.Request){login}, http.StatusSeeOther},
		"logged in, other site": {
			shut, []func(*http.Request){login, header("Sec-Fetch-Site", "cross-site")}, http.StatusForbidden,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, row.on.post(path, nil, row.change...).Code)
		})
	}
}

// The tail tells of what happens while somebody looks, once, and ends when the reader goes.
func TestTailTellsWhatHappens(t *testing.T) {
	t.Parallel()
	b := alive(t)
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
	answer, err := srv.Client().Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	b.publish(t, "orders", "<b>after</b>")
	var told []string
	for lines := bufio.NewScanner(answer.Body); len(told) < 2 && lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "data: ") && strings.Contains(line, "after") {
			told = append(told, line)
		}
	}
	require.Len(t, told, 2)
	require.Contains(t, told[0], `"kind":"published"`)
	require.Contains(t, told[1], `"label":"Delivered"`)
	require.Contains(t, told[1], `attempt 1, 200 OK`)
}

func TestErasedEventsSaySo(t *testing.T) {
	t.Parallel()
	b := seeded(t, "private")
	id := b.value(t, "SELECT system_id FROM postrider.events WHERE topic = 'orders'")
	require.Contains(t, text(b.page(t, "/ui/events/"+id)), "12345678901234567890.10")
	require.NotEmpty(t, b.value(t, "SELECT postrider.erase_event('"+id+"')"))
	event := text(b.page(t, "/ui/events/"+id))
	require.Contains(t, event, "It was erased")
	require.NotContains(t, event, "12345678901234567890.10")
	letter := text(b.page(t, "/ui/dead-letters/"+b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters")))
	require.Contains(t, letter, "erased at")
	require.NotContains(t, letter, "12345678901234567890.10")
	for _, path := range b.everyPage(t) {
		b.page(t, path)
	}
}

// What a delivery was redelivered from is a link to the dead letter or the operation, where that is there.
func TestRedeliveredFromIsALink(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1")
	letter := b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters")
	operation := b.value(t, `SELECT postrider.purge_all('{"topic": "none"}')`)
	for from, want := range map[string]bool{letter: true, operation: false, uuid.NewString(): false} {
		for _, table := range []string{"dead_letters", "delivery_history"} {
			_, err := b.pool.Exec(t.Context(), "UPDATE postrider_internal."+table+" SET redelivered_from = $1", from)
			require.NoError(t, err)
		}
		for _, path := range []string{"/ui/dead-letters/" + letter, "/ui/deliveries/" +
			b.value(t, "SELECT delivery_id FROM postrider.dead_letters")} {
			page := b.page(t, path)
			require.Equal(t, want, strings.Contains(page, `<dd><a href="/ui/dead-letters/`+from), path)
			require.Equal(t, from == operation, strings.Contains(page, `<dd><a href="/ui/operations/`+operation), path)
			require.Contains(t, page, from, path)
		}
	}
}
