package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func withFilter(filter string) string {
	return `{"endpointUrl":"https://example.com","filter":` + filter + `}`
}

func TestAdvancedFiltersKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	const filters = `[{"key":"data.n","operatorType":"NumberIn","values":[12345678901234567890,1.50,1e2]},` +
		`{"key":"data.n","operatorType":"NumberInRange","values":[[-0.10,1E+30]]},` +
		`{"key":"data.n","operatorType":"NumberGreaterThan","value":0.30000000000000000004},` +
		`{"key":"subject","operatorType":"StringBeginsWith","values":["ORDERS/"]},{"key":"data","operatorType":"IsNotNull"}]`
	s.subscription("orders", "billing",
		withFilter(`{"enableAdvancedFilteringOnArrays":true,"advancedFilters":`+filters+`}`))
	require.Contains(t, s.get(billing).body, `"advancedFilters":`+filters+`,"enableAdvancedFilteringOnArrays":true`)
	require.Equal(t, 1, s.count(`SELECT count(*) FROM postrider.event_subscriptions
		WHERE filter #> '{advancedFilters,0,values}' = '[12345678901234567890, 1.5, 100]'`))

	require.Equal(t, http.StatusOK, s.publish("orders", key,
		"["+gridEvent("1")+","+strings.Replace(gridEvent("2"), "12345678901234567890", "12345678901234567891", 1)+"]").status)
	require.Equal(t, []map[string]any{{"event_id": "1"}}, s.rows("SELECT event_id FROM postrider.deliveries"),
		"one digit decides")

	s.put(billing, withFilter(`{"advancedFilters":[{"key":"id","operatorType":"IsNotNull","value":null,"values":null}]}`)).
		json(200)
	require.Contains(t, s.get(billing).body,
		`"advancedFilters":[{"key":"id","operatorType":"IsNotNull"}],"enableAdvancedFilteringOnArrays":false`)
	s.put(billing, withFilter(`{"advancedFilters":null}`)).json(200)
	require.Contains(t, s.get(billing).body, `"advancedFilters":[],"enableAdvancedFilteringOnArrays":false`)
}

// internal/filter has the rejections of each operator.
func TestAdvancedFilterRejections(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.topic("orders", "")
	const valid = `{"operatorType":"IsNotNull","key":"id"}`
	for filters, want := range map[string][2]string{ // the target and the message
		valid + "," + valid + `,{"operatorType":"NumberIn","key":"a","values":["x"]}`: {"[2].values[0]", "must be a number"},
		`{"operatorType":"NumberInRange","key":"a","values":[[1,2],[2,1]]}`: {
			"[0].values[1]", "must be [from, to] with from not greater than to, not [2, 1]",
		},
		`{"operatorType":"StringLike","key":"a"}`:          {"[0].operatorType", "must be one of NumberIn, NumberNotIn,"},
		`{"operatorType":"IsNotNull"}`:                     {"[0].key", "is required"},
		`{"operatorType":"IsNotNull","kye":"id"}`:          {"[0].kye", "is not a member"},
		`{"operatorType":"NumberIn","key":"a","values":7}`: {".values", "must be an array"},
		strings.Repeat(valid+",", 25) + valid:              {"", "must have at most 25 entries, has 26"},
	} {
		rejection := s.put(billing, withFilter(`{"advancedFilters":[`+filters+`]}`)).rejected(400, "InvalidRequest")
		target := "filter.advancedFilters" + want[0]
		require.Equal(t, []string{target}, targets(rejection), filters)
		require.Contains(t, rejection.Message, target+" "+want[1], filters)
	}
	require.Zero(t, s.count("SELECT count(*) FROM postrider.event_subscriptions"))
}

