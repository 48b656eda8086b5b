package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"postrider/internal/filter"
	"postrider/server"
)

func withFilter(filter string) string {
	return `{"endpointUrl":"https://example.com","filter":` + filter + `}`
}

func TestAdvancedFiltersKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	const filters = `[{"key":"data.n","operatorType":"NumberIn","values":[12345678901234567890,1.50,1e2]},` +
		`{"key":"data.n","operatorType":"NumberInRange","values":[[-0.10,1E+30]]},` +
		`{"key":"data.n","operatorType":"NumberGreaterThan","value":0.30000000000000000004},` +
		`{"key":"subject","operatorType":"StringBeginsWith","values":["ORDERS/"]},{"key":"data","operatorType":"IsNotNull"}]`
	b.subscription("orders", "billing",
		withFilter(`{"enableAdvancedFilteringOnArrays":true,"advancedFilters":`+filters+`}`))
	require.Contains(t, b.manage(http.MethodGet, billing, "").body,
		`"advancedFilters":`+filters+`,"enableAdvancedFilteringOnArrays":true`)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM postrider.event_subscriptions
		WHERE filter #> '{advancedFilters,0,values}' = '[12345678901234567890, 1.5, 100]'`))

	require.Equal(t, http.StatusOK, b.publish("orders", key,
		"["+gridEvent("1")+","+strings.Replace(gridEvent("2"), "12345678901234567890", "12345678901234567891", 1)+"]").status)
	require.Equal(t, []map[string]any{{"event_id": "1"}}, b.rows("SELECT event_id FROM postrider.deliveries"),
		"one digit decides")

	b.manage(http.MethodPut, billing,
		withFilter(`{"advancedFilters":[{"key":"id","operatorType":"IsNotNull","value":null,"values":null}]}`)).
		json(http.StatusOK)
	require.Contains(t, b.manage(http.MethodGet, billing, "").body,
		`"advancedFilters":[{"key":"id","operatorType":"IsNotNull"}],"enableAdvancedFilteringOnArrays":false`)
	b.manage(http.MethodPut, billing, withFilter(`{"advancedFilters":null}`)).json(http.StatusOK)
	require.Contains(t, b.manage(http.MethodGet, billing, "").body,
		`"advancedFilters":[],"enableAdvancedFilteringOnArrays":false`)
}

func TestAdvancedFilterRejections(t *testing.T) {
	t.Parallel()
	b := setup(t)
	small := setup(t, func(o *server.Options) {
		o.FilterLimits = filter.Limits{MaxFilters: 1, MaxValues: 2, MaxStringLength: 3}
	})
	b.topic("orders", "")
	small.topic("orders", "")
	const sound = `{"operatorType":"IsNotNull","key":"id"}`
	for name, row := range map[string]struct {
		server              *bundle
		filters, target, is string
	}{
		"a value": {
			b, sound + "," + sound + `,{"operatorType":"NumberIn","key":"a","values":["x"]}`, "[2].values[0]",
			"must be a number",
		},
		"a range": {
			b, `{"operatorType":"NumberInRange","key":"a","values":[[1,2],[2,1]]}`, "[0].values[1]",
			"must be [from, to] with from not greater than to, not [2, 1]",
		},
		"an operator": {
			b, `{"operatorType":"StringLike","key":"a"}`, "[0].operatorType", "must be one of NumberIn, NumberNotIn,",
		},
		"no key":             {b, `{"operatorType":"IsNotNull"}`, "[0].key", "is required"},
		"values that is one": {b, `{"operatorType":"NumberIn","key":"a","values":7}`, ".values", "must be an array"},
		"26 filters":         {b, strings.Repeat(sound+",", 25) + sound, "", "must have at most 25 entries, has 26"},
		"limits of filters":  {small, sound + "," + sound, "", "must have at most 1 entries, has 2"},
		"limits of values": {small, `{"operatorType":"NumberIn","key":"a","values":[1,2,3]}`, "", "must have at most 2 " +
			"values in all filters together, has 3"},
		"limits of strings": {small, `{"operatorType":"StringIn","key":"a","values":["four"]}`, "[0].values[0]", "must be " +
			"at most 3 characters long, is 4"},
	} {
		rejection := row.server.manage(http.MethodPut, billing, withFilter(`{"advancedFilters":[`+row.filters+`]}`)).
			rejected(400, "InvalidRequest")
		require.Equal(t, []string{"filter.advancedFilters" + row.target}, targets(rejection), name)
		require.Contains(t, rejection.Message, "filter.advancedFilters"+row.target+" "+row.is, name)
	}
	require.Zero(t, b.count("SELECT count(*) FROM postrider.event_subscriptions"))
}

