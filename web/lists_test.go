package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/catalog"
	"postrider/internal/endpointconf"
	"postrider/internal/testnode"
	"postrider/web/display"
)

var (
	shownSQL = regexp.MustCompile(`(?s)aria-label="SQL">(.*?)</pre>`)
	headCell = regexp.MustCompile(`(?s)<th scope="col"[^>]*>(.*?)</th>`)
	// further is the link that continues a search.
	further = regexp.MustCompile(`href="([^"]+)">Search further`)
)

// runShownSQL runs the SQL of a page, and returns it with the number of its rows.
func (b *dashboard) runShownSQL(t *testing.T, path, page string) (statement string, n int) {
	t.Helper()
	found := shownSQL.FindStringSubmatch(page)
	require.NotNil(t, found, path)
	statement = html.UnescapeString(found[1])
	tag, err := b.Pool.Exec(t.Context(), statement)
	require.NoError(t, err, "%s: %s", path, statement)
	return statement, int(tag.RowsAffected())
}

// The equivalent SQL runs as shown, also with quotes.
func TestEquivalentSQLRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hook(t)
	b.pause(t, "orders", "billing")
	b.publish(t, "orders", "it's 1", "it's 2")
	for path, rows := range map[string]int{
		"/ui/events": 2,
		"/ui/events?eventId=it%27s+1&topic=orders&eventType=it%27s+1&subjectPrefix=it%27s&from=2026-01-01T00:00" +
			"&to=2999-01-01T00:00": 1,
		"/ui/events?unmatched=1":                                  0,
		"/ui/events?eventId=00000000-0000-7000-8000-000000000000": 0,
		"/ui/deliveries":                                          2,
		"/ui/deliveries?eventId=it%27s+2&topic=orders&subscription=billing&state=pending":           1,
		"/ui/deliveries?lastOutcome=Busy&hold=paused":                                               0,
		"/ui/deliveries?eventId=00000000-0000-7000-8000-000000000000":                               0,
		"/ui/dead-letters?reason=TimeToLiveExceeded&lastStatus=503&lastOutcome=Busy&eventId=it%27s": 0,
	} {
		_, n := b.runShownSQL(t, path, b.page(t, path))
		require.Equal(t, rows, n, path)
	}
}

// The equivalent SQL has an expression for each column that a user can choose.
func TestEquivalentSQLOfAllColumns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for list := range display.Lists {
		var keys []string
		for _, column := range display.DefaultTable(list, nil).All {
			keys = append(keys, column.Key)
		}
		chosen := &http.Cookie{Name: "postrider-columns", Value: url.Values{list: {strings.Join(keys, ".")}}.Encode()}
		path := "/ui/" + list
		page := b.request(http.MethodGet, path, func(r *http.Request) { r.AddCookie(chosen) }).Body.String()
		if shownSQL.MatchString(page) {
			b.runShownSQL(t, path, page)
		}
	}
}

// The chosen columns are kept in the browser; the SQL selects them.
func TestChosenColumns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	choose := func(form url.Values) []*http.Cookie {
		response := b.post("/ui/columns", form)
		require.Equal(t, http.StatusSeeOther, response.Code)
		require.Equal(t, "/ui/dead-letters?topic=orders", response.Header().Get("Location"))
		return response.Result().Cookies()
	}
	heads := func(page string) (names []string) {
		_, page, _ = strings.Cut(page, "data-list=")
		for _, cell := range headCell.FindAllStringSubmatch(page, -1) {
			names = append(names, text(cell[1]))
		}
		return names
	}
	b.insert(t, deadLetter{at: time.Now(), subject: "/orders/1", eventID: "e-7"})
	form := url.Values{
		"list": {"dead-letters"}, "back": {"/ui/dead-letters?topic=orders"},
		"column": {"event_id", "last_error", "wrap", "nonsense"},
	}
	cookies := choose(form)
	require.Len(t, cookies, 1)
	require.True(t, cookies[0].HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, cookies[0].SameSite)
	page := b.request(http.MethodGet, "/ui/dead-letters", func(r *http.Request) { r.AddCookie(cookies[0]) }).Body.String()
	require.Contains(t, page, `<div class="lines wrap chosen">`)
	require.Equal(t, []string{"Select", "Dead-lettered", "Event id", "Last error"}, heads(page))
	statement, _ := b.runShownSQL(t, "/ui/dead-letters", page)
	require.Contains(t, statement, "select dead_lettered_at, event_id, coalesce(last_error, left(last_response, 300)) "+
		"as last_error\n  from postrider.dead_letters")
	form.Set("default", "1")
	require.Negative(t, choose(form)[0].MaxAge, "the default columns need no cookie")
	require.Contains(t, heads(b.page(t, "/ui/dead-letters")), "Subject")
	form.Set("back", "//example.com")
	require.Equal(t, "/ui/", b.post("/ui/columns", form).Header().Get("Location"))
}

func TestQuickRanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, deadLetter{at: time.Now().Add(-2 * time.Hour)}, deadLetter{at: time.Now()})
	for path, rows := range map[string]int{"": 2, "?within=24h": 2, "?within=1h": 1, "?within=15m&from=2026-01-01": 2} {
		page := b.page(t, "/ui/dead-letters"+path)
		require.Len(t, deadLetterLink.FindAllString(page, -1), rows, path)
		require.Equal(t, path == "?within=1h", strings.Contains(page, "interval &#39;60 minutes&#39;"), path)
	}
	require.Contains(t, b.page(t, "/ui/audit"), `/ui/audit?within=15m`)
	require.Equal(t, http.StatusBadRequest, b.request(http.MethodGet, "/ui/events?within=1y").Code)
	confirm := b.page(t, "/ui/dead-letters/redeliver?within=1h")
	require.Contains(t, text(confirm), "1 dead letter matches")
	require.Regexp(t, `action="/ui/dead-letters/redeliver\?from=20[^"]+&amp;to=20[^"]+"`, confirm, "the counted span")
}

// oneByOne lets a search find one dead letter in a request, and check a thousand.
const oneByOne = `CREATE OR REPLACE FUNCTION postrider_internal.find_dead_letters(filter jsonb, after_at timestamptz,
	after_id uuid, ascending boolean, enough integer, most integer, scan_limit integer, time_limit interval,
	OUT ids uuid[], OUT scanned bigint, OUT reached_at timestamptz, OUT reached_id uuid, OUT condition text)
	LANGUAGE sql STABLE AS $$
	SELECT coalesce(array_agg(l.id), '{}'), 1000, min(l.dead_lettered_at), (array_agg(l.id))[1], 'true'
	  FROM (SELECT * FROM postrider_internal.dead_letters WHERE (after_at IS NULL OR dead_lettered_at < after_at)
	         ORDER BY dead_lettered_at DESC LIMIT 1) l $$`

func searchPage(search string) string { return "/ui/dead-letters?search=" + url.QueryEscape(search) }

// A search shows its matches and its SQL. Without JavaScript a link continues it, and the page keeps what
// was found.
func TestSearchOfDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, id := range []string{"first", "second"} {
		b.insert(t, deadLetter{
			at: time.Now().Add(time.Duration(i-60) * time.Minute), subject: id,
			body: `{"data":{"order":{"id":` + `"` + id + `"}}}`,
		})
	}
	page := b.page(t, searchPage(`data.order.id = "second"`))
	require.Contains(t, text(page), "1 match")
	require.Contains(t, text(page), "Redeliver all …")
	require.Contains(t, page, "data @&gt; &#39;{&#34;order&#34;: {&#34;id&#34;: &#34;second&#34;}}&#39;", "the SQL")
	require.NotContains(t, page, "Search further")
	require.NotContains(t, page, `hx-trigger="every 5s`, "a search is not repeated")
	b.requireTexts(t, searchPage("data.order.id = 7"), "No dead letter matches the filter.")
	b.requireTexts(t, strings.Replace(searchPage(`data.order.id != "second"`), "?", "/purge?", 1),
		"1 dead letter matches", `data.order.id != "second"`)

	b.Exec(t, oneByOne)
	path := searchPage("order")
	for _, want := range [][]string{{"At least 1 match", "1,000"}, {"At least 2 match", "2,000"}} {
		b.requireTexts(t, path, want...)
		path = html.UnescapeString(further.FindStringSubmatch(b.page(t, path))[1])
	}
	last := text(b.page(t, path))
	require.Regexp(t, "2 match.*second.*first", last)
	require.NotContains(t, last, "Search further")
	require.Equal(t, 400, b.request("GET", "/ui/dead-letters?search=x&found=none").Code)
}

