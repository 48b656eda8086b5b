package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lettersOf makes n dead letters of one event subscription, the oldest first.
func (s *service) deadLettersOf(topic, subscription string, n int) (ids []string) {
	s.t.Helper()
	for i := range n {
		id := fmt.Sprintf("0198c5a0-7b1e-7c3a-9d52-%012d", i)
		s.change(`INSERT INTO postrider_internal.dead_letters (id, dead_lettered_at, delivery_id, subscription_id, topic_id,
			    topic, subscription, endpoint_base_url, reason, attempts, last_status, time_to_live_since,
			published_at, event_uuid, event_id, event_type, subject, source, data_version, schema, retry_policy, body)
			SELECT $1, now() - interval '1 hour' + $2 * interval '1 second', $2, s.id, s.topic_id, t.name, s.name, '',
			       'MaxDeliveryAttemptsExceeded', 30, 503, now(), now(), gen_random_uuid(), 'e-' || $2,
			'Shop.OrderPlaced', 'orders/a b&' || $2, '', '1', 'EventGridSchema', 'ga-2021', '{"id":"e"}'
			FROM postrider_internal.event_subscriptions s JOIN postrider_internal.topics t ON t.id = s.topic_id WHERE t.name = $3
			    AND s.name = $4`, id, i, topic, subscription)
		ids = append(ids, id)
	}
	return ids
}

func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	ids := s.deadLettersOf("orders", "billing", 5)
	var listed []string
	query := url.Values{
		"limit": {"2"}, "subjectPrefix": {"orders/a b&"}, "lastStatus": {"503"}, "redelivered": {"false"},
		"deadLetteredFrom": {"2024-01-01T00:00:00+02:00"},
	}
	for link, pages := "/v1/deadLetters?"+query.Encode(), 0; link != ""; pages++ {
		require.Less(t, pages, 3)
		response := s.get(link)
		require.Equal(t, http.StatusOK, response.status, response.body)
		page := response.value().(map[string]any)
		for _, l := range page["value"].([]any) {
			listed = append([]string{l.(map[string]any)["deadLetterId"].(string)}, listed...)
		}
		link, _ = page["nextLink"].(string)
	}
	require.Equal(t, ids, listed)
	require.Contains(t, s.get("/v1/deadLetters?eventId=nothing").body, `"value":[]`)
	for query, target := range map[string]string{
		"cursor=bm90aGluZw": "cursor", "limit=0": "limit", "deadLetteredUntil=now": "deadLetteredUntil",
		"reason=%00": "reason",
	} {
		response := s.get("/v1/deadLetters?" + query)
		response.rejected(400, "InvalidRequest")
		require.Contains(t, response.body, `"target":"`+target+`"`)
	}
	s.get("/v1/deadLetters?lastStatus=x").is(400)
}

