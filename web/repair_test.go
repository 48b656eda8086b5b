package web_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hiddenVersion is the version of a dead letter in its form.
var hiddenVersion = regexp.MustCompile(`name="version" value="([^"]+)"`)

// The form works without JavaScript: edit, review the changes, confirm.
func TestEditAndRedeliver(t *testing.T) {
	t.Parallel()
	b := seeded(t, "e-1")
	id := b.value(t, "SELECT dead_letter_id FROM postrider.dead_letters WHERE subscription = 'archive' LIMIT 1")
	original := b.value(t, "SELECT body_text FROM postrider.dead_letters WHERE dead_letter_id = '"+id+"'")
	at := "/ui/dead-letters/" + id + "/repair"
	page := b.page(t, at)
	requireValidMarkup(t, at, page)
	version := strings.ReplaceAll(hiddenVersion.FindStringSubmatch(page)[1], "&#34;", `"`)
	send := func(do, event string) url.Values {
		return url.Values{"do": {do}, "version": {version}, "event": {event}, "toSubscription": {"accounting"}}
	}
	require.Contains(t, text(b.requireRejected(t, at, send("review", original), 400, "")), "The event is unchanged.")
	require.Contains(t, text(b.requireRejected(t, at, send("review", "{\r\n \"id\": x}"), 400, "")), "line 2, column 8")
	require.Contains(t, text(b.requireRejected(t, at, send("format", "{\r\n \"id\": x}"), 400, "")), "line 2, column 8")
	wrong := strings.Replace(original, `"eventTime":"`, `"eventTime":"x`, 1)
	require.Contains(t, text(b.requireRejected(t, at, send("review", wrong), 400, "")),
		"Event.eventTime: not an RFC 3339 time")
	formatted := b.post(at, send("format", `{"a":1e400,"b":"\u00e9"}`))
	require.Equal(t, http.StatusOK, formatted.Code)
	require.Contains(t, formatted.Body.String(), "{\n  &#34;a&#34;: 1e400,\n  &#34;b&#34;: &#34;\\u00e9&#34;\n}")

	edited := strings.Replace(original, "{", "{\n  \"data\" : {\"total\":1e400},", 1)
	edited = regexp.MustCompile(`,"data":\{[^}]*\}`).ReplaceAllString(edited, "")
	sent := strings.ReplaceAll(edited, "\n", "\r\n") // as browsers do
	review := b.post(at, send("review", sent))
	require.Equal(t, http.StatusOK, review.Code, text(review.Body.String()))
	requireValidMarkup(t, at, review.Body.String())
	require.Contains(t, text(review.Body.String()), `/data/total 1e400`)
	require.Contains(t, review.Body.String(), `class="added"`)
	require.Equal(t, "0", b.value(t, "SELECT count(*) FROM postrider.events WHERE edit IS NOT NULL"),
		"nothing is done yet")
	require.Contains(t, b.post(at, send("edit", sent)).Body.String(), "1e400", "the edited text is kept")

	require.Contains(t, b.requireRedirect(t, at, send("redeliver", sent), `^/ui/deliveries/\d+\?done=repaired$`),
		"Redelivered with an edited event.")
	require.Equal(t, edited, b.value(t, "SELECT body_text FROM postrider.events WHERE edited_from IS NOT NULL"))
	require.Contains(t, text(b.requireRejected(t, at, send("redeliver", sent), http.StatusPreconditionFailed, "")),
		"the dead letter has changed since you opened it")

	delivery := b.value(t, "SELECT delivery_id FROM postrider.deliveries WHERE edited_from IS NOT NULL")
	system := b.value(t, "SELECT system_id FROM postrider.deliveries WHERE edited_from IS NOT NULL")
	for _, path := range []string{"/ui/deliveries/" + delivery, "/ui/events/" + system} {
		page := b.page(t, path)
		requireValidMarkup(t, path, page)
		require.Contains(t, text(page), "Repair of the original event , edited by admin", path)
		require.Contains(t, text(page), "JSON merge patch from the original event", path)
	}
}

func TestRepairManyInDashboard(t *testing.T) {
	t.Parallel()
	b := seededRunning(t, "e-1", "e-2", "e-3")
	at := "/ui/dead-letters/repair?subscription=archive&topic=orders"
	page := b.page(t, at)
	requireValidMarkup(t, at, page)
	require.Contains(t, text(page), "3 dead letters match .")
	form := func(patch, do string) url.Values {
		return url.Values{"patch": {patch}, "do": {do}, "matched": {"3"}, "counted": {"0"}}
	}
	rejected := b.requireRejected(t, at, form("7", "preview"), 400, "mergePatch must be a JSON object")
	require.Contains(t, rejected, "\n7</textarea>", "the input is kept")
	preview := b.post(at, form("{\r\n\"data\":{\"currency\":\"EUR\"}}", "preview"))
	require.Equal(t, http.StatusOK, preview.Code, text(preview.Body.String()))
	requireValidMarkup(t, at, preview.Body.String())
	require.Contains(t, text(preview.Body.String()), "3 changed, 0 unchanged.")
	require.Contains(t, text(preview.Body.String()), `/data/currency "EUR"`)
	require.Contains(t, text(preview.Body.String()), "Repair and redeliver 3")
	b.requireRedirect(t, at, form(`{"data":{"currency":"EUR"}}`, "start"), "done=started")
	b.eventually(t, 3, `SELECT count(*) FROM postrider.deliveries WHERE edit = '{"data": {"currency": "EUR"}}'`)
	require.Equal(t, "3", b.value(t, "SELECT expected_count FROM postrider.operations"))
}