func TestFilterIsTested(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	b.topic("other", "")
	b.subscription("orders", "billing",
		withFilter(`{"subjectEndsWith":"1","advancedFilters":[{"key":"data.n","operatorType":"NumberLessThan","value":7}]}`))
	const path = billing + "/testFilter"
	require.Equal(t, `{"value":[]}`, strings.TrimSpace(b.manage(http.MethodPost, path, "").body))
	for _, id := range []string{"1", "2"} {
		require.Equal(t, http.StatusOK, b.publish("orders", key, "["+gridEvent(id)+"]").status)
	}
	const (
		large = `{"clause":"advancedFilters[0]","passed":false,"why":"data.n is 12345678901234567890, but must be less ` +
			`than 7"}`
		passed = `{"clause":"subjectEndsWith","passed":true,"why":null}`
		failed = `{"clause":"subjectEndsWith","passed":false,"why":"the subject is \"orders/2\", but must end with \"1\""}`
		newest = `{"clauses":[` + failed + `,` + large +
			`],"id":"2","eventType":"Shop.OrderPlaced","subject":"orders/2","matched":false}`
		earlier = `{"clauses":[` + passed + `,` + large +
			`],"id":"1","eventType":"Shop.OrderPlaced","subject":"orders/1","matched":false}`
	)
	require.JSONEq(t, `{"value":[`+newest+`,`+earlier+`]}`, b.manage(http.MethodPost, path, "{}").body)
	require.JSONEq(t, `{"value":[`+newest+`]}`, b.manage(http.MethodPost, path, `{"last":1,"event":null}`).body)
	matching := strings.Replace(gridEvent("9/1"), "12345678901234567890", "6.99", 1)
	require.JSONEq(t,
		`{"value":[{"clauses":[`+passed+`,{"clause":"advancedFilters[0]","passed":true,"why":null}],"id":"9/1",`+
			`"eventType":"Shop.OrderPlaced","subject":"orders/9/1","matched":true}]}`,
		b.manage(http.MethodPost, path, `{"event":`+matching+`}`).body)
	require.Equal(t, 2, b.count("SELECT count(*) FROM postrider.events"), "nothing is stored")
	require.Zero(t, b.count("SELECT count(*) FROM postrider.deliveries"))

	for body, want := range map[string][2]string{
		`{"last":0}`:                         {"last", "last must be between 1 and 50, not 0"},
		`{"last":51}`:                        {"last", "last must be between 1 and 50, not 51"},
		`{"last":1,"event":{}}`:              {"last", "last must be absent with event"},
		`{"event":[]}`:                       {"event", "event must be an object: one event in schema EventGridSchema"},
		`{"events":[]}`:                      {"events", "events is not a member; the members are: event, last"},
		`{"event":{"id":"1","subject":"s"}}`: {"event.eventType", "event.eventType: is required"},
	} {
		response := b.manage(http.MethodPost, path, body)
		require.Equal(t, http.StatusBadRequest, response.status, body)
		require.Contains(t, response.body, `"target":"`+want[0]+`"`, body)
		require.Contains(t, response.body, want[1], body)
	}
	b.manage(http.MethodPost, "/v1/topics/other/subscriptions/billing/testFilter", "").rejected(404, "NotFound")
}

func TestFilterIsTestedOnEverySchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("own", customTopic)
	b.topic("cloud", `{"kind":"namespace"}`)
	b.subscription("own", "billing",
		withFilter(`{"advancedFilters":[{"key":"data.orderId","operatorType":"NumberIn","values":[7]},{"key":"id",`+
			`"operatorType":"StringIn","values":["7"]}]}`))
	b.subscription("cloud", "billing",
		withFilter(`{"advancedFilters":[{"key":"source","operatorType":"StringIn","values":["/shop"]}]}`))
	require.Equal(t, http.StatusOK, b.publish("own", key, `{"orderId":7}`).status)
	for topic, body := range map[string]string{"own": `{}`, "cloud": `{"event":` + cloudEvent("1") + `}`} {
		tested := b.manage(http.MethodPost, "/v1/topics/"+topic+"/subscriptions/billing/testFilter", body).json(http.StatusOK)
		require.Equal(t, true, tested["value"].([]any)[0].(map[string]any)["matched"], topic)
	}
}

// A filter can be tested before it is stored, with the same checks as in a PUT.
func TestFilterIsTestedBeforeItIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.topic("orders", "")
	const path = "/v1/topics/orders/testFilter"
	for _, id := range []string{"1", "2"} {
		require.Equal(t, http.StatusOK, b.publish("orders", key, "["+gridEvent(id)+"]").status)
	}
	const first, second = `{"clauses":[%],"id":"1","eventType":"Shop.OrderPlaced","subject":"orders/1","matched":true}`,
		`{"clauses":[{"clause":"subjectEndsWith","passed":false,"why":"the subject is \"orders/2\", but must end with ` +
			`\"1\""}],"id":"2","eventType":"Shop.OrderPlaced","subject":"orders/2","matched":false}`
	passed := strings.Replace(first, "%", `{"clause":"subjectEndsWith","passed":true,"why":null}`, 1)
	require.JSONEq(t, `{"value":[`+second+`,`+passed+`]}`,
		b.manage(http.MethodPost, path, `{"filter":{"subjectEndsWith":"1"}}`).body)
	require.JSONEq(t, `{"value":[`+second+`]}`,
		b.manage(http.MethodPost, path, `{"filter":{"subjectEndsWith":"1"},"last":1}`).body)
	require.JSONEq(t, `{"value":[`+passed+`]}`,
		b.manage(http.MethodPost, path, `{"filter":{"subjectEndsWith":"1"},"event":`+gridEvent("1")+`}`).body)
	everything := b.manage(http.MethodPost, path, "").json(http.StatusOK)["value"].([]any)
	require.Len(t, everything, 2)
	require.Equal(t,
		map[string]any{
			"id": "2", "eventType": "Shop.OrderPlaced", "subject": "orders/2", "matched": true, "clauses": []any{},
		}, everything[0], "no filter matches every event")

	rejection := b.manage(http.MethodPost, path, `{"filter":{"includedEventTypes":[""],`+
		`"advancedFilters":[{"operatorType":"NumberIn","key":"a","values":["x"]}]}}`).rejected(400, "InvalidRequest")
	require.Equal(t, []string{"filter.includedEventTypes[0]"}, targets(rejection))
	rejection = b.manage(http.MethodPost, path, `{"filter":{"advancedFilters":[{"operatorType":"NumberIn","key":"a",`+
		`"values":["x"]}]}}`).rejected(400, "InvalidRequest")
	require.Equal(t, []string{"filter.advancedFilters[0].values[0]"}, targets(rejection))
	require.Equal(t, []string{"event"},
		targets(b.manage(http.MethodPost, path, `{"event":[]}`).rejected(400, "InvalidRequest")))
	b.manage(http.MethodPost, "/v1/topics/nowhere/testFilter", "").rejected(404, "NotFound")
	require.Zero(t, b.count("SELECT count(*) FROM postrider.event_subscriptions"))
}