// A search is text in an address, and text or conditions in a body. What ended before its page was full continues.
func TestDeadLettersAreSearched(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	ids := s.deadLettersOf("orders", "billing", 3)
	s.change(`UPDATE postrider_internal.dead_letters SET body = '{"data":{"n":1}}' WHERE id = $1`, ids[1])
	list := func(search string) response {
		return s.get("/v1/deadLetters?search=" + url.QueryEscape(search))
	}
	for search, want := range map[string]int{"data.n = 1": 1, "id : E- data.n > 1": 0, "id : E-": 3, "": 3} {
		page := list(search).json(200)
		require.Len(t, page["value"], want, search)
		require.Nil(t, page["nextLink"], search)
		require.NotContains(t, page, "scanned", search)
	}
	wrong := list(`data.n =`).rejected(400, "InvalidRequest")
	require.Equal(t, []string{"search"}, targets(wrong))
	require.Contains(t, list(`data.n =`).body, "at character 9: data.n = has no value after it; for example: ")
	require.Contains(t, list(`error ~ (`).body, "is not a valid regular expression")
	for filter, want := range map[string]string{
		`{"search":"data.n = 1"}`: `"matched":1`, `{"match":[{"field":"data.n","op":"=","value":1}]}`: `"matched":1`,
		`{"search":"id : e-","match":[{"field":"data.n","op":"=","value":2}]}`: `"matched":0`,
		`{"search":"= 1"}`: `"target":"filter.search"`,
		`{"match":[{"field":"data.n","op":"is","value":1}]}`: "must be one of",
	} {
		for _, action := range []string{"redeliver", "purge"} {
			response := s.post("/v1/deadLetters/"+action, `{"dryRun":true,"filter":`+filter+`}`)
			require.Contains(t, response.body, want, filter)
		}
	}
	s.rows(`CREATE OR REPLACE FUNCTION postrider_internal.find_dead_letters(filter jsonb, after_at timestamptz,
			after_id uuid, ascending boolean, enough integer, most integer, scan_limit integer, time_limit interval,
			OUT ids uuid[], OUT scanned bigint, OUT reached_at timestamptz, OUT reached_id uuid, OUT condition text)
		LANGUAGE sql AS $$ SELECT '{}'::uuid[], 12345::bigint, now(), gen_random_uuid(), 'true' WHERE after_at IS NULL
			UNION ALL SELECT '{}', 0, NULL, NULL, 'true' WHERE after_at IS NOT NULL $$`)
	page := list("refund").json(200)
	require.EqualValues(t, 12345, page["scanned"])
	link := page["nextLink"].(string)
	require.Contains(t, link, "search=refund")
	require.Nil(t, s.get(link).json(200)["nextLink"])
}

