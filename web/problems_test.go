package web_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An operator on call finds a problem, reads its page, acknowledges it with a note and resolves it. It appears again
// when it fails again.
func TestProblemJourney(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Topic(t, "orders")
	sub := b.Subscribe(t, "orders", "failing", nil)
	b.Fail(t, sub, 2)
	b.Rest(t, "failing")
	b.ObserveProblems(t, 0)
	path := "/ui/problems/" + b.value(t, "SELECT problem_id FROM postrider.problems")
	list := b.page(t, "/ui/problems")
	require.Contains(t, list, `href="`+path+`"><span class="word bad">503`)
	require.Regexp(t, `failing failing of orders 503 Service Unavailable Busy it broke .* 2 100 % .*probation 2 pending`,
		text(list))
	require.Contains(t, list, `title="The circuit breaker is open`)
	require.Contains(t, b.page(t, "/ui/"), `href="`+path+`">503 Service Unavailable`)
	require.Contains(t, list, `aria-label="2 failed"`)

	page := b.page(t, path)
	requireValidMarkup(t, path, page)
	require.Regexp(t, `failing 503 Service Unavailable Busy from failing of orders Attempts have failed since`, text(page))
	for _, want := range []string{
		"Retry pending …", "Pause event subscription", "first failed attempt", "it broke", "1 d",
	} {
		require.Contains(t, text(page), want)
	}
	require.Contains(t, page,
		`/ui/deliveries/retry?topic=orders&amp;subscription=failing&amp;state=pending&amp;lastOutcome=Busy`)
	require.Contains(t, page, `class="primary">Acknowledge`)

	b.requireRejected(t, path+"/acknowledge", url.Values{"hours": {"2"}}, http.StatusBadRequest, "Choose for how long.")
	page = b.requireRedirect(t, path+"/acknowledge", url.Values{"hours": {"4"}, "note": {" moving it "}},
		`done=acknowledged$`)
	require.Regexp(t, `Alerts and notices leave it out until \d{4}-`, text(page))
	require.Regexp(t, `Acknowledged by admin until \d{4}-[-\d: ]+ UTC ?\.`, text(page))
	require.Contains(t, text(page), "Note: moving it")
	require.Equal(t, "admin: problem_acknowledged", b.audited(t, "problem_acknowledged"))
	b.requireTexts(t, "/ui/problems", "acknowledged until")
	require.NotContains(t, b.page(t, "/ui/problems?state=failing"), path)

	page = b.requireRedirect(t, path+"/resolve", url.Values{"note": {"moved"}}, `done=problem-resolved$`)
	require.Contains(t, text(page), "Note: moved")
	require.Equal(t, "admin: problem_resolved", b.audited(t, "problem_resolved"))
	require.NotContains(t, b.page(t, "/ui/problems"), path)
	for _, state := range []string{"resolved", "all"} {
		require.Contains(t, b.page(t, "/ui/problems?state="+state), path)
	}
	b.Exec(t, "DELETE FROM postrider_internal.probations")
	b.Fail(t, sub, 1)
	b.ObserveProblems(t, 0)
	require.Contains(t, b.page(t, "/ui/problems?state=failing"), path)
	b.Exec(t, "UPDATE postrider_internal.problems SET recovered_at = now()")
	require.Contains(t, text(b.page(t, path)), "Attempts succeed again, or no delivery is left that failed so, since")
	b.ObserveProblems(t, 100*time.Hour)
	require.Equal(t, http.StatusNotFound, b.request(http.MethodGet, "/ui/problems/"+sub.Topic).Code)
}
