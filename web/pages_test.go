package web_test

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/store"
)

func TestEmptyPagesSayWhatWouldAppear(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Contains(t, b.page(t, "/ui/subscriptions"), "No event subscriptions yet.")
	require.Contains(t, b.page(t, "/ui/dead-letters"), "An event appears here when its delivery is given up")
	overview := b.page(t, "/ui/")
	require.Contains(t, overview, `<span class="figure">0</span>`)
	require.Contains(t, overview, "nothing was given up")
	require.Contains(t, overview, "none on hold")
}

func TestOverviewCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{"billing", "shipping", "stock"} {
		b.subscribe(t, "orders", name)
	}
	b.pause(t, "orders", "stock")
	b.insert(t, lettersAt(time.Now().Add(-24*time.Hour), 51)...)
	b.insert(t, letter{at: time.Now().Add(-3*time.Hour - time.Second)})
	overview := b.page(t, "/ui/")
	require.Contains(t, overview, `<span class="figure">3</span>`)
	require.Contains(t, overview, "1 on hold")
	require.Contains(t, overview, `<span class="figure">50&#43;</span>`, "counted as far as one page goes")
	require.Contains(t, overview, "newest 3 hours ago")
}

func TestSubscriptionsShowTheirEffectiveSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing")
	b.subscribe(t, "orders", "stock", func(s *store.SubscriptionSpec) {
		s.MaxDeliveryAttempts, s.EventTimeToLiveInMinutes, s.DeadLetter = ptr(1), ptr(90), store.DeadLetterNone
	})
	b.pause(t, "orders", "stock")
	page := text(b.page(t, "/ui/subscriptions"))
	require.Contains(t, page, "up to 30 attempts within 1 day")
	require.Contains(t, page, "up to 1 attempt within 90 minutes")
	require.Regexp(t, `billing.*Rows.*Succeeded.*stock.*None.*Succeeded.*hold: paused`, page)
	require.NotContains(t, page, "probe")
	require.Contains(t, page, "https://example.com/hook")
	require.NotContains(t, page, "planted-secret")
}

func TestSubscriptionsOnProbationShowItsCauseAndItsNextProbe(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endpoint := func(path string) func(*store.SubscriptionSpec) {
		return func(s *store.SubscriptionSpec) {
			s.EndpointURL = "https://example.com/" + path + "?code=planted-secret"
		}
	}
	for _, name := range []string{"billing", "due", "fine", "near", "probed", "stock"} {
		b.subscribe(t, "orders", name, endpoint(name))
	}
	b.subscribe(t, "parcels", "billing", endpoint("billing")) // shares its endpoint, and so the probation
	b.subscribe(t, "parcels", "stock", endpoint("parcels"))   // shares its name alone
	b.probation(t, "orders", "billing", 2*time.Hour+time.Minute, 0)
	b.probation(t, "orders", "due", -time.Second, 0)
	b.probation(t, "orders", "near", 30*time.Second, 0)
	b.probation(t, "orders", "probed", -time.Second, 7)
	b.probation(t, "orders", "stock", time.Hour, 0)
	b.pause(t, "orders", "stock")
	page := text(b.page(t, "/ui/subscriptions"))
	const waits = `hold: probation after Busy, `
	next := waits + `next probe in 2 hours \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`
	require.Regexp(t, `orders billing .*Succeeded `+next+` orders due .*Succeeded `+waits+`the next probe is due any moment orders fine .*Succeeded orders near .*Succeeded `+waits+`the next probe is due any moment orders probed .*Succeeded `+
		waits+`the probe is under way orders stock .*Succeeded hold: paused parcels billing .*Succeeded `+next+` parcels stock .*Succeeded`, page)
	require.Equal(t, 5, strings.Count(page, "probation"))
	require.NotContains(t, page, "planted-secret")
}

func TestDeadLetterShowsItsHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	at := time.Date(2026, 1, 31, 9, 30, 15, 0, time.UTC)
	ids := b.insert(t, letter{
		at: at, topic: "orders", subscription: "billing", eventID: "e-77", eventType: "Order.Placed", subject: "/orders/77",
		reason: "MaxDeliveryAttemptsExceeded", attempts: 30, outcome: ptr("Busy"), status: ptr(503), attempted: ptr(at.Add(-time.Minute)),
		body: `{"id":"e-77","data":{"total":1.50,"lines":[1,2]}}`,
	})
	source := b.page(t, "/ui/dead-letters")
	page := text(source)
	for _, want := range []string{
		"2026-01-31 09:30:15 UTC", "2026-01-31 09:29:15 UTC", "days ago", "Order.Placed", "/orders/77", "id e-77", "billing of topic orders",
		"MaxDeliveryAttemptsExceeded", "Maximum delivery attempts was exceeded.", "503 Service Unavailable Busy", "30 attempts, the last",
		fmt.Sprintf("select * from postrider.dead_letters where dead_letter_id = '%s'", ids[0]),
	} {
		require.Contains(t, page, want)
	}
	require.Contains(t, html.UnescapeString(source), "{\n  \"id\": \"e-77\",\n  \"data\": {\n    \"total\": 1.50,\n")
	require.NotContains(t, page, "The body is cut")
}

func TestDeadLetterWithoutAnAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, letter{at: time.Now(), reason: "TimeToLiveExceeded"})
	page := text(b.page(t, "/ui/dead-letters"))
	require.Contains(t, page, "not attempted 0 attempts")
	require.Contains(t, page, "Event time to live was exceeded.")
}

func TestLongBodyIsCutAndSaysSo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, letter{at: time.Now(), body: `{"long":"` + strings.Repeat("é", 5000) + `end"}`})
	page := text(b.page(t, "/ui/dead-letters"))
	require.Contains(t, page, "The body is cut after 4,000 characters")
	require.NotContains(t, page, "end\"}")
}

// One body of nothing but brackets must not become megabytes of indentation, fifty times over.
func TestDeepBodiesKeepThePageSmall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	letters := make([]letter, 50)
	for i := range letters {
		letters[i] = letter{at: time.Now(), body: strings.Repeat("[", 2500) + strings.Repeat("]", 2500)}
	}
	b.insert(t, letters...)
	require.Less(t, len(b.page(t, "/ui/dead-letters")), 10<<20)
}

var (
	shownID   = regexp.MustCompile(`where dead_letter_id = &#39;([0-9a-f-]{36})&#39;`)
	olderLink = regexp.MustCompile(`href="(/ui/dead-letters\?before=[^"]+)"`)
)

// Seven dead letters share each moment, so that pages end within a moment and the id has to decide.
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
	pages := 0
	for path := "/ui/dead-letters"; path != ""; pages++ {
		require.LessOrEqual(t, pages, 5)
		page := b.page(t, path)
		require.Equal(t, pages > 0, strings.Contains(page, ">Newest</a>"))
		for _, id := range shownID.FindAllStringSubmatch(page, -1) {
			seen[id[1]]++
		}
		if pages == 0 { // a row that arrives meanwhile moves nothing
			b.insert(t, letter{at: time.Now().Add(time.Minute)})
		}
		path = ""
		if link := olderLink.FindStringSubmatch(page); link != nil {
			path = html.UnescapeString(link[1])
		}
	}
	require.Equal(t, 5, pages)
	require.Len(t, seen, 250)
	for _, id := range want {
		require.Equal(t, 1, seen[id.String()])
	}
}

func TestPagePastTheOldest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.insert(t, lettersAt(time.Now(), 51)...)
	link := olderLink.FindStringSubmatch(b.page(t, "/ui/dead-letters"))
	require.NotNil(t, link)
	_, err := b.pool.Exec(t.Context(), "DELETE FROM postrider_internal.dead_letters")
	require.NoError(t, err)
	require.Contains(t, b.page(t, html.UnescapeString(link[1])), "No older dead letters.")
}

func lettersAt(at time.Time, n int) []letter {
	letters := make([]letter, n)
	for i := range letters {
		letters[i].at = at
	}
	return letters
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
			answer := b.ask(http.MethodGet, "/ui/dead-letters?before="+place)
			require.Equal(t, http.StatusBadRequest, answer.Code)
			require.NotContains(t, answer.Body.String(), "<script")
		})
	}
}

func TestSubscriptionsThatAreNotValidatedSayHowItStands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.subscribe(t, "orders", "billing")
	sub, err := b.store.SubscriptionOf(t.Context(), "orders", "billing")
	require.NoError(t, err)
	topic, err := b.store.Topic(t.Context(), "orders")
	require.NoError(t, err)
	spec := sub.SubscriptionSpec
	spec.EndpointValidation = store.ValidationRequired
	id, err := b.store.BeginValidation(t.Context(), topic, "asked", &spec, "https://example.com")
	require.NoError(t, err)
	_, _, err = b.store.PutValidated(t.Context(), "orders", "asked", spec, id)
	require.NoError(t, err)
	require.Regexp(t, `asked .*Creating hold: not_validated nothing was answered yet orders billing .*Succeeded`, text(b.page(t, "/ui/subscriptions")))
}