func TestDeadLetterRejections(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	id := s.deadLettersOf("orders", "billing", 1)[0]
	const (
		unknown = "00000000-0000-0000-0000-000000000000"
		letters = "/v1/deadLetters/"
		past    = `"from":"2024-01-01T00:00:00Z"`
	)
	missing := strings.Replace(billing, "billing", "none", 1) + "/redeliverEvents"
	for _, row := range []struct {
		method, path, body string
		status             int
		message            string
	}{
		{"GET", letters + "x", "", 404, `dead letter \"x\" does not exist`},
		{"GET", letters + unknown, "", 404, "does not exist"},
		{"DELETE", letters + "x", "", 404, "does not exist"},
		{"DELETE", letters + unknown, "", 404, "does not exist"},
		{"POST", letters + "x/redeliver", "", 404, "does not exist"},
		{"POST", letters + unknown + "/redeliver", "", 404, "does not exist"},
		{"POST", letters + id + "/redeliver", `{"topic":"orders"}`, 400, "subscription is required with topic"},
		{"POST", letters + id + "/redeliver", `{"subscription":"\u0000"}`, 400, "must be UTF-8 without the character 0"},
		{
			"POST", letters + id + "/redeliver", `{"subscription":"none"}`, 400,
			`topic \"orders\" has no event subscription \"none\"`,
		},
		{"POST", letters + "redeliver", ``, 400, "filter is required"},
		{"POST", letters + "redeliver", `{"filter":{"topik":"x"}}`, 400, "filter.topik is not a member"},
		{
			"POST", letters + "redeliver", `{"filter":{"deadLetterIds":["x"]}}`, 400,
			"filter.deadLetterIds[0] must be a UUID, not",
		},
		{"POST", letters + "redeliver", `{"filter":{"deadLetterIds":[]}}`, 400, "must have between 1 and 10000 ids, not 0"},
		{"POST", letters + "redeliver", `{"filter":{},"ratePerSecond":0}`, 400, "ratePerSecond must be between 1 and"},
		{"POST", letters + "redeliver", `{"filter":{},"subscription":"billing"}`, 400, "topic is required with subscription"},
		{"POST", letters + "purge", `{"filter":null}`, 400, "filter is required"},
		{
			"POST", letters + "purge", `{"filter":{"deadLetteredFrom":"x"}}`, 400,
			"filter.deadLetteredFrom must be an RFC 3339 time",
		},
		{"POST", letters + "repair", `{"mergePatch":{}}`, 400, "filter is required"},
		{"POST", letters + "repair", `{"filter":{},"mergePatch":[]}`, 400, "mergePatch must be an object"},
		{"POST", letters + "repair", `{"filter":{},"patch":[]}`, 400, "patch is not a member"},
		{
			"POST", letters + "repair", `{"filter":{},"mergePatch":{},"expectedCount":-1}`, 400,
			"expectedCount must be 0 or more, not -1",
		},
		{"GET", "/v1/operations/x", "", 404, `operation \"x\" does not exist`},
		{"GET", "/v1/operations/" + unknown, "", 404, "does not exist"},
		{"POST", "/v1/operations/" + unknown + "/cancel", "", 404, "does not exist"},
		{"POST", missing, `{` + past + `}`, 404, `topic \"orders\" has no event subscription \"none\"`},
		{"POST", missing, `{` + past + `,"dryRun":true}`, 404, `topic \"orders\" has no event subscription \"none\"`},
		{"POST", billing + "/redeliverEvents", ``, 400, "from must be an RFC 3339 time"},
		{"POST", billing + "/redeliverEvents", `{"from":"2999-01-01T00:00:00Z"}`, 400, "from must be in the past"},
		{
			"POST", billing + "/redeliverEvents", `{` + past + `,"until":"2024-01-01T00:00:00Z"}`, 400,
			"from must be before until",
		},
		{"POST", "/v1/deliveries/cancel", `{}`, 400, "filter is required; {} matches all pending deliveries"},
		{"POST", "/v1/deliveries/cancel", `{"filter":{"state":"delivered"}}`, 400, "filter.state must be pending"},
		{"POST", "/v1/deliveries/cancel", `{"filter":{"topic":"\u0000"}}`, 400, "filter.topic must be UTF-8"},
		{"POST", "/v1/deliveries/cancel", `{"filter":{"hold":"none"}}`, 400, "filter.hold must be one of"},
		{
			"POST", "/v1/deliveries/cancel", `{"filter":{"deliveryIds":[` + strings.Repeat("1,", 10_000) + `1]}}`, 400,
			"filter.deliveryIds must have between 1 and 10000 ids, not 10001",
		},
	} {
		response := s.manage(row.method, row.path, row.body)
		require.Equal(t, row.status, response.status, "%s %s %.99s: %s", row.method, row.path, row.body, response.body)
		require.Contains(t, response.body, row.message)
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.operations"))
	require.Zero(t, s.count("SELECT count(*) FROM postrider.deliveries"))
	s.post(letters+id+"/redeliver", "").is(200)
	again := s.post(letters+id+"/redeliver", "{}")
	require.Contains(t, again.rejected(409, "DeadLetterRedelivered").Message, "was redelivered already")
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.audit WHERE action = 'dead_letter_redelivered' "+
		"AND actor = 'admin' AND address IS NOT NULL"))
}

