package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// internal/query and internal/operator have what filters and searches find.
func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	var ids []any
	for _, id := range s.tn.DeadLetters(t, "orders", "e", 3) {
		ids = append([]any{id.String()}, ids...)
	}
	s.change(`UPDATE postrider_internal.dead_letters SET body = '{"data":{"n":1}}' WHERE id = $1`, ids[1])
	query := url.Values{
		"limit": {"2"}, "subjectPrefix": {"subject/"}, "lastStatus": {"400"}, "state": {"open"},
		"deadLetteredFrom": {"2024-01-01T00:00:00+02:00"},
	}
	listed, pages := s.listAll("/v1/deadLetters?"+query.Encode(), "deadLetterId")
	require.Equal(t, ids, listed)
	require.Equal(t, 2, pages)
	require.Equal(t, []string{"cursor"},
		targets(s.get("/v1/deadLetters?cursor=bm90aGluZw").rejected(400, "InvalidRequest")))

	list := func(search string) response {
		return s.get("/v1/deadLetters?search=" + url.QueryEscape(search))
	}
	page := list("data.n = 1").json(200)
	require.Len(t, page["value"], 1)
	require.NotContains(t, page, "scanned")
	require.Equal(t, []string{"search"}, targets(list(`data.n =`).rejected(400, "InvalidRequest")))
	require.Contains(t, list(`error ~ (`).body, "is not a valid regular expression")
	for filter, want := range map[string]string{
		`{"search":"id : e-","match":[{"field":"data.n","op":"=","value":1}]}`: `"matched":1`,
		`{"search":"= 1"}`: `"target":"filter.search"`,
		`{"match":[{"field":"data.n","op":"is","value":1}]}`: "must be one of",
	} {
		response := s.post("/v1/deadLetters/redeliver", `{"dryRun":true,"filter":`+filter+`}`)
		require.Contains(t, response.body, want, filter)
	}
	// What ended before its page was full continues.
	s.rows(`CREATE OR REPLACE FUNCTION postrider_internal.find_dead_letters(filter jsonb, after_at timestamptz,
			after_id uuid, ascending boolean, enough integer, most integer, scan_limit integer, time_limit interval,
			OUT ids uuid[], OUT scanned bigint, OUT reached_at timestamptz, OUT reached_id uuid, OUT condition text)
		LANGUAGE sql AS $$ SELECT '{}'::uuid[], 12345::bigint, now(), gen_random_uuid(), 'true' WHERE after_at IS NULL
			UNION ALL SELECT '{}', 0, NULL, NULL, 'true' WHERE after_at IS NOT NULL $$`)
	page = list("refund").json(200)
	require.EqualValues(t, 12345, page["scanned"])
	link := page["nextLink"].(string)
	require.Contains(t, link, "search=refund")
	require.Nil(t, s.get(link).json(200)["nextLink"])
}