// A stored filter and one that is not stored yet can be tested. internal/filter has the reasons.
func TestFilterIsTested(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("orders", "")
	s.topic("other", "")
	const settings = `{"subjectEndsWith":"1","advancedFilters":[{"key":"data.n","operatorType":"NumberLessThan",` +
		`"value":7}]}`
	s.subscription("orders", "billing", withFilter(settings))
	const stored, given = billing + "/testFilter", "/v1/topics/orders/testFilter"
	require.Equal(t, `{"value":[]}`, strings.TrimSpace(s.post(stored, "").body))
	s.events(key, "1", "2")
	const (
		large = `{"clause":"advancedFilters[0]","passed":false,"why":"data.n is 12345678901234567890, but must be less ` +
			`than 7"}`
		passed = `{"clause":"subjectEndsWith","passed":true,"why":null}`
		failed = `{"clause":"subjectEndsWith","passed":false,"why":"the subject is \"orders/2\", but must end with \"1\""}`
		newest = `{"clauses":[` + failed + `,` + large +
			`],"id":"2","eventType":"Shop.OrderPlaced","subject":"orders/2","matched":false}`
		earlier = `{"clauses":[` + passed + `,` + large +
			`],"id":"1","eventType":"Shop.OrderPlaced","subject":"orders/1","matched":false}`
		matched = `{"clauses":[` + passed + `,{"clause":"advancedFilters[0]","passed":true,"why":null}],"id":"9/1",` +
			`"eventType":"Shop.OrderPlaced","subject":"orders/9/1","matched":true}`
	)
	for path, with := range map[string]string{stored: "", given: `,"filter":` + settings} {
		test := func(body string) response { return s.post(path, strings.Replace(body, "}", with+"}", 1)) }
		require.JSONEq(t, `{"value":[`+newest+`,`+earlier+`]}`, test(`{"last":50}`).body, path)
		require.JSONEq(t, `{"value":[`+newest+`]}`, test(`{"last":1}`).body, path)
		event := strings.Replace(gridEvent("9/1"), "12345678901234567890", "6.99", 1)
		require.JSONEq(t, `{"value":[`+matched+`]}`, s.post(path, `{"event":`+event+with+`}`).body, path)
		for body, want := range map[string][2]string{
			`{"last":0}`:                         {"last", "last must be between 1 and 50, not 0"},
			`{"last":51}`:                        {"last", "last must be between 1 and 50, not 51"},
			`{"last":1,"event":{}}`:              {"last", "last must be absent with event"},
			`{"event":[]}`:                       {"event", "event must be an object: one event in schema EventGridSchema"},
			`{"events":[]}`:                      {"events", "events is not a member; the members are: event, "},
			`{"event":{"id":"1","subject":"s"}}`: {"event.eventType", "event.eventType: is required"},
		} {
			rejected := s.post(path, body).is(400).body
			require.Contains(t, rejected, `"target":"`+want[0]+`"`, body)
			require.Contains(t, rejected, want[1], body)
		}
	}
	require.Equal(t, 2, s.count("SELECT count(*) FROM postrider.events"), "nothing is stored")
	require.Zero(t, s.count("SELECT count(*) FROM postrider.deliveries"))

	everything := s.post(given, "").json(200)["value"].([]any)
	require.Len(t, everything, 2)
	require.Equal(t, []any{}, everything[0].(map[string]any)["clauses"], "no filter matches every event")
	for filter, target := range map[string]string{ // the same checks as in a PUT
		`{"includedEventTypes":[""]}`: "includedEventTypes[0]",
		`{"advancedFilters":[{"operatorType":"NumberIn","key":"a","values":["x"]}]}`: "advancedFilters[0].values[0]",
	} {
		rejected := s.post(given, `{"filter":`+filter+`}`).rejected(400, "InvalidRequest")
		require.Equal(t, []string{"filter." + target}, targets(rejected))
	}
	s.post("/v1/topics/other/subscriptions/billing/testFilter", "").rejected(404, "NotFound")
	s.post("/v1/topics/nowhere/testFilter", "").rejected(404, "NotFound")
}

func TestFilterIsTestedOnEverySchema(t *testing.T) {
	t.Parallel()
	s := setup(t)
	key := s.topic("own", customTopic)
	s.topic("cloud", `{"kind":"namespace"}`)
	s.subscription("own", "billing",
		withFilter(`{"advancedFilters":[{"key":"data.orderId","operatorType":"NumberIn","values":[7]},{"key":"id",`+
			`"operatorType":"StringIn","values":["7"]}]}`))
	s.subscription("cloud", "billing",
		withFilter(`{"advancedFilters":[{"key":"source","operatorType":"StringIn","values":["/shop"]}]}`))
	s.publish("own", key, `{"orderId":7}`).is(200)
	for topic, body := range map[string]string{"own": `{}`, "cloud": `{"event":` + cloudEvent("1") + `}`} {
		tested := s.post("/v1/topics/"+topic+"/subscriptions/billing/testFilter", body).json(200)
		require.Equal(t, true, tested["value"].([]any)[0].(map[string]any)["matched"], topic)
	}
}