func TestRepairDeadLetter(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	id := s.deadLettersOf("orders", "billing", 1)[0]
	at := "/v1/deadLetters/" + id
	read := s.get(at)
	tag := read.header.Get("ETag")
	require.Regexp(t, `^"[0-9]+"$`, tag)
	require.Equal(t, tag, read.value().(map[string]any)["etag"])
	send := func(body, match string) response {
		return s.send(http.MethodPost, at+"/redeliver", body, "Authorization", "Bearer "+adminToken, "If-Match", match)
	}
	const event = `{"id":"e",  "eventType":"\u0054","subject":"<&>","eventTime":"2026-01-01T00:00:00Z","data":1e400}`
	for body, message := range map[string]string{
		`{"event":[]}`:         "expected one event (an object), found an array",
		`{"event":"x"}`:        "expected one event (an object), found a string",
		`{"event":null}`:       "expected one event (an object), found null",
		`{"event":{"id":"e"}}`: `event.subject: is required`,
		`{"event":{"id":1}}`:   `"target":"event.id"`,
	} {
		rejected := send(body, tag)
		require.Equal(t, 400, rejected.status, rejected.body)
		require.Contains(t, rejected.body, message)
	}
	large := fmt.Sprintf(`{"event":{"id":"e","data":%q}}`, strings.Repeat("x", 1<<20))
	send(large, tag).rejected(413, "PayloadTooLarge")
	send(`{"event":`+event+`}`, `"1"`).rejected(412, "PreconditionFailed")
	done := send(`{"event": `+event+` }`, tag)
	require.Equal(t, 200, done.status, done.body)
	require.Equal(t, 1, s.count("SELECT count(*) FROM postrider.events WHERE body_text = $1", event), "byte for byte")
	send(`{"event":`+event+`,"again":true}`, tag).rejected(412, "PreconditionFailed")
	send(`{"again":true}`, tag).rejected(412, "PreconditionFailed")
	send(`{"event":`+event+`}`, "*").rejected(409, "DeadLetterRedelivered")

	delivery := s.get(fmt.Sprintf("/v1/deliveries/%v", done.value().(map[string]any)["deliveryId"]))
	require.Contains(t, delivery.body, `"editedBy":"admin"`)
	require.Contains(t, delivery.body, `"edit":{"data":1000`)
	require.Contains(t, s.get("/v1/events?eventId=e").body, `"editedBy":"admin"`)
	systemID := s.rows("SELECT system_id::text AS id FROM postrider_internal.repairs")[0]["id"].(string)
	require.Contains(t, s.get("/v1/events/"+systemID).body, `"edit":{"data":1`)
	require.True(t, strings.HasSuffix(s.get("/v1/events/"+systemID).body, `,"event":`+event+"}"))
}

// internal/operator has what operations do.
func TestOperationsAreStarted(t *testing.T) {
	t.Parallel()
	s, key := withBilling(t)
	ids := s.deadLettersOf("orders", "billing", 2)
	filter := fmt.Sprintf(`"filter":{"deadLetterIds":["%s","%s"]}`, ids[0], ids[1])
	const patch = `,"mergePatch":{"subject":"s","eventType":"t","eventTime":"2026-01-01T00:00:00Z","data":1e400}`
	preview := s.post("/v1/deadLetters/repair", `{"dryRun":true,`+filter+patch+`}`).is(200)
	require.Contains(t, preview.body, `{"matched":2,"atLeast":false,"changed":2,"unchanged":0,`)
	require.Equal(t, 2, strings.Count(preview.body, `{"path":"/data","after":1e400}`))
	started := s.post("/v1/deadLetters/repair", `{"expectedCount":2,`+filter+patch+`}`).json(202)
	require.Equal(t, []any{"repair", 2.0, true, []any{"/subject", "/eventType", "/eventTime", "/data"}},
		[]any{started["kind"], started["expectedCount"], started["counting"], started["paths"]})

	s.events(key, "1", "2", "3")
	dry := s.post("/v1/deliveries/retryNow",
		`{"dryRun":true,"filter":{"topic":"orders","createdUntil":"2100-01-01T00:00:00Z"}}`).json(200)
	require.EqualValues(t, 3, dry["matched"])
	started = s.post("/v1/deliveries/cancel", `{"expectedCount":3,"filter":{"deliveryIds":[1,2,2]}}`).json(202)
	require.Equal(t, []any{"cancel", map[string]any{"deliveryIds": []any{1.0, 2.0, 2.0}}, map[string]any{}},
		[]any{started["kind"], started["deliveryFilter"], started["filter"]})
}

// The event of a dead letter is shown as stored: white space, escapes and digits of numbers included.
func TestEventsAreShownByteForByte(t *testing.T) {
	t.Parallel()
	s, _ := withBilling(t)
	id := s.deadLettersOf("orders", "billing", 1)[0]
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