func TestDeadLetterRejections(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	const (
		unknown  = "00000000-0000-0000-0000-000000000000"
		letters  = "/v1/deadLetters/"
		events   = billing + "/redeliverEvents"
		past     = `"from":"2024-01-01T00:00:00Z"`
		noBill   = `topic \"orders\" has no event subscription \"none\"`
		isAbsent = "does not exist"
	)
	id := letters + s.tn.DeadLetters(t, "orders", "e", 1)[0].String()
	for _, row := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"GET", letters + "x", "", 404, `dead letter \"x\" does not exist`},
		{"DELETE", letters + unknown, "", 404, isAbsent},
		{"POST", letters + unknown + "/redeliver", "", 404, isAbsent},
		{"POST", id + "/redeliver", `{"topic":"orders"}`, 400, "subscription is required with topic"},
		{"POST", id + "/redeliver", `{"subscription":"none"}`, 400, noBill},
		{"POST", letters + "redeliver", ``, 400, "filter is required"},
		{"POST", letters + "redeliver", `{"filter":{"topik":"x"}}`, 400, "filter.topik is not a member"},
		{"POST", letters + "redeliver", `{"filter":{"deadLetterIds":["x"]}}`, 400, "deadLetterIds[0] must be a UUID, not"},
		{"POST", letters + "redeliver", `{"filter":{"deadLetterIds":[]}}`, 400, "must have between 1 and 10000 ids, not 0"},
		{"POST", letters + "redeliver", `{"filter":{},"ratePerSecond":0}`, 400, "ratePerSecond must be between 1 and"},
		{"POST", letters + "redeliver", `{"filter":{},"subscription":"billing"}`, 400, "topic is required with subscription"},
		{"POST", letters + "purge", `{"filter":null}`, 400, "filter is required"},
		{"POST", letters + "repair", `{"mergePatch":{}}`, 400, "filter is required"},
		{"POST", letters + "repair", `{"filter":{},"mergePatch":[]}`, 400, "mergePatch must be an object"},
		{"POST", letters + "repair", `{"filter":{},"mergePatch":{},"expectedCount":-1}`, 400, "expectedCount must be 0 or"},
		{"GET", "/v1/operations/x", "", 404, `operation \"x\" does not exist`},
		{"POST", "/v1/operations/" + unknown + "/cancel", "", 404, isAbsent},
		{"POST", strings.Replace(events, "billing", "none", 1), `{` + past + `,"dryRun":true}`, 404, noBill},
		{"POST", events, ``, 400, "from must be an RFC 3339 time"},
		{"POST", events, `{"from":"2999-01-01T00:00:00Z"}`, 400, "from must be in the past"},
		{"POST", events, `{` + past + `,"until":"2024-01-01T00:00:00Z"}`, 400, "from must be before until"},
		{"POST", "/v1/deliveries/cancel", `{}`, 400, "filter is required; {} matches all pending deliveries"},
		{"POST", "/v1/deliveries/cancel", `{"filter":{"state":"delivered"}}`, 400, "filter.state must be pending"},
		{"POST", "/v1/deliveries/cancel", `{"filter":{"hold":"none"}}`, 400, "filter.hold must be one of"},
	} {
		response := s.manage(row.method, row.path, row.body)
		require.Equal(t, row.status, response.status, "%s %s %.99s: %s", row.method, row.path, row.body, response.body)
		require.Contains(t, response.body, row.message)
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.operations"))
	require.Zero(t, s.count("SELECT count(*) FROM postrider.deliveries WHERE state = 'pending'"))
	s.post(id+"/redeliver", "").is(200)
	again := s.post(id+"/redeliver", "{}")
	require.Contains(t, again.rejected(409, "DeadLetterRedelivered").Message, "was redelivered already")
}

// internal/operator has what a resolution changes and rejects.
func TestResolveDeadLetters(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	const letters, unknown = "/v1/deadLetters", "00000000-0000-0000-0000-000000000000"
	at := letters + "/" + s.tn.DeadLetters(t, "orders", "e", 3)[0].String()
	resolved := s.post(at+"/resolve", `{"note":"refunded"}`).json(200)
	require.Equal(t, []any{"resolved", "refunded", "admin"},
		[]any{resolved["state"], resolved["resolvedNote"], resolved["resolvedBy"]})
	require.NotNil(t, resolved["event"])
	require.Len(t, s.get(letters + "?state=open").json(200)["value"], 2)
	require.Len(t, s.get(letters).json(200)["value"], 3, "without a state, all")
	s.get(letters + "?state=closed").is(400)
	require.Equal(t, "open", s.post(at+"/reopen", "").json(200)["state"])
	require.Equal(t, "resolved", s.post(at+"/resolve", "").json(200)["state"])
	s.post(at+"/resolve", `{"note":"`+strings.Repeat("x", 1001)+`"}`).is(400)
	s.post(letters+"/"+unknown+"/resolve", "").is(404)
	s.post(letters+"/"+unknown+"/reopen", "").is(404)

	require.EqualValues(t, 2, s.post(letters+"/resolve", `{"filter":{},"dryRun":true}`).json(200)["matched"])
	started := s.post(letters+"/resolve", `{"filter":{},"note":"outage","expectedCount":2}`).json(202)
	require.Equal(t, []any{"resolve", "outage"}, []any{started["kind"], started["note"]})
}