func TestRateLimitOfASubscription(t *testing.T) {
	t.Parallel()
	b, url := setupRunning(t), endpoint(t)
	b.subscribe(t, "orders", "billing", to(url+"/status/200"), func(s *catalog.SubscriptionSpec) {
		s.DeliveryRate = &endpointconf.DeliveryRate{
			Limit: 1, PeriodInSeconds: new(86_400), Scope: endpointconf.RatePerEndpoint,
		}
		s.Description = new("Invoices; #team-billing")
	})
	for _, list := range []string{"/ui/subscriptions", "/ui/topics/orders", "/ui/subscriptions/orders/billing"} {
		b.requireTexts(t, list, "Invoices; #team-billing")
	}
	b.subscribe(t, "orders", "free", to(url+"/status/200"))
	b.publish(t, "orders", "e-1", "e-2", "e-3")
	b.Become(t, 2, "SELECT count(*) FROM postrider.deliveries WHERE hold = 'rate_limited'")
	b.requireTexts(t, "/ui/subscriptions/orders/billing", "Rate limit 1 request/day, shared by the host's event "+
		"subscriptions", "Backlog drains", "too late for some deliveries", "Limit and delivered, per minute",
		"rate limited : 2 waiting, drains at")
	b.requireTexts(t, "/ui/deliveries/"+b.value(t,
		"SELECT min(delivery_id) FROM postrider.deliveries WHERE hold = 'rate_limited'"),
		"The rate limit of its event subscription or endpoint is reached")
	b.requireTexts(t, "/ui/deliveries?hold=rate_limited", "rate_limited")
	free := "/ui/subscriptions/orders/free"
	require.NotContains(t, text(b.page(t, free)), "Closed until")
	b.Exec(t, `INSERT INTO postrider_internal.delivery_rates (key, closed_until)
		SELECT 'endpoint:' || encode(endpoint_hash, 'hex'), now() + interval '1 hour'
		  FROM postrider_internal.event_subscriptions WHERE name = 'free'`)
	b.requireTexts(t, free, "Closed until")
	require.NotContains(t, text(b.page(t, free)), "Limit and delivered")

	// Problems names the share of 429 and the setting against it. A pending batch shows its next attempt.
	b.subscribe(t, "slow", "throttled", to(url+"/status/429"))
	b.subscribe(t, "slow", "busy", to(url+"/status/503"), testnode.Batching(10, 64))
	b.publish(t, "slow", "e-1")
	b.Become(t, 1, "SELECT count(*) FROM postrider.deliveries WHERE subscription = 'throttled' AND attempts = 1")
	b.Become(t, 1, "SELECT count(*) FROM postrider.batches WHERE attempts = 1")
	page := text(b.page(t, "/ui/problems?within=1h"))
	require.Regexp(t,
		`throttled of slow 429 Too Many Requests Busy .* 100 % of all attempts were 429: set deliveryRate \.`, page)
	require.NotRegexp(t, `busy of slow 503 Service Unavailable Busy [^%]*%[^%]*% of all attempts were 429`, page)
	require.Equal(t, 1, strings.Count(page, "deliveryRate"))
	batch := "/ui/batches/" + b.value(t, "SELECT min(batch_id) FROM postrider.batches")
	b.requireTexts(t, batch, "Attempt 2 starts in")
	b.pause(t, "slow", "busy")
	b.requireTexts(t, batch, "is paused until an operator resumes it")
	require.NotContains(t, text(b.page(t, batch)), "Attempt 2 starts in")
}