// internal/operator has what a redelivery of an event creates and rejects.
func TestRedeliverEvent(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	s.tn.Publish(t, "orders", "e", 1)
	s.tn.Subscribe(t, "orders", "later", nil)
	at := "/v1/events/" + s.tn.Text(t, "SELECT system_id FROM postrider.events") + "/redeliver"
	s.post(at, `{"subscription":"billing"}`).rejected(409, "DeliveryPending")
	s.post(at, `{"subscription":"later"}`).rejected(409, "EventNotMatched")
	require.NotZero(t, s.post(at, `{"subscription":"later","unmatched":true}`).json(200)["deliveryId"])
	s.post(at, `{}`).is(400)
	s.post(at, `{"subscription":"none"}`).is(400)
	s.post("/v1/events/00000000-0000-0000-0000-000000000000/redeliver", `{"subscription":"later"}`).is(404)
}

// internal/operator has what a repair stores and rejects.
func TestRepairDeadLetter(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	at := "/v1/deadLetters/" + s.tn.DeadLetters(t, "orders", "e", 1)[0].String()
	tag := s.get(at).header.Get("ETag")
	send := func(body, match string) response {
		return s.manage(http.MethodPost, at+"/redeliver", body, "If-Match", match)
	}
	const event = `{"id":"e",  "eventType":"\u0054","subject":"<&>","eventTime":"2026-01-01T00:00:00Z","data":1e400}`
	require.Contains(t, send(`{"event":[]}`, tag).is(400).body, "expected one event (an object), found an array")
	require.Contains(t, send(`{"event":{"id":[]}}`, tag).is(400).body, `"target":"event.id"`)
	large := fmt.Sprintf(`{"event":{"id":"e","data":%q}}`, strings.Repeat("x", 1<<20))
	send(large, tag).rejected(413, "PayloadTooLarge")
	send(`{"event":`+event+`}`, `"1"`).rejected(412, "PreconditionFailed")
	done := send(`{"event": `+event+` }`, tag).json(200)
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.events WHERE body_text = $1", event), "byte for byte")
	send(`{"event":`+event+`,"again":true}`, tag).rejected(412, "PreconditionFailed")
	send(`{"event":`+event+`}`, "*").rejected(409, "DeadLetterRedelivered")

	delivery := s.get(fmt.Sprintf("/v1/deliveries/%v", done["deliveryId"]))
	require.Contains(t, delivery.body, `"editedBy":"admin"`)
	require.Contains(t, delivery.body, `"data":1000`)
	systemID := s.tn.Text(t, "SELECT system_id::text FROM postrider_internal.repairs")
	require.True(t, strings.HasSuffix(s.get("/v1/events/"+systemID).body, `,"event":`+event+"}"))
}

// The event of a dead letter is shown as stored: white space, escapes and digits of numbers included.
func TestEventsAreShownByteForByte(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	id := s.tn.DeadLetters(t, "orders", "e", 1)[0].String()
	const stored = "{ \"id\" :\t\"e\",\r\n  \"data\":{\"<a>\":\"\\u003c & \\/ é\", " +
		"\"n\":123456789012345678901234567890, \"n\":1.0}}"
	s.change(`UPDATE postrider_internal.dead_letters SET body = $2 WHERE id = $1`, id, []byte(stored))
	shown := s.get("/v1/deadLetters/" + id)
	require.Equal(t, http.StatusOK, shown.status)
	require.True(t, strings.HasSuffix(shown.body, `,"event":`+stored+"}"), shown.body)
	require.Equal(t, shown.json(200)["etag"], shown.header.Get("ETag"))
	s.change(`UPDATE postrider_internal.dead_letters SET body = '' WHERE id = $1`, id)
	require.NotContains(t, s.get("/v1/deadLetters/"+id).json(200), "event")
}
